"""The store's SQL by name, from the files in `queries/`. SQLite gets its parameters by position, in the order of a statement's head.

`sql("drop_queue")` is a statement. `Rows("insert_jobs")` is an INSERT of one row that can be run for many: its placeholder list is
repeated in sizes of powers of two, because one statement for 64 rows costs a third less than 64 runs of one for one row, and because
few sizes keep the driver's cache of prepared statements small. `PairSelect` does the same for look-ups. `OfIds("load_jobs")` is a
statement on the jobs of a list of ids. `union` makes one statement of several.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from pinlater.server.storage.relational.statements import Statement, read_statements

ROWS_MAX = 64
Execute = Callable[..., Any]


def _in_sqlite(shared: Statement) -> Statement:
    """Returns the statement in SQLite's syntax: without locks and index hints; lists are JSON."""
    text = re.sub(r"\s+FOR UPDATE( SKIP LOCKED)?| FORCE INDEX \(\w+\)|_binary(?=:)", "", shared.text)
    text = re.sub(r"IN \(:(\w+)\)", r"IN (SELECT value FROM json_each(:\1))", text)
    row = ", ".join([f":{name}" for name in shared.parameters])
    return shared._replace(text=text.replace("VALUES :rows", f"VALUES ({row})"))


STATEMENTS = read_statements(files("pinlater.server.storage.sqlite") / "queries", _in_sqlite)


@cache
def sql(name: str) -> str:
    """The statement, with `?1` for its first parameter."""
    _, parameters, text = STATEMENTS[name]
    numbers = {parameter: f"?{number}" for number, parameter in enumerate(parameters, 1)}
    return re.sub(r":([a-z_]+)", lambda match: numbers[match[1]], text)


def in_order(name: str, values: Mapping[str, object]) -> list[object]:
    """The values of a statement's parameters, for `sql(name)`."""
    return [values[parameter] for parameter in STATEMENTS[name].parameters]


def _by_size(name: str) -> dict[int, str]:
    """The statement with its row of placeholders once, twice, four times …"""
    head, row, tail = re.split(r"(\((?:\?\d+(?:, )?)+\))", sql(name))
    row = re.sub(r"\d", "", row)
    return {size: head + ", ".join([row] * size) + tail for size in (64, 32, 16, 8, 4, 2, 1)}


@cache
def union(names: tuple[str, ...]) -> str:
    """Returns all rows of these statements as those of one, in no order. Its parameters are those of each, one after the other."""
    parts: list[str] = []
    before = 0
    for name in names:
        parts.append(sql("part_of_union").replace("{statement}", _numbered_from(before, sql(name))))
        before += len(STATEMENTS[name].parameters)
    return " UNION ALL ".join(parts)


@cache
def merged_pages(names: tuple[str, ...]) -> str:
    """Returns `merge_pages` of these statements. Its parameters are those of `union`, then its own."""
    before = sum([len(STATEMENTS[name].parameters) for name in names])
    return _numbered_from(before, sql("merge_pages")).replace("{pages}", union(names))


def _numbered_from(before: int, statement: str) -> str:
    """Numbers the parameters of the statement from the next number on."""
    return re.sub(r"\?(\d+)", lambda match: f"?{before + int(match[1])}", statement)


class Rows:
    """A multi-row INSERT. Runs for any number of rows given as one flat list of their values."""

    def __init__(self, name: str) -> None:
        self.width = len(STATEMENTS[name].parameters)
        self._by_size = _by_size(name)

    def run(self, execute: Execute, flat: Sequence[object]) -> None:
        """Inserts rows. `flat` holds the values of all rows one after the other."""
        width = self.width
        count = len(flat) // width
        if count == 1:
            execute(self._by_size[1], flat)
            return
        start = 0
        while count >= ROWS_MAX:
            end = start + ROWS_MAX * width
            execute(self._by_size[ROWS_MAX], flat[start:end])
            start = end
            count -= ROWS_MAX
        size = ROWS_MAX // 2
        while count:
            if count >= size:
                end = start + size * width
                execute(self._by_size[size], flat[start:end])
                start = end
                count -= size
            size //= 2


class OfIds:
    """A statement on the jobs of a list of ids, which are its last parameter.

    Many ids are one JSON list. For one id the list takes longer than all the rest, so the id itself takes its place.
    """

    def __init__(self, name: str, table: str = "") -> None:
        """`table` replaces `{table}` in the statement."""
        self.of_many = sql(name).replace("{table}", table)
        self.of_one = re.sub(r"IN \(SELECT value FROM json_each\((\?\d)\)\)", r"= \1", self.of_many)
        self.of_one = re.sub(r"json_each\((\?\d)\)", r"(SELECT \1 AS value)", self.of_one)

    def run(self, execute: Execute, ids: Sequence[int], *values: object) -> sqlite3.Cursor:
        """`values` are those of the other parameters."""
        statement, last = (self.of_one, ids[0]) if len(ids) == 1 else (self.of_many, str(ids))
        cursor: sqlite3.Cursor = execute(statement, (*values, last))
        return cursor


of_ids = cache(OfIds)


class PairSelect:
    """A SELECT that joins a list of pairs, `(VALUES (:queue_id, :key))`. In the same sizes as `Rows`."""

    def __init__(self, name: str) -> None:
        self._by_size = _by_size(name)

    def run(self, execute: Execute, flat: Sequence[object]) -> list[Any]:
        """Returns the rows found. `flat` holds pairs, one after the other; the last one is repeated up to the next size, so it may be
        found twice.
        """
        found: list[Any] = []
        for start in range(0, len(flat), 2 * ROWS_MAX):
            part = flat[start : start + 2 * ROWS_MAX]
            count = len(part) // 2
            size = 1 << (count - 1).bit_length()
            filled = [*part, *list(part[-2:]) * (size - count)]
            found += execute(self._by_size[size], filled).fetchall()
        return found
