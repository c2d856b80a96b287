"""The search processes, which run body regexes so that no pattern can block the event loop.

A search starts a process if none is idle, up to `processes_max`; a process ends after a minute without work. The server kills the
process of a search that takes too long, or whose caller has gone. The cost of a search is bounded before it starts: RE2 takes at most
the instructions of the regex's program times the bytes to search, which count against `steps_max` for all searches under way.

Weakness: if the system refuses to start a process, the server refuses searches; everything else works.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import NamedTuple

from pinlater.domain.errors import PinLaterError, TooManyWaiting
from pinlater.extras import install_line
from pinlater.server.operations.body_search_process import ANSWER, FOUND, LENGTH, order_frame

logger = logging.getLogger(__name__)

_IDLE_S = 60.0
# A search process ends itself this long after the server would have killed it, in case the server is gone.
_ALARM_LATER_S = 1.0
_END_S = 2.0
_THREADS = 2
_MODULE = "pinlater.server.operations.body_search_process"


class SearchOutOfTime(Exception):
    """The search did not end in time, and was ended."""


class PatternInvalid(Exception):
    """RE2 refuses the pattern; the text is its reason."""


class SearchUnavailable(PinLaterError):
    """No search process can be started, or it died."""

    detail = "REGEX_UNAVAILABLE"
    retryable = True


class SearchNotInstalled(PinLaterError):
    """The package that searches is not installed."""

    detail = "REGEX_UNAVAILABLE"


class Searched(NamedTuple):
    """`program`: how many instructions the pattern's program has. `found`: for each body whether the pattern is in it."""

    program: int
    found: Sequence[bool]


class SearchProcesses:
    """The processes of one server. Belongs to one event loop; `close` it."""

    def __init__(self, processes_max: int, steps_max: int) -> None:
        self._steps_max = steps_max
        self._steps = 0
        self._free = asyncio.Semaphore(processes_max)
        self._idle: list[_SearchProcess] = []
        self._all: set[_SearchProcess] = set()
        self._starting: set[asyncio.Future[_SearchProcess]] = set()
        self._closed = False
        self._idle_timer: asyncio.TimerHandle | None = None
        # Starting a process, and waiting for its end, takes milliseconds; the event loop must not block for that long.
        self._threads = ThreadPoolExecutor(_THREADS, "search-processes")

    @property
    def process_ids(self) -> list[int]:
        """The ids of the running processes."""
        return [process.process_id for process in self._all]

    async def search(self, pattern: bytes, bodies: Sequence[bytes], seconds: float, *, program: int = 0) -> Searched:
        """Searches for the pattern in each body; with no bodies it only compiles the pattern.

        `program`: the size from an earlier answer, to charge the search's cost. `seconds`: including the wait for a free process.
        Raises `SearchOutOfTime`, `PatternInvalid`, `TooManyWaiting`, `SearchUnavailable`, `SearchNotInstalled`. Cancelling it kills the
        process.
        """
        if find_spec("re2") is None:
            # The command may have a path of this machine, which is not for callers.
            logger.warning("a body regex needs google-re2", extra={"install": install_line("regex")})
            raise SearchNotInstalled(
                "A body regex needs google-re2, of the extra `regex`, where the server runs: its log has the command"
            )
        steps = program * sum(map(len, bodies))
        if self._steps and self._steps + steps > self._steps_max:
            raise TooManyWaiting(
                "Too many regexes are being searched for at once (setting regex_steps_in_flight_max)",
                retry_after_ms=1000,
            )
        self._steps += steps
        try:
            async with asyncio.timeout(seconds), self._free:
                process = await self._take()
                try:
                    answer = await process.ask(order_frame(pattern, bodies, seconds + _ALARM_LATER_S))
                except BaseException:
                    self._kill_and_reap(process)
                    raise
                self._idle.append(process)
        except TimeoutError:
            raise SearchOutOfTime from None
        except (EOFError, OSError) as error:
            logger.warning("a search process failed: %r", error)
            raise SearchUnavailable(
                "The regex could not be searched for: its process could not be started, or died"
            ) from error
        finally:
            self._steps -= steps
            self._plan_the_end_of_idle_ones()
        valid, size = ANSWER.unpack_from(answer)
        if not valid:
            raise PatternInvalid(answer[ANSWER.size :].decode(errors="replace"))
        return Searched(size, [byte == FOUND for byte in answer[ANSWER.size :]])

    async def _take(self) -> _SearchProcess:
        if self._closed:
            raise ConnectionAbortedError("the server is stopping")
        while self._idle:
            process = self._idle.pop()
            if process.alive:
                return process
            self._kill_and_reap(process)
        starting = asyncio.get_running_loop().run_in_executor(self._threads, _SearchProcess)
        self._starting.add(starting)
        starting.add_done_callback(self._started)
        try:
            process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(self._end_unwanted)
            raise
        try:
            await process.connect()
            if self._closed:
                raise ConnectionAbortedError("the server is stopping")
        except BaseException:
            self._kill_and_reap(process)
            raise
        return process

    def _started(self, starting: asyncio.Future[_SearchProcess]) -> None:
        self._starting.discard(starting)
        if not starting.cancelled() and starting.exception() is None:
            self._all.add(starting.result())

    def _end_unwanted(self, starting: asyncio.Future[_SearchProcess]) -> None:
        """Its caller has gone while it began."""
        if not starting.cancelled() and starting.exception() is None:
            self._kill_and_reap(starting.result())

    def _kill_and_reap(self, process: _SearchProcess) -> None:
        process.kill()
        if not self._closed:  # otherwise `close` waits for it
            self._all.discard(process)
            self._threads.submit(process.wait)

    def _plan_the_end_of_idle_ones(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        if self._idle and not self._closed:
            self._idle_timer = asyncio.get_running_loop().call_later(_IDLE_S, self._end_idle_ones)

    def _end_idle_ones(self) -> None:
        while self._idle:
            self._kill_and_reap(self._idle.pop())

    async def close(self) -> None:
        """Kills all processes, and returns when they are gone. Searches under way fail. May be called twice."""
        self._closed = True
        self._plan_the_end_of_idle_ones()
        self._idle.clear()
        if self._starting:
            await asyncio.wait(self._starting)  # each takes milliseconds, and would otherwise outlive this object
        processes, self._all = list(self._all), set()
        for process in processes:
            process.kill()
        if processes:  # otherwise no thread is needed
            await asyncio.to_thread(self._wait_for_all, processes)
        self._threads.shutdown(wait=False)

    @staticmethod
    def _wait_for_all(processes: Sequence[_SearchProcess]) -> None:
        for process in processes:
            process.wait()


class _SearchProcess:
    """One process. The constructor blocks; raises OSError."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            try:
                self._process: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603 - our own program
                    _command(), stdin=theirs.fileno(), stdout=subprocess.DEVNULL, start_new_session=True
                )
            except BaseException:
                self._socket.close()
                raise
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    @property
    def process_id(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    async def connect(self) -> None:
        """Must be called once, on the loop that asks."""
        self._socket.setblocking(False)
        self._reader, self._writer = await asyncio.open_connection(sock=self._socket)

    async def ask(self, order: Sequence[bytes]) -> bytes:
        """The answer to an order. Raises EOFError or OSError if the process is gone."""
        reader, writer = self._reader, self._writer
        if reader is None or writer is None:
            raise ConnectionError("not connected")
        writer.writelines(order)
        await writer.drain()
        (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
        return await reader.readexactly(length)

    def kill(self) -> None:
        """Kills the process; call `wait` afterwards."""
        self._process.kill()  # does nothing if the process was waited for: its id may belong to another process by now
        if self._writer is None:
            self._socket.close()
        else:
            self._writer.transport.abort()

    def wait(self) -> None:
        """Waits until the process is gone. Blocks."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)


def _command() -> list[str]:
    """The command of a search process. It imports from the working directory only if this process does."""
    safely = [] if sys.path[:1] in ([""], [os.getcwd()]) else ["-P"]  # noqa: PTH109 - sys.path holds strings
    return [sys.executable, *safely, "-m", _MODULE]
