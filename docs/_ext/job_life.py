"""The directive `job-life`: the table of a job's life, drawn from the code that decides it.

Never write that table by hand: the docs would be the second place that says it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from docutils import nodes
from docutils.parsers.rst import Directive

from pinlater.domain.transitions import TRANSITIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sphinx.application import Sphinx

HEADINGS = ("What happens", "To a job that is", "It becomes", "Attempts spent")


def rows() -> list[tuple[str, ...]]:
    """The table's rows in words."""
    return [(t.event.value, t.before.name, t.after.name, str(t.spends) if t.spends else "–") for t in TRANSITIONS]


class JobLife(Directive):
    """Takes no content and no options."""

    option_spec: ClassVar[dict[str, object]] = {}

    def run(self) -> list[nodes.Node]:
        """The table as nodes."""
        group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in HEADINGS), cols=len(HEADINGS))
        group += nodes.thead("", _row(HEADINGS))
        group += nodes.tbody("", *(_row(cells) for cells in rows()))
        return [nodes.table("", group)]


def _row(cells: Sequence[str]) -> nodes.row:
    return nodes.row("", *(nodes.entry("", nodes.paragraph(text=cell)) for cell in cells))


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("job-life", JobLife)
    return {"parallel_read_safe": True}
