"""A service on the memory store with a clock that the test turns."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from random import Random

import pytest_asyncio

from pinlater.domain.clock import ManualClock
from pinlater.domain.passwords import hash_password
from pinlater.server.dispatch.dispatcher import Dispatcher
from pinlater.server.dispatch.rate_limits import RateLimits
from pinlater.server.dispatch.settings import DispatchSettings
from pinlater.server.operations.identity import Identity
from pinlater.server.operations.passwords import PasswordCheck
from pinlater.server.operations.service import Service
from pinlater.server.operations.settings import ServiceSettings
from pinlater.server.operations.values import Caller, DequeueCommand, JobToEnqueue
from pinlater.server.sharding.shards import ShardLanes, Shards
from pinlater.server.storage.memory import MemoryShard
from pinlater.server.telemetry.metrics import Metrics
from tests.handed_out import Answer, answer_of

CALLER = Caller("tests")
HASH = hash_password("open sesame")


@dataclass
class World:
    """The service and all a test wants to turn or look at."""

    clock: ManualClock
    service: Service
    dispatcher: Dispatcher
    metrics: Metrics
    file_limits: dict[str, float] = field(default_factory=dict)

    async def enqueue(self, *bodies: bytes, queue: str = "q", **more: object) -> list[str]:
        """Descriptors of new jobs with these bodies."""
        jobs = [JobToEnqueue(body, **more) for body in bodies]  # type: ignore[arg-type]
        return list((await self.service.enqueuing.enqueue(CALLER, queue, jobs)).descriptors)

    async def dequeue(self, limit: int = 10, *, queue: str = "q", **more: object) -> Answer:
        """What a dequeue gives."""
        command = DequeueCommand(queue, limit, **more)  # type: ignore[arg-type]
        return answer_of(queue, await self.service.dequeuing.dequeue(CALLER, command))


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    clock = ManualClock()
    shard = MemoryShard()
    await shard.open(clock.now_ms())
    shards = Shards([ShardLanes(shard, clock)], Random(1))
    file_limits: dict[str, float] = {}
    limits = RateLimits(clock, file_limits=lambda: file_limits)
    dispatcher = Dispatcher(shards, limits, clock, DispatchSettings(max_waiting_dequeues=5))
    metrics = Metrics()
    passwords = PasswordCheck(HASH)
    identity = Identity("host", 9010, clock.now_ms(), 0)
    service = Service(shards, dispatcher, passwords, identity, metrics, clock, ServiceSettings(max_body_bytes=1000))
    await service.queues.create_queue("q")
    yield World(clock, service, dispatcher, metrics, file_limits)
    passwords.close()
    await service.close()
    await dispatcher.close()
    await shards.close()
