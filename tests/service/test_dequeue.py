"""Dequeue: riding acks, limits, waiting, and answers that reach no client."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from pinlater.domain.errors import (
    DequeueRateLimited,
    DescriptorInvalid,
    InvalidArgument,
    QueueNotFound,
    TooManyWaiting,
)
from pinlater.domain.job import JobState, Outcome
from pinlater.domain.queue import QueueConfig
from pinlater.wire.generated.structs import Ack, AckBatch, DequeueRequest, LookupRequest
from tests.service.conftest import CALLER, ServiceUnderTest


async def _until_waiting(world: ServiceUnderTest, count: int, queue: str = "q") -> None:
    async with asyncio.timeout(30):
        while world.dispatcher.waiting(queue) != count:
            await asyncio.sleep(0)


async def test_a_waiting_dequeue_is_answered_by_the_enqueue(world: ServiceUnderTest) -> None:
    waiting = asyncio.create_task(world.dequeue(wait_ms=60_000))
    await _until_waiting(world, 1)
    await world.enqueue(b"x")
    assert [handed_out.job.body for handed_out in (await waiting).jobs] == [b"x"]


async def test_two_jobs_wake_two_waiters_of_one(world: ServiceUnderTest) -> None:
    waiting = [asyncio.create_task(world.dequeue(1, wait_ms=60_000)) for _ in range(3)]
    await _until_waiting(world, 3)
    await world.enqueue(b"a", b"b")
    answers = [await answer for answer in itertools.islice(asyncio.as_completed(waiting), 2)]
    assert sorted(answer.jobs[0].job.body for answer in answers) == [b"a", b"b"]
    world.dispatcher.drain()
    assert [bool((await task).jobs) for task in waiting].count(True) == 2


async def test_a_drain_answers_waiting_dequeues_without_jobs(world: ServiceUnderTest) -> None:
    waiting = asyncio.create_task(world.dequeue(wait_ms=60_000))
    await _until_waiting(world, 1)
    world.dispatcher.drain()
    assert not (await waiting).jobs


async def test_too_many_waiting_dequeues_are_refused(world: ServiceUnderTest) -> None:
    waiting = [asyncio.create_task(world.dequeue(wait_ms=60_000)) for _ in range(5)]
    await _until_waiting(world, 5)
    with pytest.raises(TooManyWaiting):
        await world.dequeue(wait_ms=60_000)
    world.dispatcher.drain()
    await asyncio.gather(*waiting)


async def test_a_dequeue_that_waits_on_a_deleted_queue_gets_queue_not_found(world: ServiceUnderTest) -> None:
    waiting = asyncio.create_task(world.dequeue(wait_ms=60_000))
    await _until_waiting(world, 1)
    await world.service.queues.delete_queue("q", "open sesame")
    with pytest.raises(QueueNotFound):
        await waiting


async def test_a_retried_job_wakes_a_waiter_when_it_is_due(world: ServiceUnderTest) -> None:
    [descriptor] = await world.enqueue(b"x")
    await world.dequeue()
    waiting = asyncio.create_task(world.dequeue(wait_ms=60_000))
    await _until_waiting(world, 1)
    await world.service.claimed_jobs.acknowledge(CALLER, AckBatch("q", failed=[Ack(descriptor)]))
    assert (await waiting).jobs[0].job.attempt == 2


async def test_a_cancelled_wait_leaves_the_job_to_the_next(world: ServiceUnderTest) -> None:
    first = asyncio.create_task(world.dequeue(1, wait_ms=60_000))
    await _until_waiting(world, 1)
    second = asyncio.create_task(world.dequeue(1, wait_ms=60_000))
    await _until_waiting(world, 2)
    enqueue = asyncio.create_task(world.enqueue(b"x"))
    while world.dispatcher.waiting("q") == 2:
        await asyncio.sleep(0)
    first.cancel()
    await enqueue
    assert [handed_out.job.body for handed_out in (await second).jobs] == [b"x"]


async def test_an_undelivered_answer_gives_its_jobs_back_unspent(world: ServiceUnderTest) -> None:
    await world.enqueue(b"x", attempts_allowed=3)
    dequeued = await world.dequeue()
    world.service.dequeuing.undelivered("q", dequeued.claimed)
    again = await world.dequeue(wait_ms=60_000)
    assert again.jobs[0].job.attempts_remaining == 3
    assert world.metrics.queue("q").undelivered == 1


async def test_riding_acks_are_carried_out_even_if_the_dequeue_is_refused(world: ServiceUnderTest) -> None:
    """The original lost acks that rode on a rate-limited dequeue."""
    [descriptor] = await world.enqueue(b"x")
    await world.dequeue()
    await world.service.queues.set_paused("q", paused=True)
    with pytest.raises(DequeueRateLimited):
        await world.dequeue(acks=AckBatch("q", [Ack(descriptor)]))
    [job] = (await world.service.job_queries.lookup(LookupRequest([descriptor]))).values()
    assert job.state == JobState.SUCCEEDED


async def test_a_malformed_riding_ack_refuses_the_whole_call(world: ServiceUnderTest) -> None:
    [descriptor] = await world.enqueue(b"x")
    await world.dequeue()
    await world.enqueue(b"y")
    acks = AckBatch("q", [Ack(descriptor), Ack("nonsense")])
    with pytest.raises(DescriptorInvalid):
        await world.dequeue(acks=acks)
    [job] = (await world.service.job_queries.lookup(LookupRequest([descriptor]))).values()
    assert job.state == JobState.IN_PROGRESS
    assert len((await world.dequeue()).jobs) == 1


async def test_a_dry_run_shows_jobs_carries_out_acks_and_claims_nothing(world: ServiceUnderTest) -> None:
    [descriptor] = await world.enqueue(b"x")
    await world.dequeue()
    await world.enqueue(b"y")
    shown = await world.dequeue(dry_run=True, acks=AckBatch("q", [Ack(descriptor)]))
    assert [handed_out.job.body for handed_out in shown.jobs] == [b"y"]
    assert shown.ack_results[0].outcome == Outcome.APPLIED
    assert len((await world.dequeue()).jobs) == 1


async def test_riding_acks_may_name_another_queue(world: ServiceUnderTest) -> None:
    await world.service.queues.create_queue("other")
    [descriptor] = await world.enqueue(b"x", queue="other")
    await world.dequeue(queue="other")
    dequeued = await world.dequeue(acks=AckBatch("other", [Ack(descriptor)]))
    assert dequeued.ack_results[0].outcome == Outcome.APPLIED


async def test_an_ack_never_reaches_outside_its_requests_queue(world: ServiceUnderTest) -> None:
    await world.service.queues.create_queue("other")
    [descriptor] = await world.enqueue(b"x", queue="other")
    await world.dequeue(queue="other")
    [result] = await world.service.claimed_jobs.acknowledge(CALLER, AckBatch("q", [Ack(descriptor)]))
    assert result.outcome == Outcome.NOT_FOUND


async def test_one_dequeue_may_overdraw_the_limit_and_the_next_pays(world: ServiceUnderTest) -> None:
    world.file_limits["q"] = 2.0
    await world.service.queue_cache.refresh()
    await world.enqueue(*[b"x"] * 20)
    assert len((await world.dequeue(10)).jobs) == 10
    with pytest.raises(DequeueRateLimited):
        await world.dequeue(1)
    world.clock.advance(seconds=6)
    assert len((await world.dequeue(1)).jobs) == 1


async def test_the_lower_of_the_two_limits_holds_and_zero_stops(world: ServiceUnderTest) -> None:
    world.file_limits["q"] = 100.0
    await world.service.queues.configure_queue("q", QueueConfig(max_jobs_per_second=0))
    await world.enqueue(b"x")
    with pytest.raises(DequeueRateLimited):
        await world.dequeue()


async def test_a_paused_queue_lets_dequeues_wait_until_it_is_resumed(world: ServiceUnderTest) -> None:
    await world.service.queues.set_paused("q", paused=True)
    await world.enqueue(b"x")
    waiting = asyncio.create_task(world.dequeue(wait_ms=60_000))
    await _until_waiting(world, 1)
    await world.service.queues.set_paused("q", paused=False)
    assert len((await waiting).jobs) == 1


@pytest.mark.parametrize(
    "command",
    [DequeueRequest("q", -1), DequeueRequest("q", 1, wait_ms=-1), DequeueRequest("q", 1, coverage=float("nan"))],
)
async def test_numbers_out_of_their_range_are_refused(world: ServiceUnderTest, command: DequeueRequest) -> None:
    with pytest.raises(InvalidArgument):
        await world.service.dequeuing.dequeue(CALLER, command)


async def test_too_large_a_limit_is_cut_not_refused(world: ServiceUnderTest) -> None:
    await world.enqueue(b"x")
    assert len((await world.dequeue(2**31 - 1)).jobs) == 1
    assert not (await world.dequeue(0)).jobs


async def test_a_missing_queue_is_said_so(world: ServiceUnderTest) -> None:
    with pytest.raises(QueueNotFound, match="Queue not found: nope"):
        await world.dequeue(queue="nope")
