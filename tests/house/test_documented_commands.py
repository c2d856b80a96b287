"""Every `pinlater …` that the docs show, run or not, is a command that exists, with options that it has."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from scripts.reference.regions import rewritten
from tests.house.conftest import REPOSITORY

PAGES = [
    *(REPOSITORY / "docs").rglob("*.md"),
    *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md")),
    *(REPOSITORY / "deploy").iterdir(),
]
# In a code block at the start of a line (after a pipe, an environment or a path), or in `inline code`.
SHOWN = re.compile(r"(?:^|`|\| |/bin/)(pinlater(?: [^\n`|]*)?)", re.MULTILINE)


def shown_commands() -> Iterator[tuple[str, str]]:
    """(page, command line) for each; continued lines are joined, prose and Python code left out."""
    for page in PAGES:
        if "_build" in page.parts or not page.is_file():
            continue
        text = rewritten(page.read_text()).replace("\\\n", " ")
        prose = re.sub(r"```(?!sh|\n)\w+\n.*?```", "", text, flags=re.DOTALL)
        for line in SHOWN.findall(prose):
            yield str(page.relative_to(REPOSITORY)), line.strip()


def faults(command: Any, words: list[str]) -> list[str]:
    """What of `words` the command doesn't know: subcommands first, then options. Values are not looked at."""
    while words and hasattr(command, "get_command"):
        implied = command.default if re.match("-|.*:", words[0]) else ""
        if not implied and words[0].startswith("-"):
            break
        word = implied or words.pop(0)
        if "|" in word or word == "…":
            return []
        found = command.get_command(command.make_context(None, [], resilient_parsing=True), word)
        if found is None:
            return [f"no command {word!r}"]
        command = found
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}
    return [f"no option {word}" for word in words if word.startswith("--") and word.partition("=")[0] not in known]


@pytest.mark.docs
def test_every_command_in_the_docs_exists_with_its_options() -> None:
    from pinlater.cli.main import app

    root = get_command(app)
    wrong = [
        (page, line, found)
        for page, line in shown_commands()
        for found in faults(root, shlex.split(line, comments=True)[1:])
    ]
    assert wrong == []


def test_shown_commands_are_found_in_code_and_lines() -> None:
    lines = {line for _page, line in shown_commands()}
    assert any(line.startswith("pinlater serve --store") for line in lines)
    assert any(line.startswith("pinlater queue pause") for line in lines)
