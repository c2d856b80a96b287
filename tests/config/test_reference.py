"""The reference page says what the code says."""

from __future__ import annotations

from pathlib import Path

from pinlater.server.config.notes import NOTES
from pinlater.server.config.reference import page
from pinlater.server.config.schema import keys

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"


def test_the_reference_page_is_fresh() -> None:
    """Written by `python -m pinlater.server.config.reference > docs/reference/settings.md`."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_every_setting_is_explained() -> None:
    """A field needs text below it, a comment behind it or above it, or a line in `pinlater.server.config.notes`."""
    rows = [line for line in page().splitlines() if line.startswith("| `")]
    silent = [row for row in rows if row.endswith("|  |")]
    assert silent == []
    assert len(rows) > len(keys())


def test_no_note_is_left_of_a_setting_that_is_gone() -> None:
    assert set(NOTES) - set(keys()) == set()
