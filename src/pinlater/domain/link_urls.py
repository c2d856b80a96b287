"""Links from a job to its trace and to its code: URLs with placeholders that the job fills in. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote

TRACE_PLACES = ("{trace_id}",)
SOURCE_PLACES = ("{file}", "{line}")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?", re.ASCII)
_FRAME = re.compile(r'^[ \t]*File "([^"\n]{1,500})", line (\d{1,9})', re.MULTILINE | re.ASCII)


class LinkUrls(NamedTuple):
    """'' links to nothing. `trace` has a placeholder for the id of a trace, `source` for a file and a line."""

    trace: str = ""
    source: str = ""


NO_LINKS = LinkUrls()


class JobLink(NamedTuple):
    """`url`: '' without one."""

    text: str
    url: str


def check_url(text: str, places: tuple[str, ...]) -> None:
    """Raises ValueError, with a text that continues a sentence about the text, unless it is a URL with all these placeholders."""
    if not re.match(r"https?://[^/\s]", text) or any(c.isspace() for c in text):
        raise ValueError("is not a URL: it must begin with https:// or http://")
    for place in places:
        if place not in text:
            raise ValueError(f"has no {place}")


def trace_link(urls: LinkUrls, headers: Mapping[str, str]) -> JobLink | None:
    """The link to the trace of a job with these headers, or None if it has no trace."""
    found = _TRACEPARENT.fullmatch(headers.get("traceparent", ""))
    if found is None or found[1] == "0" * 32:
        return None
    return JobLink(found[1], urls.trace.replace("{trace_id}", found[1]))


def source_link(urls: LinkUrls, error_text: str) -> JobLink | None:
    """The link to the last line of code in a Python traceback, or None if there is none, or no URL, or the path leads upwards."""
    frames = _FRAME.findall(error_text)
    if not frames or not urls.source:
        return None
    file, line = frames[-1]
    if ".." in file.split("/"):  # a browser would leave the folder that the URL names
        return None
    url = urls.source.replace("{file}", quote(file.lstrip("/"))).replace("{line}", line)
    return JobLink(f"{file}, line {line}", url)
