"""Writes the commands' part of docs/reference/cli.md from the commands themselves, and the table of exit codes.

`python -m pinlater.cli.reference docs/reference/cli.md` puts it after the page's marker. A tool for contributors who change a command:
nothing at run time imports it, and a test fails when the page is stale.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

from pinlater.cli import exits
from pinlater.cli.connection_options import CONNECTION
from pinlater.cli.main import app

MARKER = "<!-- From here on written by `python -m pinlater.cli.reference`; do not edit. -->\n"


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
    queues = root.get_command(context, "queue")
    connection = queues.get_command(typer.Context(queues), "list").params
    yield from ("## Connection", "", "Options of the commands that call servers.", "")
    yield from _table([param for param in connection if getattr(param, "rich_help_panel", None) == CONNECTION])
    for name in root.list_commands(context):
        yield from _command(f"pinlater {name}", root.get_command(context, name), level="##")


def _command(name: str, command: Any, level: str) -> Iterator[str]:
    yield from (f"{level} {name}", "")
    text, _, example = (command.help or "").partition("Example:")
    yield from (" ".join(text.split()), "")
    if hasattr(command, "list_commands"):
        context = typer.Context(command)
        for inner in command.list_commands(context):
            yield from _command(f"{name} {inner}", command.get_command(context, inner), level + "#")
        return
    arguments = [f" {_argument(param)}" for param in command.params if not _is_option(param)]
    yield from (f"`{name} [OPTIONS]{''.join(arguments)}`", "")
    options = [param for param in command.params if _is_option(param) and not param.hidden]
    own = [param for param in options if param.rich_help_panel != CONNECTION]
    if own:
        yield from _table(own)
    notes = [f"Example: `{' '.join(example.split())}`."] if example else []
    if shared := [f"`{param.opts[0]}`" for param in options if param not in own]:
        notes.append(f"[Connection](#connection): {', '.join(shared)}.")
    if notes:
        yield from (" ".join(notes), "")


def _table(options: Sequence[Any]) -> Iterator[str]:
    yield from ("| option | what it does |", "|---|---|")
    yield from (f"| {_names(param)} | {_meaning(param)} |" for param in options)
    yield ""


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
