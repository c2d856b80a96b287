"""Servers on shards of one memory store, whose clock a test turns minute by minute."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from random import Random

import pytest_asyncio

from pinlater.domain.clock import ManualClock
from pinlater.server.config.settings import Settings
from pinlater.server.features.history.keeper import HistoryKeeper
from pinlater.server.features.history.queries import HistoryQueries
from pinlater.server.features.history.settings import HistorySettings
from pinlater.server.main.core import Core
from pinlater.server.operations.values import Caller
from pinlater.server.sharding.reload import DesiredShard
from pinlater.server.storage.commands import ListSamples
from pinlater.server.storage.sqlite.memory import MemoryShard
from pinlater.server.storage.values import SampleRange, StoredSample
from pinlater.server.telemetry.metrics import Metrics
from pinlater.server.thrift.settings import ThriftSettings
from pinlater.wire.generated.structs import (
    Ack,
    AckBatch,
    DequeueRequest,
    EnqueueRequest,
    HistoryPoint,
    Job,
    QueueHistoryRequest,
    QueueHistoryResponse,
)
from tests.handed_out import answer_of
from tests.sharding.faulty import FaultyShard

CALLER = Caller("tests")
MINUTE_MS = 60_000
START_MS = 1_767_225_600_000  # a full hour


@dataclass
class World:
    """Any number of servers on the same shards."""

    stores: dict[str, FaultyShard] = field(default_factory=dict)
    clock: ManualClock = field(default_factory=ManualClock)
    servers: list[Core] = field(default_factory=list)

    async def start_server(self, *shards: str, max_queues: int = 500) -> Core:
        """One more server; each has numbers of its own, and an origin of its own."""
        desired = []
        for name in shards or ("1",):
            store = self.stores.setdefault(name, FaultyShard(MemoryShard(name)))
            desired.append(DesiredShard(name, store.as_shard))
        settings = Settings(
            history=HistorySettings(max_queues=max_queues), thrift=ThriftSettings(port=0, standstill_s=math.inf)
        )
        core = await Core.open(desired, settings, Metrics(), self.clock, Random(len(self.servers)))
        await core.catch_up()
        self.servers.append(core)
        return core

    async def minutes(self, count: int = 1) -> None:
        """Time passes, and each server does its work of each minute."""
        for _ in range(count):
            self.clock.advance(ms=MINUTE_MS)
            for server in self.servers:
                await server.sweeps.advance_due()
                await server.rates.sample()
                await server.service.of(HistoryKeeper).keep()

    async def samples(self, step_s: int = 60, shard: str = "1") -> Sequence[StoredSample]:
        found: Sequence[StoredSample] = await self.stores[shard].within.submit(
            ListSamples([SampleRange(step_s, 0, 2**60)])
        )
        return found

    async def close(self) -> None:
        for server in self.servers:
            await server.close()


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    world.clock.advance(ms=START_MS - world.clock.now_ms())
    yield world
    await world.close()


async def enqueue(server: Core, count: int = 1, *, queue: str = "q") -> None:
    await server.service.enqueuing.enqueue(EnqueueRequest(queue, [Job(b"x") for _ in range(count)]))


async def claim(server: Core, limit: int = 100, *, queue: str = "q") -> Sequence[Ack]:
    """Successes, with tokens, of the jobs that a dequeue gave."""
    dequeued = answer_of(queue, await server.service.dequeuing.dequeue(CALLER, DequeueRequest(queue, limit)))
    return [Ack(job.descriptor, token=job.token) for job in dequeued.jobs]


async def ack(server: Core, acks: Sequence[Ack], *, queue: str = "q") -> None:
    await server.service.claimed_jobs.acknowledge(CALLER, AckBatch(queue, acks))


async def history(
    server: Core, minutes: int = 60, *, queue: str = "q", step_s: int | None = None
) -> QueueHistoryResponse:
    now_ms = server.clock.now_ms()
    request = QueueHistoryRequest([queue], now_ms - minutes * MINUTE_MS, step_s=step_s)
    return await server.service.of(HistoryQueries).queue_history(request)


async def points(
    server: Core, minutes: int = 60, *, queue: str = "q", step_s: int | None = None
) -> Sequence[HistoryPoint]:
    [found] = (await history(server, minutes, queue=queue, step_s=step_s)).queues
    return found.points
