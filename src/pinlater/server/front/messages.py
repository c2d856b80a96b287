"""What a front process and the store process say to each other: frames of four bytes of length and MessagePack, in both directions.

A frame is a list of triples: a number, a word and a value. Of a call the number is the front's own, the word is the place of the operation
in `OPERATIONS`; its answer has the same number, and `RESULT` or `FAILURE` for a word. Other messages have numbers below 1.

Both are processes of one supervisor, so both run the same version, and the folder of the socket keeps all others away.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import msgspec

from pinlater.domain.errors import PinLaterError
from pinlater.server.cluster.forwarding.messages import UNREADABLE, BadMessage, Failure, error_of, failure_of
from pinlater.server.dispatch.claiming import FromShard
from pinlater.server.front.operations import encode_hook

T = TypeVar("T")

# From a front: jobs that no client got; a call whose caller has gone; this front stops, and its dequeues are to wait no longer; the
# number of its process; when it began the frame, by the monotonic clock of the machine, in seconds.
UNDELIVERED, CANCEL, DRAINS, PROCESS, BEGAN = 0, -1, -2, -3, -4
# From the store process: whether it is ready; it stops and takes no calls any more.
STATE, GOODBYE = 0, -1

RESULT, FAILURE, BUG = 0, 1, 2
# Of parts in one frame, above which others go in the next one.
FRAME_BYTES = 4 * 1024 * 1024

Message = tuple[int, int, msgspec.Raw]


class StoreState(NamedTuple):
    """What the store process says of itself: whether it is ready for requests, and why not."""

    ready: bool
    reasons: Sequence[str] = ()


class Undelivered(NamedTuple):
    """Claims that were answered, and whose answer reached no client."""

    queue: str
    claimed: Sequence[FromShard]


_encoder = msgspec.msgpack.Encoder(enc_hook=encode_hook)
_messages = msgspec.msgpack.Decoder(list[Message])
_state = msgspec.msgpack.Decoder(StoreState)
_undelivered = msgspec.msgpack.Decoder(Undelivered)
_number = msgspec.msgpack.Decoder(int)
_seconds = msgspec.msgpack.Decoder(float)
_failure = msgspec.msgpack.Decoder(Failure)
NOTHING = _encoder.encode(None)
encoded = _encoder.encode
"""A value of a message. Raises what the encoder raises."""


def failed(error: PinLaterError) -> bytes:
    """The value of a `FAILURE`."""
    return encoded(failure_of(error))


def messages_of(frame: bytes) -> list[Message]:
    """Raises `BadMessage`."""
    return decoded(_messages, frame)


def state_of(value: msgspec.Raw) -> StoreState:
    """Decodes a `STATE`. Raises `BadMessage`."""
    return decoded(_state, value)


def undelivered_of(value: msgspec.Raw) -> Undelivered:
    """Decodes an `UNDELIVERED`. Raises `BadMessage`."""
    return decoded(_undelivered, value)


def number_of(value: msgspec.Raw) -> int:
    """Of a `CANCEL` or a `PROCESS`. Raises `BadMessage`."""
    return decoded(_number, value)


def began(now_s: float) -> Message:
    """The first message of a frame that a front begins now."""
    return BEGAN, 0, msgspec.Raw(encoded(now_s))


def seconds_of(value: msgspec.Raw) -> float:
    """Decodes the seconds of a `BEGAN`. Raises `BadMessage`."""
    return decoded(_seconds, value)


def error_in(value: msgspec.Raw) -> PinLaterError:
    """Decodes a `FAILURE`. Raises `BadMessage`."""
    return error_of(decoded(_failure, value))


def decoded(decoder: msgspec.msgpack.Decoder[T], data: bytes | msgspec.Raw) -> T:
    """Raises `BadMessage`."""
    try:
        return decoder.decode(data)
    except UNREADABLE as error:
        raise BadMessage(str(error)) from error
