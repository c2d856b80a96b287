"""The messages between two processes: frames of a length in four bytes and MessagePack, in both directions.

A frame of the side that asks is a list of `Part`, a frame of the side that answers a list of `PartAnswer`. Numbers above 0 are those of
calls; the others are messages that get no answer, each in a frame of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import Raw

from pinlater.domain import errors
from pinlater.domain.errors import PinLaterError
from pinlater.server.storage.values import NO_END_MS

LENGTH_BYTES = 4
FRAME_BYTES_MAX = 256 * 1024 * 1024
GOODBYE = -1
"""The message of an answering side that stops."""
_LONG_ARRAY = b"\xdd"  # the first byte with which MessagePack begins an array of more than 65,535 items
_length = Struct(">I")

T = TypeVar("T")


class Part(NamedTuple):
    """A call, or a message that gets no answer.

    `number`: unique in this connection; the answer has the same. `begin_by_ms`: the other side must not begin it later. `sent_ms`: the
    time of the asking side, or 0 if it does not send it.
    """

    number: int
    kind: int
    shard: str
    items: Raw
    begin_by_ms: int
    sent_ms: int = 0


class Failure(NamedTuple):
    """A `PinLaterError`. `name`: its class in `domain.errors`."""

    name: str
    message: str
    detail: str
    retryable: bool
    retry_after_ms: int | None


class PartAnswer(NamedTuple):
    """The answer to a part, or a message of the answering side.

    `answers`: of all items, None for a failed one; `failures`: of the failed ones, by index. `failure`: of the part as a whole.
    """

    number: int
    answers: Raw
    failures: Mapping[int, Failure]
    failure: Failure | None = None


class BadMessage(Exception):
    """The other side has sent something that is not a message. The connection is lost with it."""


_encoder = msgspec.msgpack.Encoder()
_parts = msgspec.msgpack.Decoder(list[Part])
_part_answers = msgspec.msgpack.Decoder(list[PartAnswer])
encoded = _encoder.encode
"""Encodes the items of a part, or a value of a message. Raises the errors of the encoder."""
NOTHING = Raw(encoded([]))


def frame(parts: Sequence[object]) -> bytes:
    """Returns a frame with these parts or answers."""
    message = bytearray(LENGTH_BYTES)
    _encoder.encode_into(parts, message, LENGTH_BYTES)
    _length.pack_into(message, 0, len(message) - LENGTH_BYTES)
    return bytes(message)


class Frames:
    """Splits the input from the other side into messages: one direction of one connection.

    A message has at most `limit_bytes`, which may change between two messages of one read.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._partial = bytearray()

    def feed(self, data: bytes, take: Callable[[bytes], None]) -> None:
        """Gives `take` the messages that `data` completes, one by one. Raises `BadMessage` at a length beyond the limit."""
        partial = self._partial
        partial += data
        at, end = 0, len(partial)
        try:
            while end - at >= LENGTH_BYTES:
                size = int.from_bytes(partial[at : at + LENGTH_BYTES], "big")
                if size > self.limit_bytes:
                    raise BadMessage(f"a message of {size} bytes; at most {self.limit_bytes} are taken")
                start = at + LENGTH_BYTES
                if end - start < size:
                    break
                at = start + size
                with memoryview(partial) as view:
                    message = bytes(view[start:at])
                take(message)
        finally:
            del partial[:at]  # once for all messages: this moves the rest


def decoded(decoder: msgspec.msgpack.Decoder[T], message: bytes | Raw) -> T:
    """Decodes a frame, items, or a value of a message. Raises `BadMessage`: `DecodeError` does not include text that is not UTF-8."""
    try:
        return decoder.decode(message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadMessage(str(error)) from error


def parts_of(message: bytes) -> list[Part]:
    """Decodes a frame of the asking side. Raises `BadMessage`; a frame with too many parts is not decoded."""
    if message[:1] == _LONG_ARRAY:
        raise BadMessage("a message of more than 65,535 parts")
    return decoded(_parts, message)


def part_answers_of(message: bytes) -> list[PartAnswer]:
    """Decodes a frame of the answering side. Raises `BadMessage`."""
    return decoded(_part_answers, message)


def message_of_asking(number: int, value: object = ()) -> Part:
    """Returns a message of the side that asks."""
    return Part(number, number, "", Raw(encoded(value)), NO_END_MS)


def message_of_answering(number: int, value: object = ()) -> PartAnswer:
    """Returns a message of the side that answers."""
    return PartAnswer(number, Raw(encoded(value)), {})


def failed(number: int, error: PinLaterError) -> PartAnswer:
    """Returns the answer to a part that failed as a whole."""
    return PartAnswer(number, NOTHING, {}, failure_of(error))


def error_of(failure: Failure) -> PinLaterError:
    """Returns the error that a failure stands for. A class that this version does not know becomes `PinLaterError`."""
    known: Any = getattr(errors, failure.name, None)
    kind = known if isinstance(known, type) and issubclass(known, PinLaterError) else PinLaterError
    return kind(
        failure.message,
        detail=failure.detail,
        retryable=failure.retryable,
        retry_after_ms=failure.retry_after_ms,
    )


def failure_of(error: PinLaterError) -> Failure:
    """Returns the failure that the other side gets for an error. A class that only one package knows is replaced by its base class in
    `domain.errors`.
    """
    return Failure(
        next(kind.__name__ for kind in type(error).__mro__ if getattr(errors, kind.__name__, None) is kind),
        error.message,
        error.detail,
        error.retryable,
        error.retry_after_ms,
    )
