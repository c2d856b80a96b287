"""What the README, the quickstart, the how-to pages and the reference tell their readers to do is done here, against a real server on
ports of its own; and the Python in them has types that hold."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.house.conftest import REPOSITORY, need_program, need_thrift_compiler
from tests.house.reader import Reader
from tests.house.snippets import Block, blocks, missing_line, needs_server
from tests.house.typing_check import assert_types_hold

DOCS = REPOSITORY / "docs"
PAGES = sorted(
    str(path.relative_to(DOCS))
    for path in [DOCS / "quickstart.md", *(DOCS / "how-to").glob("*.md"), *(DOCS / "reference").glob("*.md")]
    if path.is_file() and any(block.runs for block in blocks(path.read_text()))
)


@pytest.mark.docs
@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", PAGES)
def test_a_reader_who_does_what_the_page_says_gets_what_it_says(page: str, tmp_path: Path) -> None:
    text = (DOCS / page).read_text()
    if re.search(r"^thrift ", text, re.MULTILINE):
        need_thrift_compiler()
    if re.search(r"^node ", text, re.MULTILINE):
        need_program("node", "nodejs")
    reader = Reader(tmp_path)
    with ExitStack() as running:
        if needs_server(text):
            running.enter_context(reader.server())
        for block in blocks(text):
            if block.runs:
                reader.do(block, running)


@pytest.mark.docs
def test_minute_five_of_the_readme_works(tmp_path: Path) -> None:
    """The server that its `make serve` starts runs already."""
    reader = Reader(tmp_path)
    worker, producer = (block for block in blocks((REPOSITORY / "README.md").read_text()) if block.language == "python")
    with reader.server(), ExitStack() as running:
        reader.do(worker)
        reader.do(producer)
        reader.do(Block("sh", "python mailer.py", 0, {"start": "newsletter to grace@example.org"}), running)


def shown_python(page: str) -> list[Block]:
    """The blocks of a page that are Python and run."""
    return [block for block in blocks((DOCS / page).read_text()) if block.runs and block.language == "python"]


# What a Thrift compiler makes has no types.
TYPED = [page for page in [*PAGES, "../README.md"] if shown_python(page) and page != "how-to/other-languages.md"]


@pytest.mark.docs
@pytest.mark.parametrize("page", TYPED)
def test_the_types_of_what_a_page_shows_hold(page: str, tmp_path: Path) -> None:
    for number, block in enumerate(shown_python(page)):
        (tmp_path / block.remarks.get("save", f"block_{number}.py")).write_text(block.text)
    assert_types_hold(sorted(tmp_path.glob("*.py")), tmp_path)


def test_blocks_are_read_with_their_remarks_and_output() -> None:
    page = (
        "<!-- server -->\n\n<!-- save: a.py -->\n```python\nx = 1\n```\n\n```sh\necho 12\n```\n\n"
        "```text\n1…\n```\n\n<!-- not run: slow -->\n```sh\nb\n```\n"
    )
    first, second, third = blocks(page)
    assert needs_server(page)
    assert (first.remarks, first.text, first.runs) == ({"server": "", "save": "a.py"}, "x = 1\n", True)
    assert (second.text, second.prints) == ("echo 12\n", "1…\n")
    assert not third.runs
    (only,) = blocks("<!-- save: b.py -->\n```python\nx = 1\n```\n")
    assert only.remarks == {"save": "b.py"}


@pytest.mark.parametrize(
    ("expected", "printed", "missing"),
    [("a…c", "abc", None), ("a\nb", "a\nx\nb", None), ("b\na", "a\nb", "a"), ("12", "112", "12"), ("…", "", None)],
)
def test_output_is_compared_line_by_line_in_order(expected: str, printed: str, missing: str | None) -> None:
    """`…` is the only wildcard."""
    assert missing_line(expected, printed) == missing
