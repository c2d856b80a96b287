"""The reference page says what the commands are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinlater.cli import output
from pinlater.cli.commands.bulk import as_json
from scripts.reference.commands import page
from scripts.reference.regions import stored
from tests.cli.conftest import every_command
from tests.cli.table_samples import BULK_RUN, JOB

PAGE = Path(__file__).parents[2] / "docs/reference/cli.md"


@pytest.mark.parametrize("path", sorted(PAGE.parent.glob("*.md")), ids=lambda path: path.name)
def test_the_reference_page_is_fresh(path: Path) -> None:
    """After a change: make reference"""
    text = path.read_text()
    assert stored(page(text) if path == PAGE else text) == text


def test_an_option_with_a_negation_shows_both_forms_and_the_default() -> None:
    """An operator who cannot wait finds --no-wait there; the default of --stay depends on the terminal."""
    lines = PAGE.read_text().splitlines()
    [wait] = [line for line in lines if line.startswith("| `--wait`, `--no-wait` |")]
    assert wait.endswith("Default: `--wait`. |")
    [stay] = [line for line in lines if line.startswith("| `--stay`")]
    assert (stay.startswith("| `--stay`, `--no-stay` |"), "Default:" in stay) == (True, False)


def commands_with_json() -> Iterator[str]:
    """Their names, as `queue stats`."""
    for words, command in every_command():
        if any("--json" in parameter.opts for parameter in command.params):
            yield words


def keys_of(shape: str) -> set[str]:
    """The keys that the page has after `JOB is`, without those of documents inside."""
    [shown] = re.findall(rf"^{shape} is `{{(.+?)}}`[,.]", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return set(re.findall(r'"(\w+)"', shown))


def test_the_document_of_each_command_with_json_has_a_row() -> None:
    table = PAGE.read_text().partition("| command | document |")[2].partition("\n\n")[0]
    rows = {name for row in table.splitlines() for name in re.findall(r"`([\w -]+)`", row.partition(" | ")[0])}
    assert sorted(set(commands_with_json()) - rows) == []


def test_the_page_has_each_key_of_a_job_and_of_a_bulk_run() -> None:
    assert keys_of("JOB") == set(output.info_json(JOB._replace(body=None)))
    assert keys_of("RUN") == set(as_json(BULK_RUN))
