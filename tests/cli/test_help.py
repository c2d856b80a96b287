"""The help of every command at 80 columns."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from pinlater.cli.main import app
from tests.cli.conftest import Pinlater

_FRAME = str.maketrans("╭╮╰╯│─", " " * 6)
_WIDE = 1_000


def _commands(words: tuple[str, ...], command: Any) -> Iterator[tuple[str, ...]]:
    """The words that call the command, and those of all commands below it."""
    yield words
    if hasattr(command, "list_commands"):
        context = typer.Context(command)
        for name in command.list_commands(context):
            yield from _commands((*words, name), command.get_command(context, name))


every_command = pytest.mark.parametrize(
    "command", list(_commands((), typer.main.get_command(app))), ids=lambda words: " ".join(words) or "pinlater"
)


@every_command
def test_the_help_shows_each_word_whole_at_80_columns(
    offline: Pinlater, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """The help has the words that it has on a very wide terminal: none is folded or cut."""

    def words(columns: int) -> set[str]:
        monkeypatch.setenv("COLUMNS", str(columns))
        return set(offline.ok(*command, "--help").out.translate(_FRAME).split())

    assert words(80) == words(_WIDE)


@every_command
def test_only_the_width_breaks_the_lines_of_the_help(
    offline: Pinlater, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """On a very wide terminal each paragraph, command and option has one line; a second one was broken in our own text."""
    monkeypatch.setenv("COLUMNS", str(_WIDE))
    lines = offline.ok(*command, "--help").out.splitlines()
    second_lines = [
        line
        for before, line in itertools.pairwise(lines)
        if re.match("│ {8}", line)
        or (line.startswith(" ") and before.startswith(" ") and line.strip() and before.strip())
    ]
    assert second_lines == []
