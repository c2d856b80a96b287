"""The command that adds an extra to this installation."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, distribution
from urllib.parse import unquote, urlsplit


def install_line(extra: str) -> str:
    """A `pip install` command for the extra, from the place that this installation came from: checkout, wheel or index."""
    return f"pip install {_source()}[{extra}]'"


def _source() -> str:
    try:
        recorded = json.loads(distribution("pinlater").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        return "'pinlater"
    url = urlsplit(recorded.get("url", ""))
    if url.scheme != "file":
        return "'pinlater"
    editable = "-e " if recorded.get("dir_info", {}).get("editable") else ""
    return f"{editable}'{unquote(url.path)}"
