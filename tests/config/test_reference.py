"""The reference page says what the code says."""

from __future__ import annotations

from pathlib import Path

from pinlater.server.config.schema import keys
from scripts.reference.settings import page

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"


def test_the_reference_page_is_fresh() -> None:
    """Written by `python -m scripts.reference`."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_every_setting_is_explained() -> None:
    """A field needs a docstring."""
    rows = [line for line in page().splitlines() if line.startswith("| `")]
    silent = [row for row in rows if row.endswith("|  |")]
    assert silent == []
    assert len(rows) > len(keys())
