"""One of a supervisor's processes: started, listened to, replaced when it ends. It knows nothing of its siblings.

The process stands in a group of its own, so that a terminal's Ctrl-C reaches the supervisor alone, which says what is to be done; and it
holds one end of a line whose breaking tells it that the supervisor is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import signal
import socket
import time
from collections.abc import Callable, Sequence

import msgspec

from pinlater.domain.restarts import OK, next_start
from pinlater.worker._process.control_channel import HURRY, LINE_BYTES_MAX, REPORT, STOP, Hello
from pinlater.worker._process.health import Report
from pinlater.worker._process.recycling import EXIT_CODE as RECYCLED

_log = logging.getLogger("pinlater.worker")
_REPORT_S = 3.0
_GRACE_S = 30.0
_messages = msgspec.json.Decoder(Hello | Report)


class Workplace:
    """Place `number`. `came` is called with what a process says when it runs; `stopping` ends all of it."""

    def __init__(
        self, number: int, command: Sequence[str], came: Callable[[Hello], None], stopping: asyncio.Event
    ) -> None:
        self.number = number
        self._command = tuple(command)
        self._came = came
        self._stopping = stopping
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reported: asyncio.Future[Report] | None = None
        self._hello: Hello | None = None
        self._again = asyncio.Event()  # start without waiting: the program has changed
        self._wanted_anew = False
        self.ever_ran = False
        self.starts = 0
        self.settled = asyncio.Event()  # the first process has said hello, or has ended

    @property
    def grace_s(self) -> float:
        """What its process may take to stop."""
        return _GRACE_S if self._hello is None else self._hello.grace_ms / 1000

    async def keep(self, patient: bool) -> int:
        """Keeps a process running until stopped; the exit code with which it was given up. `patient`: never give up."""
        crashes = 0
        while not self._stopping.is_set():
            self._again.clear()
            self._wanted_anew = False
            started = time.monotonic()
            code = await self._run_once()
            self.settled.set()
            if self._stopping.is_set():
                break
            if self._wanted_anew:
                crashes = 0
                continue
            lived_s = time.monotonic() - started
            spread = random.random()  # noqa: S311 - spreads restarts, guards nothing
            delay_s, crashes = next_start(code, lived_s, crashes, self.ever_ran, spread, (OK, RECYCLED))
            if delay_s is None and not patient:
                return code
            self._say_ended(code, delay_s)
            await self._wait(delay_s)
        return 0

    def _say_ended(self, code: int, delay_s: float | None) -> None:
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        then = "waits for a change" if delay_s is None else f"starts again in {delay_s:.1f} s"
        level = logging.WARNING if delay_s is None or delay_s else logging.INFO
        _log.log(level, "process %d %s; %s", self.number, how, then)

    async def _wait(self, delay_s: float | None) -> None:
        waits = [asyncio.create_task(event.wait()) for event in (self._stopping, self._again)]
        try:
            await asyncio.wait(waits, timeout=delay_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    # --- one process ------------------------------------------------------------------------------------------------------
    async def _run_once(self) -> int:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            end = theirs.fileno()
            self._process = await asyncio.create_subprocess_exec(
                *self._command, "--line", f"{end}:{self.number}",
                stdin=asyncio.subprocess.DEVNULL, pass_fds=(end,), process_group=0,
            )  # fmt: skip
        self.starts += 1
        reader, self._writer = await asyncio.open_unix_connection(sock=ours, limit=LINE_BYTES_MAX)
        listening = asyncio.create_task(self._listen(reader))
        if self._stopping.is_set():
            self.stop()
        try:
            return await self._process.wait()
        finally:
            listening.cancel()
            self._writer.close()
            self._process = self._writer = self._hello = None

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError):
            while line := await reader.readline():
                message = _messages.decode(line)
                if isinstance(message, Hello):
                    self._hello = message
                    self.ever_ran = True
                    self.settled.set()
                    self._came(message)
                elif self._reported is not None and not self._reported.done():
                    self._reported.set_result(message)

    def stop(self) -> None:
        """Asks the process to stop in order; one that doesn't listen yet just ends."""
        if self._hello is None:
            self._signal(signal.SIGTERM)
        self._order(STOP)

    def hurry(self) -> None:
        """Asks the process to give back what it runs, and end."""
        self._order(HURRY)

    def start_anew(self) -> None:
        """Replaces the process, whatever it does."""
        self._wanted_anew = True
        self.ever_ran = False  # not this program
        self._again.set()
        if self._hello is None:
            self._signal(signal.SIGTERM)
        self._order(STOP)
        self._order(HURRY)

    def kill(self) -> None:
        """Ends the process on the spot."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def _order(self, order: bytes) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(order)

    async def report(self) -> Report | None:
        """What the process says of itself; None where it doesn't answer soon. Asked by one at a time."""
        self._reported = asyncio.get_running_loop().create_future()
        self._order(REPORT)
        try:
            async with asyncio.timeout(_REPORT_S):
                return await self._reported
        except TimeoutError:
            return None

    @property
    def runs(self) -> bool:
        """Whether a process is there that has said hello."""
        return self._hello is not None
