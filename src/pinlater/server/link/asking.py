"""The side that asks. A connection that is lost tells for each call whether it was sent: if it was, the outcome is unknown.

A link that stops, or is closed when idle, accepts no more calls, and ends once the sent ones are answered.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from typing import Protocol, TypeVar

from pinlater.server.link.messages import GOODBYE, BadMessage, Part, PartAnswer, part_answers_of
from pinlater.server.link.side import LinkSide


class Call(Protocol):
    """One call. Exactly one of `answered`, `lost` and `not_sent` ends it, unless `part` has returned None."""

    @property
    def size_bytes(self) -> int: ...

    def part(self, number: int) -> Part | None:
        """Returns the part to send, or None if there is no longer anything to send."""

    def answered(self, answer: PartAnswer) -> None:
        """Takes the answer. Raises `BadMessage`, and is `lost` then."""

    def lost(self) -> None:
        """Ends a call that was sent and gets no answer."""

    def not_sent(self) -> None:
        """Ends a call that was not sent before the connection ended."""


AnyCall = TypeVar("AnyCall", bound=Call)


class AskingSide(LinkSide[AnyCall]):
    """The side that asks. `usable`: whether calls may be sent. `stopping`: the other side stops. `answers`: how many have arrived."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(limit_bytes)
        self._numbers = 0
        self._sent: dict[int, AnyCall] = {}  # oldest first
        self._closing = False
        self.usable = False
        self.stopping = False
        self.answers = 0
        self.ended = asyncio.Event()

    @property
    def unanswered(self) -> int:
        """The number of calls that were sent and are not answered."""
        return len(self._sent)

    def _part_of(self, one: AnyCall) -> Part | None:
        part = one.part(self._numbers + 1)
        if part is not None:
            self._numbers += 1
            self._sent[self._numbers] = one
        return part

    def _not_written(self, one: AnyCall) -> None:
        one.not_sent()

    def _hear(self, message: bytes) -> None:
        for answer in part_answers_of(message):
            if answer.number <= 0:
                if answer.number == GOODBYE:
                    self.stopping, self.usable = True, False
                    self._changed()
                else:
                    self._told(answer)
                continue
            call = self._sent.pop(answer.number, None)
            if call is None:
                raise BadMessage(f"an answer to call {answer.number}, which was not sent")
            try:
                call.answered(answer)
            except BaseException:
                call.lost()
                raise
            self.answers += 1
        if self._closing or self.stopping:
            self._end_if_idle()

    def close_when_idle(self) -> None:
        """Accepts no calls from now on, and ends once the accepted ones are answered."""
        self._closing, self.usable = True, False
        self._end_if_idle()

    def _end_if_idle(self) -> None:
        """A side that stops waits until the others have closed their connections."""
        if not self._sent and not self._said:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.usable = False
        super().connection_lost(exc)
        sent, self._sent = self._sent, {}
        for call in sent.values():
            call.lost()
        self.ended.set()

    def abort(self) -> None:
        self.usable = False
        super().abort()

    # --- of subclasses ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def _told(self, message: PartAnswer) -> None:
        """Takes a message of the other side."""

    @abstractmethod
    def _changed(self) -> None:
        """Called when the other side stops."""
