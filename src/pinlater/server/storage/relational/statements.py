"""Statements by name, from the `.sql` files of a dialect's `queries/`, which are named after their subjects.

A statement begins with `-- name: its_name(parameters)` (over two lines if they are many), goes on to the next such line, and has
`:name` for each parameter.
"""

from __future__ import annotations

import re
from importlib.resources.abc import Traversable
from typing import NamedTuple

_HEAD = re.compile(r"^-- name: ([a-z_]+)\(([a-z_, \n-]*)\)$", re.MULTILINE)
_PARAMETER = re.compile(r"(?<!:):([a-z_]+)")


class Statement(NamedTuple):
    """A statement as it stands in its file, without its comments."""

    name: str
    parameters: tuple[str, ...]
    text: str


def read_statements(folder: Traversable) -> dict[str, Statement]:
    """All statements of a dialect. Raises `ValueError` for a name that occurs twice and for parameters that do not fit the text."""
    found: dict[str, Statement] = {}
    for file in folder.iterdir():
        if file.name.endswith(".sql"):
            for statement in _parse(file.read_text(encoding="utf-8")):
                if statement.name in found:
                    raise ValueError(f"{statement.name} occurs twice in {folder}")
                found[statement.name] = statement
    return found


def _parse(text: str) -> list[Statement]:
    """`split` gives what precedes the first head, then name, parameters and body of each statement."""
    _, *parts = _HEAD.split(text)
    return [_statement(*parts[at : at + 3]) for at in range(0, len(parts), 3)]


def _statement(name: str, listed: str, body: str) -> Statement:
    lines = [line for line in body.splitlines() if not line.startswith("--")]
    text = "\n".join(lines).strip().removesuffix(";")
    parameters = tuple(re.findall(r"[a-z_]+", listed))
    if set(parameters) != set(_PARAMETER.findall(text)):
        raise ValueError(f"the parameters of {name} are not those in its text")
    return Statement(name, parameters, text)
