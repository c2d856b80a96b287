"""Turns a frame into a call or a reply, and back. Bytes in, values out.

The work is done by Apache thrift's C codec with its limits set. This module does the rest: message headers (strict and the old kind),
missing required fields, text that isn't UTF-8, bytes left over at the end. All errors are `WireError`s.

As in the original, a field whose type is not the declared one is skipped, like an unknown one; if it was required it is missing
then, and the call is refused. Weakness: a wrongly typed *optional* field therefore goes unnoticed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator
from copy import copy
from functools import lru_cache, partial
from io import BytesIO
from struct import Struct
from struct import error as StructError  # noqa: N812 it is called like nothing
from typing import Any, NamedTuple, Never

from thrift.protocol import fastbinary
from thrift.protocol.TProtocol import TProtocolException
from thrift.Thrift import TMessageType, TType

from pinlater.wire.checks import path_not_utf8
from pinlater.wire.errors import ApplicationErrorKind, WireError
from pinlater.wire.generated.structs import SPECS
from pinlater.wire.limits import WireLimits
from pinlater.wire.methods import (
    METHODS,
    METHODS_BY_CALL_HEAD,
    METHODS_BY_NAME,
    STRICT_VERSION,
    Method,
    Shape,
    message_head,
)

_strict_head = Struct(">HxBi")
_i32 = Struct(">i")
_pack_length = Struct(">I").pack
_pack_seqid = _i32.pack
_KINDS = frozenset({TMessageType.CALL, TMessageType.REPLY, TMessageType.EXCEPTION, TMessageType.ONEWAY})
_decode = fastbinary.decode_binary
_encode = fastbinary.encode_binary

_DECODE_ERRORS = (EOFError, TypeError, ValueError, OverflowError, MemoryError, RecursionError, TProtocolException)
_ENCODE_ERRORS = (TypeError, ValueError, OverflowError, AttributeError)

_make = tuple.__new__  # faster than calling the class
_NAME_AT = 8  # in a strict header; its length precedes it, in four bytes
_NAME_SHOWN_BYTES = 100  # bytes of a method's name that isn't ours, in errors and in the log

EMPTY_STRUCT = b"\0"  # the result of a method that returns nothing


class Header(NamedTuple):
    """A message's header: `kind` is a TMessageType, `body_at` where the struct begins."""

    name: bytes
    kind: int
    seqid: int
    body_at: int

    @property
    def oneway(self) -> bool:
        """Whether the caller waits for no answer."""
        return bool(self.kind == TMessageType.ONEWAY)


class DecodedCall(NamedTuple):
    """A decoded call. `arguments` has the method's arguments as attributes."""

    method: Method
    seqid: int
    oneway: bool
    arguments: Any


class ApplicationError(NamedTuple):
    """A TApplicationException that was received as the answer."""

    kind: int
    message: str


class Reply(NamedTuple):
    """A decoded reply: `value` (None for void), or `exception` (has errorCode, message, detail, retryable, retryAfterMillis),
    or `application_error`."""

    name: str
    seqid: int
    value: Any = None
    exception: Any = None
    application_error: ApplicationError | None = None


class _Source:
    """The transport that the C codec needs: a BytesIO, and a source of more bytes, which has none."""

    __slots__ = ("cstringio_buf",)

    cstringio_buf: BytesIO

    def cstringio_refill(self, partial: bytes, wanted: int) -> Never:
        raise EOFError("the message ends too early")


class _Pieces(_Source):
    """Returns a message piece by piece. In between other threads run, and the time that it took is checked."""

    __slots__ = ("_began_s", "_body", "_cpu_s_max", "_end", "_piece_bytes", "overdue")

    def __init__(self, piece_bytes: int, cpu_s_max: float) -> None:
        self._piece_bytes = piece_bytes
        self._cpu_s_max = cpu_s_max

    def begin(self, body: bytes) -> None:
        """Checks the message before the C codec asks for the first byte."""
        self._body, self._end, self._began_s = body, 0, time.thread_time()
        self.overdue = False  # the C codec replaces some of our errors by one of its own
        self._give(b"", 0)

    def end(self) -> int:
        """Returns how many bytes were not requested. The message is released."""
        left = len(self._body) - self._end + len(self.cstringio_buf.read())
        self._body, self.cstringio_buf = b"", BytesIO()
        return left

    def _give(self, partial: bytes, wanted: int) -> BytesIO:
        start = self._end
        self._end = min(len(self._body), start + max(self._piece_bytes, wanted - len(partial)))
        given = self.cstringio_buf = BytesIO(partial + self._body[start : self._end])
        return given

    def cstringio_refill(self, partial: bytes, wanted: int) -> BytesIO:  # type: ignore[override]
        if len(partial) + len(self._body) - self._end < wanted:
            raise EOFError("the message ends too early")
        if time.thread_time() - self._began_s > self._cpu_s_max:
            self.overdue = True
            raise EOFError
        time.sleep(0)
        return self._give(partial, wanted)


class _Protocol:
    """The protocol that the C codec needs."""

    __slots__ = ("container_length_limit", "string_length_limit", "trans")

    def __init__(self, limits: WireLimits, source: _Source) -> None:
        self.trans = source
        self.string_length_limit = limits.max_frame_bytes
        self.container_length_limit = limits.max_container_items


class _ApplicationException:
    """A received TApplicationException."""

    message: str | None = None
    type: int | None = None


class _ApplicationAnswer(NamedTuple):
    message: str
    type: int


_APPLICATION_SPEC = (None, (1, TType.STRING, "message", "UTF8", None), (2, TType.I32, "type", None, 0))
_APPLICATION_SHAPE = Shape.of(_ApplicationException, _APPLICATION_SPEC)


class _ReplyFields(NamedTuple):
    """The answer to a call: a value or an exception."""

    success: object = None
    e: object = None


class Decoder:
    """Decodes frames within limits. One for each thread.

    `piece_bytes`: after each piece of this many bytes other threads run. A frame that takes more than `cpu_s_max` seconds of
    CPU time is refused.
    """

    __slots__ = ("_pieces", "_protocol", "_source")

    def __init__(
        self, limits: WireLimits | None = None, *, piece_bytes: int | None = None, cpu_s_max: float = float("inf")
    ) -> None:
        limits = limits or WireLimits()
        self._pieces = None if piece_bytes is None else _Pieces(piece_bytes, cpu_s_max)
        self._protocol = _Protocol(limits, self._pieces or _Source())
        self._source = self._protocol.trans

    def header(self, frame: bytes) -> Header:
        """The header of a message; `WireError` (fatal) if there is none. The name may be as long as the frame."""
        if len(frame) < 8:
            raise WireError("not Thrift: too short for a message")
        version, kind, size = _strict_head.unpack_from(frame)
        if version == STRICT_VERSION:
            start = 8
        elif version < 0x8000:
            (size,) = _i32.unpack_from(frame)
            start = 4
        else:
            raise WireError(f"not Thrift: message version {version:#06x}")
        end = start + size
        if size < 0 or len(frame) < end + (4 if start == 8 else 5):
            raise WireError("not Thrift: no method name")
        if start == 4:
            kind = frame[end]
            end += 1
        if kind not in _KINDS:
            raise WireError(f"not Thrift: message type {kind}")
        return Header(frame[start : end if start == 8 else end - 1], kind, _i32.unpack_from(frame, end)[0], end + 4)

    def call(self, frame: bytes) -> DecodedCall:
        """Returns a call of one of our methods. Raises `WireError` otherwise; its `kind` determines the answer."""
        try:  # the form that almost every client sends: the strict header, with a name of one byte's length
            head = frame[: _NAME_AT + frame[_NAME_AT - 1]]
            method = METHODS_BY_CALL_HEAD[head]
            body_at = len(head) + 4
            seqid: int = _i32.unpack_from(frame, len(head))[0]
            oneway = False
        except (IndexError, KeyError, StructError):
            method, seqid, oneway, body_at = self._unusual(frame)
        try:
            body = frame[body_at:]
            arguments = self._struct(body, method.arguments)
            missing, path_of_missing, suspicious = method.check_arguments
            if missing(arguments):
                raise WireError(f"Required field {path_of_missing(arguments)} is missing")
            if not body.isascii() and suspicious(arguments):
                self._prove_utf8(body, method)
        except WireError as error:
            message = error.message + _rest_of_an_earlier_call(frame, method, body_at)
            raise WireError(message, name=method.wire_name, seqid=seqid, oneway=oneway) from error.__cause__
        return _make(DecodedCall, (method, seqid, oneway, arguments))

    def _unusual(self, frame: bytes) -> tuple[Method, int, bool, int]:
        """Returns the method, the sequence id, whether it is one-way, and where the arguments begin, after a closer check."""
        name, kind, seqid, body_at = self.header(frame)
        oneway = kind == TMessageType.ONEWAY
        method = METHODS.get(name)
        if kind != TMessageType.CALL and not oneway:
            raise WireError(
                "a reply where a call was expected",
                kind=ApplicationErrorKind.INVALID_MESSAGE_TYPE,
                name=name,
                seqid=seqid,
            )
        if method is None:
            unknown = ApplicationErrorKind.UNKNOWN_METHOD
            raise WireError(
                f"Invalid method name: '{_shown(name)}'", kind=unknown, name=name, seqid=seqid, oneway=oneway
            )
        return method, seqid, oneway, body_at

    def _prove_utf8(self, body: bytes, method: Method) -> None:
        """Decodes again, without UTF-8, because the first time left a U+FFFD somewhere."""
        strict = method.strict_arguments
        value = self._struct(body, strict)
        field = path_not_utf8(value, strict.spec, method.arguments.spec)
        if field:
            raise WireError(f"Text that is not UTF-8 in {field}")

    def reply(self, frame: bytes) -> Reply:
        """The answer to a call. `WireError` if it is not one, or can't be decoded."""
        name, kind, seqid, body_at = self.header(frame)
        shown = name.decode("utf-8", "replace")
        body = frame[body_at:]
        if kind == TMessageType.EXCEPTION:
            answer = self._struct(body, _APPLICATION_SHAPE)
            return Reply(shown, seqid, application_error=ApplicationError(answer.type or 0, answer.message or ""))
        method = METHODS.get(name)
        if kind != TMessageType.REPLY or method is None:
            raise WireError(f"not a reply to any call: {_shown(name)!r}", name=name, seqid=seqid)
        result = self._struct(body, method.result)
        required = None if result.success is None or result.e is not None else method.required_in_value
        if method.check_result.missing(result) if required is None else None in required(result):
            missing = method.check_result.path_of_missing(result)
            raise WireError(f"Required field {missing} is missing", name=name, seqid=seqid)
        if result.e is not None:
            return Reply(shown, seqid, exception=result.e)
        if not method.returns:
            return Reply(shown, seqid)
        if result.success is None:
            lacking = ApplicationError(ApplicationErrorKind.MISSING_RESULT, f"{shown} failed: unknown result")
            return Reply(shown, seqid, application_error=lacking)
        return Reply(shown, seqid, value=result.success)

    def _struct(self, body: bytes, shape: Shape) -> Any:
        """Decodes one struct, which is all of `body`."""
        if self._pieces is not None:
            return self._struct_in_pieces(body, shape, self._pieces)
        value = shape.cls()
        buffer = self._source.cstringio_buf = BytesIO(body)
        try:
            _decode(value, self._protocol, shape.pair)
        except _DECODE_ERRORS as error:
            raise WireError(f"can't be decoded: {error or type(error).__name__}") from error
        if buffer.tell() != len(body):
            raise WireError(f"{len(body) - buffer.tell()} bytes left over after the message")
        return value

    def _struct_in_pieces(self, body: bytes, shape: Shape, pieces: _Pieces) -> Any:
        value = shape.cls()
        pieces.begin(body)
        try:
            _decode(value, self._protocol, shape.pair)
        except _DECODE_ERRORS as error:
            if pieces.overdue:
                raise WireError("it takes too long to decode; send less at a time") from error
            raise WireError(f"can't be decoded: {error or type(error).__name__}") from error
        finally:
            left = pieces.end()
        if left:
            raise WireError(f"{left} bytes left over after the message")
        return value


@lru_cache
def _any_call_head() -> re.Pattern[bytes]:
    return re.compile(b"|".join(map(re.escape, METHODS_BY_CALL_HEAD)))


def _rest_of_an_earlier_call(frame: bytes, method: Method, body_at: int) -> str:
    """A sentence if a second call begins within the frame of a call that can't be decoded; otherwise ''.

    Most clients keep the part of a call that they had written when writing it failed, and put it before the next call, in one frame. Then
    a part of the next call may pass for the rest of the first: only the check for bytes left over prevents the execution of such a call.
    """
    if _any_call_head().search(frame, body_at) is None:
        return ""
    return (
        f". The frame begins with a call ({method.name}) that was not written to its end: the client failed in it. "
        "Open a new connection after such an error"
    )


def _shown(name: bytes) -> str:
    """Returns a name for people, as text, truncated if it is long."""
    text = name[:_NAME_SHOWN_BYTES].decode("utf-8", "replace")
    return text if len(name) <= _NAME_SHOWN_BYTES else f"{text}…"


def _frame(head: bytes, seqid: int, body: bytes) -> bytes:
    return b"".join((_pack_length(len(head) + 4 + len(body)), head, _pack_seqid(seqid), body))


def _encode_struct(value: object, pair: list[Any]) -> bytes:
    try:
        encoded: bytes = _encode(value, pair)
    except _ENCODE_ERRORS as error:
        raise WireError(f"can't be encoded: {error}") from error
    return encoded


def check_encodable(value: Any) -> None:
    """Raises WireError if this struct can't be encoded."""
    _encode_struct(value, [type(value), SPECS[type(value)]])


def encode_call(name: str, seqid: int, /, *values: object, **arguments: object) -> bytes:
    """A framed call. Arguments by name, or in order with the context first. Structs are generated ones, or any objects with the same
    attributes.

    Does the same as `_encode_struct` and `_frame`, like `encode_reply`.
    """
    method = METHODS_BY_NAME[name]
    head = method.call_head
    try:
        body = _encode(method.arguments.cls(*values, **arguments), method.arguments.pair)
    except _ENCODE_ERRORS as error:
        raise WireError(f"can't be encoded: {error}") from error
    return b"".join((_pack_length(len(head) + 4 + len(body)), head, _pack_seqid(seqid), body))


def encode_reply(method: Method, seqid: int, value: object = None) -> bytes:
    """Returns a framed reply with a result; `value` is ignored if the method returns nothing.

    Does the same as `_encode_struct` and `_frame`, since nearly every answer is made here and two calls fewer are worth it.
    """
    head = method.reply_head
    try:
        body = _encode(_make(_ReplyFields, (value, None)), method.result.pair) if method.returns else EMPTY_STRUCT
    except _ENCODE_ERRORS as error:
        raise WireError(f"can't be encoded: {error}") from error
    return b"".join((_pack_length(len(head) + 4 + len(body)), head, _pack_seqid(seqid), body))


def encode_reply_in_steps(method: Method, seqid: int, value: Any, items_a_step: int) -> Generator[None, None, bytes]:
    """Like `encode_reply`, for a long list or map, or a struct that begins with a long list (`Method.list_field`): other tasks may run
    after each yield.

    A slice is encoded as if it were the whole result; only its items are kept, between the heads before them (type and id of each field,
    what the container holds, and how many) and the bytes that follow them.
    """
    with_items: Callable[[Any], Any]
    if method.list_field:
        head_bytes, items, with_items = 3 + 8, getattr(value, method.list_field), partial(_with_list, value, method)
    elif isinstance(value, dict):
        head_bytes, items, with_items = 3 + 6, list(value.items()), dict
    else:
        head_bytes, items, with_items = 3 + 5, value, list
    without_items = _encode_struct(_ReplyFields(with_items([])), method.result.pair)
    head, tail = without_items[: head_bytes - 4], without_items[head_bytes:]
    pieces: list[bytes] = []
    for start in range(0, len(items), items_a_step):
        part = with_items(items[start : start + items_a_step])
        pieces.append(_encode_struct(_ReplyFields(part), method.result.pair)[head_bytes : -len(tail)])
        yield
    return _frame(method.reply_head, seqid, b"".join((head, _i32.pack(len(items)), *pieces, tail)))


def _with_list(value: Any, method: Method, items: list[Any]) -> Any:
    """Returns a copy of the struct with other items."""
    changed = copy(value)
    setattr(changed, method.list_field, items)
    return changed


def encode_exception(method: Method, seqid: int, exception: object) -> bytes:
    """A framed reply with the method's declared exception: an object with a PinLaterException's attributes."""
    return _frame(method.reply_head, seqid, _encode_struct(_ReplyFields(e=exception), method.result.pair))


def encode_application_error(name: bytes, seqid: int, kind: int, message: str) -> bytes:
    """A framed TApplicationException."""
    answer = _ApplicationAnswer(message, kind)
    body = _encode_struct(answer, [_ApplicationAnswer, _APPLICATION_SPEC])
    return _frame(message_head(name, TMessageType.EXCEPTION), seqid, body)
