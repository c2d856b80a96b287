"""A front process: listens for clients like any server, and has no store. The store process executes its calls (`server.front`).

Start: connect, then listen. Stop: no more connections, finish the calls under way, then close the connection to the store process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from random import Random

from pinlater.domain.clock import SystemClock, thread_cpu_s
from pinlater.domain.queue import QueueCounts
from pinlater.server.config.checks import access_of
from pinlater.server.config.settings import Settings
from pinlater.server.features.all import FEATURES, OPERATIONS
from pinlater.server.front.service import front_service
from pinlater.server.front.store_connection import StoreConnection
from pinlater.server.http.status import Readiness
from pinlater.server.main.app import listening, thrift_server
from pinlater.server.main.listener_files import ListenerFiles
from pinlater.server.main.until_event import ends_before
from pinlater.server.maintenance.runner import MaintenanceRunner, Periodic
from pinlater.server.operations.standstill import Standstill
from pinlater.server.telemetry.loop_lag import LoopLag
from pinlater.server.telemetry.metrics import TICK_S, Metrics
from pinlater.version import __version__

logger = logging.getLogger(__name__)


class FrontApp:
    """The front process of this number, of the store process that listens at `store_path`. `start`, then `stop`."""

    def __init__(self, settings: Settings, store_path: str, number: int) -> None:
        self.settings = settings
        self.clock = SystemClock()
        self._started_at_ms = self.clock.now_ms()
        self._started_s = self.clock.monotonic()
        self.metrics = Metrics(queues_max=settings.telemetry.queue_metrics_max)
        self.metrics.labels["store"] = settings.store.kind
        self._state = "starting"
        self.listener_files = ListenerFiles(settings, self.clock)
        self._reloading: asyncio.Future[None] | None = None
        self._cut_off = asyncio.Event()
        self.standstill = Standstill(self.clock.monotonic, settings.thrift.standstill_s)
        self.store = StoreConnection(store_path, number, self.standstill)
        random = Random()  # noqa: S311 - spreads load and tells changes apart, guards nothing
        self.service = front_service(self.store, OPERATIONS, self.metrics, self.clock, random)
        for table in settings.tables:
            self.service.put(table)
        for feature in FEATURES:
            feature.add_to_front(self.service)
        files = self.listener_files
        self.thrift = thrift_server(self, shared_port=True, access=files.access, certificate=files.certificate)
        self.loop_lag = LoopLag(settings.telemetry.loop_lag_interval_ms, self.clock.monotonic, thread_cpu_s)
        self.loop_lag.show(self.metrics)
        self.runner = MaintenanceRunner(self._periodic(), self.metrics, random)
        self._show()

    # --- life -------------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Waits until the store process is ready, and listens. Raises OSError, after it has stopped what it started."""
        self.store.start()
        try:
            await self.store.connected.wait()
            thrift = self.settings.thrift
            with listening("Thrift", thrift.host, thrift.port, "thrift.port"):
                await self.thrift.start()
        except BaseException:
            await self.store.stop()
            raise
        self.runner.start()
        self.loop_lag.start()
        self._state = "ready"
        logger.info("ready", extra={"version": __version__, "thrift_port": self.thrift.port})

    async def stop(self, grace_s: float) -> None:
        """Stops accepting, finishes the calls under way for at most `grace_s` seconds, closes the connection to the store process."""
        self._state = "draining"
        logger.info("draining", extra={"grace_seconds": grace_s})
        self.store.drain()
        draining = asyncio.create_task(self.thrift.drain(grace_s))
        if not await ends_before(draining, self._cut_off):
            draining.cancel()
            await asyncio.wait([draining])
            await self.thrift.drain(0)
        self.loop_lag.stop()
        await self.runner.stop()
        await self.listener_files.note_uses()
        await self.service.close()
        await self.store.stop()
        self._state = "stopped"
        logger.info("stopped")

    def cut_off(self) -> None:
        """Closes the connections for which `stop` still waits."""
        self._cut_off.set()

    def reload(self) -> None:
        """Rereads the tokens and the certificate now. The store process reads the other files."""
        self._reloading = asyncio.ensure_future(self.listener_files.look())

    def _periodic(self) -> Sequence[Periodic]:
        return [
            Periodic("metrics", round(TICK_S * 1000), self._tick),
            *self.service.periodic,
            *self.listener_files.periodic(),
        ]

    async def _tick(self) -> None:
        await self.metrics.tick_in_turns(self.clock.monotonic())

    # --- for pages and probes ---------------------------------------------------------------------------------------------

    def readiness(self) -> Readiness:
        """Returns the readiness that the store process reports."""
        if self._state != "ready":
            return Readiness(False, (self._state,))
        state = self.store.state
        return Readiness(state.ready, tuple(state.reasons))

    def server_info(self) -> Mapping[str, object]:
        """Returns what this process adds to the page /server_info."""
        return {
            "name": "pinlater",
            "version": __version__,
            "state": self._state,
            "store": self.settings.store.kind,
            "access": access_of(self.settings),
            "thrift_port": self.thrift.port,
            "started_at_ms": self._started_at_ms,
            "uptime_ms": round((self.clock.monotonic() - self._started_s) * 1000),
            "members": [],
            "front": True,
        }

    def queue_counts(self) -> Sequence[QueueCounts]:
        """Returns None, because the store process counts."""
        return ()

    def _show(self) -> None:
        store = self.store
        self.metrics.gauge(
            "store-process-calls",
            lambda: store.calls,
            prometheus="pinlater_store_process_calls",
            help="Calls that front processes have sent to the process that has the store",
        )
        self.metrics.gauge(
            "store-process-unanswered-calls",
            lambda: store.unanswered,
            prometheus="pinlater_store_process_unanswered_calls",
            help="Calls to the process that has the store that are not answered yet",
        )
        self.metrics.gauge(
            "store-process-answers-lost",
            lambda: store.calls_lost,
            prometheus="pinlater_store_process_answers_lost",
            help="Calls to the process that has the store whose answers did not come",
        )
