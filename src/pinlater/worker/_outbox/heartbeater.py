"""Renews the claims of jobs in hand, from a thread with its own event loop and connections: a task that blocks the worker's loop keeps
its claim.

Weakness: code that holds the interpreter's lock for long stops this thread too; run such code in a child process.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

from pinlater.client.async_client import AsyncClient
from pinlater.domain.clock import Clock
from pinlater.worker._outbox.introduction import Introduction
from pinlater.worker._outbox.leases import Leases
from pinlater.worker._outbox.loop_watchdog import LoopWatchdog
from pinlater.worker._outbox.renewals import Renewals
from pinlater.worker._outbox.unstarted_jobs import UnstartedJobs

_JOIN_S = 5.0


class Heartbeater:
    """Sends heartbeats of `leases` from `start` to `stop`. `wake` may be called from any thread."""

    def __init__(self, new_client: Callable[[], AsyncClient], clock: Clock, unread: Callable[[], list[Any]]) -> None:
        self._new_client = new_client
        self._unread = unread
        self.leases = Leases(clock)
        self._renewals = Renewals(self.leases, clock)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = asyncio.Event()
        self._stopped = asyncio.Event()
        self._thread: threading.Thread | None = None

    @property
    def errors(self) -> int:
        """Heartbeats that failed."""
        return self._renewals.errors

    @property
    def failing(self) -> bool:
        """Whether the latest heartbeat of any claim in hand failed."""
        return self._renewals.failing

    def introduce(self, introduction: Introduction) -> None:
        """Heartbeats say what this process is. To be called before `start`."""
        self._renewals.introduction = introduction

    def start(self) -> None:
        """Starts the thread, which watches the caller's event loop."""
        watchdog = LoopWatchdog(asyncio.get_running_loop(), self.leases.lock, time.monotonic)
        ready = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self.run(watchdog, ready.set)), name="pinlater-heartbeats", daemon=True
        )
        self._thread.start()
        ready.wait()

    def stop(self) -> None:
        """Ends the thread and the heartbeat under way."""
        self.request_stop()
        if self._thread is not None:
            self._thread.join(_JOIN_S)  # a name server that doesn't answer must not keep the worker from ending

    def request_stop(self) -> None:
        """Makes `run` return."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stopped.set)

    def wake(self) -> None:
        """A lease is due before all others."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._changed.set)

    # --- in the thread ----------------------------------------------------------------------------------------------------
    async def run(self, watchdog: LoopWatchdog, ready: Callable[[], object]) -> None:
        """Sends heartbeats until `request_stop`. Calls `ready` as soon as that may be called."""
        self._loop = asyncio.get_running_loop()
        ready()
        async with self._new_client() as client:
            unstarted = UnstartedJobs(self.leases, self._renewals, watchdog, self._unread)
            tasks = [
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
                for queue, leases in self._renewals.requests(due):
                    requests.create_task(self._renewals.renew(client, queue, leases, self._changed.set))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._changed.wait()
