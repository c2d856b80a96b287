"""The store's SQL by name, from the files in `queries/`; and values as SQL literals.

`sql("lock_due")` is a template; calling it with a value for each `:name` in it gives the statement's bytes. Statements are assembled here
rather than by the driver because a batch is one packet: many statements, thousands of rows, one round trip.

Literals are safe because every connection runs in utf8mb4 (no multi-byte character contains a quote or a backslash) and with an
`sql_mode` of ours (backslash escapes are on); `connection.py` sets both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from pinlater.server.storage.relational.statements import Statement, read_statements


def _in_mysql(shared: Statement) -> Statement:
    """Returns the statement in MySQL's syntax for upserts; rows are one parameter."""
    text = shared.text.replace("INSERT OR IGNORE", "INSERT IGNORE")
    text = re.sub(r"ON CONFLICT \([^)]*\) DO UPDATE SET", "ON DUPLICATE KEY UPDATE", text)
    text = re.sub(r"\bexcluded\.(\w+)", r"VALUES(\1)", text)
    return Statement(shared.name, ("rows",) if ":rows" in text else shared.parameters, text)


STATEMENTS = read_statements(files("pinlater.server.storage.mysql") / "queries", _in_mysql)
# For a statement's fixed text, beside its rows.
STATEMENT_BYTES = 1_000
# Bytes of the longest body's statement beside the body: a job's options may be long, too.
_OPTIONS_BYTES = 100_000
_LOCK_NAME_MAX = 64
_KEYS_A_STATEMENT = 500
# Bytes of a key in a condition beside itself, if each is of another queue.
_KEY_BYTES = 80
# MySQL reads it as a comment: it has no such syntax, and no wait of less than a second.
_NO_LOCK_WAIT = b"/*M! SET STATEMENT innodb_lock_wait_timeout = 0 FOR */ "
_NAME = re.compile(rb":([a-z_]+)")


class Sql(bytes):
    """Text that is already SQL."""


class Template:
    """A statement with named placeholders."""

    __slots__ = ("_begin", "_places")

    def __init__(self, text: bytes) -> None:
        pieces = _NAME.split(text)
        self._begin = pieces[0]
        self._places = [(name.decode(), after) for name, after in zip(pieces[1::2], pieces[2::2], strict=True)]

    def __call__(self, **values: object) -> bytes:
        parts = [self._begin]
        for name, after in self._places:
            parts.append(literal(values[name]))
            parts.append(after)
        return b"".join(parts)


def body_bytes_max(packet_bytes: int) -> int:
    """The longest body that always fits: any byte of it may have to be escaped."""
    return max(0, (packet_bytes - _OPTIONS_BYTES) // 2)


@cache
def sql(name: str) -> Template:
    return Template(STATEMENTS[name].text.encode())


def literal(value: object) -> bytes:
    """A value as SQL: numbers, text, bytes, None, and sequences of numbers for `IN (:ids)`."""
    write = _LITERALS.get(type(value))
    if write is not None:
        return write(value)
    if isinstance(value, int):
        return b"%d" % value
    if isinstance(value, Sequence):
        return b",".join([literal(item) for item in value])
    raise TypeError(f"{type(value).__name__} is no SQL value")


def union(statements: Sequence[bytes]) -> Sql:
    """Returns all rows of these statements as those of one, in no order."""
    return Sql(b" UNION ALL ".join([b"(" + statement + b")" for statement in statements]))


def escaped(data: bytes) -> bytes:
    """Returns the text that goes between single quotes."""
    if b"\\" in data:
        data = data.replace(b"\\", b"\\\\")
    if b"'" in data:
        data = data.replace(b"'", b"\\'")
    return data


_LITERALS: dict[type, Callable[[Any], bytes]] = {
    Sql: lambda value: value,
    int: lambda value: b"%d" % value,
    bytes: lambda value: b"_binary'" + escaped(value) + b"'",
    str: lambda value: b"'" + escaped(value.encode()) + b"'",
    type(None): lambda _: b"NULL",
}


def row(values: Sequence[object]) -> bytes:
    """Returns one row of a VALUES list or one pair of an IN list."""
    return b"(" + b",".join([literal(value) for value in values]) + b")"


def rows(values: Iterable[Sequence[object]]) -> Sql:
    """Returns several rows as one literal."""
    return Sql(b",".join([row(one) for one in values]))


def in_statements(new: Sequence[bytes], bytes_max: int) -> list[Sql]:
    """Rows joined to statements of about that length at most (one row always fits)."""
    if not new:
        return []
    parts: list[Sql] = []
    start = size = 0
    for index, one in enumerate(new):
        if size and size + len(one) > bytes_max - STATEMENT_BYTES:
            parts.append(Sql(b",".join(new[start:index])))
            start, size = index, 0
        size += len(one) + 1
    parts.append(Sql(b",".join(new[start:])))
    return parts


def json_rows(values: Iterable[Sequence[int]]) -> Sql:
    """Rows of numbers as a JSON text, for JSON_TABLE."""
    return Sql(b"'[" + b",".join([b"[%b]" % b",".join([b"%d" % number for number in one]) for one in values]) + b"]'")


def keys_are(column: str, keys: Iterable[tuple[int, bytes]]) -> Sql:
    """A condition for rows with one of these (queue id, key) pairs.

    A list for each queue: for pairs in one list MariaDB makes no ranges if there is a single one, and reads the whole table.
    """
    by_queue: dict[int, list[bytes]] = {}
    for queue_id, key in sorted(set(keys)):
        by_queue.setdefault(queue_id, []).append(literal(key))
    parts = [
        b"(queue_id = %d AND %b IN (%b))" % (queue_id, column.encode(), b",".join(listed))
        for queue_id, listed in by_queue.items()
    ]
    return Sql(b"(" + b" OR ".join(parts) + b")")


def keys_in_statements(column: str, keys: Iterable[tuple[int, bytes]], bytes_max: int) -> list[Sql]:
    """Conditions like those of `keys_are` for all these keys, each short enough for one statement, and with a list that servers look up
    by index: MariaDB converts a list of a thousand to a table and joins that, and MySQL gives up ranges that take more than 8 MB to
    plan."""
    parts: list[Sql] = []
    some: list[tuple[int, bytes]] = []
    size = 0
    for key in sorted(set(keys)):
        _, text = key
        longest = 2 * len(text) + _KEY_BYTES
        if some and (len(some) >= _KEYS_A_STATEMENT or size + longest > bytes_max - STATEMENT_BYTES):
            parts.append(keys_are(column, some))
            some, size = [], 0
        some.append(key)
        size += longest
    return [*parts, keys_are(column, some)] if some else parts


JOBS = Sql(b"jobs FORCE INDEX (PRIMARY)")
KEPT_JOBS = Sql(b"kept_jobs AS jobs FORCE INDEX (PRIMARY)")


def lock_name(purpose: str, database: str) -> Sql:
    """Returns the name of a server-wide lock for one database, as a literal. MySQL accepts names of up to 64 characters, the same as a
    database's.
    """
    name = f"pinlater-{purpose}-{database}"
    if len(name) > _LOCK_NAME_MAX:
        name = f"pinlater-{purpose}-{sha256(database.encode()).hexdigest()[:32]}"
    return Sql(literal(name))


def json_ids(ids: Sequence[int]) -> Sql:
    """Ids as a JSON text, for JSON_TABLE."""
    return Sql(b"'[" + b",".join([b"%d" % one for one in ids]) + b"]'")


def delete_rows(table: bytes, ids: Sequence[int]) -> bytes:
    """Deletes by id; `ids` in order."""
    if len(ids) == 1:
        return sql("delete_row")(table=Sql(table), id=ids[0])
    return sql("delete_rows")(table=Sql(table), ids=json_ids(ids))


def delete_ready(keys: Sequence[tuple[int, ...]]) -> bytes:
    """Deletes waiting rows by their whole keys (queue id, priority, run-after, id)."""
    if len(keys) == 1:
        queue_id, priority, run_after_ms, job_id = keys[0]
        return sql("delete_ready_row")(queue_id=queue_id, priority=priority, run_after_ms=run_after_ms, id=job_id)
    return sql("delete_ready")(keys=json_rows(sorted(keys)))


def delete_remembered(keys: Iterable[tuple[int, int, int, int]]) -> bytes:
    """Deletes rows as `delete_ready` does, but only those of jobs that were never claimed, and fails if one of them is locked, on MySQL
    after a second.
    """
    return _NO_LOCK_WAIT + sql("delete_remembered")(which=in_ranges(keys))


def in_ranges(keys: Iterable[tuple[int, int, int, int]]) -> Sql:
    """A condition for waiting rows with these whole keys: a range for each queue and priority. They are mostly adjacent, and then a range
    costs a fraction of as many points."""
    ranges: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for queue_id, priority, run_after_ms, job_id in keys:
        ranges.setdefault((queue_id, priority), []).append((run_after_ms, job_id))
    parts = [
        b"(queue_id=%d AND priority=%d AND run_after_ms BETWEEN %d AND %d AND id IN (%b))"
        % (queue_id, priority, min(rows)[0], max(rows)[0], literal([job_id for _, job_id in rows]))
        for (queue_id, priority), rows in sorted(ranges.items())
    ]
    return Sql(b" OR ".join(parts))
