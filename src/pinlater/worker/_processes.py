"""Child processes for plain functions that need a processor, or that may crash.

One job at a time each. A child that dies costs its job an attempt and is replaced; one that outlasts its time limit, or whose claim
is lost, is killed. Children are made by `spawn`, so nothing of the parent's threads, locks and connections gets into them.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any

from pinlater.client.values import AckResult, Checkpoint
from pinlater.worker import _child
from pinlater.worker._calling import Attempt
from pinlater.worker._child import Finished, ToRun
from pinlater.worker._endings import Ending
from pinlater.worker.errors import ProcessDied
from pinlater.worker.tasks import Task

_SPAWN = multiprocessing.get_context("spawn")
_END_S = 2.0
_PIPE_BYTES = 32 * 1024


class Processes:
    """The children of one queue, made as needed. `jobs_max` and `memory_max` (bytes) bound what one child does before it is replaced."""

    def __init__(self, *, jobs_max: int | None = None, memory_max: int | None = None) -> None:
        self._jobs_max = jobs_max
        self._memory_max = memory_max
        self._idle: list[_Child] = []
        self._all: set[_Child] = set()

    async def run(
        self, task: Task[..., Any], attempt: Attempt, checkpoint: Callable[[Checkpoint], Awaitable[AckResult]]
    ) -> Ending:
        """How the attempt ended. Raises `ProcessDied`. Cancelling this kills the child."""
        child = self._take()
        try:
            finished = await child.run(ToRun(*task.reference(), attempt), checkpoint)
        except BaseException:
            self._all.discard(child)
            child.kill()
            raise
        too_old = self._jobs_max is not None and child.jobs >= self._jobs_max
        too_large = self._memory_max is not None and finished.memory_bytes >= self._memory_max
        if too_old or too_large:
            self._all.discard(child)
            child.close()
        else:
            self._idle.append(child)
        return finished.ending

    def _take(self) -> _Child:
        while self._idle:
            child = self._idle.pop()
            if child.alive:
                return child
            self._all.discard(child)
            child.kill()
        child = _Child()
        self._all.add(child)
        return child

    @property
    def process_ids(self) -> list[int]:
        """Of the children that live."""
        return [child.process_id for child in self._all]

    def close(self) -> None:
        """Ends all children."""
        for child in self._all:
            child.kill()
        self._all.clear()
        self._idle.clear()


class _Child:
    """One process."""

    def __init__(self) -> None:
        self._jobs, theirs = _SPAWN.Pipe()
        their_lifeline, self._lifeline = _SPAWN.Pipe(duplex=False)
        self._process = _SPAWN.Process(target=_child.main, args=(theirs, their_lifeline), daemon=True)
        self._process.start()
        theirs.close()
        their_lifeline.close()
        self.jobs = 0

    @property
    def process_id(self) -> int:
        return self._process.pid or 0

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    async def run(self, order: ToRun, checkpoint: Callable[[Checkpoint], Awaitable[AckResult]]) -> Finished:
        self.jobs += 1
        try:
            await _sent(self._jobs, order)
            while True:
                answer = await _received(self._jobs)
                if isinstance(answer, Finished):
                    return answer
                try:
                    result: AckResult | Exception = await checkpoint(answer)
                except Exception as error:  # noqa: BLE001 - the handler's to deal with
                    result = RuntimeError(f"{type(error).__name__}: {error}")
                await _sent(self._jobs, result)
        except (EOFError, OSError):
            raise ProcessDied(await self._how_it_died()) from None

    async def _how_it_died(self) -> str:
        """Waits a little for it to be dead: its end of the pipe may have gone first."""
        await asyncio.to_thread(self._process.join, _END_S)
        code = self._process.exitcode
        if code is None:
            return "the process closed its pipe and went on"
        if code >= 0:
            return f"the process ended with exit code {code}"
        name = signal.Signals(-code).name
        hint = " (out of memory?)" if -code == signal.SIGKILL else ""
        return f"the process was ended by {name}{hint}"

    def kill(self) -> None:
        """Ends it on the spot."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process_id, signal.SIGKILL)
        self._process.join(_END_S)
        self.close()

    def close(self) -> None:
        """Lets it end: it notices that nobody holds the other ends."""
        self._jobs.close()
        self._lifeline.close()


async def _received(connection: Connection) -> Any:
    """The next message, without a thread: waits until there is something to read."""
    loop = asyncio.get_running_loop()
    readable = loop.create_future()
    descriptor = connection.fileno()
    loop.add_reader(descriptor, _set, readable)
    try:
        await readable
    finally:
        loop.remove_reader(descriptor)
    return connection.recv()


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _sent(connection: Connection, message: object) -> None:
    """Sends; what doesn't fit into the pipe's buffer from a thread, since the child may be about to read only after its start."""
    data = ForkingPickler.dumps(message)
    if len(data) > _PIPE_BYTES:
        await asyncio.to_thread(connection.send_bytes, data)
    else:
        connection.send_bytes(data)
