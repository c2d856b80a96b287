"""Renews the claims of jobs in hand, from a thread with its own event loop and connections: a task that blocks the worker's loop keeps
its claim. Whatever else must answer meanwhile runs there too: the probes, and the supervisor's channel.

Weakness: code that holds the interpreter's lock for long stops this thread too; run such code in a child process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any

from pinlater.client.async_client import AsyncClient
from pinlater.domain.clock import Clock
from pinlater.worker._outbox.blocked_loop import LoopWatchdog, UnstartedJobs
from pinlater.worker._outbox.heartbeat_log import log_apart
from pinlater.worker._outbox.leases import Leases
from pinlater.worker._outbox.renewals import Renewals

_log = logging.getLogger("pinlater.worker")
_JOIN_S = 5.0
# Completes the future when it serves, or with the error if it can't; runs until it is cancelled.
Service = Callable[["Future[None]"], Coroutine[Any, Any, None]]


class Heartbeater:
    """Sends heartbeats of `leases` from `start` to `stop`. `wake` may be called from any thread."""

    def __init__(self, new_client: Callable[[], AsyncClient], clock: Clock, unread: Callable[[], list[Any]]) -> None:
        self._new_client = new_client
        self._unread = unread
        self.leases = Leases(clock)
        self.renewals = Renewals(self.leases, clock)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = asyncio.Event()
        self._stopped = asyncio.Event()
        self._thread: threading.Thread | None = None

    def start(self, *services: Service) -> None:
        """Starts the thread, which watches the caller's event loop. Returns when the services run.

        Raises the error of a service that can't, or of a client that can't be made.
        """
        watchdog = LoopWatchdog(asyncio.get_running_loop(), self.leases.lock, time.monotonic)
        serves = {service: Future[None]() for service in services}
        ready: Future[None] = Future()

        def run() -> None:
            try:
                asyncio.run(self.run(watchdog, ready, serves))
            except Exception as error:
                if ready.done():
                    raise
                ready.set_exception(error)

        self._thread = threading.Thread(target=run, name="pinlater-heartbeats", daemon=True)
        self._thread.start()
        try:
            for future in (ready, *serves.values()):
                future.result()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends the thread, its services and the heartbeat under way."""
        self.request_stop()
        if self._thread is not None:
            self._thread.join(_JOIN_S)  # a name server that doesn't answer must not keep the worker from ending

    def request_stop(self) -> None:
        """Makes `run` return."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stopped.set)

    def wake(self) -> None:
        """A lease is due before all others."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._changed.set)

    # --- in the thread ----------------------------------------------------------------------------------------------------
    async def run(self, watchdog: LoopWatchdog, ready: Future[None], services: dict[Service, Future[None]]) -> None:
        """Sends heartbeats until `request_stop`. Completes `ready` once its client is open."""
        self._loop = asyncio.get_running_loop()
        async with self._new_client() as client:
            tasks = [asyncio.create_task(_guarded(service, serves)) for service, serves in services.items()]
            ready.set_result(None)
            unstarted = UnstartedJobs(self.leases, self.renewals, watchdog, self._unread)
            tasks += [
                asyncio.create_task(self._renew_until_cancelled(client)),
                asyncio.create_task(unstarted.give_back_until_cancelled(client)),
            ]
            await self._stopped.wait()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _renew_until_cancelled(self, client: AsyncClient) -> None:
        async with asyncio.TaskGroup() as requests:  # a request that hangs must not delay the others
            while True:
                self._changed.clear()
                due, wait_s = self.leases.take_due()
                for queue, leases in self.renewals.requests(due):
                    requests.create_task(self.renewals.renew(client, queue, leases, self._changed.set))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._changed.wait()


async def _guarded(service: Service, serves: Future[None]) -> None:
    try:
        await service(serves)
    except Exception as error:  # noqa: BLE001 - raised by `start`, or logged
        if serves.done():
            log_apart(_log, logging.ERROR, "a background service failed", exc_info=error)
        else:
            serves.set_exception(error)
