"""A whole server in the test's own process, on memory shards or SQLite, with a clock that the test turns and sweeps that it calls.

Put together as `app` does it, but with as many shards as a test wants, and with nothing that runs by itself.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from pinlater.domain.clock import ManualClock, SystemClock
from pinlater.server.dispatch.dispatcher import Dispatcher
from pinlater.server.dispatch.rate_limits import RateLimits
from pinlater.server.dispatch.settings import DispatchSettings
from pinlater.server.maintenance.settings import MaintenanceSettings
from pinlater.server.maintenance.sweeps import Sweeps
from pinlater.server.operations.identity import Identity
from pinlater.server.operations.passwords import PasswordCheck
from pinlater.server.operations.service import Service
from pinlater.server.operations.settings import ServiceSettings
from pinlater.server.sharding.shards import ShardLanes, Shards
from pinlater.server.storage.interface import Shard
from pinlater.server.storage.memory import MemoryShard
from pinlater.server.storage.sqlite import SqliteShard
from pinlater.server.storage.values import TimeToLive
from pinlater.server.telemetry.metrics import Metrics
from pinlater.server.thrift.server import ThriftServer
from pinlater.server.thrift.settings import ThriftSettings
from tests.promises.wire import PATIENCE_S, Wire


@dataclass
class Rig:
    """A started server, and all that a test wants to turn."""

    clock: ManualClock
    shards: Shards
    dispatcher: Dispatcher
    service: Service
    metrics: Metrics
    sweeps: Sweeps
    server: ThriftServer
    passwords: PasswordCheck
    file_limits: dict[str, float]
    wires: list[Wire] = field(default_factory=list)

    async def connect(self, source: str = "tests") -> Wire:
        wire = await Wire.connect(self.server.port, source)
        self.wires.append(wire)
        return wire

    def shard(self, name: str) -> ShardLanes:
        found = self.shards.get(name)
        assert found is not None
        return found

    async def until(self, condition: Callable[[], object]) -> None:
        """Looks every other millisecond until the condition holds."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                moment = asyncio.Event()
                loop.call_later(0.002, moment.set)
                await moment.wait()

    def limits_changed(self) -> None:
        """As when the limits' file was read again."""
        self.service.queue_cache.limits_changed()
        self.dispatcher.wakeups.look_again()

    async def close(self) -> None:
        for wire in self.wires:
            await wire.close()
        await self.dispatcher.close()
        await self.server.drain(5)
        await self.service.close()
        await self.shards.close()
        self.passwords.close()


async def start_rig(
    shards: int = 1,
    *,
    password_hash: str | None = None,
    settings: ServiceSettings | None = None,
    thrift: ThriftSettings | None = None,
    dispatch: DispatchSettings | None = None,
    draining: tuple[str, ...] = (),
    file: Path | None = None,
) -> Rig:
    """`draining`: names of the shards that take no enqueues; they are called "1", "2" ... With `file` one shard on SQLite."""
    clock, metrics = ManualClock(), Metrics()
    jobs = settings or ServiceSettings()
    lanes = []
    for number in range(1, shards + 1):
        shard: Shard = MemoryShard(str(number)) if file is None else SqliteShard(file)
        await shard.open(clock.now_ms())
        lanes.append(ShardLanes(shard, clock, takes_enqueues=shard.name not in draining))
    map_of_shards = Shards(lanes, Random(1))
    file_limits: dict[str, float] = {}
    limits = RateLimits(clock, file_limits=lambda: file_limits)
    dispatcher = Dispatcher(map_of_shards, limits, clock, dispatch or DispatchSettings())
    passwords = PasswordCheck(password_hash)
    identity = Identity("host", 9010, clock.now_ms(), 0)
    service = Service(map_of_shards, dispatcher, passwords, identity, metrics, clock, jobs)

    def times_to_live() -> list[TimeToLive]:
        return [
            TimeToLive(
                queue.name,
                jobs.succeeded_ttl_ms if queue.config.succeeded_ttl_ms is None else queue.config.succeeded_ttl_ms,
                jobs.failed_ttl_ms if queue.config.failed_ttl_ms is None else queue.config.failed_ttl_ms,
            )
            for queue in service.queue_cache.queues.values()
        ]

    sweeps = Sweeps(map_of_shards, dispatcher, times_to_live, metrics, clock, MaintenanceSettings())
    # A clock that is turned looks like a server that stood still.
    turned = replace(thrift or ThriftSettings(port=0), standstill_s=math.inf)
    server = ThriftServer(service, turned, metrics, clock)
    await service.queue_cache.refresh()
    await server.start()
    return Rig(clock, map_of_shards, dispatcher, service, metrics, sweeps, server, passwords, file_limits)


class Turned:
    """A wall clock and a monotonic one that a test turns."""

    def __init__(self) -> None:
        self.wall_s = 1_800_000_000.0
        self.monotonic_s = 1_000.0

    def clock(self) -> SystemClock:
        return SystemClock(lambda: self.wall_s, lambda: self.monotonic_s)
