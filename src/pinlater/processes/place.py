"""The place of one server process: started, asked, replaced when it ends. It knows nothing of its siblings.

The process stands in a group of its own, so that a terminal's Ctrl-C reaches the supervisor alone, which says what is to be done.
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
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import msgspec

from pinlater.domain.restarts import next_start
from pinlater.processes.line import Answer, Ask, Failed, Hello, Order, frame, from_child, read_frame

logger = logging.getLogger(__name__)

_LAST_WORDS_S = 1.0


class Patience(NamedTuple):
    """How long a process may take, in seconds: to answer an ask, and to answer any, before it is taken for stuck and replaced."""

    answer_s: float = 3.0
    stuck_s: float = 30.0


class Place:
    """Place `number`. `plan` is the first frame for its process, `ended` is called when one has ended, `stopping` ends all of it."""

    def __init__(
        self,
        number: int,
        command: Sequence[str],
        plan: bytes,
        ended: Callable[[Place], None],
        stopping: asyncio.Event,
        patience: Patience,
    ) -> None:
        self.number = number
        self._command = tuple(command)
        self._plan = plan
        self._ended = ended
        self._stopping = stopping
        self._patience = patience
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._asked: dict[int, asyncio.Future[Answer | None]] = {}
        self._numbers = itertools.count(1)
        self._heard_at = 0.0
        self._silent_since: float | None = None
        self.serves = False
        self.served = asyncio.Event()  # some process of this place has served
        self.starts = 0
        self.failure: str | None = None  # what the process that ended last said, if anything
        self.settled = asyncio.Event()  # the first process serves, or has ended
        self.latest: Answer | None = None  # of the process that runs
        self.latest_numbers: msgspec.Raw | None = None  # since its start

    @property
    def process_id(self) -> int | None:
        """Of the process that runs."""
        return None if self._process is None else self._process.pid

    # --- keeping it running -------------------------------------------------------------------------------------------------

    async def keep(self) -> int | None:
        """Keeps a process running until stopped: None. One that ends without ever having served is given up: its exit status."""
        try:
            return await self._keep()
        finally:
            self.settled.set()

    async def _keep(self) -> int | None:
        crashes = 0
        while not self._stopping.is_set():
            started = time.monotonic()
            try:
                code = await self._run_once()
            except OSError as error:  # no memory, no more processes
                code, self.failure = 1, f"the process can't be started: {error}"
            self.settled.set()
            if self._stopping.is_set():
                break
            if not self.served.is_set() and self.number == 0:
                return code  # the first one finds what is wrong with all
            spread = random.random()  # noqa: S311 - spreads restarts, guards nothing
            delay_s, crashes = next_start(code, time.monotonic() - started, crashes, True, spread)
            self._say_ended(code, delay_s or 0.0)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay_s):
                    await self._stopping.wait()
        return None

    def _say_ended(self, code: int, delay_s: float) -> None:
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit status {code}"
        level = logging.WARNING if delay_s else logging.INFO
        logger.log(
            level,
            "a server process %s; it is started again",
            how,
            extra={"process_number": self.number, "delay_seconds": round(delay_s, 1), "reason": self.failure},
        )

    async def _run_once(self) -> int:
        self.failure = None
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with contextlib.ExitStack() as unstarted, theirs:
            unstarted.callback(ours.close)
            end = theirs.fileno()
            self._process = await asyncio.create_subprocess_exec(
                *self._command, "--line", str(end),
                stdin=asyncio.subprocess.DEVNULL, pass_fds=(end,), process_group=0,
            )  # fmt: skip
            unstarted.pop_all()
        self.starts += 1
        reader, self._writer = await asyncio.open_unix_connection(sock=ours)
        self._heard_at = time.monotonic()
        self._writer.write(self._plan)
        listening = asyncio.create_task(self._listen(reader))
        if self._stopping.is_set():
            self.stop()
        try:
            code = await self._process.wait()
            await asyncio.wait([listening], timeout=_LAST_WORDS_S)
            return code
        finally:
            listening.cancel()
            self._writer.close()
            self._process = self._writer = None
            self.serves = False
            self._ended(self)
            self.latest = self.latest_numbers = None
            for asked in self._asked.values():
                if not asked.done():
                    asked.set_result(None)

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while (body := await read_frame(reader)) is not None:
            message = from_child.decode(body)
            self._heard_at = time.monotonic()
            if isinstance(message, Hello):
                self.serves = True
                self.served.set()
                self.settled.set()
            elif isinstance(message, Failed):
                self.failure = message.reason
            else:
                self._hear(message)

    def _hear(self, answer: Answer) -> None:
        self.latest = answer
        if answer.since_the_start:
            self.latest_numbers = answer.numbers
        if (asked := self._asked.get(answer.number)) is not None and not asked.done():
            asked.set_result(answer)

    # --- asking -------------------------------------------------------------------------------------------------------------

    async def ask(self, numbers: Literal["none", "all", "last minute"] = "none") -> Answer | None:
        """What the process says of itself; None where there is none, or it doesn't answer soon."""
        if self._writer is None:
            return None
        number = next(self._numbers)
        asked: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()
        self._asked[number] = asked
        self._send(Ask(number, numbers))
        try:
            async with asyncio.timeout(self._patience.answer_s):
                answer = await asked
        except TimeoutError:
            return None
        finally:
            del self._asked[number]
        return answer

    async def replace_if_stuck(self) -> None:
        """Kills a process that has not been heard of for too long: it would go on getting its share of the connections."""
        process, asked_at = self._process, time.monotonic()
        if not self.serves or await self.ask() is not None or process is not self._process:
            self._silent_since = None
            return
        # Counted from an ask on: if this process was suspended too, the other's silence says nothing.
        if self._silent_since is None or self._silent_since < self._heard_at:
            self._silent_since = asked_at
        silent_s = time.monotonic() - self._silent_since
        if silent_s >= self._patience.stuck_s and not self._stopping.is_set():
            logger.error(
                "a server process does not answer and is killed",
                extra={"process_number": self.number, "silent_seconds": round(silent_s)},
            )
            self.kill()

    # --- ordering -----------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Asks the process to stop in order; one that doesn't serve yet just ends."""
        if not self.serves:
            self._signal(signal.SIGTERM)
        self._send(Order("stop"))

    def hurry(self) -> None:
        """Asks the process to cut off what is in flight."""
        self._send(Order("hurry"))

    def reload(self) -> None:
        """Asks the process to look at its files."""
        self._send(Order("reload"))

    def kill(self) -> None:
        """Ends the process on the spot."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def _send(self, message: Order | Ask) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(frame(message))
