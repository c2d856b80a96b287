"""Frames that are no ordinary call."""

from __future__ import annotations

from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TMessageType, TType
from thrift.transport.TTransport import TMemoryBuffer

from tests.wire.golden.record import PinLater, ScenarioRecorder, bare, scenario, types

_FIRST = (2**31 - 1, -(2**31), 0, -1)


def _message(name: str, kind: int, arguments: object, seqid: int = 7, *, strict: bool = True) -> bytes:
    buffer = TMemoryBuffer()
    protocol = TBinaryProtocol(buffer, strictWrite=strict)
    protocol.writeMessageBegin(name, kind, seqid)
    arguments.write(protocol)  # type: ignore[attr-defined]
    return bytes(buffer.getvalue())


class _RawStruct:
    """A struct of any fields: id, type, and the value's bytes."""

    def __init__(self, *fields: tuple[int, int, bytes]) -> None:
        self._fields = fields

    def write(self, protocol: TBinaryProtocol) -> None:
        for number, kind, data in self._fields:
            protocol.writeFieldBegin("", kind, number)
            protocol.trans.write(data)
        protocol.writeFieldStop()


def _text(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


_SOURCE = b"\x0b\x00\x01" + _text(b"golden")
_CONTEXT = (1, TType.STRUCT, _SOURCE + b"\0")


@scenario()
async def frames(to: ScenarioRecorder) -> None:
    context = bare(types.RequestContext, source="golden")
    names = PinLater.getQueueNames_args(context)
    create = PinLater.createQueue_args
    for seqid in _FIRST:
        await to.message(_message("getQueueNames", TMessageType.CALL, names, seqid), f"sequence id {seqid}")
    await to.message(_message("getQueueNames", TMessageType.CALL, names, strict=False), "an old header")
    await to.message(_message("größe", TMessageType.CALL, names), "an unknown method")
    await to.message(_message("x" * 500, TMessageType.CALL, names), "a long unknown method")
    await to.message(_message("", TMessageType.CALL, names), "a method without a name")
    await to.message(
        _message("getqueuenames", TMessageType.CALL, names, strict=False), "an unknown method in an old header"
    )
    await to.message(
        _message("createQueue", TMessageType.ONEWAY, create(context, "mail")), "one-way: no answer", answered=False
    )
    await to.message(
        _message("createQueue", TMessageType.ONEWAY, create(context, "")), "one-way, and wrong", answered=False
    )
    await to.message(
        _message("createQueue", TMessageType.ONEWAY, create(context)), "one-way, and undecodable", answered=False
    )
    await to.message(_message("größe", TMessageType.ONEWAY, names), "one-way, and unknown", answered=False)
    await to.call("getQueueNames", "the queue of the one-way call is there")
    await to.message(_message("getQueueNames", TMessageType.REPLY, names), "a reply")
    await to.message(_message("getQueueNames", TMessageType.EXCEPTION, names), "an exception")
    await to.message(_message("createQueue", TMessageType.CALL, create(context)), "an argument is missing")
    await to.message(_message("createQueue", TMessageType.CALL, create(None, "a")), "the context is missing")
    await to.message(
        _message("createQueue", TMessageType.CALL, create(bare(types.RequestContext), "a")),
        "a required field is missing",
    )
    job = bare(types.PinLaterJob)
    request = types.PinLaterEnqueueRequest("mail", [types.PinLaterJob(b"1"), job])
    await to.message(
        _message("enqueueJobs", TMessageType.CALL, PinLater.enqueueJobs_args(context, request)),
        "a required field is missing in a list",
    )
    for number, kind, data, note in (
        (2, TType.STRING, _text(b"\xff"), "a text that is not UTF-8"),
        (2, TType.STRING, _text(b"\xed\xa0\x80"), "a text with half of a surrogate pair"),
        (2, TType.STRING, _text("\ufffd".encode()), "a text with the replacement character"),
        (2, TType.STRING, _text(b"a\0b"), "a text with a zero byte"),
        (2, TType.I64, bytes(8), "an argument of another type"),
        (2, TType.STRING, (100).to_bytes(4, "big") + b"x", "a text that is shorter than it says"),
        (2, TType.STRING, b"\xff\xff\xff\xff", "a text of a negative length"),
        (2, TType.STRING, b"\x7f\xff\xff\xff", "a text of the greatest length"),
        (2, 5, b"", "a type that there is not"),
    ):
        await to.message(_message("createQueue", TMessageType.CALL, _RawStruct(_CONTEXT, (number, kind, data))), note)
    unknown = (
        (99, TType.STRING, _text(b"x")),
        (100, TType.MAP, bytes([TType.STRING, TType.STRUCT, 0, 0, 0, 1]) + _text(b"k") + b"\x08\x00\x01\0\0\0\x07\0"),
        (-1, TType.LIST, bytes([TType.I32, 0, 0, 0, 2]) + bytes(8)),
        (101, TType.DOUBLE, bytes(8)),
    )
    await to.message(_message("getQueueNames", TMessageType.CALL, _RawStruct(_CONTEXT, *unknown)), "unknown fields")
    inside = (1, TType.STRUCT, _SOURCE + b"\x08\x00\x64" + bytes(4) + b"\0")
    await to.message(
        _message("getQueueNames", TMessageType.CALL, _RawStruct(inside)), "an optional field of another type"
    )
    twice = (1, TType.STRUCT, _SOURCE + _SOURCE + b"\0")
    await to.message(_message("getQueueNames", TMessageType.CALL, _RawStruct(twice)), "a field twice")
    good = _message("getQueueNames", TMessageType.CALL, names)
    await to.message(good + b"\0", "a byte is left over")
    await to.message(good[:-1], "the last byte is missing")
    await to.message(good[:-1] + good, "two calls in one frame")
    long_list = (2, TType.LIST, bytes([TType.STRING]) + (2**31 - 1).to_bytes(4, "big"))
    await to.message(
        _message("getQueueStats", TMessageType.CALL, _RawStruct(_CONTEXT, long_list)), "a list of the greatest length"
    )
    below_0 = (2, TType.LIST, bytes([TType.STRING]) + b"\xff\xff\xff\xff")
    await to.message(
        _message("getQueueStats", TMessageType.CALL, _RawStruct(_CONTEXT, below_0)), "a list of a negative length"
    )
    empty = (2, TType.LIST, bytes([TType.STRUCT, 0, 0, 0, 0]))
    await to.message(
        _message("getQueueStats", TMessageType.CALL, _RawStruct(_CONTEXT, empty)), "an empty list of other items"
    )
    for data, note in (
        (b"", "an empty frame"),
        (b"\x80\x02\x00\x01" + bytes(12), "another version of the protocol"),
        (b"\x80\x01\x00\x09" + good[4:], "a message type that there is not"),
        (b"\x80\x01\x00\x01\xff\xff\xff\xff", "a name of a negative length"),
        (b"GET / HTTP/1.1\r\n\r\n", "another protocol in a frame"),
    ):
        await to.message(data, note, on=note.replace(" ", "_"), answered=False)
        await to.closed(note.replace(" ", "_"))
    await to.raw(b"\xff\xff\xff\xff", "a frame of a negative length", on="negative")
    await to.closed("negative")
    await to.raw(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "a request of HTTP", on="http")
    await to.closed("http")
    await to.raw(_text(good)[:9], "the beginning of a frame", on="pieces")
    await to.raw(_text(good)[9:] + _text(good), "the rest, and another one", on="pieces")
    await to.answer("pieces")
    await to.answer("pieces")
