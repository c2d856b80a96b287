"""A server in the test's own process, on memory shards or SQLite, with a clock that the test advances and sweeps that it calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from pinlater.domain.clock import ManualClock, SystemClock
from pinlater.server.core import Core
from pinlater.server.sharding.reload import DesiredShard, open_shards
from pinlater.server.sharding.shards import ShardLanes
from pinlater.server.storage.interface import Shard
from pinlater.server.storage.memory import MemoryShard
from pinlater.server.storage.sqlite.shard import SqliteShard
from pinlater.server.telemetry.metrics import Metrics
from pinlater.server.thrift.server import ThriftServer
from tests.promises.wire import PATIENCE_S, Wire
from tests.turned import turned


@dataclass
class Rig:
    """A started server, and what a test changes or looks at."""

    clock: ManualClock
    core: Core
    server: ThriftServer
    file_limits: dict[str, float]
    wires: list[Wire] = field(default_factory=list)

    async def connect(self, source: str = "tests") -> Wire:
        wire = await Wire.connect(self.server.port, source)
        self.wires.append(wire)
        return wire

    def shard(self, name: str) -> ShardLanes:
        found = self.core.shards.get(name)
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

    async def close(self) -> None:
        for wire in self.wires:
            await wire.close()
        self.core.dispatcher.drain()
        await self.server.drain(5)
        await self.core.close()


async def start_rig(
    shards: int = 1, *, draining: tuple[str, ...] = (), file: Path | None = None, **settings: Any
) -> Rig:
    """`draining`: names of the shards that take no enqueues; they are called "1", "2" ... With `file` one shard on SQLite.

    `settings`: tables and keys that differ from the defaults.
    """
    clock, file_limits = ManualClock(), dict[str, float]()
    chosen = turned(**settings)

    def desired(name: str) -> DesiredShard:
        def make() -> Shard:
            return MemoryShard(name) if file is None else SqliteShard(file)

        return DesiredShard(name, make, takes_enqueues=name not in draining)

    names = [str(number) for number in range(1, shards + 1)]
    opened = await open_shards([desired(name) for name in names], clock, Random(1), chosen.sharding)
    core = Core(opened, chosen, Metrics(), file_limits=lambda: file_limits)
    server = ThriftServer(core.service, chosen.thrift, core.metrics, clock, standstill=core.standstill)
    await core.catch_up()
    await server.start()
    core.service.identity.port = server.port
    return Rig(clock, core, server, file_limits)


class Turned:
    """A wall clock and a monotonic one that a test turns."""

    def __init__(self) -> None:
        self.wall_s = 1_800_000_000.0
        self.monotonic_s = 1_000.0

    def clock(self) -> SystemClock:
        return SystemClock(lambda: self.wall_s, lambda: self.monotonic_s)
