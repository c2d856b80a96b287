"""Claims from memory beside other servers, locks, deletions and changes that come while they run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest

from pinlater.domain.clock import ManualClock
from pinlater.domain.errors import PinLaterError
from pinlater.domain.job import HandedOutJob
from pinlater.server.storage.commands import ClaimJobs, DeleteQueues, ListQueues, TimeOutClaims, create_queues
from pinlater.server.storage.mysql.connection import Result
from pinlater.server.storage.mysql.ready_jobs import DISTRUSTED_S, JOB_BYTES, ReadyBytes
from pinlater.server.storage.mysql.settings import MysqlSettings
from pinlater.server.storage.mysql.shard import MysqlShard
from pinlater.server.storage.mysql.transaction import Transaction
from pinlater.server.storage.values import ClaimCall, ClaimOrder
from tests.contract.desk import Desk
from tests.mysql.proxied_mysql import LIMITS, ProxiedMysql
from tests.shared_shards.proxied_database import QUEUE, stats_of

_OTHER = "other"
# A server looks for jobs of other servers once a second, from the start of the queue once a second.
_FOUND_WITHIN_MS = 2_300


async def claim(desk: Desk, limit: int, *queues: str, from_memory: bool = True) -> list[HandedOutJob]:
    orders = [
        ClaimOrder(queue, [ClaimCall(limit, desk.holder())], 60_000, from_memory=from_memory)
        for queue in queues or (QUEUE,)
    ]
    found = await desk.shard.submit(ClaimJobs(orders, desk.now))
    return [job for each in found if not isinstance(each, PinLaterError) for jobs in each.jobs for job in jobs]


async def bodies(desk: Desk, limit: int, *queues: str, from_memory: bool = True) -> list[bytes]:
    return [job.body for job in await claim(desk, limit, *queues, from_memory=from_memory)]


def remembered(desk: Desk) -> tuple[float, float]:
    """How many jobs the shard's memory has, and how many bytes it counts for them."""
    figures = desk.shard.figures()
    return figures["remembered_jobs"], figures["remembered_bytes"]


async def desk_by(database: ProxiedMysql, clock: ManualClock) -> Desk:
    """A server that has both its times from one clock."""

    def make() -> MysqlShard:
        shard = MysqlShard(database.endpoint(direct=True), MysqlSettings(**LIMITS), monotonic=clock.monotonic)
        database.closes(shard)
        return shard

    desk = Desk(make)
    desk.clock = clock
    await desk.open()
    await desk.shard.submit(create_queues([QUEUE], desk.now))
    return desk


@pytest.mark.parametrize("from_memory", [True, False])
@pytest.mark.parametrize("priority", [1, 3])
async def test_jobs_of_another_server_wait_for_two_seconds_at_most_in_a_busy_queue(
    database: ProxiedMysql, from_memory: bool, priority: int
) -> None:
    """Memory answers most claims, so the looks for other servers' jobs must be made by those that search."""
    clock = ManualClock()
    here, there = await desk_by(database, clock), await desk_by(database, clock)
    await claim(here, 5, from_memory=from_memory)
    for number in range(100):
        await here.put(b"ours", priority=3)
        clock.advance(ms=60)
        if number == 30:
            stored_ms = there.now
            await there.put(b"theirs", priority=priority)
        if b"theirs" in await bodies(here, 1, from_memory=from_memory):
            assert clock.now_ms() - stored_ms < _FOUND_WITHIN_MS
            return
    pytest.fail("the job was never handed out")


async def test_a_priority_that_becomes_known_while_a_claim_commits_changes_nothing_for_it(
    database: ProxiedMysql, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = await database.desk(direct=True)
    await here.put(b"x")
    commit, learning = Transaction.commit, iter([True])

    async def commit_and_learn(transaction: Transaction, *last: bytes) -> list[Result]:
        answers = await commit(transaction, *last)
        if next(learning, False):
            await here.put(b"y", priority=7)
        return answers

    monkeypatch.setattr(Transaction, "commit", commit_and_learn)
    assert await bodies(here, 5) == [b"x"]


@pytest.mark.parametrize("from_memory", [True, False])
async def test_a_row_that_another_server_has_locked_keeps_claims_for_a_moment_and_once(
    database: ProxiedMysql, kind: str, from_memory: bool
) -> None:
    """As by a server that is suspended in the middle of a claim. MariaDB waits for no lock, and MySQL for up to two seconds, as a time
    limit of one second is looked at once a second."""
    moment_s = 4.0 if kind == "mysql8" and from_memory else 1.0
    here = await database.desk(direct=True, lock_wait_ms=10_000, statement_timeout_ms=15_000)
    await here.shard.submit(create_queues([_OTHER], here.now))
    await claim(here, 1, QUEUE, _OTHER, from_memory=from_memory)
    for body in (b"1", b"2", b"3"):
        await here.put(body)
    await here.put(b"other", queue=_OTHER)
    async with database.server.connect(database=database.name, autocommit=False) as other, other.cursor() as cursor:
        await cursor.execute("SELECT id FROM ready ORDER BY queue_id, priority, run_after_ms, id LIMIT 1 FOR UPDATE")
        began = time.monotonic()
        found = await asyncio.gather(
            bodies(here, 1, from_memory=from_memory), bodies(here, 1, _OTHER, from_memory=from_memory)
        )
        assert list(found) == [[b"2"], [b"other"]]
        assert time.monotonic() - began < moment_s
        began = time.monotonic()
        assert await bodies(here, 1, from_memory=from_memory) == [b"3"]
        assert time.monotonic() - began < 1.0
        await other.rollback()
    assert await bodies(here, 1, from_memory=from_memory) == [b"1"]
    await database.assert_consistent()


async def test_after_a_claim_from_memory_that_failed_claims_search_for_some_seconds(database: ProxiedMysql) -> None:
    clock = ManualClock()
    here, there = await desk_by(database, clock), await desk_by(database, clock)

    async def round_trips_of_a_claim() -> int:
        await here.put(b"x")
        before = stats_of(here).round_trips
        assert await bodies(here, 1) == [b"x"]
        return int(stats_of(here).round_trips - before)

    await claim(here, 1)
    assert await round_trips_of_a_claim() == 1
    await here.put(b"theirs")
    assert await bodies(there, 1, from_memory=False) == [b"theirs"]
    assert await bodies(here, 1) == []
    assert here.shard.figures()["stale_claims"] == 1
    assert await round_trips_of_a_claim() == 2
    clock.advance(ms=int(DISTRUSTED_S * 1000) + 1)
    await claim(here, 2)
    assert await round_trips_of_a_claim() == 1


async def test_memory_of_a_queue_that_was_deleted_and_made_again_counts_no_longer(database: ProxiedMysql) -> None:
    here, there = await database.desk(direct=True), await database.desk(direct=True)
    for _ in range(4):
        await here.shard.submit(ListQueues())
        await claim(here, 1)
        await here.put(b"x" * 100_000)
        await there.shard.submit(DeleteQueues([QUEUE]))
        for desk in (here, there):
            desk.clock.advance(ms=10)
        await there.shard.submit(create_queues([QUEUE], there.now))
        await there.put(b"y")
        assert await bodies(there, 1, from_memory=False) == [b"y"]
        for desk in (here, there):
            desk.clock.advance(hours=1)
        await here.shard.submit(TimeOutClaims(here.now, 10))  # meets the new queue by its id
        await claim(here, 5)
        await claim(here, 5)
        assert remembered(here) == (0, 0)


@pytest.mark.parametrize("queues", [(QUEUE,), (QUEUE, "nosuch")])
async def test_a_claim_that_finds_nothing_leaves_no_transaction_open(
    database: ProxiedMysql, queues: Sequence[str]
) -> None:
    here = await database.desk(direct=True)
    await claim(here, 1)
    for _ in range(2):
        assert await claim(here, 1, *queues) == []
    async with database.server.connect(database=database.name) as other, other.cursor() as cursor:
        await cursor.execute("SET lock_wait_timeout = 2")
        await cursor.execute("ALTER TABLE queues COMMENT 'x'")


async def test_the_jobs_of_a_queue_without_workers_leave_the_memory_to_other_queues(database: ProxiedMysql) -> None:
    clock = ManualClock()
    here = await desk_by(database, clock)
    await here.shard.submit(create_queues([_OTHER], here.now))
    await claim(here, 1, QUEUE, _OTHER)
    for _ in range(18):
        await here.put(b"x" * 1_000_000, queue=_OTHER)
    clock.advance(hours=1)
    await here.put(b"x", queue=_OTHER)
    await claim(here, 1)
    before = stats_of(here).round_trips
    for _ in range(5):
        await here.put(b"1")
        assert await bodies(here, 1) == [b"1"]
    assert stats_of(here).round_trips - before == 10  # an insert and a claim each


async def test_jobs_of_a_long_request_are_searched(database: ProxiedMysql) -> None:
    """To remember ten thousand jobs would keep the event loop from other calls for too long."""
    here = await database.desk(direct=True)
    await claim(here, 1)
    await here.put(b"before")
    await here.insert(*[here.job(b"%d" % number) for number in range(1_100)])
    assert remembered(here)[0] == 1
    assert await bodies(here, 3) == [b"before", b"0", b"1"]
    await here.assert_counters_exact()


async def test_the_shards_of_a_server_share_the_space_and_a_closed_shard_leaves_its_part(
    database: ProxiedMysql,
) -> None:
    shared = ReadyBytes(2 * JOB_BYTES)
    endpoint = database.endpoint(direct=True)
    places = [endpoint, replace(endpoint, database=f"{endpoint.database}_2")]
    first, second = [Desk(partial(MysqlShard, place, MysqlSettings(**LIMITS), ready_bytes=shared)) for place in places]
    for desk in (first, second):
        await desk.open()
        database.closes(desk.shard)
        await desk.shard.submit(create_queues([QUEUE], desk.now))
        await claim(desk, 1)
    for number in range(4):
        await first.put(b"first %d" % number)
    await second.put(b"second")
    assert [remembered(first)[1], remembered(second)[1]] == [shared.used, 0]
    assert shared.used > 0
    assert await bodies(second, 5) == [b"second"]
    await first.shard.close()
    assert shared.used == 0
    await second.put(b"another one")
    assert remembered(second) == (1, shared.used)
    assert await bodies(second, 5) == [b"another one"]


@pytest.mark.parametrize("back", [False, True])
async def test_a_job_that_is_remembered_and_moved_by_another_server_is_claimed_under_its_new_priority(
    database: ProxiedMysql, back: bool
) -> None:
    """Also if it has moved back since: its row says that it has a past now, and the memory does not."""
    clock = ManualClock()
    here, there = await desk_by(database, clock), await desk_by(database, clock)
    assert await claim(here, 5) == []
    keys = [await here.put(b"%d" % number, priority=2) for number in range(4)]
    assert remembered(here)[0] == 4
    await there.move(keys[1], 3)
    if back:
        await there.move(keys[1]._replace(priority=3), 2)
    else:
        await there.move(keys[3], 1)
    found = [job for _ in range(4) for job in await claim(here, 1)]
    order = [(b"0", 2), (b"1", 2), (b"2", 2), (b"3", 2)] if back else [(b"3", 1), (b"0", 2), (b"2", 2), (b"1", 3)]
    assert sorted((job.body, job.priority) for job in found) == sorted(order)
    await database.assert_consistent()


async def test_a_server_that_moves_jobs_that_it_remembers_claims_them_in_their_new_order(
    database: ProxiedMysql,
) -> None:
    clock = ManualClock()
    here = await desk_by(database, clock)
    assert await claim(here, 5) == []
    keys = [await here.put(b"%d" % number, priority=2) for number in range(3)]
    await here.move(keys[0], 3)
    await here.move(keys[2], 1)
    assert [job.body for _ in range(3) for job in await claim(here, 1)] == [b"2", b"1", b"0"]
    await database.assert_consistent()
