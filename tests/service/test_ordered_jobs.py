"""Jobs with an ordering key: what is refused, and who is woken for the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pinlater.domain.errors import DequeueRateLimited, InvalidArgument, QueueFull
from pinlater.domain.job import Outcome
from pinlater.domain.queue import QueueConfig
from pinlater.server.storage.commands import ExpireJobs
from pinlater.wire.generated.structs import Ack, AckBatch, EnqueueRequest, Job, RunJobsRequest
from tests.service.conftest import CALLER, ServiceUnderTest


@pytest.mark.parametrize(("key", "length"), [("", 0), ("x" * 129, 129), ("é" * 65, 130)])
async def test_a_key_has_1_to_128_bytes(world: ServiceUnderTest, key: str, length: int) -> None:
    jobs = [Job(b"a"), Job(b"b", ordering_key=key)]
    with pytest.raises(InvalidArgument, match=f"Job 1: an ordering key has 1 to 128 bytes, not {length}"):
        await world.service.enqueuing.enqueue(EnqueueRequest("q", jobs))
    assert not (await world.dequeue()).jobs


async def test_a_key_of_128_bytes_is_taken(world: ServiceUnderTest) -> None:
    await world.enqueue(b"x", ordering_key="é" * 64)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"max_in_hand_per_key": 0}, "max_in_hand_per_key must be from 1 to 100, not 0"),
        ({"max_in_hand_per_key": 101}, "max_in_hand_per_key must be from 1 to 100, not 101"),
        ({"retry_place": "front"}, "retry_place must be in_place or to_back, not 'front'"),
        ({"after_failure": ""}, "after_failure must be continue or stop, not ''"),
    ],
)
async def test_settings_about_keys_that_mean_nothing_are_refused_with_the_rule(
    world: ServiceUnderTest, settings: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidArgument, match=says):
        await world.service.queues.configure_queue("q", QueueConfig(**settings))
    assert (await world.service.queues.queue_config("q")).config == QueueConfig()


async def test_jobs_of_an_ordered_queue_run_one_after_the_other_and_take_no_key_of_their_own(
    world: ServiceUnderTest,
) -> None:
    """`*` is the key that they have."""
    await world.service.queues.create_queue("bookings", ordered=True)
    jobs = [
        *await world.enqueue(b"0", b"1", queue="bookings"),
        *await world.enqueue(b"2", queue="bookings", priority=1),
    ]
    jobs += await world.enqueue(b"3", queue="bookings", ordering_key="*")
    with pytest.raises(
        InvalidArgument, match="Job 0: queue bookings is ordered as a whole, so its jobs take no ordering key"
    ):
        await world.enqueue(b"x", queue="bookings", ordering_key="a")
    for number, job in enumerate(jobs):
        [handed_out] = (await world.dequeue(queue="bookings")).jobs
        assert (handed_out.descriptor, handed_out.job.body) == (job, b"%d" % number)
        await world.service.claimed_jobs.acknowledge(CALLER, AckBatch("bookings", [Ack(job)]))
    assert not (await world.dequeue(queue="bookings")).jobs


async def test_a_queue_that_exists_does_not_change_its_order(world: ServiceUnderTest) -> None:
    queues = world.service.queues
    with pytest.raises(InvalidArgument, match="Queue q exists, and its jobs are not in order as a whole"):
        await queues.create_queue("q", ordered=True)
    await queues.create_queue("bookings", ordered=True)
    for creation in ({}, {"ordered": True}, {"for_task": True}):
        await queues.create_queue("bookings", **creation)
        assert (await queues.queue_config("bookings")).life.ordered
    await queues.delete_queue("bookings", None)
    await queues.create_queue("bookings")
    assert not (await queues.queue_config("bookings")).life.ordered


async def acked(world: ServiceUnderTest, descriptor: str) -> None:
    await world.service.claimed_jobs.acknowledge(CALLER, AckBatch("q", [Ack(descriptor)]))


async def cancelled(world: ServiceUnderTest, descriptor: str) -> None:
    await world.service.claimed_jobs.cancel("q", [descriptor])


async def deleted(world: ServiceUnderTest, descriptor: str) -> None:
    await world.service.bulk.delete_jobs_by_descriptor("q", [descriptor])


@pytest.mark.parametrize("end", [acked, cancelled, deleted], ids=lambda end: end.__name__)
async def test_the_end_of_a_job_wakes_a_dequeue_for_the_next_one(
    world: ServiceUnderTest, end: Callable[[ServiceUnderTest, str], Awaitable[None]]
) -> None:
    first, second = await world.enqueue(b"1", b"2", ordering_key="k")
    await world.dequeue()
    waiting = asyncio.create_task(world.dequeue(wait_ms=60_000))
    async with asyncio.timeout(30):
        while not world.dispatcher.waiting("q"):
            await asyncio.sleep(0)
        await end(world, first)
        assert [handed_out.descriptor for handed_out in (await waiting).jobs] == [second]


async def test_the_expiry_of_a_job_wakes_a_dequeue_for_the_next_one(world: ServiceUnderTest) -> None:
    at_ms = world.clock.now_ms()
    await world.enqueue(b"1", ordering_key="k", run_after_ms=at_ms + 5_000, expires_at_ms=at_ms + 10)
    [second] = await world.enqueue(b"2", ordering_key="k")
    waiting = asyncio.create_task(world.dequeue(wait_ms=60_000))
    async with asyncio.timeout(30):
        while not world.dispatcher.waiting("q"):
            await asyncio.sleep(0)
        world.clock.advance(ms=11)
        [shard] = world.service.shards
        await shard.store.submit(ExpireJobs(world.clock.now_ms(), 10))
        assert [handed_out.descriptor for handed_out in (await waiting).jobs] == [second]


async def test_acks_in_a_dequeue_make_the_next_job_ready_for_it(world: ServiceUnderTest) -> None:
    first, second = await world.enqueue(b"1", b"2", ordering_key="k")
    await world.dequeue()
    answer = await world.dequeue(acks=AckBatch("q", [Ack(first)]))
    assert [handed_out.descriptor for handed_out in answer.jobs] == [second]


async def test_a_job_behind_another_is_not_made_due_by_hand(world: ServiceUnderTest) -> None:
    _, second = await world.enqueue(b"1", b"2", ordering_key="k")
    [result] = await world.service.bulk.run_jobs(RunJobsRequest("q", [second], attempts=1))
    assert result.outcome == Outcome.STALE_CLAIM


async def test_pause_limit_and_backlog_of_a_queue_count_for_jobs_with_keys_as_for_others(
    world: ServiceUnderTest,
) -> None:
    """The backlog also has those that wait behind others."""
    await world.service.queues.configure_queue("q", QueueConfig(max_backlog=3, max_jobs_per_second=1.0, burst=1))
    first, second, _ = await world.enqueue(b"1", b"2", b"3", ordering_key="k")
    with pytest.raises(QueueFull):
        await world.enqueue(b"4", ordering_key="other")
    assert [handed_out.descriptor for handed_out in (await world.dequeue()).jobs] == [first]
    with pytest.raises(DequeueRateLimited):
        await world.dequeue(acks=AckBatch("q", [Ack(first)]))
    world.clock.advance(seconds=1)
    await world.service.queues.set_paused("q", True)
    with pytest.raises(DequeueRateLimited):
        await world.dequeue()
    await world.service.queues.set_paused("q", False)
    assert [handed_out.descriptor for handed_out in (await world.dequeue()).jobs] == [second]
    await world.enqueue(b"4", ordering_key="k")
