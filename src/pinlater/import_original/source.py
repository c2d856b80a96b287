"""The tables of an original PinLater in their MySQL server, read page by page in key order.

It only reads: its statements are the two SELECTs in `queries`, so a user needs no privilege but SELECT. A page is one statement, so each
row is seen as it was at one moment; rows that change after they were read are left to the next run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, NamedTuple

from pinlater.client import JobState
from pinlater.domain.descriptor import descriptor_prefix
from pinlater.import_original.connection import OldConnection, connect
from pinlater.import_original.old_server import OldServer, OriginalTls, SourceFailed

_QUERIES = files("pinlater.import_original") / "queries"
_DATABASE = re.compile(r"plq_(\d+(?:d\d+)?)_([A-Za-z0-9_]+)", re.ASCII)
_TABLE = re.compile(r"jobs_p(\d{1,3})", re.ASCII)
# An id of no job: for a query that returns no body.
_NO_STATE = 255
_ROWS_FIRST, _ROWS_MAX = 50, 500
_PAGE_BYTES = 4 * 1024 * 1024


class Table(NamedTuple):
    """One queue's jobs of one priority on one shard."""

    queue: str
    priority: int
    shard: str
    database: str

    @property
    def name(self) -> str:
        """`plq_1d2_emails.jobs_p1`."""
        return f"{self.database}.jobs_p{self.priority}"

    def descriptor(self, local_id: int) -> str:
        """Returns the original's name of that job."""
        return f"{descriptor_prefix(self.queue, self.shard)}{self.priority}:{local_id}"


class OldJob(NamedTuple):
    """A job that is to be copied. `run_after_ms` is None if the table holds no time."""

    local_id: int
    attempts_remaining: int
    run_after_ms: int | None
    created_at_s: int
    custom_status: str
    body: bytes

    @property
    def size(self) -> int:
        """Returns approximately how many bytes the job takes in a request."""
        return len(self.body) + 4 * len(self.custom_status) + 256


class SourcePage(NamedTuple):
    """Rows of one statement: the jobs to copy, and how many others by state. `next_id` None: the table ends here."""

    jobs: Sequence[OldJob]
    others: Counter[str]
    next_id: int | None


class Original:
    """An old server. Use as `async with Original(...) as original:`; a connection that was lost is made again by the next call."""

    def __init__(self, server: OldServer, tls: OriginalTls) -> None:
        self._server = server
        self._tls = tls
        self._connection: OldConnection | None = None
        self._rows = _ROWS_FIRST

    async def __aenter__(self) -> Original:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._connection is not None:
            await self._connection.quit()

    async def tables(self) -> list[Table]:
        """Returns all existing job tables, by queue and priority. Raises `SourceFailed`."""
        found = []
        for database, table in await self._run(_statement("list_tables")):
            place, level = _DATABASE.fullmatch(database), _TABLE.fullmatch(table)
            if place and level:
                found.append(Table(place[2], int(level[1]), place[1], database))
        return sorted(found)

    async def page(self, table: Table, first: int, wanted: Sequence[JobState], *, bodies: bool) -> SourcePage:
        """The rows from key `first` on. Its length depends on the size of the last one, for about 4 MiB. Raises `SourceFailed`."""
        states = wanted if bodies else [_NO_STATE]
        statement = _statement("read_page").format(
            states=",".join(str(int(state)) for state in states),
            table=f"`{table.database}`.`jobs_p{table.priority}`",
            first=first,
            rows=self._rows,
        )
        try:
            rows = await self._run(statement)
        except SourceFailed as failed:
            raise SourceFailed(f"{table.name} on {failed.message}", passing=failed.passing) from failed
        jobs = [_job(row) for row in rows if row[1] in wanted]
        others = Counter(_word(row[1]) for row in rows if row[1] not in wanted)
        ended = len(rows) < self._rows
        size = max(1, sum(job.size for job in jobs))
        self._rows = min(_ROWS_MAX, 2 * self._rows, max(1, self._rows * _PAGE_BYTES // size))
        return SourcePage(jobs, others, None if ended else int(rows[-1][0]) + 1)

    async def _run(self, statement: str) -> Sequence[tuple[Any, ...]]:
        if self._connection is None:
            self._connection = await connect(self._server, self._tls)
        try:
            return await self._connection.rows(statement)
        except BaseException:
            self._connection = None
            raise


def _statement(name: str) -> str:
    lines = (_QUERIES / f"{name}.sql").read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith("--"))


def _word(state: int) -> str:
    return JobState(state).name.lower() if state in JobState.__members__.values() else "other"


def _job(row: tuple[Any, ...]) -> OldJob:
    local_id, _, remaining, run_after_s, created_at_s, status, body = row
    return OldJob(
        int(local_id),
        int(remaining or 0),
        int(run_after_s * 1000) if run_after_s else None,
        int(created_at_s or 0),
        _text(status),
        _bytes(body),
    )


def _text(value: str | bytes | None) -> str:
    """Returns the text of a column. A column that was declared binary is read as UTF-8."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""


def _bytes(value: str | bytes | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""
