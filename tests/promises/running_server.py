"""A server in the test's own process, on memory shards or SQLite, with a clock that the test advances and sweeps that it calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pinlater.domain.clock import ManualClock, SystemClock
from pinlater.server.main.core import Core
from pinlater.server.sharding.reload import DesiredShard
from pinlater.server.sharding.shards import ShardLanes
from pinlater.server.storage.interface import Shard
from pinlater.server.storage.sqlite.memory import MemoryShard
from pinlater.server.storage.sqlite.shard import SqliteShard
from pinlater.server.thrift.server import ThriftServer
from tests.assembly import listen, open_core
from tests.promises.wire import DEADLINE_S, Wire


@dataclass
class RunningServer:
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
        async with asyncio.timeout(DEADLINE_S):
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


async def start_server(
    shards: int = 1, *, draining: tuple[str, ...] = (), file: Path | None = None, **settings: Any
) -> RunningServer:
    """`draining`: names of the shards that take no enqueues; they are called "1", "2" ... With `file` one shard on SQLite.

    `settings`: tables and keys that differ from the defaults.
    """
    clock, file_limits = ManualClock(), dict[str, float]()

    def desired(name: str) -> DesiredShard:
        def make() -> Shard:
            return MemoryShard(name) if file is None else SqliteShard(file)

        return DesiredShard(name, make, takes_enqueues=name not in draining)

    names = [str(number) for number in range(1, shards + 1)]
    core = await open_core(*map(desired, names), clock=clock, file_limits=lambda: file_limits, **settings)
    return RunningServer(clock, core, await listen(core), file_limits)


class SettableClocks:
    """A wall clock and a monotonic one that a test turns."""

    def __init__(self) -> None:
        self.wall_s = 1_800_000_000.0
        self.monotonic_s = 1_000.0

    def clock(self) -> SystemClock:
        return SystemClock(lambda: self.wall_s, lambda: self.monotonic_s)
