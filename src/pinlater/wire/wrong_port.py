"""Recognises clients that speak another protocol than the port, and answers them."""

from __future__ import annotations

from pinlater.wire.codec import Decoder, encode_application_error
from pinlater.wire.errors import ApplicationErrorKind, WireError
from pinlater.wire.other_protocols import HEAD_BYTES_MAX, OtherCall, other_call

_LENGTH_BYTES = 4
_STRICT_HEAD = b"\x80\x01\x00"  # behind the length; no HTTP request holds these bytes there
_THRIFT_HEADS = (b"\0", b"\x80", b"\x82", b"[")  # framed and unframed calls; no HTTP request begins so
_TLS_HEAD = b"\x16\x03"  # a handshake record of any version; as the length of a frame it is beyond every bound
_HTTP_HEADS = (b"GET ", b"HEAD", b"POST", b"PUT ", b"PATC", b"DELE", b"OPTI")  # as lengths of frames beyond a gigabyte
HTTP_PORT = "this is PinLater's HTTP port; Thrift has a port of its own (9010 by default)"
CONSOLE_PORT = (
    "this is the port of PinLater's console (dashboard and HTTP API); Thrift has a port of its own (9010 by default)"
)
THRIFT_PORT = "this is PinLater's Thrift port; by default, the dashboard and the HTTP API have port 9998, and health and metrics 9999"
FRAMED_BINARY = "this is PinLater's Thrift port, which takes framed transport and the binary protocol"
TLS_PORT = "this port speaks TLS only; give the client the option tls, or set PINLATER_TLS=1"


def begins_tls(received: bytes) -> bool:
    """Returns whether these first bytes of a connection are from a client that speaks TLS."""
    return received.startswith(_TLS_HEAD)


def other_manner(received: bytes) -> OtherCall | None:
    """The Thrift call in another transport or protocol that these first bytes of a connection begin, or None for everything else. The
    length of a TLS handshake may look like the beginning of a compact call."""
    return None if begins_tls(received) else other_call(received)


def begins_http(received: bytes) -> bool:
    """Returns whether these first bytes of a connection are from a client that speaks HTTP."""
    return received.startswith(_HTTP_HEADS)


def http_answer(text: str) -> bytes:
    """The answer to an HTTP request at a port for Thrift."""
    body = f"{text}\n".encode()
    head = f"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + body


def thrift_answer(received: bytes, text: str) -> bytes | None:
    """The answer to a connection's first bytes if they begin a Thrift call, in its own transport and protocol, or None for everything
    else.
    """
    message = received[_LENGTH_BYTES:]
    if not message.startswith(_STRICT_HEAD):
        other = other_manner(received)
        return None if other is None else other.answer(text)
    try:
        header = Decoder().header(message)
    except WireError:
        return None
    return encode_application_error(header.name, header.seqid, ApplicationErrorKind.PROTOCOL_ERROR, text)


def is_cut_short(received: bytes) -> bool:
    """Returns whether these first bytes of a connection may begin a Thrift call, but too few of its bytes have arrived to answer it by
    its name. Some libraries send the length of a frame before the frame."""
    if not received.startswith(_THRIFT_HEADS) or len(received) >= HEAD_BYTES_MAX:
        return False
    frame_bytes = int.from_bytes(received[:_LENGTH_BYTES], "big")
    if 0 < frame_bytes <= len(received) - _LENGTH_BYTES:
        return False  # the frame is whole
    other = other_manner(received)
    return thrift_answer(received, "") is None if other is None else other.name is None
