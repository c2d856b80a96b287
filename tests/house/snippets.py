"""Reads what a page of the docs tells its reader to do, so that a test can do it.

Bash runs a fenced block in `sh`, Python one in `python`, in the order of the page, in a folder for that page. A `text` block right
after a block that ran is its output; `…` stands for text that differs from run to run. An HTML comment above a block, which no Markdown
viewer shows, says more:

    <!-- not run: REASON -->   the block is only for reading
    <!-- save: NAME -->        the block is a file of that name
    <!-- start: TEXT -->       runs beside the other blocks until the page ends; the next block follows once TEXT is in its output
    <!-- fails -->             the block ends with a status other than 0
    <!-- server -->            (anywhere) a server on SQLite runs before the page begins
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w+)[^\n]*\n(?P<body>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)
_REMARK = re.compile(r"^ *<!-- (?P<key>not run|save|start|fails|server)(?:: *(?P<value>.*?))? -->$", re.MULTILINE)
RUN_LANGUAGES = ("sh", "python")


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, text, first line's number, and the remarks above it."""

    language: str
    text: str
    line: int
    remarks: dict[str, str] = field(default_factory=dict)
    prints: str | None = None

    @property
    def runs(self) -> bool:
        """Whether a test does what it says."""
        return "not run" not in self.remarks and ("save" in self.remarks or self.language in RUN_LANGUAGES)


def blocks(page: str) -> list[Block]:
    """The page's blocks in order; `text` blocks that are output belong to the block before them."""
    found: list[Block] = []
    end = 0
    for fence in _FENCE.finditer(page):
        between = page[end : fence.start()]
        end = fence.end()
        text = re.sub(f"^{fence['indent']}", "", fence["body"], flags=re.MULTILINE)
        remarks = {m["key"]: (m["value"] or "").strip() for m in _REMARK.finditer(between)}
        if fence["language"] == "text" and found and found[-1].runs and "not run" not in remarks:
            last = found.pop()
            found.append(Block(last.language, last.text, last.line, last.remarks, prints=text))
            continue
        found.append(Block(fence["language"], text, page.count("\n", 0, fence.start()) + 1, remarks))
    return found


def needs_server(page: str) -> bool:
    """Whether the page takes a running server for granted."""
    return any(match["key"] == "server" for match in _REMARK.finditer(page))


def missing_line(expected: str, printed: str) -> str | None:
    """The first line of `expected` that `printed` doesn't have, in order; None where all are there."""
    lines = iter(printed.splitlines())
    for wanted in expected.splitlines():
        pattern = ".*".join(re.escape(part.strip()) for part in wanted.split("…"))
        if wanted.strip() not in ("", "…") and not any(re.fullmatch(rf"\s*{pattern}\s*", line) for line in lines):
            return wanted
    return None
