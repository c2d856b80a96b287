"""Thrift calls in another transport or protocol than framed binary: how they are recognised, and how each is answered in its own protocol.

Some libraries have another default than the one that PinLater accepts, and a client without an answer can't tell why. Only the head of a
call is read: its name and sequence id, for the answer. Weakness: a call that its transport has compressed is answered without its name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from thrift.Thrift import TMessageType

from pinlater.wire.codec import Decoder, encode_application_error
from pinlater.wire.errors import ApplicationErrorKind, WireError
from pinlater.wire.methods import METHODS

HEAD_BYTES_MAX = 512
"""This many bytes show the name and the sequence id of a call for one of our methods."""
_LENGTH_BYTES = 4
_STRICT_HEAD = b"\x80\x01\x00"
_JSON_HEAD = b'[1,"'
_JSON_CALL = re.compile(rb'\[1,"(\w{0,100})",[1-4],(-?\d{1,11}),')
_COMPACT_ID = 0x82
_COMPACT_VERSIONS = (1, 2)  # the low five bits of the second byte
_HEADER_MAGIC = b"\x0f\xff"
_header_head = Struct(">HHIH")  # magic, flags, sequence id, the length of the header in words of four bytes
_BINARY_INSIDE, _COMPACT_INSIDE = 0, 2  # the protocol's number in the header transport


class OtherCall(NamedTuple):
    """The beginning of a call in another transport or protocol.

    `manner`: which one, in words that follow "a call".
    `name`, `seqid`: None and 0 while too little of it has arrived.
    `encode`: makes the message of an exception from name, sequence id and text.
    `framed`: whether the length of the message goes before it.
    """

    manner: str
    name: bytes | None
    seqid: int
    encode: Callable[[bytes, int, str], bytes]
    framed: bool

    def answer(self, text: str) -> bytes:
        """A TApplicationException in the same protocol."""
        message = self.encode(self.name or b"", self.seqid, text)
        return len(message).to_bytes(_LENGTH_BYTES, "big") + message if self.framed else message


def other_call(received: bytes) -> OtherCall | None:
    """Returns the call that the first bytes of a stream begin, including the length of a frame if there is one, or None for everything
    else."""
    found = _unframed(received)
    if found is None and len(received) > _LENGTH_BYTES:
        found = _framed(received[_LENGTH_BYTES:])
    return found


def _unframed(received: bytes) -> OtherCall | None:
    if received.startswith(_STRICT_HEAD) or _is_old_call(received):
        return OtherCall("without framed transport", *_binary_head(received), _binary, framed=False)
    if _is_compact(received):
        return OtherCall(
            "in the compact protocol, without framed transport", *_compact_head(received), _compact, framed=False
        )
    if received.startswith(_JSON_HEAD):
        return OtherCall("in the JSON protocol, without framed transport", *_json_head(received), _json, framed=False)
    return None


def _framed(frame: bytes) -> OtherCall | None:
    if _is_compact(frame):
        return OtherCall("in the compact protocol", *_compact_head(frame), _compact, framed=True)
    if frame.startswith(_JSON_HEAD):
        return OtherCall("in the JSON protocol", *_json_head(frame), _json, framed=True)
    if frame.startswith(_HEADER_MAGIC) and len(frame) >= _header_head.size + 2:
        return _in_header_transport(frame)
    return None


def _is_old_call(received: bytes) -> bool:
    """Returns whether it is an unframed call without a version: the length of a name, which would pass for that of a frame, and the
    name.
    """
    end = _LENGTH_BYTES + int.from_bytes(received[:_LENGTH_BYTES], "big")
    return (
        end <= HEAD_BYTES_MAX
        and received[_LENGTH_BYTES:end] in METHODS
        and received[end : end + 1] in {b"\x01", b"\x04", b""}
    )


def _is_compact(message: bytes) -> bool:
    return len(message) > 1 and message[0] == _COMPACT_ID and message[1] & 0x1F in _COMPACT_VERSIONS


def _binary_head(message: bytes) -> tuple[bytes | None, int]:
    try:
        header = Decoder().header(message)
    except WireError:
        return None, 0
    return header.name, header.seqid


def _binary(name: bytes, seqid: int, text: str) -> bytes:
    return encode_application_error(name, seqid, ApplicationErrorKind.PROTOCOL_ERROR, text)[_LENGTH_BYTES:]


def _compact_head(message: bytes) -> tuple[bytes | None, int]:
    try:
        seqid, at = _read_varint(message, 2)
        size, at = _read_varint(message, at)
    except IndexError:
        return None, 0
    return (message[at : at + size] if size <= len(message) - at else None), seqid


def _compact(name: bytes, seqid: int, text: str) -> bytes:
    body = text.encode()
    head = bytes((_COMPACT_ID, TMessageType.EXCEPTION << 5 | 1)) + _varint(seqid) + _varint(len(name)) + name
    kind = 2 * ApplicationErrorKind.PROTOCOL_ERROR  # in zigzag form
    return (
        head + b"\x18" + _varint(len(body)) + body + b"\x15" + _varint(kind) + b"\0"
    )  # field 1 a string, field 2 an i32


def _json_head(message: bytes) -> tuple[bytes | None, int]:
    found = _JSON_CALL.match(message)
    return (None, 0) if found is None else (found[1], int(found[2]))


def _json(name: bytes, seqid: int, text: str) -> bytes:
    fields = {"1": {"str": text}, "2": {"i32": int(ApplicationErrorKind.PROTOCOL_ERROR)}}
    message = [1, name.decode("ascii", "replace"), TMessageType.EXCEPTION, seqid, fields]
    return json.dumps(message, separators=(",", ":")).encode()


def _in_header_transport(frame: bytes) -> OtherCall:
    _, _, header_seqid, words = _header_head.unpack_from(frame)
    start = _header_head.size
    try:
        protocol, at = _read_varint(frame, start)
        transforms, _ = _read_varint(frame, at)
    except IndexError:
        protocol, transforms = _BINARY_INSIDE, 0
    compact = protocol == _COMPACT_INSIDE
    message = frame[start + 4 * words :]
    name, seqid = (None, 0) if transforms else _compact_head(message) if compact else _binary_head(message)
    inside = _compact if compact else _binary

    def encode(name: bytes, seqid: int, text: str) -> bytes:
        header = _header_head.pack(int.from_bytes(_HEADER_MAGIC, "big"), 0, header_seqid, 1)
        return header + bytes((_COMPACT_INSIDE if compact else _BINARY_INSIDE, 0, 0, 0)) + inside(name, seqid, text)

    return OtherCall("with the header transport", name, seqid, encode, framed=True)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of up to 32 bits and where it ends. Raises IndexError if the data end before it, or it is longer."""
    value = 0
    for shift in range(0, 35, 7):
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value & 0xFFFFFFFF, at
    raise IndexError


def _varint(value: int) -> bytes:
    value &= 0xFFFFFFFF
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)
