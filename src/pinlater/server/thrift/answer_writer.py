"""The answers of one connection before the kernel accepts them: those that are ready together are sent in one write.

While the kernel doesn't accept all of them, the whole write is counted in the server's budget, since it is one piece of memory.
"""

from __future__ import annotations

import asyncio

from pinlater.domain.byte_budget import BytesInFlight

ANSWERS_A_WRITE = 64


class AnswerWriter:
    """Belongs to one connection, which passes on the notifications of the event loop.

    `collected`: answers for the next write, with a total of `collected_bytes`. `drained`: set while the kernel has not accepted everything,
    and done when it has. `held_bytes`: how many bytes of these answers are counted. `stalled_since_s`: since when the kernel accepts
    nothing.
    """

    __slots__ = (
        "_budget",
        "_transport",
        "_unsent_bytes",
        "collected",
        "collected_bytes",
        "drained",
        "held_bytes",
        "stalled_since_s",
    )

    def __init__(self, budget: BytesInFlight) -> None:
        self._budget = budget
        self.collected: list[bytes] = []
        self.collected_bytes = 0
        self.held_bytes = 0
        self._transport: asyncio.Transport | None = None
        self._unsent_bytes = 0
        self.drained: asyncio.Future[None] | None = None
        self.stalled_since_s: float | None = None

    def count_in(self, budget: BytesInFlight) -> None:
        """Counts the bytes there from now on. The bytes that it holds must already be counted there."""
        self._budget = budget

    def connect(self, transport: asyncio.Transport) -> None:
        """Call `pause` whenever the kernel doesn't accept all of an answer, and `resume` once it has."""
        transport.set_write_buffer_limits(high=0)
        self._transport = transport

    def disconnect(self) -> None:
        """The connection is gone, and so is everything that the kernel has not accepted."""
        self._transport = None

    @property
    def is_open(self) -> bool:
        """Whether written data may still reach the peer."""
        return self._transport is not None and not self._transport.is_closing()

    # --- answers that are sent together -----------------------------------------------------------------------------------
    def collect(self, answer: bytes) -> None:
        """Keeps an answer for the next write."""
        self.collected.append(answer)
        self.collected_bytes += len(answer)

    def take_collected(self) -> bytes:
        """All collected answers, as one write."""
        collected = self.collected
        data = collected[0] if len(collected) == 1 else b"".join(collected)
        collected.clear()
        self.collected_bytes = 0
        return data

    # --- written, and not accepted by the kernel --------------------------------------------------------------------------
    def write(self, data: bytes) -> bool:
        """Writes; returns whether it now waits for the kernel to accept it. All of it is counted until the kernel has accepted all."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        transport.write(data)
        if self.drained is None:
            return False
        self.held_bytes += len(data)
        self._budget.hold_answer(len(data))
        self._unsent_bytes = self.unsent_bytes()
        return True

    def pause(self, now_s: float, loop: asyncio.AbstractEventLoop) -> None:
        """The kernel has not accepted all written data."""
        self.stalled_since_s = now_s
        self.drained = loop.create_future()

    def resume(self) -> None:
        """The kernel has accepted everything, or the connection is gone."""
        self.stalled_since_s = None
        self.free()
        if self.drained is not None and not self.drained.done():
            self.drained.set_result(None)
        self.drained = None

    def free(self) -> None:
        """No longer counts what was written."""
        self._budget.hold_answer(-self.held_bytes)
        self.held_bytes = self._unsent_bytes = 0

    def unsent_bytes(self) -> int:
        """How many bytes the kernel has not accepted."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def look_at_progress(self, now_s: float) -> None:
        """A client that reads slowly is different from one that doesn't read."""
        unsent_bytes = self.unsent_bytes()
        if unsent_bytes < self._unsent_bytes:
            self.stalled_since_s = now_s
        self._unsent_bytes = unsent_bytes
