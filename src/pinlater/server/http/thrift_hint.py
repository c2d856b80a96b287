"""A Thrift client that connects to the HTTP port gets an answer that it can read, and that says so."""

from __future__ import annotations

from pinlater.wire.codec import Decoder, encode_application_error
from pinlater.wire.errors import ApplicationErrorKind, WireError

_LENGTH_BYTES = 4
_STRICT_HEAD = b"\x80\x01\x00"  # behind the length; no HTTP request holds these bytes there
TEXT = "this is PinLater's HTTP port; Thrift has a port of its own (9010 by default)"


def thrift_answer(received: bytes) -> bytes | None:
    """The answer to a connection's first bytes if they begin a framed Thrift call; None for everything else."""
    message = received[_LENGTH_BYTES:]
    if not message.startswith(_STRICT_HEAD):
        return None
    try:
        header = Decoder().header(message)
    except WireError:
        return None
    return encode_application_error(header.name, header.seqid, ApplicationErrorKind.PROTOCOL_ERROR, TEXT)
