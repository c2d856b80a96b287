"""The slot of one server process: sends it its plan, asks for its numbers, and replaces it when it hangs."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import msgspec

from pinlater.server.main.processes.control_channel import Failed, ServerHello, StatusAnswer, StatusRequest, from_child
from pinlater.supervision.channel import SupervisorOrder
from pinlater.supervision.process_slot import ProcessSlot
from pinlater.supervision.restarts import Next, next_start

logger = logging.getLogger(__name__)


class Timeouts(NamedTuple):
    """How long a process may take to answer a request, and how long it may answer none before it is replaced (seconds)."""

    answer_s: float = 3.0
    stuck_s: float = 30.0


class ServerSlot(ProcessSlot[StatusAnswer]):
    """`plan` is the first frame for its process. Calls `ended` when a process has ended."""

    kind = "server process"

    def __init__(
        self,
        number: int,
        command: Sequence[str],
        plan: bytes,
        ended: Callable[[ServerSlot], None],
        stopping: asyncio.Event,
        timeouts: Timeouts,
    ) -> None:
        super().__init__(number, command, stopping, timeouts.answer_s)
        self._plan = plan
        self._call_ended = ended
        self._stuck_s = timeouts.stuck_s
        self._silent_since_s: float | None = None  # monotonic
        self.served = asyncio.Event()  # a process of this slot has served
        self.latest: StatusAnswer | None = None  # of the running process
        self.latest_numbers: msgspec.Raw | None = None  # since its start

    def _started(self) -> None:
        if self._writer is not None:
            self._writer.write(self._plan)

    def _received(self, body: bytes) -> None:
        message = from_child.decode(body)
        if isinstance(message, ServerHello):
            self._says_it_serves()
            self.served.set()
        elif isinstance(message, Failed):
            self.failure = message.reason
        else:
            self.latest = message
            if message.since_the_start:
                self.latest_numbers = message.numbers
            self._answered(message.number, message)

    def _ended(self) -> None:
        self._call_ended(self)
        self.latest = self.latest_numbers = None

    def _next_start(self, code: int, lived_s: float, crashes: int, spread: float) -> Next | None:
        """Gives up if the first process never served, since all others would fail in the same way."""
        if not self.served.is_set() and self.number == 0:
            return None
        return next_start(code, lived_s, crashes, True, spread)

    async def ask(self, numbers: Literal["none", "all", "last minute"] = "none") -> StatusAnswer | None:
        """The state of the process, or None if there is none or it doesn't answer in time."""
        return await self._ask(lambda number: StatusRequest(number, numbers))

    async def replace_if_stuck(self) -> None:
        """Kills a process that has not answered for too long: it would continue to get its share of the connections."""
        process, asked_s = self._process, time.monotonic()
        if not self.serves or await self.ask() is not None or process is not self._process:
            self._silent_since_s = None
            return
        # Counted from a request on: if this process was suspended too, the other's silence means nothing.
        if self._silent_since_s is None or self._silent_since_s < self._heard_at_s:
            self._silent_since_s = asked_s
        silent_s = time.monotonic() - self._silent_since_s
        if silent_s >= self._stuck_s and not self._stopping.is_set():
            logger.error(
                "a server process does not answer and is killed",
                extra={"process_number": self.number, "silent_seconds": round(silent_s)},
            )
            self.kill()

    def reload(self) -> None:
        """Tells the process to reread its files."""
        self._send(SupervisorOrder("reload"))
