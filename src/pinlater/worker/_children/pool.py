"""Child processes for plain functions that need a processor, or that may crash.

One job at a time each. A child that dies costs its job an attempt and is replaced; one that outlasts its time limit, or whose claim
is lost, is killed. Children are made by `spawn`, so nothing of the parent's threads, locks and connections gets into them.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from typing import Any

from pinlater.client.values import AckResult, Checkpoint
from pinlater.worker._attempts.calling import Attempt
from pinlater.worker._attempts.endings import Ending
from pinlater.worker._children import child as _child
from pinlater.worker._children.child import Finished, ToRun
from pinlater.worker._children.pipe import BrokenMessage, ChildPipe
from pinlater.worker.errors import ProcessDied
from pinlater.worker.tasks import Task

# Runs first in every child; must be something that can be pickled.
ChildSetup = Callable[[], None]
_SPAWN = multiprocessing.get_context("spawn")
_END_S = 2.0
_THREADS = 8


class Processes:
    """The children of one queue, made as needed. `jobs_max` and `memory_max` (bytes) bound what one child does before it is replaced."""

    def __init__(
        self, *, jobs_max: int | None = None, memory_max: int | None = None, setups: Sequence[ChildSetup] = ()
    ) -> None:
        self._setups = tuple(setups)
        self._jobs_max = jobs_max
        self._memory_max = memory_max
        self._idle: list[_Child] = []
        self._all: set[_Child] = set()
        self._closed = False
        # Starting and burying a process takes milliseconds, which the loop doesn't have.
        self._threads = ThreadPoolExecutor(_THREADS, "pinlater-processes")

    async def run(
        self, task: Task[..., Any], attempt: Attempt, checkpoint: Callable[[Checkpoint], Awaitable[AckResult]]
    ) -> Ending:
        """How the attempt ended. Raises `ProcessDied`. Cancelling this kills the child."""
        child = await self._take()
        try:
            finished = await child.run(ToRun(*task.reference(), attempt), checkpoint)
        except BaseException:
            self._bury(child, kill=True)
            raise
        too_old = self._jobs_max is not None and child.jobs >= self._jobs_max
        too_large = self._memory_max is not None and finished.memory_bytes >= self._memory_max
        if too_old or too_large:
            self._bury(child, kill=False)
        else:
            self._idle.append(child)
        return finished.ending

    async def _take(self) -> _Child:
        while self._idle:
            child = self._idle.pop()
            if child.alive:
                return child
            self._bury(child, kill=True)
        starting = asyncio.get_running_loop().run_in_executor(self._threads, _Child, self._setups, self._threads)
        try:
            child = await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(_end_unwanted)
            raise
        self._all.add(child)
        return child

    def _bury(self, child: _Child, *, kill: bool) -> None:
        self._all.discard(child)
        child.end(kill=kill)
        if not self._closed:
            self._threads.submit(child.wait)

    @property
    def process_ids(self) -> list[int]:
        """Of the children that live."""
        return [child.process_id for child in self._all]

    def close(self) -> None:
        """Ends all children and waits for them to be gone. Those at work are for `run` to close, which has to be cancelled."""
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


class _Child:
    """One process."""

    def __init__(self, setups: Sequence[ChildSetup], threads: ThreadPoolExecutor) -> None:
        self._threads = threads
        ours, theirs = _SPAWN.Pipe()
        their_lifeline, self._lifeline = _SPAWN.Pipe(duplex=False)
        self._process = _SPAWN.Process(target=_child.main, args=(theirs, their_lifeline, setups), daemon=True)
        with _signals_held_back():
            self._process.start()
        theirs.close()
        their_lifeline.close()
        self._pipe = ChildPipe(ours, _descriptor_of_end(self._process))
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
            await self._send(order)
            while True:
                answer = pickle.loads(await self._pipe.receive())  # noqa: S301 - from the child
                if isinstance(answer, Finished):
                    return answer
                try:
                    result: AckResult | Exception = await checkpoint(answer)
                except Exception as error:  # noqa: BLE001 - the handler's to deal with
                    result = RuntimeError(f"{type(error).__name__}: {error}")
                await self._send(result)
        except BrokenMessage as error:
            raise ProcessDied(str(error)) from None
        except (EOFError, OSError):
            raise ProcessDied(await self._how_it_died()) from None

    async def _how_it_died(self) -> str:
        """Waits a little for it to be dead: its end of the pipe may have gone first."""
        await asyncio.get_running_loop().run_in_executor(self._threads, self._process.join, _END_S)
        code = self._process.exitcode
        if code is None:
            return "the process closed its pipe and went on"
        if code >= 0:
            return f"the process ended with exit code {code}"
        name = signal.Signals(-code).name
        hint = " (out of memory?)" if -code == signal.SIGKILL else ""
        return f"the process was ended by {name}{hint}"

    async def _send(self, message: object) -> None:
        await self._pipe.send(ForkingPickler.dumps(message))

    def end(self, *, kill: bool) -> None:
        """Kills it, or lets it end: it notices that nobody holds the other ends."""
        if kill:
            self.kill()
        self._pipe.close()
        self._lifeline.close()

    def kill(self) -> None:
        """Ends it on the spot; `end` must follow."""
        self._process.kill()  # knows if it is gone: its number may be another process's by now

    def wait(self) -> None:
        """Returns when it is gone, or after a while. Blocks."""
        self._process.join(_END_S)


@contextlib.contextmanager
def _signals_held_back() -> Iterator[None]:
    """What this thread starts meanwhile is born deaf to the signals that it leaves to its parent, until it is ready for them."""
    resource_tracker.ensure_running()  # else it is started now, and takes the deafness away
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _child.LEFT_TO_PARENT)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _descriptor_of_end(process: BaseProcess) -> int:
    """Readable when the process has ended."""
    if sys.platform == "linux":
        return os.pidfd_open(process.pid or 0)
    return os.dup(process.sentinel)  # weakness: not before the processes have ended that a handler forked


def _end_unwanted(starting: asyncio.Future[_Child]) -> None:
    if not starting.cancelled() and starting.exception() is None:
        starting.result().end(kill=True)
