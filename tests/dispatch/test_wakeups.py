"""Which jobs the other servers of the same shards are told of."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from pinlater.domain.clock import ManualClock
from pinlater.server.dispatch.wakeups import Wakeups
from pinlater.server.sharding.shard_lanes import ShardLanes
from pinlater.server.sharding.shards import Shards
from pinlater.server.storage.sqlite.memory import MemoryShard
from pinlater.server.storage.values import InsertRequest, NewJob

NOW_MS = 1_000_000
DUE, LATER = NewJob(1, b"due", 1, NOW_MS, 1), NewJob(2, b"later", 1, NOW_MS + 60_000, 1)


def wakeups_on(*names: str, limited: str = "") -> Wakeups:
    """The waiters of a server with these shards, where one queue has a rate limit."""
    clock = ManualClock(NOW_MS)
    shards = Shards([ShardLanes(MemoryShard(name), clock) for name in names], Random(1))
    return Wakeups(clock, shards, lambda queue: queue == limited)


@pytest.mark.parametrize("waited", [False, True], ids=["no dequeue ever waited here", "one has"])
def test_other_servers_are_told_of_due_jobs_only(waited: bool) -> None:
    told: list[tuple[str, int]] = []
    wakeups = wakeups_on("1")
    wakeups.join_others(lambda queue, jobs, past_owner: told.append((queue, jobs)), lambda _: None)
    if waited:
        wakeups.waiters_of("q")
    for jobs in ([DUE, DUE], [DUE, LATER], [LATER]):
        assert not wakeups.inserting("1", [InsertRequest("q", jobs)], NOW_MS, lambda _: True)
    assert told == [("q", 2), ("q", 1)]


def test_after_jobs_past_the_owner_the_next_claim_searches() -> None:
    told: list[bool] = []
    wakeups = wakeups_on("1")
    wakeups.join_others(lambda _queue, _jobs, past_owner: told.append(past_owner), lambda _: None)
    for owns in (lambda _: True, lambda _: False):
        wakeups.inserting("1", [InsertRequest("q", [DUE])], NOW_MS, owns)
    assert told == [False, True]
    waiters = wakeups.waiters_of("q")
    wakeups.wake_from_peer("q", 1, past_owner=False)
    assert not waiters.search
    wakeups.wake_from_peer("q", 1, past_owner=True)
    wakeups.wake_from_peer("q", 1, past_owner=False)
    assert waiters.search
    waiters.search = False
    wakeups.jobs_ready("q", 1)  # as after an ack, which goes to the owner
    assert not waiters.search
    wakeups.jobs_ready("q", 1, past_owner=True)  # as after a sweep or an operator's command, which don't
    assert waiters.search
    assert told == [False, True, False, True]


def test_jobs_on_a_shard_that_is_no_partition_of_their_queue_are_told_as_ones_past_the_owner() -> None:
    """A server that has counted that shard without them would not look there."""
    told: list[bool] = []
    wakeups = wakeups_on("1", "2", "3")
    wakeups.join_others(lambda _queue, _jobs, past_owner: told.append(past_owner), lambda _: None)
    for name in ("3", "1", "2"):
        wakeups.inserting(name, [InsertRequest("q", [DUE])], NOW_MS, lambda _: True)
    assert told == [False, True, True]


def test_other_servers_are_told_before_a_dequeue_waits() -> None:
    begun: list[str] = []
    wakeups = wakeups_on("1")
    wakeups.waiters_of("before there were others")
    wakeups.join_others(lambda _queue, _jobs, _past_owner: None, begun.append)
    for _ in range(2):
        wakeups.waiters_of("q")
    assert begun == ["q", "q"]


async def test_other_servers_are_told_of_the_jobs_that_no_dequeue_here_takes() -> None:
    told: list[tuple[str, int]] = []
    wakeups = wakeups_on("1", limited="limited")
    wakeups.join_others(lambda queue, jobs, past_owner: told.append((queue, jobs)), lambda _: None)
    for queue in ("q", "limited"):
        waits = [asyncio.ensure_future(wakeups.waiters_of(queue).wait(limit, 60)) for limit in (1, 2)]
        await asyncio.sleep(0)
        for number in (1, 5):
            assert wakeups.inserting("1", [InsertRequest(queue, [DUE] * number)], NOW_MS, lambda _: True)
        assert all(await asyncio.gather(*waits))
    assert told == [("q", 3), ("limited", 1), ("limited", 5)]


async def test_other_servers_are_told_of_jobs_past_the_owner_though_a_dequeue_here_takes_them() -> None:
    told: list[tuple[str, int]] = []
    wakeups = wakeups_on("1")
    wakeups.join_others(lambda queue, jobs, past_owner: told.append((queue, jobs)), lambda _: None)
    waits = asyncio.ensure_future(wakeups.waiters_of("q").wait(1, 60))
    await asyncio.sleep(0)
    assert wakeups.inserting("1", [InsertRequest("q", [DUE])], NOW_MS, lambda _: False)
    assert await waits
    assert told == [("q", 1)]


async def test_other_servers_are_told_of_jobs_whose_dequeue_here_ends_as_it_is_woken() -> None:
    told: list[tuple[str, int]] = []
    wakeups = wakeups_on("1")
    wakeups.join_others(lambda queue, jobs, past_owner: told.append((queue, jobs)), lambda _: None)
    waits = [asyncio.ensure_future(wakeups.waiters_of("q").wait(1, 60)) for _ in range(2)]
    await asyncio.sleep(0)
    wakeups.jobs_ready("q", 1)
    waits[0].cancel()
    assert await waits[1]
    assert told == []
    waits = [asyncio.ensure_future(wakeups.waiters_of("q").wait(1, 60))]
    await asyncio.sleep(0)
    wakeups.jobs_ready("q", 1)
    waits[0].cancel()
    await asyncio.wait(waits)
    assert told == [("q", 1)]
