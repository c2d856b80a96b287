"""A thread with an event loop of its own, for what must answer while a task blocks the worker's: the supervisor's channel,
which then serves the probes, or else the worker's own probes."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from pinlater.worker._consumer.worker_run import WorkerRun
from pinlater.worker._process.control_channel import ControlChannel, Orders, WorkerHello
from pinlater.worker._process.endpoint import serve_probes
from pinlater.worker._process.health import WorkerHealth

_log = logging.getLogger("pinlater.worker")
# Completes the future when it serves, or with the error if it can't; runs until it is cancelled.
Service = Callable[["Future[None]"], Coroutine[Any, Any, None]]


class BackgroundLoop:
    """Runs services from `start` to `stop`."""

    def __init__(self, services: Sequence[Service]) -> None:
        self._services = tuple(services)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped: asyncio.Event | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Returns when all services run. Raises the error of one that can't."""
        ready: list[Future[None]] = [Future() for _ in self._services]
        if not ready:
            return
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run(ready)), name="pinlater-background", daemon=True
        )
        self._thread.start()
        try:
            for future in ready:
                future.result()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Cancels the services and waits for them."""
        if self._loop is not None and self._stopped is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._stopped.set)
            self._thread.join()
            self._thread = None

    async def _run(self, ready: Sequence[Future[None]]) -> None:
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        tasks = [
            asyncio.create_task(_guarded(service, future))
            for service, future in zip(self._services, ready, strict=True)
        ]
        await self._stopped.wait()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _guarded(service: Service, ready: Future[None]) -> None:
    try:
        await service(ready)
    except Exception as error:  # noqa: BLE001 - raised by `start`, or logged
        if ready.done():
            _log.exception("a background service failed")
        else:
            ready.set_exception(error)


def services_of(run: WorkerRun, health: WorkerHealth, control: ControlChannel | None) -> list[Service]:
    """What a worker answers with. Called on its event loop."""
    settings, on_loop = run.settings, asyncio.get_running_loop().call_soon_threadsafe

    def stop_now() -> None:
        run.stop_now.set()
        run.stop.set()

    if control is not None:
        hello = WorkerHello(settings.health_host, settings.health_port, settings.grace_ms)
        orders = Orders(health.report, partial(on_loop, run.stop.set), partial(on_loop, stop_now))
        return [partial(control.obey, hello, orders)]
    if settings.health_port is not None:
        return [partial(serve_probes, settings.health_host, settings.health_port, health)]
    return []
