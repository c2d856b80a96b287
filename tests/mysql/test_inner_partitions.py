"""Changes of partitions at moments that only the shard knows: its own connection for them, and a transaction that is half sent."""

from __future__ import annotations

import asyncio

import pytest

from pinlater.domain.job import JobState
from pinlater.server.storage.commands import CollectGarbage, MoveJobs
from pinlater.server.storage.mysql.connection import MysqlConnection, Result, connect
from pinlater.server.storage.mysql.settings import MysqlSettings
from pinlater.server.storage.mysql.transaction import Transaction
from pinlater.server.storage.values import TimeToLive
from tests.contract.desk import ALL, HOUR_MS, QUEUE, Desk
from tests.databases.database import DatabaseServer
from tests.mysql.test_partitions import (
    PartitionedTables,
    _work,
    collect_all,
    copy,
    desk,
    rows,
    server,
    shard_of,
)

__all__ = ["desk", "rows", "server"]  # fixtures


async def test_a_long_read_that_blocks_a_partition_change_delays_no_other_call(
    desk: Desk, rows: PartitionedTables, server: DatabaseServer
) -> None:
    """Callers behind a waiting change wait as long, so the server ends it. The database would wait longer than any statement may."""
    await desk.put_in(JobState.SUCCEEDED)
    before = await rows.partitions()
    desk.clock.advance(hours=1, ms=2)
    await desk.collect()
    desk.clock.advance(hours=2)
    waits_long = MysqlSettings(lock_wait_ms=600_000, statement_timeout_ms=600_000)
    shard = shard_of(desk)

    async def connect_to_wait_long() -> MysqlConnection:
        return await connect(shard.endpoint, waits_long, autocommit=True)

    shard._partitions._connect = connect_to_wait_long
    async with server.connect(db=rows.database, autocommit=False) as reader, reader.cursor() as cursor:
        await cursor.execute("SELECT count(*) FROM jobs")

        working = asyncio.create_task(_work(desk))
        assert await shard.keep_partitions(desk.now) == []
        assert await working == 20

        assert before[0] in await rows.partitions()
        await reader.rollback()
    desk.clock.advance(hours=1)
    await collect_all(desk)
    assert before[0] not in await rows.partitions()


async def test_a_change_of_partitions_waits_a_second_at_most(desk: Desk) -> None:
    """If our server has no connection left to end it sooner, the database itself does."""
    connection = await shard_of(desk)._partitions._connect()
    [found] = await connection.run([b"SELECT @@lock_wait_timeout"])
    await connection.quit()
    assert [int(value) for [value] in found.rows] == [1]


@pytest.mark.parametrize("is_copied", ["before the move", "after it", "while it commits"])
async def test_jobs_that_moved_to_another_priority_outlive_their_partition(
    desk: Desk, rows: PartitionedTables, is_copied: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that drops partitions copies rows without a look at locks, and leaves copies that there are."""
    waiting = await desk.put(b"far off", delay_ms=100 * HOUR_MS, headers={"a": "b"})
    failed = await desk.put_in(JobState.FAILED, b"tried")
    desk.clock.advance(hours=0.75)
    ids = [waiting.id, failed.id]
    commit, copying = Transaction.commit, asyncio.Event()

    async def commit_beside_a_copy(transaction: Transaction, *last: bytes) -> list[Result]:
        if copying.is_set() or not transaction.marked:
            return await commit(transaction, *last)
        copying.set()
        await transaction._flush([])
        copied = asyncio.ensure_future(copy(desk, ids))
        async with asyncio.timeout(20):
            while not copied.done() and not await rows.locks_waited_for():
                await asyncio.sleep(0.2)
        answers = await commit(transaction, *last)
        await copied
        return answers

    if is_copied == "before the move":
        await copy(desk, ids)
    elif is_copied == "while it commits":
        monkeypatch.setattr(Transaction, "commit", commit_beside_a_copy)
    await desk.shard.submit(MoveJobs([waiting, failed], 3, desk.now))
    assert copying.is_set() is (is_copied == "while it commits")
    keys = [key._replace(priority=3) for key in (waiting, failed)]
    looked = [await desk.look(key) for key in keys]
    desk.clock.advance(hours=2)
    day = TimeToLive(QUEUE, 24 * HOUR_MS, 24 * HOUR_MS)
    while await rows.count("jobs"):
        await desk.shard.submit(CollectGarbage([day], desk.now, ALL))
        desk.clock.advance(hours=1)

    assert [await desk.look(key) for key in keys] == looked
    assert (looked[0].body, looked[1].body) == (b"far off", b"tried")
    await desk.assert_counters_exact()
