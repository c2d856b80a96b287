"""The console's application before a server in the test's process."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from pinlater.client import AsyncClient
from pinlater.console.app import Console
from pinlater.console.browser_guard import LOOPBACK_NAMES
from pinlater.domain.clock import ManualClock
from pinlater.server.main.core import Core
from pinlater.server.operations.job_settings import JobSettings
from pinlater.server.sharding.reload import DesiredShard
from pinlater.server.storage.sqlite.memory import MemoryShard
from tests.assembly import listen, open_core
from tests.console.caller import Caller
from tests.quick_hash import quick_hash

PASSWORD = "open sesame"
COMPARED_MAX = 1_000
"""How many jobs the server compares with a filter in one call."""
_HASH = quick_hash(PASSWORD)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest_asyncio.fixture
async def core(clock: ManualClock) -> AsyncIterator[Core]:
    core = await open_core(
        MemoryShard(),
        clock=clock,
        admin_password_hash=_HASH,
        jobs=JobSettings(max_body_bytes=100_000, max_compared_jobs=COMPARED_MAX),
    )
    await core.service.queues.create_queue("mail")
    yield core
    await core.close()


@pytest_asyncio.fixture
async def client(core: Core) -> AsyncIterator[AsyncClient]:
    """Of the console. The server that it calls listens on a free port."""
    server = await listen(core)
    async with AsyncClient(f"127.0.0.1:{server.port}", source="console", wait_for_servers=False) as client:
        yield client
    await server.drain(0)


@pytest_asyncio.fixture
async def lost_shard(core: Core) -> str:
    """The name of a shard that the server can't ask."""
    await core.change_shards([DesiredShard("1", MemoryShard), DesiredShard("2", lambda: MemoryShard("2"))])
    lost = core.shards.get("2")
    assert lost is not None
    lost.put_out_of_use("gone")
    return lost.name


@pytest.fixture
def console(client: AsyncClient, clock: ManualClock) -> Console:
    return Console(client, clock.now_ms, LOOPBACK_NAMES)


@pytest.fixture
def caller(console: Console) -> Caller:
    return Caller(console.app)
