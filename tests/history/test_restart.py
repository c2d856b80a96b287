"""The history outlives the server: the minute in which it stops, too."""

from __future__ import annotations

from pathlib import Path

from pinlater.server.config.settings import Settings
from pinlater.server.config.store import StoreLocation
from pinlater.server.features.history.queries import HistoryQueries
from pinlater.server.http.settings import HttpSettings
from pinlater.server.main.app import App
from pinlater.server.thrift.settings import ThriftSettings
from pinlater.wire.generated.structs import QueueHistoryRequest
from tests.history.conftest import MINUTE_MS, ack, claim, enqueue


async def test_a_server_that_is_restarted_shows_what_its_former_run_did(tmp_path: Path) -> None:
    settings = Settings(
        store=StoreLocation("sqlite", tmp_path / "jobs.db"), thrift=ThriftSettings(port=0), http=HttpSettings(port=0)
    )
    for expected in (0, 2):
        app = App(settings)
        await app.start()
        core = app.core
        await core.service.queues.create_queue("q")
        now_ms = core.clock.now_ms()
        found = await core.service.of(HistoryQueries).queue_history(QueueHistoryRequest(["q"], now_ms - 10 * MINUTE_MS))
        [history] = found.queues
        assert sum(point.succeeded for point in history.points) == expected
        assert sum(point.runs.number for point in history.points if point.runs) == expected
        await enqueue(core, 2)
        await ack(core, await claim(core))
        await app.stop(0)
