"""The reference page says what the commands are."""

from __future__ import annotations

from pathlib import Path

from pinlater.cli.reference import page

PAGE = Path(__file__).parents[2] / "docs/reference/cli.md"


def test_the_reference_page_is_fresh() -> None:
    """After a change: python -m pinlater.cli.reference docs/reference/cli.md"""
    text = PAGE.read_text()
    assert page(text) == text


def test_an_option_with_a_negation_shows_both_forms_and_the_default() -> None:
    """An operator who cannot wait finds --no-wait there; the default of --stay depends on the terminal."""
    lines = PAGE.read_text().splitlines()
    [wait] = [line for line in lines if line.startswith("| `--wait`, `--no-wait` |")]
    assert wait.endswith("Default: `--wait`. |")
    [stay] = [line for line in lines if line.startswith("| `--stay`")]
    assert (stay.startswith("| `--stay`, `--no-stay` |"), "Default:" in stay) == (True, False)
