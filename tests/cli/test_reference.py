"""The reference page says what the commands are."""

from __future__ import annotations

from pathlib import Path

from pinlater.cli.reference import page

PAGE = Path(__file__).parents[2] / "docs/reference/cli.md"


def test_the_reference_page_is_fresh() -> None:
    """After a change: python -m pinlater.cli.reference docs/reference/cli.md"""
    text = PAGE.read_text()
    assert page(text) == text
