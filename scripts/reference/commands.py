"""Writes the commands' part of docs/reference/cli.md from the commands themselves, and the table of exit codes.

`python -m scripts.reference.commands docs/reference/cli.md` puts it after the page's marker. A test fails when the page is stale.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

from pinlater.cli import exits
from pinlater.cli.main import app

_OFTEN = 4  # an option of at least this many commands is described once
MARKER = "<!-- From here on written by `python -m scripts.reference.commands`; do not edit. -->\n"


def page(text: str) -> str:
    """Returns the page with its generated part updated."""
    kept, marker, _ = text.partition(MARKER)
    if not marker:
        raise ValueError("the page has no marker")
    return kept + MARKER + "\n" + "\n".join(_lines()).rstrip() + "\n"


def _lines() -> Iterator[str]:
    yield from ("## Exit codes", "", "| code | what it says |", "|---|---|")
    yield from (f"| {code} | {meaning} |" for code, meaning in exits.MEANINGS.items())
    yield ""
    root: Any = typer.main.get_command(app)
    context = typer.Context(root, info_name="pinlater")
    commands = list(_commands("pinlater", root, context))
    rows = Counter(_row(param) for _, command in commands for param in _options(command))
    shared = [row for row, count in rows.most_common() if count >= _OFTEN]
    yield from ("## Common options", "", "Options of many commands. Each command names those that it has.", "")
    yield from _table(shared)
    for name, command in commands:
        yield from _command(name, command, shared)


def _commands(name: str, command: Any, context: typer.Context) -> Iterator[tuple[str, Any]]:
    """Yields the commands and groups below this one, in the order of the page."""
    for inner in command.list_commands(context):
        found = command.get_command(context, inner)
        yield f"{name} {inner}", found
        if hasattr(found, "list_commands"):
            yield from _commands(f"{name} {inner}", found, typer.Context(found))


def _command(name: str, command: Any, shared: Sequence[str]) -> Iterator[str]:
    yield from (f"{'#' * len(name.split())} {name}", "")
    text, _, example = (command.help or "").partition("Example:")
    words = [" ".join(text.split())]
    rows = {_row(param): f"`{param.opts[0]}`" for param in _options(command)}
    if not hasattr(command, "list_commands"):
        arguments = [f" {_argument(param)}" for param in command.params if not _is_option(param)]
        words.insert(0, f"`{name} [OPTIONS]{''.join(arguments)}`.")
    if example:
        words.append(f"Example: `{' '.join(example.split())}`.")
    if common := [option for row, option in rows.items() if row in shared]:
        words.append(f"[Common options](#common-options): {', '.join(common)}.")
    yield from (" ".join(words), "")
    if own := [row for row in rows if row not in shared]:
        yield from _table(own)


def _options(command: Any) -> list[Any]:
    return [param for param in command.params if _is_option(param) and not param.hidden]


def _table(rows: Sequence[str]) -> Iterator[str]:
    yield from ("| option | what it does |", "|---|---|", *rows, "")


def _row(param: Any) -> str:
    return f"| {_names(param)} | {_meaning(param)} |"


def _is_option(param: Any) -> bool:
    return bool(param.param_type_name == "option")


def _argument(param: Any) -> str:
    name = param.metavar or param.name.upper()
    return name if param.required else f"[{name}]"


def _names(param: Any) -> str:
    metavar = f" {param.metavar}" if param.metavar else ""
    names = ", ".join(f"`{name}{metavar}`" for name in [*param.opts, *param.secondary_opts])
    return names.replace("|", "\\|")


def _meaning(param: Any) -> str:
    meaning = (param.help or "").strip()
    choices = [getattr(choice, "value", choice) for choice in getattr(param.type, "choices", ())]
    if choices and not param.metavar:
        meaning += f" One of {', '.join(f'`{choice}`' for choice in choices)}."
    default = getattr(param.default, "value", param.default)
    if param.envvar:
        meaning += f" Or the environment's `{param.envvar}`."
    if param.required:
        meaning += " Needed."
    elif param.secondary_opts and default is not None:
        meaning += f" Default: `{(param.opts if default else param.secondary_opts)[0]}`."
    elif default not in (None, False, "", []) and not param.is_flag and not callable(default):
        meaning += f" Default: `{default}`."
    return meaning.strip().replace("|", "\\|")


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(page(path.read_text()))
