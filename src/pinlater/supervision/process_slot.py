"""One of a supervisor's process slots: starts a process, sends it requests and orders, and restarts it after its end.

The process has a process group of its own, so that a terminal's Ctrl-C reaches only the supervisor, and one end of a control channel. The
rest of its group is killed after the process has ended. A slot knows nothing about the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
import signal
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from pinlater.supervision import signals
from pinlater.supervision.channel import SupervisorOrder, frame, read_frame
from pinlater.supervision.descendants import group_exists, kill_group
from pinlater.supervision.restarts import Next

A = TypeVar("A")
# How long the last messages of a process that has ended may take.
_LAST_MESSAGES_S = 1.0
# How long the rest of its process group may take: `multiprocessing` has a process there that frees shared memory.
_GROUP_LOOKS, _GROUP_LOOK_S = 50, 0.02


class ProcessSlot(ABC, Generic[A]):
    """Slot `number`. `stopping` ends all slots. A subclass knows the messages of its processes and when to restart them.

    `serves`: the process runs and has reported it. `settled` is set when the first process serves or has ended. `started_by`: the option
    that keeps the process from the signals of the terminal.
    """

    kind = "process"
    started_by: Mapping[str, Any] = {"process_group": 0}

    def __init__(self, number: int, command: Sequence[str], stopping: asyncio.Event, answer_timeout_s: float) -> None:
        self.number = number
        self.starts = 0
        self.serves = False
        self.settled = asyncio.Event()
        self.failure: str | None = None  # the last process's reason, if it gave one
        self._command = tuple(command)
        self._stopping = stopping
        self._answer_timeout_s = answer_timeout_s
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._asked: dict[int, asyncio.Future[A | None]] = {}
        self._ask_numbers = itertools.count(1)
        self._heard_at_s = 0.0  # monotonic
        self._replaced = asyncio.Event()  # the process was ended to start another at once

    @property
    def process_id(self) -> int | None:
        """The id of the running process, or None if there is none."""
        return None if self._process is None else self._process.pid

    # --- for subclasses ---------------------------------------------------------------------------------------------------
    def _channel_option(self, descriptor: int) -> str:
        """Returns the value of the option `--control-channel`, by which the process finds its end of the channel."""
        return str(descriptor)

    @abstractmethod
    def _received(self, body: bytes) -> None:
        """Handles a message of the process."""

    @abstractmethod
    def _next_start(self, code: int, lived_s: float, crashes: int, spread: float) -> Next | None:
        """Returns when to start the next process, or None to give up."""

    def _started(self) -> None:
        """Handles the start of a process."""

    def _ended(self) -> None:
        """Handles the end of the process."""

    # --- keeping a process running ----------------------------------------------------------------------------------------
    async def keep(self) -> int | None:
        """Keeps a process running until `stopping`. Returns the exit code with which it gave up, or None."""
        try:
            return await self._keep()
        finally:
            self.settled.set()

    async def _keep(self) -> int | None:
        crashes = 0
        while not self._stopping.is_set():
            self._replaced.clear()
            started_s = time.monotonic()
            try:
                code = await self._run_once()
            except OSError as error:  # out of memory or processes
                code, self.failure = 1, f"the process can't be started: {error}"
            self.settled.set()
            if self._stopping.is_set():
                break
            if self._replaced.is_set():
                crashes = 0
                continue
            spread = random.random()  # noqa: S311 - spreads restarts, guards nothing
            after = self._next_start(code, time.monotonic() - started_s, crashes, spread)
            if after is None:
                return code
            crashes = after.crashes
            self._log_end(code, after.delay_s)
            await self._wait(after.delay_s)
        return None

    def _log_end(self, code: int, delay_s: float | None) -> None:
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        then = "waits for a change" if delay_s is None else f"starts again in {delay_s:.1f} s"
        level = logging.INFO if delay_s == 0 else logging.WARNING
        reason = {} if self.failure is None else {"reason": self.failure}
        fields = {"process_number": self.number, **reason}
        logging.getLogger(type(self).__module__).log(
            level, "%s %d %s; %s", self.kind, self.number, how, then, extra=fields
        )

    async def _wait(self, delay_s: float | None) -> None:
        waits = [asyncio.create_task(event.wait()) for event in (self._stopping, self._replaced)]
        try:
            await asyncio.wait(waits, timeout=delay_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _run_once(self) -> int:
        self.failure = None
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with contextlib.ExitStack() as unstarted, theirs:
            unstarted.callback(ours.close)
            end = theirs.fileno()
            self._process = await asyncio.create_subprocess_exec(
                *self._command, "--control-channel", self._channel_option(end),
                stdin=asyncio.subprocess.DEVNULL, pass_fds=(end,), **self.started_by,
            )  # fmt: skip
            unstarted.pop_all()
        self.starts += 1
        reader, self._writer = await asyncio.open_unix_connection(sock=ours)
        self._heard_at_s = time.monotonic()
        self._started()
        listening = asyncio.create_task(self._listen(reader))
        if self._stopping.is_set():
            self.stop()
        try:
            code = await self._process.wait()
            await asyncio.wait([listening], timeout=_LAST_MESSAGES_S)
            await _end_group(self._process.pid)
            return code
        finally:
            listening.cancel()
            self._writer.close()
            self._process = self._writer = None
            self.serves = False
            self._ended()
            for asked in self._asked.values():
                if not asked.done():
                    asked.set_result(None)

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(msgspec.MsgspecError):
            while (body := await read_frame(reader)) is not None:
                self._heard_at_s = time.monotonic()
                self._received(body)

    def _says_it_serves(self) -> None:
        self.serves = True
        self.settled.set()

    # --- requests ---------------------------------------------------------------------------------------------------------
    async def _ask(self, message: Callable[[int], msgspec.Struct]) -> A | None:
        """The answer to `message(number)`, or None if there is no process or it doesn't answer in time."""
        if self._writer is None:
            return None
        number = next(self._ask_numbers)
        asked: asyncio.Future[A | None] = asyncio.get_running_loop().create_future()
        self._asked[number] = asked
        self._send(message(number))
        try:
            async with asyncio.timeout(self._answer_timeout_s):
                return await asked
        except TimeoutError:
            return None
        finally:
            del self._asked[number]

    def _answered(self, number: int, answer: A) -> None:
        if (asked := self._asked.get(number)) is not None and not asked.done():
            asked.set_result(answer)

    # --- orders -----------------------------------------------------------------------------------------------------------
    def stop(self) -> None:
        """Tells the process to stop in order. A process that doesn't serve yet just ends."""
        if not self.serves:
            self._signal(signal.SIGTERM)
        self._send(SupervisorOrder("stop"))

    def stop_now(self) -> None:
        """Tells the process to stop without its grace time."""
        self._send(SupervisorOrder("stop now"))

    def kill(self) -> None:
        """Kills the process. The rest of its group is killed afterwards."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            signals.send(self._process, number)

    def _send(self, message: msgspec.Struct) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(frame(message))


async def _end_group(leader: int) -> None:
    """Kills the processes that do not end by themselves soon after their leader, whose exit was awaited."""
    for _ in range(_GROUP_LOOKS):
        if not group_exists(leader):
            return
        await asyncio.sleep(_GROUP_LOOK_S)
    kill_group(leader, waited_for=True)
