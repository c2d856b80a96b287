"""The partitions of `jobs`: made ahead of time, and dropped when the jobs in them are gone, which gives their disk back at once.

A partition holds the jobs that were made in some hours. Collecting garbage deletes narrow rows only; bodies wait for their partition's
end. The few jobs that outlive it (far-off ones, failures that are kept longer) are first copied to `kept_jobs`; if they are many, the
partition waits.

Changing partitions briefly needs exclusive access to the table. A long read would make every later transaction wait behind the change, so
the change gives up after waiting a tenth of a second (a full one, if no connection is left to end it) and is retried later. One server at
a time does this; it only saves space, and nothing depends on when it happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple

from asyncmy import errors as driver

from pinlater.domain.descriptor import I64_MAX
from pinlater.domain.ids import first_id_at, made_at_ms
from pinlater.server.storage.connections import DatabaseConnectionLost
from pinlater.server.storage.mysql.connection import MysqlConnection, code_of
from pinlater.server.storage.mysql.statements import Sql, delete_rows, lock_name, sql

logger = logging.getLogger(__name__)

HOUR_MS = 3_600_000
# No partition is dropped before its newest job is this old, whatever the times to live are.
DROP_AGE_MS = HOUR_MS
# How many periods are prepared, again once half of them have begun.
_AHEAD = 6
_SURVIVORS_MAX = 10_000
_SURVIVING_BYTES_MAX = 256 * 1024 * 1024
_LOOK_MAX = 1_000
_MOVE_MAX = 50
_LOCK_WAIT_MS = 100
_LAST = "later"

_NOW = sql("now")
_LIST_PARTITIONS = sql("list_partitions")
_COUNT_DONE_BETWEEN = sql("count_done_between")
_SELECT_STATES_AFTER = sql("select_states_after")
_KEEP_JOBS = sql("keep_jobs")


class Partition(NamedTuple):
    """A partition, with the lowest id that it can't hold, or None for the last one, which holds all higher ids."""

    name: str
    below_id: int | None


class Partitions:
    """Maintains the partitions of one shard. `connect` gives a connection with autocommit; `hours`: the length of a partition's period."""

    def __init__(self, connect: Callable[[], Awaitable[MysqlConnection]], database: str, hours: int) -> None:
        self._connect = connect
        self._database = database
        self._period_ms = hours * HOUR_MS
        self._waits_until_ms: dict[str, int] = {}  # partitions with too many survivors, and when to look again

    async def keep(self, now_ms: int) -> list[str]:
        """Creates partitions for the time to come and drops those that no longer hold jobs. Returns the names of the dropped ones."""
        async with self._alone() as connection:
            if connection is None:
                return []
            await self._look_ahead(connection, now_ms)
            dropped = await self._drop_old(connection, now_ms)
            await self._forget_kept(connection)
            return dropped

    async def make_ahead(self, now_ms: int) -> None:
        """Makes partitions for the time to come if the database's clock agrees, or there are none yet. Drops none: both clocks may be
        wrong.

        The first ones begin at the earlier time. If it is wrong, `keep` adds others; with the later one, a partition could last for years.
        """
        async with self._alone() as connection:
            if connection is None:
                return
            [now] = await connection.run([_NOW()])
            there_ms = int(now.rows[0][0])
            is_new = all(part.below_id is None for part in await _partitions(connection))
            if is_new or abs(there_ms - now_ms) < HOUR_MS:
                await self._look_ahead(connection, min(there_ms, now_ms))

    @contextlib.asynccontextmanager
    async def _alone(self) -> AsyncIterator[MysqlConnection | None]:
        """A connection for work that one server does at a time, or None while another one does it."""
        connection = await self._connect()
        try:
            lock = lock_name("partitions", self._database)
            [held] = await connection.run([b"SELECT GET_LOCK(%b, 0)" % lock])
            yield connection if held.rows[0][0] == 1 else None
            # The end of the session frees it too, but some time after `quit`.
            await connection.run([b"DO RELEASE_LOCK(%b)" % lock])
        finally:
            await connection.quit()

    # --- ahead ----------------------------------------------------------------------------------------------------------------

    async def _look_ahead(self, connection: MysqlConnection, now_ms: int) -> None:
        """Splits the last partition, which is empty as long as this is done in time."""
        known = [part.below_id for part in await _partitions(connection) if part.below_id is not None]
        newest_ms = max([now_ms - now_ms % self._period_ms, *map(made_at_ms, known)])
        if newest_ms >= now_ms + _AHEAD // 2 * self._period_ms:
            return
        bounds = []
        while newest_ms < now_ms + _AHEAD * self._period_ms:
            newest_ms += self._period_ms
            bounds.append(first_id_at(newest_ms))
        parts = [f"PARTITION {_name_of(bound)} VALUES LESS THAN ({bound})" for bound in bounds]
        parts.append(f"PARTITION {_LAST} VALUES LESS THAN MAXVALUE")
        await self._alter(connection, f"ALTER TABLE jobs REORGANIZE PARTITION {_LAST} INTO ({', '.join(parts)})")

    # --- dropping -------------------------------------------------------------------------------------------------------------

    async def _drop_old(self, connection: MysqlConnection, now_ms: int) -> list[str]:
        dropped = []
        from_id = 0
        for part in await _partitions(connection):
            if part.below_id is None or part.below_id > first_id_at(now_ms - DROP_AGE_MS):
                break
            if self._waits_until_ms.get(part.name, 0) <= now_ms:
                if await self._is_over(connection, from_id, part.below_id):
                    if await self._alter(connection, f"ALTER TABLE jobs DROP PARTITION {part.name}"):
                        dropped.append(part.name)
                        self._waits_until_ms.pop(part.name, None)
                else:
                    self._waits_until_ms[part.name] = now_ms + self._period_ms // 4
            from_id = part.below_id
        if dropped:
            logger.info("partitions dropped", extra={"database": self._database, "partitions": dropped})
        return dropped

    async def _is_over(self, connection: MysqlConnection, from_id: int, to_id: int) -> bool:
        """Returns whether all its jobs are gone or kept elsewhere now."""
        [finished] = await connection.run([_COUNT_DONE_BETWEEN(from_id=from_id, to_id=to_id, limit=_SURVIVORS_MAX + 1)])
        if finished.rows[0][0] > _SURVIVORS_MAX:
            return False
        survivors: list[int] = []
        size = 0
        async for job_id, body_bytes, alive in _walk(connection, b"jobs", from_id, to_id):
            if alive:
                survivors.append(job_id)
                size += body_bytes
                if len(survivors) > _SURVIVORS_MAX or size > _SURVIVING_BYTES_MAX:
                    return False
        for start in range(0, len(survivors), _MOVE_MAX):
            await connection.run([_KEEP_JOBS(ids=survivors[start : start + _MOVE_MAX])])
        return True

    async def _forget_kept(self, connection: MysqlConnection) -> None:
        """Forgets kept jobs that are gone since."""
        gone = [job_id async for job_id, _, alive in _walk(connection, b"kept_jobs", 0, I64_MAX) if not alive]
        for start in range(0, len(gone), _LOOK_MAX):
            await connection.run([delete_rows(b"kept_jobs", gone[start : start + _LOOK_MAX])])

    # --- exclusive access to the table ------------------------------------------------------------------------------------------

    async def _alter(self, connection: MysqlConnection, statement: str) -> bool:
        """Alters the table. Returns False if another transaction held it for too long."""
        altering = asyncio.ensure_future(connection.run([statement.encode()]))
        try:
            done, _ = await asyncio.wait([altering], timeout=_LOCK_WAIT_MS / 1000)
            while not done:
                await self._end_waiting(connection)
                done, _ = await asyncio.wait([altering], timeout=_LOCK_WAIT_MS / 1000)
            await altering
        except driver.MySQLError as error:
            if code_of(error) in {1205, 1317}:  # lock wait, interrupted
                return False
            raise
        finally:
            altering.cancel()
        return True

    async def _end_waiting(self, waiting: MysqlConnection) -> None:
        """Interrupts the change if it only waits; a change that has begun may finish."""
        other = await self._connect()
        try:
            [holder] = await other.run([f"SELECT IS_USED_LOCK('{waiting.name}')".encode()])
            number = holder.rows[0][0]
            if number is None:
                return
            [state] = await other.run(
                [
                    b"SELECT state LIKE 'Waiting for table metadata lock%%' FROM information_schema.processlist WHERE id = %d"
                    % number
                ]
            )
            if state.rows and state.rows[0][0]:
                with contextlib.suppress(driver.MySQLError):
                    await other.run([b"KILL QUERY %d" % number])
        except DatabaseConnectionLost:
            return
        finally:
            await other.quit()


async def _partitions(connection: MysqlConnection) -> list[Partition]:
    [found] = await connection.run([_LIST_PARTITIONS()])
    return [
        Partition(str(name), None if str(below) == "MAXVALUE" else int(below))
        for name, below in found.rows
        if name is not None
    ]


async def _walk(
    connection: MysqlConnection, table: bytes, from_id: int, to_id: int
) -> AsyncIterator[tuple[int, int, int]]:
    """Yields (id, body bytes, whether it is still a job) for each row, reading a bounded number at a time."""
    while True:
        [found] = await connection.run(
            [_SELECT_STATES_AFTER(table=Sql(table), from_id=from_id, to_id=to_id, limit=_LOOK_MAX)]
        )
        for line in found.rows:
            yield line[0], line[1], line[2]
        if len(found.rows) < _LOOK_MAX:
            return
        from_id = found.rows[-1][0] + 1


def kept_before(now_ms: int) -> int:
    """Jobs with lower ids may be in `kept_jobs`: the server that drops partitions may have another clock."""
    return first_id_at(now_ms - DROP_AGE_MS // 2)


def _name_of(below_id: int) -> str:
    """Returns the name of a partition: `until_` and the milliseconds at which its period ends."""
    return f"until_{made_at_ms(below_id)}"
