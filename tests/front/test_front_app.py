"""A front process as a whole."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pinlater.server.config.load import load
from pinlater.server.main.front import FrontApp
from tests.front.conftest import DEADLINE_S, FrontAndStore, until
from tests.promises.wire import Wire

SETTINGS = load(None, {}, {"store": "sqlite:jobs.db", "thrift.port": 0, "http.port": 0}).settings


async def test_one_that_is_stopped_before_there_is_a_store_process_ends(tmp_path: Path) -> None:
    stopping = asyncio.Event()
    app = FrontApp(SETTINGS, str(tmp_path / "nowhere"), 1, stopping)
    starting = asyncio.create_task(app.start())
    await until(lambda: app.readiness().reasons == ("starting",))
    stopping.set()
    async with asyncio.timeout(DEADLINE_S):
        await starting
        await app.stop(1.0)
    assert app.readiness().reasons == ("stopped",)


async def test_it_serves_clients_and_is_not_ready_while_there_is_no_store_process(pair: FrontAndStore) -> None:
    app = FrontApp(SETTINGS, pair.path, 2, asyncio.Event())
    await app.start()
    wire = await Wire.connect(app.thrift.port)
    assert (await wire.create("emails")) == "emails"
    assert "emails" in pair.core.service.queue_cache.queues
    assert app.readiness().ok
    pair.fronts.close()
    await until(lambda: not app.readiness().ok)
    assert app.readiness().reasons == ("the process that has the store is not reachable",)
    await wire.close()
    await app.stop(1.0)
