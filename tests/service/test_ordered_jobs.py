"""Jobs with an ordering key: what is refused, and who is woken for the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pinlater.domain.errors import InvalidArgument
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
