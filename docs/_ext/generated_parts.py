"""Makes the generated regions of the pages while Sphinx reads them; `scripts/reference/regions.py` says what a region is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts.reference.regions import rewritten

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def make_regions(_app: Sphinx, _page: str, source: list[str]) -> None:
    """Replaces the regions of a page."""
    source[0] = rewritten(source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("source-read", make_regions)
    return {"parallel_read_safe": True}
