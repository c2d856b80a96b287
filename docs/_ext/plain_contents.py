"""Builds the table of contents from the links of the index pages, so that these are plain Markdown.

Sphinx wants a `toctree` directive, which a Markdown viewer shows as code. This extension adds a hidden one to each page named `index`,
with the pages that it links to, in their order. A link with an anchor adds no entry.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_LINK = re.compile(r"\]\(([\w/-]+)\.md\)")


def add_contents(_app: Sphinx, page: str, source: list[str]) -> None:
    """Appends the hidden table to an index page."""
    if PurePosixPath(page).name == "index":
        entries = "\n".join(dict.fromkeys(_LINK.findall(source[0])))
        source[0] += f"\n```{{toctree}}\n:hidden:\n:maxdepth: 2\n\n{entries}\n```\n"


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("source-read", add_contents)
    return {"parallel_read_safe": True}
