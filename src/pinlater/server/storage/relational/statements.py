"""Statements by name, from `.sql` files that are named after their subjects: those of both dialects from `queries/` here, others from the
`queries/` of a dialect.

A statement begins with `-- name: its_name(parameters)` (over two lines if they are many), extends to the next such line, and has
`:name` for each parameter. A shared one has the syntax of both dialects: upserts as SQLite writes them, MySQL's locks and indexes, `IN
(:list)`, and `VALUES :rows` for rows of its parameters. Each dialect replaces the syntax that it does not support.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

_HEAD = re.compile(r"^-- name: ([a-z_]+)\(([a-z_, \n-]*)\)$", re.MULTILINE)
_PARAMETER = re.compile(r"(?<!:):([a-z_]+)")


class Statement(NamedTuple):
    """A statement as it is in its file, without its comments."""

    name: str
    parameters: tuple[str, ...]
    text: str


_SHARED = files("pinlater.server.storage.relational") / "queries"


def read_statements(folder: Traversable, in_dialect: Callable[[Statement], Statement]) -> dict[str, Statement]:
    """Returns all statements of a dialect. `in_dialect` translates a shared one. Raises `ValueError` for a name that occurs twice and for
    parameters that do not fit the text."""
    found: dict[str, Statement] = {}
    for statement in [*_read(folder), *map(in_dialect, _read(_SHARED))]:
        if statement.name in found:
            raise ValueError(f"{statement.name} occurs twice in {folder}")
        if set(statement.parameters) != set(_PARAMETER.findall(statement.text)):
            raise ValueError(f"the parameters of {statement.name} are not those in its text")
        found[statement.name] = statement
    return found


def _read(folder: Traversable) -> list[Statement]:
    texts = [file.read_text(encoding="utf-8") for file in folder.iterdir() if file.name.endswith(".sql")]
    return [statement for text in texts for statement in _parse(text)]


def _parse(text: str) -> list[Statement]:
    """Parses statements. `split` gives what precedes the first head, then name, parameters and body of each statement."""
    _, *parts = _HEAD.split(text)
    return [_statement(*parts[at : at + 3]) for at in range(0, len(parts), 3)]


def _statement(name: str, listed: str, body: str) -> Statement:
    lines = [line for line in body.splitlines() if not line.startswith("--")]
    text = "\n".join(lines).strip().removesuffix(";")
    parameters = tuple(re.findall(r"[a-z_]+", listed))
    return Statement(name, parameters, text)
