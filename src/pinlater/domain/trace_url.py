"""Links from a job to its trace: a URL with `{trace_id}`, which the `traceparent` header of the job fills in. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

PLACE = "{trace_id}"
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?", re.ASCII)


def check_trace_url(text: str) -> None:
    """Raises ValueError, in words that follow the text, unless it is a URL with a place for the id."""
    if not re.match(r"https?://[^/\s]", text) or any(c.isspace() for c in text):
        raise ValueError("is no URL: it begins with https:// or http://")
    if PLACE not in text:
        raise ValueError(f"has no {PLACE}, the place for the id of the trace")


def trace_link(url: str, headers: Mapping[str, str]) -> tuple[str, str] | None:
    """The id of the trace of a job with these headers, and the link to it: '' without a URL. None if the job is in no trace."""
    found = _TRACEPARENT.fullmatch(headers.get("traceparent", ""))
    if found is None or found[1] == "0" * 32:
        return None
    return found[1], url.replace(PLACE, found[1])
