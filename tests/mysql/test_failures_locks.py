"""Another client of the database holds rows that we need: claims pass them over, everything else waits, retries and ends in bounds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pinlater.domain.errors import OutcomeUnknown, ShardConnectionFailed
from pinlater.domain.job import JobState, Outcome
from tests.contract.desk import Desk
from tests.mysql.proxied_mysql import ProxiedMysql
from tests.shared_shards.proxied_database import gathered, stats_of, until

# The database sends away who has changed less: this is more than any of ours.
MUCH = """
INSERT INTO expiries
SELECT seq.n, 1 FROM (SELECT ROW_NUMBER() OVER () AS n FROM information_schema.columns LIMIT 500) AS seq
"""


class OtherClient:
    """A second client with a transaction open."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    async def does(self, statement: str) -> list[Any]:
        await self._cursor.execute(statement)
        return list(await self._cursor.fetchall() or ())


@asynccontextmanager
async def other_client(database: ProxiedMysql, *statements: str) -> AsyncIterator[OtherClient]:
    """Its transaction is rolled back at the end."""
    async with (
        database.server.connect(database=database.name, autocommit=False) as connection,
        connection.cursor() as cursor,
    ):
        found = OtherClient(cursor)
        await found.does("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")  # locks what it meets, and no more
        for statement in statements:
            await found.does(statement)
        yield found
        await connection.rollback()


async def waits_for_a_lock(database: ProxiedMysql) -> None:
    """Until some transaction does.

    The table is made anew only if it was not read for a tenth of a second: its rows may be those of the test before, whose connections
    have ended.
    """
    waiting = (
        "SELECT 1 FROM information_schema.innodb_trx JOIN information_schema.processlist ON id = trx_mysql_thread_id"
        " WHERE trx_state = 'LOCK WAIT'"
    )

    async def some() -> bool:
        return bool(await database.ask(waiting))

    await until(some, every_s=0.15)


async def clear(call: Awaitable[object]) -> ShardConnectionFailed:
    """It fails so that a caller knows what to do."""
    with pytest.raises(ShardConnectionFailed, match="nothing was changed") as failed:
        await call
    assert failed.value.retryable
    assert failed.value.retry_after_ms
    assert not isinstance(failed.value, OutcomeUnknown)
    return failed.value


async def test_a_claim_skips_jobs_that_another_transaction_has_locked(database: ProxiedMysql, desk: Desk) -> None:
    held, free = await desk.put(b"held"), await desk.put(b"free")
    async with other_client(database, f"SELECT * FROM ready WHERE id = {held.id} FOR UPDATE"):
        assert [job.key for job in await desk.claim(2, owned=False)] == [free]
    assert stats_of(desk).lock_waits == 0
    assert [job.key for job in await desk.claim(2, owned=False)] == [held]
    await database.assert_consistent()


async def test_an_ack_waits_for_the_row_of_its_claim(database: ProxiedMysql, desk: Desk) -> None:
    held = await desk.put_and_take()
    async with other_client(database, "SELECT * FROM claims FOR UPDATE"):
        ack = asyncio.ensure_future(desk.succeed(held.key, token=held.holder.token))
        await waits_for_a_lock(database)
    assert (await ack).outcome is Outcome.APPLIED
    await database.assert_consistent()


@pytest.mark.parametrize(("table", "word"), [("claims", "ack"), ("counters", "insert"), ("queues", "insert")])
async def test_a_wait_that_lasts_ends_in_an_error_and_nothing_is_changed(
    database: ProxiedMysql, table: str, word: str
) -> None:
    """A queue's row is needed only where its counters are new."""
    retries = int(table == "claims")
    desk = await database.desk(statement_timeout_ms=20_000, retries=retries)
    held = await desk.put_and_take()
    before = await desk.counts()
    job = desk.job(b"new", priority=2 if table == "queues" else 1)
    async with other_client(database, f"SELECT * FROM {table} FOR UPDATE"):
        await clear(desk.succeed(held.key, token=held.holder.token) if word == "ack" else desk.insert(job))
    assert stats_of(desk).lock_waits == 1 + retries
    assert await desk.counts() == before
    if word == "ack":
        assert (await desk.succeed(held.key, token=held.holder.token)).outcome is Outcome.APPLIED
    else:
        await desk.insert(job)
    await database.assert_consistent()


@pytest.mark.parametrize("retries", [3, 0])
async def test_the_loser_of_a_deadlock_does_it_again(database: ProxiedMysql, retries: int) -> None:
    """As often as is set; then the caller gets an error."""
    desk = await database.desk(statement_timeout_ms=20_000, lock_wait_ms=10_000, retries=retries)
    await desk.succeed((await desk.put_and_take()).key)  # from now on the writer has a row of counters
    held = await desk.put_and_take()
    async with other_client(database, MUCH, "UPDATE counters SET pending = pending + 1") as other:
        ack = asyncio.ensure_future(desk.succeed(held.key, token=held.holder.token))
        await waits_for_a_lock(database)
        await other.does("SELECT * FROM claims FOR UPDATE")
        if not retries:
            await clear(ack)
    if not retries:
        ack = asyncio.ensure_future(desk.succeed(held.key, token=held.holder.token))
    assert (await ack).outcome is Outcome.APPLIED
    assert stats_of(desk).deadlocks == 1
    await database.assert_consistent()


@pytest.mark.crash
async def test_a_storm_of_deadlocks_loses_nothing(database: ProxiedMysql) -> None:
    """Another client takes rows in the other order: all calls end, most of them well, and the failed ones can be repeated."""
    desk = await database.desk(retries=5)
    count = 30
    for _ in range(count):
        await desk.put()
    over = asyncio.Event()

    async def storm() -> None:
        while not over.is_set():
            async with other_client(
                database, MUCH, "UPDATE counters SET pending = pending + 1", "UPDATE writers SET newest = newest"
            ) as other:
                await gathered([other.does("SELECT * FROM claims ORDER BY id DESC FOR UPDATE")])

    async def work() -> int:
        done = 0
        while done < count // 3:
            [held] = await gathered([desk.claim()])
            if isinstance(held, BaseException) or not held:
                assert not isinstance(held, BaseException) or isinstance(held, ShardConnectionFailed)
                continue
            while isinstance(
                (await gathered([desk.succeed(held[0].key, token=held[0].holder.token)]))[0], ShardConnectionFailed
            ):
                pass
            done += 1
        return done

    storms = [asyncio.ensure_future(storm()) for _ in range(2)]
    try:
        await asyncio.wait_for(asyncio.gather(work(), work(), work()), 60)
    finally:
        over.set()
        await gathered(storms)
    assert len(await desk.scan(JobState.SUCCEEDED)) == count
    await database.assert_consistent()
