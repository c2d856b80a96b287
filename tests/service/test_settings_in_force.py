"""The settings that hold for a queue, where each comes from, and which workers wait for its jobs."""

from __future__ import annotations

import asyncio

import pytest

from pinlater.domain.errors import QueueNotFound
from pinlater.domain.queue import QueueConfig
from pinlater.domain.workers import WaitingDequeues
from pinlater.server.features.workers.workers import Workers
from pinlater.server.operations.values import Caller
from pinlater.wire.generated import structs
from pinlater.wire.generated.structs import DequeueRequest
from tests.service.conftest import ServiceUnderTest


async def test_a_setting_comes_from_the_queue_or_else_from_the_server(world: ServiceUnderTest) -> None:
    await world.service.queues.configure_queue("q", QueueConfig(claim_timeout_ms=5_000, default_expiry_ms=9))
    found = await world.service.queue_settings.in_force("q")
    assert found.values == structs.QueueConfig(
        claim_timeout_ms=5_000,
        succeeded_ttl_ms=24 * 3_600_000,
        failed_ttl_ms=168 * 3_600_000,
        default_attempts=2,
        default_expiry_ms=9,
    )
    assert found.origins == {
        "claimTimeoutMillis": "queue",
        "succeededTtlMillis": "jobs.succeeded_ttl_ms",
        "failedTtlMillis": "jobs.failed_ttl_ms",
        "defaultAttempts": "jobs.default_attempts",
        "defaultExpiryMillis": "queue",
    }


@pytest.mark.parametrize(
    ("of_queue", "of_file", "rate", "origin"),
    [
        (None, 2.0, 2.0, "limits file"),
        (3.0, 2.0, 2.0, "limits file"),
        (1.0, 2.0, 1.0, "queue"),
        (0.0, 2.0, 0.0, "queue"),
    ],
)
async def test_the_lower_rate_limit_is_in_force_and_its_origin_is_named(
    world: ServiceUnderTest, of_queue: float | None, of_file: float, rate: float, origin: str
) -> None:
    world.file_limits["q"] = of_file
    await world.service.queues.configure_queue("q", QueueConfig(max_jobs_per_second=of_queue))
    found = await world.service.queue_settings.in_force("q")
    assert (found.values.max_jobs_per_second, found.origins["maxJobsPerSecond"]) == (rate, origin)


async def test_settings_of_a_missing_queue_are_refused(world: ServiceUnderTest) -> None:
    with pytest.raises(QueueNotFound):
        await world.service.queue_settings.in_force("missing")


async def test_waiting_dequeues_are_told_by_queue_and_source_and_only_while_they_wait(world: ServiceUnderTest) -> None:
    await world.service.queues.create_queue("other")
    asked = [("q", "w-1"), ("q", "w-1"), ("q", "w-2"), ("other", "w-1")]
    polls = [
        asyncio.create_task(world.service.dequeuing.dequeue(Caller(source), DequeueRequest(queue, 1, wait_ms=60_000)))
        for queue, source in asked
    ]
    async with asyncio.timeout(30):
        while world.dispatcher.waiting() < len(polls):
            await asyncio.sleep(0)
    assert await world.service.of(Workers).waiting_dequeues() == [
        WaitingDequeues("other", "w-1", 1),
        WaitingDequeues("q", "w-1", 2),
        WaitingDequeues("q", "w-2", 1),
    ]
    world.dispatcher.drain()
    await asyncio.gather(*polls)
    assert await world.service.of(Workers).waiting_dequeues() == []
