"""Jobs with ordering keys in a database: few round trips, and no rows that are never deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pinlater.domain.errors import OrderElsewhere
from pinlater.domain.job import Outcome
from pinlater.domain.queue import Home, QueueConfig
from pinlater.server.storage.commands import ConfigureQueue, InsertJobs, MoveHome, UnblockKey
from pinlater.server.storage.values import Inserted, InsertRequest
from tests.contract.desk import Desk
from tests.mysql.proxied_mysql import ProxiedMysql
from tests.shared_shards.proxied_database import QUEUE, stats_of, until

# The database looks again only where the last question was a tenth of a second ago.
_WAITING = (
    "SELECT count(*) FROM information_schema.innodb_trx JOIN information_schema.processlist ON id = trx_mysql_thread_id"
    " WHERE trx_state = 'LOCK WAIT'"
)


async def test_requests_of_one_call_are_stored_in_two_round_trips(database: ProxiedMysql) -> None:
    """One to lock the keys and read their last places, whichever requests they are of; and one with all rows."""
    desk = await database.desk(direct=True)
    await desk.put(ordering_key="a")  # the first such job of the shard raises its schema
    requests = [InsertRequest(QUEUE, [desk.job(ordering_key=key)]) for key in ("a", "b", "b", "c", "a")]
    before = stats_of(desk).round_trips
    answers = await desk.shard.submit(InsertJobs(requests, desk.now))
    assert stats_of(desk).round_trips == before + 2
    assert all(isinstance(answer, Inserted) for answer in answers)
    assert ((await desk.counts()).pending, (await desk.counts()).future) == (6, 3)
    await database.assert_consistent()


async def test_a_job_behind_others_leaves_no_row_among_those_that_come_due(database: ProxiedMysql, desk: Desk) -> None:
    """Its time never comes, so no sweep would delete the row."""
    for body in (b"first", b"second", b"third"):
        await desk.put(body, ordering_key="a")
    for _ in range(3):
        await desk.succeed((await desk.take()).key)
    assert await database.ask("SELECT * FROM future") == []
    await database.assert_consistent()


async def waits_for_locks(database: ProxiedMysql, transactions: int) -> None:
    """Returns once this number of transactions waits for locks."""

    async def waiting() -> bool:
        [[count]] = await database.ask(_WAITING)
        return int(count) == transactions

    await until(waiting, every_s=0.15)


@asynccontextmanager
async def locked(database: ProxiedMysql, rows: str) -> AsyncIterator[None]:
    """Rows are locked meanwhile."""
    async with database.server.connect(database=database.name) as connection, connection.cursor() as cursor:
        await cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        await cursor.execute("BEGIN")
        await cursor.execute(f"SELECT * FROM {rows} FOR UPDATE")
        yield
        await cursor.execute("ROLLBACK")


async def servers_of(database: ProxiedMysql) -> tuple[Desk, Desk]:
    """Two servers, which wait long for locks: each does one thing after the other."""
    one, other = [await database.desk(direct=True, lock_wait_ms=20_000, statement_timeout_ms=30_000) for _ in range(2)]
    return one, other


async def configure(desk: Desk, **settings: object) -> None:
    await desk.shard.submit(ConfigureQueue(QUEUE, config=QueueConfig(**settings)))  # type: ignore[arg-type]


async def test_a_job_that_is_retried_while_its_key_is_unblocked_takes_the_last_place(database: ProxiedMysql) -> None:
    desk, other = await servers_of(database)
    await configure(desk, after_failure="stop")
    first, second, _ = [await desk.put(ordering_key="a") for _ in range(3)]
    await desk.fail((await desk.take()).key, final=True)
    async with locked(database, f"jobs WHERE id = {second.id}"):
        unblocking = asyncio.create_task(desk.shard.submit(UnblockKey(QUEUE, "a", desk.now)))
        await waits_for_locks(database, 1)  # it has taken the place of the first job
        retrying = asyncio.create_task(other.run(first))
        await waits_for_locks(database, 2)
    assert (await unblocking, (await retrying).outcome) == (1, Outcome.APPLIED)
    assert [held.key for held in await desk.claim(3, owned=False)] == [second]
    await database.assert_consistent()


async def test_an_unblock_of_a_key_that_nothing_stops_waits_for_no_job_in_progress(database: ProxiedMysql) -> None:
    """Otherwise it forms a deadlock with the ack of that job."""
    desk, _ = await servers_of(database)
    first, second = [await desk.put(ordering_key="a") for _ in range(2)]
    held = await desk.take()
    async with locked(database, f"jobs JOIN claims USING (id) WHERE id = {first.id}"):
        assert await asyncio.wait_for(desk.shard.submit(UnblockKey(QUEUE, "a", desk.now)), 10) == 0
    await desk.succeed(held.key)
    assert (await desk.take()).key == second
    await database.assert_consistent()


async def test_a_job_that_stops_its_key_as_another_of_the_key_ends_keeps_it_stopped(database: ProxiedMysql) -> None:
    desk, other = await servers_of(database)
    await desk.fail((await desk.put_and_take()).key)  # then there is a row that counts such failures
    first = await desk.put(ordering_key="a")
    await configure(desk, after_failure="stop", max_in_hand_per_key=2)
    second, _, _ = [await desk.put(ordering_key="a") for _ in range(3)]
    assert {held.key for held in await desk.claim(4)} >= {first, second}
    async with locked(database, "failures"):
        failing = asyncio.create_task(desk.fail(first, final=True))
        await waits_for_locks(database, 1)  # it has decided
        ending = asyncio.create_task(other.succeed(second))
        await waits_for_locks(database, 2)
    assert [(await failing).outcome, (await ending).outcome] == [Outcome.APPLIED] * 2
    assert await other.claim(3, owned=False) == []
    await database.assert_consistent()


async def test_an_enqueue_that_waits_while_its_shard_ceases_to_be_the_home_stores_nothing(
    database: ProxiedMysql,
) -> None:
    desk, other = await servers_of(database)
    home = await desk.become_home()
    await other.put(ordering_key="a")
    moved = Home("2", home.version + 1, desk.shard.name)
    async with locked(database, "queues"):
        move = asyncio.ensure_future(desk.shard.submit(MoveHome(QUEUE, home, moved)))
        await waits_for_locks(database, 1)
        enqueue = asyncio.ensure_future(other.request(InsertRequest(QUEUE, [other.job(ordering_key="b")])))
        await waits_for_locks(database, 2)
    assert await move == moved
    assert isinstance(await enqueue, OrderElsewhere)
    assert (await desk.counts()).pending == 1
    await database.assert_consistent()
