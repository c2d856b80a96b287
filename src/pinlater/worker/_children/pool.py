"""A queue's child processes, for plain functions that need a CPU or may crash.

Each child runs one job at a time. A child that dies costs its job an attempt and is replaced. The worker kills a child that does not
begin its job's function in time, or whose job ran into its time limit or lost its claim. Children are spawned, so they share none of the
parent's threads, locks and connections.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pinlater.client.values import AckResult, Checkpoint
from pinlater.worker._attempts.calling import AttemptInput
from pinlater.worker._attempts.endings import Ending
from pinlater.worker._children.child import Child, ChildSetup
from pinlater.worker._children.child_main import Finished, ToRun
from pinlater.worker._enqueueing.servers import Addresses
from pinlater.worker.errors import TimeLimitExceeded
from pinlater.worker.settings import WorkerSettings
from pinlater.worker.tasks import Task

_THREADS = 8


class ChildPool:
    """Starts children as needed, and replaces those that reach a limit of the settings."""

    def __init__(
        self,
        settings: WorkerSettings,
        setups: Sequence[ChildSetup] = (),
        servers: Addresses = None,
    ) -> None:
        """`servers`: where the tasks enqueue, if not on their worker's own."""
        self.start_ms = settings.child_start_ms
        self._settings = settings
        self._setups = tuple(setups)
        self._servers = servers
        self._idle: list[Child] = []
        self._all: set[Child] = set()
        self._closed = False
        # Starting and joining a process takes milliseconds, in which the event loop must not block.
        self._threads = ThreadPoolExecutor(_THREADS, "pinlater-processes")

    async def run(
        self,
        task: Task[..., Any],
        attempt: AttemptInput,
        checkpoint: Callable[[Checkpoint], Awaitable[AckResult]],
        begun: Callable[[], object],
    ) -> Ending:
        """How the attempt ended. Calls `begun` when the child begins the function. Cancelling this kills the child.

        Raises `ProcessDied`, and `TimeLimitExceeded` if the child does not begin in time.
        """
        try:
            async with asyncio.timeout(self.start_ms / 1000) as starting:

                def begin() -> None:
                    starting.reschedule(None)
                    begun()

                child = await self._take()
                finished = await self._run_on(
                    child, ToRun(*task.reference(), attempt, self._servers), checkpoint, begin
                )
        except TimeoutError:
            raise TimeLimitExceeded(f"its process did not start within {self.start_ms / 1000:g} s") from None
        jobs_max, bytes_max = self._settings.child_jobs_max, self._settings.child_memory_bytes_max
        if child.jobs >= (jobs_max or math.inf) or finished.memory_bytes >= (bytes_max or math.inf):
            self._end(child, kill=False)
        else:
            self._idle.append(child)
        return finished.ending

    async def _run_on(
        self,
        child: Child,
        order: ToRun,
        checkpoint: Callable[[Checkpoint], Awaitable[AckResult]],
        begun: Callable[[], object],
    ) -> Finished:
        """Ends the child unless it finishes the job."""
        try:
            return await child.run(order, checkpoint, begun)
        except BaseException:
            self._end(child, kill=True)
            raise

    async def _take(self) -> Child:
        while self._idle:
            child = self._idle.pop()
            if child.alive:
                return child
            self._end(child, kill=True)
        starting = asyncio.get_running_loop().run_in_executor(self._threads, Child, self._setups, self._threads)
        try:
            child = await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(_kill_unwanted)
            raise
        self._all.add(child)
        return child

    def _end(self, child: Child, *, kill: bool) -> None:
        self._all.discard(child)
        child.end(kill=kill)
        if not self._closed:
            self._threads.submit(child.wait)

    def close(self) -> None:
        """Ends all children and waits for them. Cancel each `run` first: it closes the child that it uses."""
        self._closed = True
        for child in self._all:
            child.kill()
        for child in self._idle:
            child.end(kill=False)
        for child in self._all:
            child.wait()
        self._all.clear()
        self._idle.clear()
        self._threads.shutdown()


def _kill_unwanted(starting: asyncio.Future[Child]) -> None:
    if not starting.cancelled() and starting.exception() is None:
        starting.result().end(kill=True)
