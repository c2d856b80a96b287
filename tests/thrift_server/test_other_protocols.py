"""Clients of Apache's library with another transport or protocol than the port takes: each reads an answer that says what is wrong."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.protocol.THeaderProtocol import THeaderProtocol
from thrift.protocol.TJSONProtocol import TJSONProtocol
from thrift.Thrift import TApplicationException, TMessageType
from thrift.transport.THeaderTransport import THeaderClientType, THeaderSubprotocolID
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TFramedTransport

from tests.compiled import PinLater as _service
from tests.compiled import compiled
from tests.thrift_server.conftest import CONTEXT, DEADLINE_S, ThriftServerUnderTest

PinLater: Any = _service
METHOD, SEQID = "createQueue", 7


def header(inside: int) -> Callable[[TSocket], Any]:
    return lambda socket: THeaderProtocol(socket, (THeaderClientType.HEADERS,), inside)


MANNERS: dict[str, tuple[Callable[[TSocket], Any], str]] = {
    "unframed binary": (lambda socket: TBinaryProtocol(TBufferedTransport(socket)), "without framed transport"),
    "unframed compact": (
        lambda socket: TCompactProtocol(TBufferedTransport(socket)),
        "compact protocol, without framed",
    ),
    "unframed JSON": (lambda socket: TJSONProtocol(TBufferedTransport(socket)), "JSON protocol, without framed"),
    "framed compact": (lambda socket: TCompactProtocol(TFramedTransport(socket)), "in the compact protocol"),
    "framed JSON": (lambda socket: TJSONProtocol(TFramedTransport(socket)), "in the JSON protocol"),
    "header, binary": (header(THeaderSubprotocolID.BINARY), "with the header transport"),
    "header, compact": (header(THeaderSubprotocolID.COMPACT), "with the header transport"),
}


def call(port: int, made: Callable[[TSocket], Any], name: str = "q") -> tuple[str, int, int, str]:
    """Name, type and sequence id of the answer to a call, and the text of its TApplicationException, as the library reads them."""
    socket = TSocket("127.0.0.1", port)
    socket.setTimeout(DEADLINE_S * 1000)
    protocol = made(socket)
    protocol.trans.open()
    try:
        protocol.writeMessageBegin(METHOD, TMessageType.CALL, SEQID)
        PinLater.createQueue_args(requestContext=compiled(CONTEXT), name=name).write(protocol)
        protocol.writeMessageEnd()
        protocol.trans.flush()
        answered, kind, seqid = protocol.readMessageBegin()
        error = TApplicationException()
        error.read(protocol)
        assert error.type == TApplicationException.PROTOCOL_ERROR
        return answered, kind, seqid, error.message
    finally:
        protocol.trans.close()


@pytest.mark.parametrize("manner", MANNERS)
async def test_a_client_in_another_manner_reads_what_is_wrong(manner: str, desk: ThriftServerUnderTest) -> None:
    made, words = MANNERS[manner]
    answered, kind, seqid, text = await asyncio.to_thread(call, desk.server.port, made)
    assert (answered, kind, seqid) == (METHOD, TMessageType.EXCEPTION, SEQID)
    assert "takes framed transport and the binary protocol" in text
    assert words in text
    assert desk.operations.asked == []
    assert (await (await desk.connect()).call("getQueueNames")).application_error is None


@pytest.mark.parametrize("manner", ["unframed binary", "unframed compact", "unframed JSON"])
async def test_a_long_call_without_frames_is_answered_too(manner: str, desk: ThriftServerUnderTest) -> None:
    """Its client reads no answer before it has sent the whole call."""
    made, words = MANNERS[manner]
    assert words in (await asyncio.to_thread(call, desk.server.port, made, "q" * 3_000_000))[3]


async def test_a_call_without_frames_that_comes_byte_by_byte_is_answered_by_its_name(
    desk: ThriftServerUnderTest,
) -> None:
    client = await desk.connect()
    begun = b"\x80\x01\x00\x01\x00\x00\x00\x0bcreateQueue\x00\x00\x00\x07\x0c"
    for byte in begun:
        client.writer.write(bytes((byte,)))
        await client.writer.drain()
        await asyncio.sleep(0)
    assert b"\x80\x01\x00\x03\x00\x00\x00\x0bcreateQueue\x00\x00\x00\x07" in await client.closed()


async def test_a_call_of_the_oldest_form_without_frames_is_told(desk: ThriftServerUnderTest) -> None:
    """Without a version, its name's length looks like that of a frame."""
    client = await desk.connect()
    client.writer.write(b"\x00\x00\x00\x0bcreateQueue\x01\x00\x00\x00\x07\x0c\x00\x01\x00\x00")
    assert b"this call came without framed transport" in await client.closed()


@pytest.mark.parametrize("received", [b"\x82\x21", b'[1,"', b"\x80\x01\x00", b"\x0f\xff\x00\x00"])
async def test_a_beginning_that_does_not_continue_harms_no_other(received: bytes, desk: ThriftServerUnderTest) -> None:
    for framed in (received, len(received).to_bytes(4, "big") + received):
        client = await desk.connect()
        client.writer.write(framed)
        client.writer.write_eof()
        await client.closed()
    assert (await (await desk.connect()).call("getQueueNames")).application_error is None


async def test_the_log_says_once_for_an_address_how_its_client_calls(
    desk: ThriftServerUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "pinlater.server.thrift")
    for manner in ("unframed binary", "framed compact", "unframed binary", "framed compact"):
        await asyncio.to_thread(call, desk.server.port, MANNERS[manner][0])
    assert [record.message for record in caplog.records] == [
        "a client has called the Thrift port without framed transport",
        "a client has called the Thrift port in the compact protocol",
    ]


async def test_calls_before_one_without_frames_are_answered(desk: ThriftServerUnderTest) -> None:
    client = await desk.connect()
    client.send("getQueueNames")
    client.writer.write(b"\x80\x01\x00\x01\x00\x00\x00\x0bcreateQueue\x00\x00\x00\x07\x0c")
    assert (await client.receive()).application_error is None
    assert b"this call came without framed transport" in await client.closed()
