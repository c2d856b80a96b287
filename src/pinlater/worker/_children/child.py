"""The parent's side of one child process: starts it, sends it jobs, answers its checkpoints, and says how it died."""

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

from pinlater.client.values import AckResult, Checkpoint
from pinlater.supervision.descendants import kill_group, reap_group
from pinlater.supervision.start_signals import STOP_SIGNALS
from pinlater.worker._children import child_main
from pinlater.worker._children.child_main import Begun, Finished, ToRun
from pinlater.worker._children.pipe import BrokenMessage, ChildPipe
from pinlater.worker.errors import ProcessDied

# Runs first in every child; must be picklable.
ChildSetup = Callable[[], None]
_SPAWN = multiprocessing.get_context("spawn")
_END_S = 2.0


class Child:
    """One child process, as its parent sees it. Starting it and `wait` block."""

    def __init__(self, setups: Sequence[ChildSetup], threads: ThreadPoolExecutor) -> None:
        self._threads = threads
        ours, theirs = _SPAWN.Pipe()
        their_lifeline, self._lifeline = _SPAWN.Pipe(duplex=False)
        # Not a daemon: such a process may not start processes of its own.
        self._process = _SPAWN.Process(target=child_main.main, args=(theirs, their_lifeline, setups), daemon=False)
        with _signals_blocked():
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

    async def run(
        self,
        order: ToRun,
        checkpoint: Callable[[Checkpoint], Awaitable[AckResult]],
        begun: Callable[[], object],
    ) -> Finished:
        """Calls `begun` when the process begins the function. Raises `ProcessDied`."""
        self.jobs += 1
        try:
            await self._send(order)
            while True:
                answer = pickle.loads(await self._pipe.receive())  # noqa: S301 - from the child
                if isinstance(answer, Finished):
                    return answer
                if isinstance(answer, Begun):
                    begun()
                    continue
                try:
                    result: AckResult | Exception = await checkpoint(answer)
                except Exception as error:  # noqa: BLE001 - for the task to handle
                    result = RuntimeError(f"{type(error).__name__}: {error}")
                await self._send(result)
        except BrokenMessage as error:
            raise ProcessDied(str(error)) from None
        except (EOFError, OSError):
            raise ProcessDied(await self._how_it_died()) from None

    async def _how_it_died(self) -> str:
        """Waits briefly for its exit code: the pipe may have closed first."""
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
        """Kills it, or lets it end by closing its pipe; `wait` should follow."""
        if kill:
            self.kill()
            self._lifeline.close()
        self._pipe.close()

    def kill(self) -> None:
        """Kills it and the processes of its group; `end` must follow."""
        kill_group(self.process_id, waited_for=not self._process.is_alive())
        self._process.kill()  # it may not lead a group yet; does nothing if it was waited for

    def wait(self) -> None:
        """Blocks until it has ended, for two seconds at most, and until its group has."""
        self._process.join(_END_S)
        self.kill()
        self._lifeline.close()
        self._process.join(_END_S)
        if self._process.exitcode is not None:
            reap_group(self.process_id)


@contextlib.contextmanager
def _signals_blocked() -> Iterator[None]:
    """A process that this thread starts meanwhile blocks the parent's signals until it has set its handlers."""
    resource_tracker.ensure_running()  # else it would start now, and unblock them
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _descriptor_of_end(process: BaseProcess) -> int:
    """A descriptor that is readable when the process has ended."""
    if sys.platform == "linux":
        return os.pidfd_open(process.pid or 0)
    return os.dup(process.sentinel)  # weakness: not before processes that a task forked have ended
