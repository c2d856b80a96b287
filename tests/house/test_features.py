"""Statements that a feature is missing, or is there on some stores only, are marked, and true.

A page marks such a statement with `<!-- missing: NAME -->` in the same paragraph, or in the line above it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pinlater.client import Job, JobInfo
from pinlater.server.config.kinds import EMBEDDED, SHARDED
from scripts.reference.regions import without_regions
from tests.house.conftest import REPOSITORY

PAGES = [
    *sorted(path for path in (REPOSITORY / "docs").rglob("*.md") if "_build" not in path.parts),
    REPOSITORY / "README.md",
    *sorted(path for path in (REPOSITORY / "deploy").iterdir() if path.is_file()),
]
MARKER = re.compile(r"<!-- missing: ([\w -]+) -->")
# Phrases that say what is to come, or what is only true for a while.
PHRASE = re.compile(
    r"\b(?:next step|is next|so far|is planned|in a later version|today|no [\w ]{1,30} yet|none yet|not yet possible)\b"
)
STORE = "(?:SQLite|MySQL|MariaDB|Redis|Valkey|PostgreSQL)"
STORES, SEVERAL_STORES = (rf"{STORE}(?:(?:, | and | or ){STORE}){times}" for times in ("*", "+"))
SEVERAL = "(?:processes|several servers)"
# Statements that a feature is there on these stores, and so not on the others.
LIMIT = re.compile(
    rf"\bonly (?:(?:on|in|for|with) )?(?:an? )?{STORES}\b|\b{STORES}(?: stores?)? only\b"
    rf"|\b{SEVERAL}\b[^.|]*\bon {SEVERAL_STORES}\b|\b[Oo]n {SEVERAL_STORES}\b[^.|]*\b{SEVERAL}\b"
)


# By the name in the marker: whether the feature is missing.
STILL_MISSING: dict[str, Callable[[], bool]] = {
    "a PostgreSQL store": lambda: {*EMBEDDED, *SHARDED} == {"sqlite", "memory", "mysql", "redis"},
    "results of jobs": lambda: "result" not in JobInfo._fields,
    "several servers on SQLite": lambda: "sqlite" in EMBEDDED,
    "workflows": lambda: not {"after", "parent", "batch", "workflow"} & {*Job._fields},
}


def paragraphs(text: str) -> list[str]:
    """Paragraphs and items of lists, without code and generated text."""
    written = re.sub(r"^ *```.*?^ *```$", "", without_regions(text), flags=re.DOTALL | re.MULTILINE)
    return re.split(r"\n\s*\n|\n(?=- )", written)


def test_a_feature_that_is_said_to_be_missing_is_missing() -> None:
    marked = {name for page in PAGES for name in MARKER.findall(page.read_text())}
    assert marked == set(STILL_MISSING)
    assert [name for name, still_missing in STILL_MISSING.items() if not still_missing()] == []


def says_missing(paragraph: str) -> bool:
    in_one_line = " ".join(
        re.sub(r"^# ?", "", paragraph, flags=re.MULTILINE).split()
    )  # a settings file has it in a comment
    return bool(PHRASE.search(paragraph) or LIMIT.search(in_one_line))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_statement_about_a_missing_feature_is_marked(page: Path) -> None:
    unmarked = [text for text in paragraphs(page.read_text()) if says_missing(text) and not MARKER.search(text)]
    assert unmarked == []


@pytest.mark.parametrize(
    ("paragraph", "says"),
    [
        ("# Several server processes on the same ports, on\n# MySQL and Redis:\n# processes = 4", True),
        ("On MySQL or Redis, run several servers.", True),
        ("PinLater stores jobs in SQLite,\nMySQL or Redis only.", True),
        ("Unique keys for a time are there only on Redis.", True),
        ("Charts are planned so far", True),
        ("Several processes on the same ports, on each store but `memory:`", False),
        ("On MySQL and MariaDB, the server warns if the database is set otherwise.", False),
        ("On SQLite with several processes, all of this holds.", False),
    ],
)
def test_which_statements_need_a_marker(paragraph: str, says: bool) -> None:
    assert says_missing(paragraph) == says
