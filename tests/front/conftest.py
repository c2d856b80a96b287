"""A store process and a front of it, both in the test's process, with a Unix socket between them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import cast

import pytest
import pytest_asyncio

from pinlater.domain.clock import ManualClock
from pinlater.server.dispatch.settings import DispatchSettings
from pinlater.server.features.all import OPERATIONS
from pinlater.server.front.front_listener import FrontListener
from pinlater.server.front.service import front_service
from pinlater.server.front.store_connection import StoreConnection
from pinlater.server.main.core import Core
from pinlater.server.operations.job_settings import JobSettings
from pinlater.server.operations.service import Service
from pinlater.server.operations.standstill import Standstill
from pinlater.server.storage.sqlite.memory import MemoryShard
from pinlater.server.telemetry.metrics import Metrics
from tests.assembly import open_core
from tests.service.conftest import HASH, ServiceUnderTest

DEADLINE_S = 30.0
UNTAKEN_BYTES_MAX = 64 * 1024 * 1024


class TakingConnection(StoreConnection):
    """A connection whose front a test has take nothing for a time. `transport`: the one in use."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        super().connection_made(transport)


class FrontAndStore:
    """`service`: as the front has it. `fronts` may be closed and opened again, as when the store process is restarted."""

    def __init__(self, core: Core, path: str) -> None:
        self.core = core
        self.path = path
        self.front_standstill = Standstill(core.shards.clock.monotonic, math.inf)
        self.store = TakingConnection(path, 3, self.front_standstill)
        self.service: Service = front_service(self.store, OPERATIONS, Metrics(), core.shards.clock, Random(1))
        self.fronts = self._listener()
        self.still_runs = True

    def _listener(self) -> FrontListener:
        return FrontListener(
            self.core.service,
            OPERATIONS,
            self.core.dispatcher.stop_waiting,
            lambda: self.still_runs,
            UNTAKEN_BYTES_MAX,
            self.front_standstill.too_old,
        )

    async def open(self) -> None:
        await self.fronts.open_local(self.path)
        self.store.start()
        async with asyncio.timeout(DEADLINE_S):
            await self.store.connected.wait()

    async def restart(self) -> None:
        """The store process ends at once, and another one listens."""
        self.fronts.close()
        await until(lambda: not self.store.connected.is_set())
        self.fronts = self._listener()
        await self.fronts.open_local(self.path)

    async def close(self) -> None:
        await self.store.stop()
        self.fronts.close()
        await self.core.close()


async def until(true: object) -> None:
    """Waits until the call gives something true."""
    assert callable(true)
    async with asyncio.timeout(DEADLINE_S):
        while not true():
            await asyncio.sleep(0.001)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def file_limits() -> dict[str, float]:
    return {}


@pytest_asyncio.fixture
async def pair(clock: ManualClock, file_limits: dict[str, float]) -> AsyncIterator[FrontAndStore]:
    core = await open_core(
        MemoryShard(),
        clock=clock,
        file_limits=lambda: file_limits,
        admin_password_hash=HASH,
        jobs=JobSettings(max_body_bytes=1000),
        dispatch=DispatchSettings(max_waiting_dequeues=5),
    )
    await core.service.queues.create_queue("q")
    with TemporaryDirectory() as folder:  # a test's own folder may have too long a path for a socket
        made = FrontAndStore(core, str(Path(folder) / "store"))
        await made.open()
        yield made
        await made.close()


@pytest_asyncio.fixture
async def world(pair: FrontAndStore, clock: ManualClock, file_limits: dict[str, float]) -> ServiceUnderTest:
    """As tests of the service know it."""
    pair.service.queue_cache = pair.core.service.queue_cache
    pair.service.shards = pair.core.shards
    return ServiceUnderTest(
        clock, pair.service, pair.core.dispatcher, pair.core.metrics, pair.core.standstill, file_limits
    )
