"""The messages between a front process and the store process over their link (`server.link.messages`).

The kind of a call is the position of the operation in their table, its items are the arguments, and its answers are the result. Both are
processes of one supervisor, so both run the same version, and the permissions of the socket's folder keep other processes out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from pinlater.server.dispatch.claiming import FromShard
from pinlater.server.link.messages import NOTHING, Failure, PartAnswer

# From a front: the number of its process; that it stops, and its dequeues are to stop waiting; the number of a call whose caller has
# gone; jobs that reached no client.
PROCESS, DRAINS, CANCEL, UNDELIVERED = 0, -1, -2, -3
# From the store process: whether it is ready.
STATE = 0


class StoreState(NamedTuple):
    """The state that the store process reports: whether it is ready for requests, and why not."""

    ready: bool
    reasons: Sequence[str] = ()


class Undelivered(NamedTuple):
    """Claims that were answered, and whose answer reached no client."""

    queue: str
    claimed: Sequence[FromShard]


encoded = msgspec.msgpack.Encoder().encode
"""Encodes arguments or a result. Raises the errors of the encoder."""
STORE_STATE = msgspec.msgpack.Decoder(StoreState)
UNDELIVERED_CLAIMS = msgspec.msgpack.Decoder(Undelivered)
NUMBER = msgspec.msgpack.Decoder(int)

_BUG = Failure("", "", "", False, None)


def bug(call: int) -> PartAnswer:
    """Returns the answer to a call that failed because of a bug in the store process."""
    return PartAnswer(call, NOTHING, {}, _BUG)
