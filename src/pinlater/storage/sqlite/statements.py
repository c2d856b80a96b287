"""The store's SQL, one statement a file in `queries/`, read once.

`sql("claim")` is a statement as it stands. `Rows("insert_jobs")` is an INSERT of one row that can be run for many: its placeholder
list is repeated in sizes of powers of two, because one statement for 64 rows costs a third less than 64 runs of one for one row,
and because few sizes keep the driver's cache of prepared statements small. `Wanted` does the same for look-ups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

FOLDER = files("pinlater.storage.sqlite") / "queries"
ROWS_MAX = 64
Execute = Callable[..., Any]


@cache
def sql(name: str) -> str:
    """The statement in `queries/<name>.sql`, without its comment lines."""
    lines = (FOLDER / f"{name}.sql").read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith("--")).strip()


@cache
def delete_rows(table: str) -> str:
    """Deletes rows of a table by a JSON list of ids."""
    return sql("delete_rows").replace(":table", table)


class Rows:
    """A multi-row INSERT. Runs for any number of rows given as one flat list of their values."""

    def __init__(self, name: str) -> None:
        text = sql(name)
        at = text.rindex("VALUES") + len("VALUES")
        head, row = text[:at], text[at:].strip()
        self.width = row.count("?")
        self._by_size = {size: head + ", ".join([row] * size) for size in (64, 32, 16, 8, 4, 2, 1)}

    def run(self, execute: Execute, flat: Sequence[object]) -> None:
        """`flat` holds the values of all rows one after the other."""
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


class Wanted:
    """A SELECT that joins a list of values, `(VALUES (?, ?))`. Runs for any number of them, in sizes of powers of two as `Rows` does."""

    def __init__(self, name: str) -> None:
        head, row, tail = sql(name).partition("(?, ?)")
        self._by_size = {size: head + ", ".join([row] * size) + tail for size in (64, 32, 16, 8, 4, 2, 1)}

    def run(self, execute: Execute, flat: Sequence[object]) -> list[Any]:
        """The rows found. `flat` holds pairs, one after the other; the last one fills the rest of a size, so it may be found twice."""
        found: list[Any] = []
        for start in range(0, len(flat), 2 * ROWS_MAX):
            part = flat[start : start + 2 * ROWS_MAX]
            count = len(part) // 2
            size = 1 << (count - 1).bit_length()
            filled = [*part, *list(part[-2:]) * (size - count)]
            found += execute(self._by_size[size], filled).fetchall()
        return found
