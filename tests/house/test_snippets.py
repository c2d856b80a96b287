"""What the quickstart and the how-to pages tell their readers to do is done here, against a real server on ports of its own."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.house.conftest import REPOSITORY, need_thrift_compiler
from tests.house.reader import Reader
from tests.house.snippets import blocks, missing_line, needs_server

DOCS = REPOSITORY / "docs"
PAGES = sorted(
    str(path.relative_to(DOCS))
    for path in [DOCS / "quickstart.md", *(DOCS / "how-to").glob("*.md")]
    if path.is_file() and any(block.runs for block in blocks(path.read_text()))
)


@pytest.mark.docs
@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", PAGES)
def test_a_reader_who_does_what_the_page_says_gets_what_it_says(page: str, tmp_path: Path) -> None:
    """Docs that were never run are wrong."""
    text = (DOCS / page).read_text()
    if re.search(r"^thrift ", text, re.MULTILINE):
        need_thrift_compiler()
    reader = Reader(tmp_path)
    with ExitStack() as running:
        if needs_server(text):
            running.enter_context(reader.server())
        for block in blocks(text):
            if block.runs:
                reader.do(block, running)


def test_blocks_are_read_with_their_remarks_and_output() -> None:
    """The reader of pages itself."""
    page = "% server\n\n% save: a.py\n```python\nx = 1\n```\n\n```sh\necho 12\n```\n\n```text\n1…\n```\n\n% not run: slow\n```sh\nb\n```\n"
    first, second, third = blocks(page)
    assert needs_server(page)
    assert (first.remarks, first.text, first.runs) == ({"server": "", "save": "a.py"}, "x = 1\n", True)
    assert (second.text, second.prints) == ("echo 12\n", "1…\n")
    assert not third.runs


@pytest.mark.parametrize(
    ("expected", "printed", "missing"),
    [("a…c", "abc", None), ("a\nb", "a\nx\nb", None), ("b\na", "a\nb", "a"), ("12", "112", "12"), ("…", "", None)],
)
def test_output_is_compared_line_by_line_in_order(expected: str, printed: str, missing: str | None) -> None:
    """`…` is the only wildcard."""
    assert missing_line(expected, printed) == missing
