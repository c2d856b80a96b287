"""Servers on a clock that a test turns, each with its HTTP port."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import urlencode

import pytest

from pinlater.domain.clock import ManualClock
from pinlater.server.http.server import HttpServer
from pinlater.server.http.settings import HttpSettings
from pinlater.server.http.status import OneServer, Readiness
from pinlater.server.main.core import Core
from tests.assembly import run_periodic
from tests.history.conftest import START_MS, World

SAMPLE_MS = 5_000


class Port:
    """The HTTP port of a server."""

    def __init__(self, core: Core) -> None:
        self.core = core
        shards = core.shards

        def readiness() -> Readiness:
            away = [f"shard {shard.name} is unreachable" for shard in shards if not shard.healthy]
            return Readiness(True, tuple(away))

        source = OneServer(core.metrics, readiness, dict, lambda: core.rates.counts)
        self.server = HttpServer(HttpSettings(port=0), core.metrics, source)

    async def get(self, path: str, method: str = "GET") -> tuple[int, str]:
        return await asyncio.to_thread(self._get, path, method)

    def _get(self, path: str, method: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)
        try:
            connection.request(method, path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    async def demand(self, *queues: str) -> Mapping[str, Any]:
        """What /demand answers for these queues; fails unless it is 200."""
        status, text = await self.get("/demand?" + urlencode([("queue", queue) for queue in queues]))
        assert status == 200, text
        answer: Mapping[str, Any] = json.loads(text)
        return answer

    async def slots(self, queue: str = "q") -> int:
        slots: int = (await self.demand(queue))["slots"]
        return slots

    async def gauges(self) -> Mapping[str, float]:
        """`pinlater_queue_slots_wanted` by queue, as /metrics has it."""
        _, text = await self.get("/metrics")
        rows = [line for line in text.splitlines() if line.startswith("pinlater_queue_slots_wanted{")]
        return {row.split('"')[1]: float(row.rpartition(" ")[2]) for row in rows}

    async def sample(self, times: int = 1) -> None:
        """Does what a server does every few seconds: counts the jobs, and looks at the counts."""
        assert isinstance(self.core.clock, ManualClock)
        for _ in range(times):
            self.core.clock.advance(ms=SAMPLE_MS)
            await self.core.sweeps.advance_due()
            await self.core.rates.sample()
            await run_periodic(self.core, "demand")


class Ports(World):
    """Servers on the same shards, and the port of each."""

    def __init__(self) -> None:
        super().__init__()
        self.clock.advance(ms=START_MS - self.clock.now_ms())
        self._stack = AsyncExitStack()

    async def serve(self, *shards: str, max_queues: int = 500, samples: int = 3) -> Port:
        """One more server, which has counted that often."""
        port = Port(await self.start_server(*shards, max_queues=max_queues))
        await port.server.start()
        self._stack.push_async_callback(port.server.stop)
        await port.sample(samples)
        return port

    async def close(self) -> None:
        await self._stack.aclose()
        await super().close()


@pytest.fixture
async def ports() -> AsyncIterator[Ports]:
    ports = Ports()
    yield ports
    await ports.close()


@pytest.fixture
async def port(ports: Ports) -> Port:
    """A server with the queue `q`."""
    port = await ports.serve()
    await port.core.service.queues.create_queue("q")
    return port
