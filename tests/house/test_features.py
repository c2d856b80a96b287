"""Statements that a feature is missing are marked, and true.

A page marks such a statement with `<!-- missing: NAME -->` in the same paragraph, or in the line above it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.reference.regions import without_regions
from tests.house.conftest import REPOSITORY

PAGES = [
    *sorted(path for path in (REPOSITORY / "docs").rglob("*.md") if "_build" not in path.parts),
    REPOSITORY / "README.md",
    *sorted((REPOSITORY / "deploy").iterdir()),
]
MARKER = re.compile(r"<!-- missing: ([\w -]+) -->")
# Phrases that say what is to come, or what is only true for a while.
PHRASE = re.compile(
    r"\b(?:next step|is next|so far|is planned|in a later version|today|no [\w ]{1,30} yet|none yet|not yet possible)\b"
)


# By the name in the marker: whether the feature is missing.
STILL_MISSING: dict[str, Callable[[], bool]] = {}


def paragraphs(text: str) -> list[str]:
    """Paragraphs and items of lists, without code and generated text."""
    written = re.sub(r"^ *```.*?^ *```$", "", without_regions(text), flags=re.DOTALL | re.MULTILINE)
    return re.split(r"\n\s*\n|\n(?=- )", written)


def test_a_feature_that_is_said_to_be_missing_is_missing() -> None:
    marked = {name for page in PAGES for name in MARKER.findall(page.read_text())}
    assert marked == set(STILL_MISSING)
    assert [name for name, still_missing in STILL_MISSING.items() if not still_missing()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_statement_about_a_missing_feature_is_marked(page: Path) -> None:
    unmarked = [text for text in paragraphs(page.read_text()) if PHRASE.search(text) and not MARKER.search(text)]
    assert unmarked == []
