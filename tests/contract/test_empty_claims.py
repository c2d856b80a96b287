"""A claim of a queue in which nothing is due: it asks the store nothing, and misses no job."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from pinlater.domain.calls import Job
from pinlater.domain.clock import ManualClock
from pinlater.domain.errors import QueueNotFound
from pinlater.domain.job import JobState
from pinlater.server.main.core import Core
from pinlater.server.operations.values import Caller, DequeueCommand
from pinlater.server.storage.commands import (
    ClaimJobs,
    DeleteQueues,
    DeleteWithCopies,
    RestoreJobs,
    RunJobs,
    TimeOutClaims,
    create_queues,
)
from pinlater.server.storage.sqlite.dialect import at_once
from pinlater.server.storage.sqlite.memory import MemoryShard
from pinlater.server.storage.values import (
    ClaimCall,
    Claimed,
    ClaimOrder,
    CopiesOf,
    JobCheckpoint,
    RestoreOrder,
    RunOrder,
)
from tests.assembly import open_core
from tests.contract.desk import HOUR_MS, QUEUE, TIMEOUT_MS, Desk, DeskJob
from tests.contract.store_calls import counted_calls
from tests.contract.stores import make_store
from tests.handed_out import answer_of

POLLS = 50


async def dequeued(core: Core, limit: int = 2) -> list[bytes]:
    """The bodies of one dequeue."""
    answer = answer_of(QUEUE, await core.service.dequeuing.dequeue(Caller("tests"), DequeueCommand(QUEUE, limit)))
    return [one.job.body for one in answer.jobs]


async def test_a_dequeue_of_an_empty_queue_asks_the_database_nothing(store_kind: str, tmp_path: Path) -> None:
    """The server's memory knows that nothing is due: the queue is new, its jobs are claimed, or they are due later."""
    clock = ManualClock()
    shard = make_store(store_kind, tmp_path, clock.monotonic)
    core = await open_core(shard, clock=clock)
    await core.service.queues.create_queue(QUEUE)
    async with counted_calls(store_kind, shard) as calls_since:

        async def polls_ask_nothing() -> None:
            assert await dequeued(core) == []
            await calls_since()
            for _ in range(POLLS):
                assert await dequeued(core) == []
            assert await calls_since() == 0

        await polls_ask_nothing()
        await core.service.enqueuing.enqueue(QUEUE, [Job(b"now")])
        assert await dequeued(core) == [b"now"]
        assert await calls_since() > 0
        await polls_ask_nothing()
        await core.service.enqueuing.enqueue(QUEUE, [Job(b"later", run_after_ms=clock.now_ms() + 500)])
        await polls_ask_nothing()
        clock.advance(ms=499)
        assert await dequeued(core) == []
        clock.advance(ms=1)
        assert await dequeued(core) == [b"later"]
    await core.close()


def test_the_memory_store_waits_for_nothing_in_a_claim() -> None:
    """So it can't ask anything over a connection or in a thread."""
    desk = Desk(MemoryShard)
    at_once(desk.open())
    at_once(desk.shard.submit(create_queues([QUEUE], desk.now)))
    assert at_once(desk.claim()) == []


async def stored(desk: Desk) -> None:
    await desk.put()


async def stored_with_others(desk: Desk) -> None:
    """By a call that SQLite carries out in steps."""
    await desk.insert(*[desk.job(delay_ms=HOUR_MS) for _ in range(3_000)], desk.job())


async def due_by_now(desk: Desk) -> None:
    await desk.put(delay_ms=500)
    assert await desk.claim() == []
    desk.clock.advance(ms=500)


async def failed(desk: Desk) -> None:
    [held] = await _held(desk)
    await desk.fail(held.key)


async def failed_with_a_delay(desk: Desk) -> None:
    [held] = await _held(desk)
    await desk.fail(held.key, delay_ms=500)
    assert await desk.claim() == []
    desk.clock.advance(ms=500)


async def released(desk: Desk) -> None:
    [held] = await _held(desk)
    await desk.release(held.ref)


async def checkpointed_to_pending(desk: Desk) -> None:
    [held] = await _held(desk)
    await desk.checkpoint(JobCheckpoint(held.key, held.holder.source, move_to_pending=True))


async def timed_out(desk: Desk) -> None:
    await _held(desk, timeout_ms=1)
    desk.clock.advance(ms=2)
    assert await desk.shard.submit(TimeOutClaims(desk.now, 10))


async def run_now(desk: Desk) -> None:
    key = await desk.put(delay_ms=TIMEOUT_MS)
    assert await desk.claim() == []
    await desk.shard.submit(RunJobs([RunOrder(key, 1, desk.now)], desk.now))


async def retried(desk: Desk) -> None:
    await desk.put_in(JobState.FAILED)
    assert await desk.claim() == []
    await desk.retry_failed()


async def moved_and_due_by_now(desk: Desk) -> None:
    key = await desk.put(delay_ms=500)
    assert await desk.claim() == []
    await desk.move(key, 3)
    assert await desk.claim() == []
    desk.clock.advance(ms=500)


async def restored(desk: Desk) -> None:
    key, run = await desk.put(), CopiesOf("0123456789abcdef", desk.now)
    await desk.shard.submit(DeleteWithCopies([key], JobState.PENDING, run, desk.now))
    assert await desk.claim() == []
    await desk.shard.submit(RestoreJobs(RestoreOrder(QUEUE, run, ""), desk.now))


async def _held(desk: Desk, timeout_ms: int = TIMEOUT_MS) -> list[DeskJob]:
    await desk.put()
    held = await desk.claim(2, timeout_ms=timeout_ms)
    assert await desk.claim() == []
    return held


@pytest.mark.parametrize(
    "becomes_due",
    [
        stored,
        stored_with_others,
        due_by_now,
        failed,
        failed_with_a_delay,
        released,
        checkpointed_to_pending,
        timed_out,
        run_now,
        retried,
        moved_and_due_by_now,
        restored,
    ],
)
async def test_a_job_that_becomes_due_through_this_server_is_found_at_once(
    desk: Desk, becomes_due: Callable[[Desk], Awaitable[None]]
) -> None:
    assert await desk.claim() == []
    await becomes_due(desk)
    assert len(await desk.claim()) == 1
    assert await desk.claim() == []


async def test_a_job_of_a_claim_that_has_expired_is_ended_by_it(desk: Desk) -> None:
    assert await desk.claim() == []
    key = await desk.put(expires_in_ms=10)
    desk.clock.advance(ms=11)
    assert await desk.claim() == []
    assert (await desk.look(key)).state is JobState.FAILED


async def test_claims_of_a_queue_that_is_deleted_and_made_again_are_refused_and_answered(desk: Desk) -> None:
    """By the server that deletes it."""
    assert await desk.claim() == []
    await desk.shard.submit(DeleteQueues([QUEUE], now_ms=desk.now))
    order = ClaimOrder(QUEUE, [ClaimCall(1, desk.holder())], TIMEOUT_MS, from_memory=True)
    assert isinstance((await desk.shard.submit(ClaimJobs([order], desk.now)))[0], QueueNotFound)
    await desk.shard.submit(create_queues([QUEUE], desk.now))
    assert await desk.claim() == []
    await desk.put()
    assert len(await desk.claim()) == 1


async def test_each_call_of_an_order_gets_nothing_and_the_time_of_the_next_job(desk: Desk) -> None:
    await desk.put(priority=2, delay_ms=900)
    await desk.put(priority=1, delay_ms=800)
    order = ClaimOrder(QUEUE, [ClaimCall(1, desk.holder()) for _ in range(3)], TIMEOUT_MS, from_memory=True)
    assert [await desk.order(order) for _ in range(3)] == [Claimed([[], [], []], desk.now + 800)] * 3


async def test_a_claim_of_an_empty_queue_beside_one_with_jobs_gets_nothing(desk: Desk) -> None:
    await desk.shard.submit(create_queues(["other"], desk.now))
    assert await desk.claim() == []
    assert await desk.claim(queue="other") == []
    await desk.put(queue="other")
    orders = [
        ClaimOrder(name, [ClaimCall(1, desk.holder())], TIMEOUT_MS, from_memory=True) for name in (QUEUE, "other")
    ]
    none, one = await desk.shard.submit(ClaimJobs(orders, desk.now))
    assert none == Claimed([[]])
    assert isinstance(one, Claimed)
    assert len(one.jobs[0]) == 1
