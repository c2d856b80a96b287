"""The asking side of a connection to another server: what many requests ask for in one turn of the loop goes there in one frame.

Answers come part by part, in any order. A connection that is lost says of each call whether it was sent: one that wasn't can go another
way; the outcome of one that was is unknown. Nothing is sent twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from pinlater.domain.errors import OutcomeUnknown, PinLaterError, ShardConnectionFailed
from pinlater.server.forwarding import handshake, messages
from pinlater.server.forwarding.frames import Frames
from pinlater.server.forwarding.messages import FRAME_BYTES_MAX, BadMessage, Kind, Part

logger = logging.getLogger(__name__)

# Of bodies, until a frame is sent without waiting for the end of the turn.
_PART_BYTES = 4 * 1024 * 1024

Answers = Sequence[Any]  # of each item: the kind's value, or a `PinLaterError`


class NotSent(ShardConnectionFailed):
    """The call was not sent: it can go another way."""

    detail = "NOT_SENT"


class _Call:
    """One part: the items of many requests, and who waits for which of them."""

    __slots__ = ("bytes", "items", "kind", "sent_s", "shard", "waiting")

    def __init__(self, kind: Kind, shard: str) -> None:
        self.kind = kind
        self.shard = shard
        self.items: list[Any] = []
        self.waiting: list[tuple[int, int, asyncio.Future[Answers]]] = []
        self.bytes = 0
        self.sent_s = 0.0

    def fail(self, error: PinLaterError) -> None:
        for _, _, future in self.waiting:
            if not future.done():
                future.set_exception(error)


class PeerConnection(asyncio.Protocol):
    """To the server that announced `address`. `orphaned(kind, shard, items, answers)` is told of answers whose caller has gone.

    `ended(connection)` is called once when it is lost. `monotonic`: in seconds.
    """

    def __init__(
        self,
        address: str,
        own_address: str,
        secret: bytes,
        monotonic: Callable[[], float],
        orphaned: Callable[[Kind, str, Sequence[Any], Answers], None],
        ended: Callable[[PeerConnection], None],
    ) -> None:
        self.address = address
        self.usable = False
        self._hello = handshake.hello(own_address)
        self._secret = secret
        self._monotonic = monotonic
        self._orphaned = orphaned
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._frames = Frames(handshake.HELLO_BYTES_MAX * 16)
        self._transport: asyncio.Transport | None = None
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._numbers = 0
        self._turn: dict[tuple[Kind, str], _Call] = {}
        self._flushing = False
        self._sent: dict[int, _Call] = {}
        self.frames = 0
        self.parts = 0
        self.items = 0

    async def ready(self) -> None:
        """Returns once both sides have proven themselves. Raises `NotSent`."""
        await self._ready

    # --- asking -------------------------------------------------------------------------------------------------------------

    def submit(self, kind: Kind, shard: str, items: Sequence[Any], size_bytes: int = 0) -> asyncio.Future[Answers]:
        """The answers to these items, in order. `size_bytes`: of the bodies in them.

        The future fails with `NotSent`, with `OutcomeUnknown`, or with the error of the whole part.
        """
        future: asyncio.Future[Answers] = self._loop.create_future()
        if not self.usable:
            future.set_exception(NotSent(f"no connection to server {self.address}"))
            return future
        call = self._turn.get((kind, shard))
        if call is None:
            call = self._turn[kind, shard] = _Call(kind, shard)
            if not self._flushing:
                self._flushing = True
                self._loop.call_soon(self._flush)
        start = len(call.items)
        call.items += items
        call.bytes += size_bytes
        call.waiting.append((start, len(call.items), future))
        if call.bytes > _PART_BYTES:
            del self._turn[kind, shard]
            self._send([call])
        return future

    def busy_for(self) -> float:
        """Seconds for which the oldest call has been under way; 0 for none."""
        oldest = next(iter(self._sent.values()), None)
        return 0.0 if oldest is None else self._monotonic() - oldest.sent_s

    def _flush(self) -> None:
        self._flushing = False
        calls, self._turn = list(self._turn.values()), {}
        if calls:
            self._send(calls)

    def _send(self, calls: Sequence[_Call]) -> None:
        parts, now_s = [], self._monotonic()
        for call in calls:
            live = [waiting for waiting in call.waiting if not waiting[2].done()]
            if not live:
                continue
            if len(live) < len(call.waiting):
                call.items, call.waiting = _only(call.items, live)
            number = self._numbers = self._numbers + 1
            call.sent_s = now_s
            self._sent[number] = call
            parts.append(Part(number, call.kind, call.shard, messages.encoded_items(call.items)))
            self.items += len(call.items)
        if parts and self._transport is not None:
            self.frames += 1
            self.parts += len(parts)
            self._transport.write(messages.frame(parts))

    # --- answers ------------------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._frames.feed(data):
                if self._ready.done():
                    self._take(message)
                else:
                    self._welcomed(message)
        except BadMessage as error:
            logger.warning("connection to a server closed", extra={"server": self.address, "reason": str(error)})
            self.abort()

    def _welcomed(self, message: bytes) -> None:
        try:
            answered = msgspec.msgpack.decode(message, type=handshake.Welcome)
        except msgspec.DecodeError as error:
            raise BadMessage(str(error)) from error
        self._write(handshake.prove(self._hello, answered, self._secret))
        self._frames.limit_bytes = FRAME_BYTES_MAX
        self.usable = True
        self._ready.set_result(None)

    def _take(self, message: bytes) -> None:
        for part in messages.part_answers_of(message):
            call = self._sent.pop(part.number, None)
            if call is None:
                raise BadMessage(f"an answer to call {part.number}, which was not sent")
            if part.failure is not None:
                call.fail(messages.error_of(part.failure))
                continue
            answers = messages.answers_of(call.kind, part)
            if len(answers) != len(call.items):
                call.fail(OutcomeUnknown(f"server {self.address} answered {len(answers)} of {len(call.items)} items"))
                raise BadMessage(f"{len(answers)} answers to {len(call.items)} items")
            for start, end, future in call.waiting:
                if future.done():
                    self._orphaned(call.kind, call.shard, call.items[start:end], answers[start:end])
                else:
                    future.set_result(answers[start:end])

    # --- life ---------------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._write(self._hello)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.usable = False
        self._transport = None
        not_sent = NotSent(f"the connection to server {self.address} is lost")
        unknown = OutcomeUnknown(f"the connection to server {self.address} was lost before its answer came")
        if not self._ready.done():
            self._ready.set_exception(not_sent)
        turn, self._turn = self._turn, {}
        for call in turn.values():
            call.fail(not_sent)
        sent, self._sent = self._sent, {}
        for call in sent.values():
            call.fail(unknown)
        self._ended(self)

    def abort(self) -> None:
        """Closes it: what was sent has an unknown outcome."""
        self.usable = False
        if self._transport is not None:
            self._transport.abort()

    def _write(self, message: object) -> None:
        if self._transport is not None:
            encoded = msgspec.msgpack.encode(message)
            self._transport.write(len(encoded).to_bytes(messages.LENGTH_BYTES, "big") + encoded)


def _only(
    items: Sequence[Any], live: Sequence[tuple[int, int, asyncio.Future[Answers]]]
) -> tuple[list[Any], list[tuple[int, int, asyncio.Future[Answers]]]]:
    """Without the items of callers that have gone."""
    kept: list[Any] = []
    waiting = []
    for start, end, future in live:
        waiting.append((len(kept), len(kept) + end - start, future))
        kept += items[start:end]
    return kept, waiting
