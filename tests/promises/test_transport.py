"""The chapter "Transport", and what old clients may rely on, against a real server."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TApplicationException, TMessageType, TType
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TFramedTransport

from bench.servers import PinLaterServer
from tests.promises.wire import (
    PinLater,
    RefusedOnWire,
    Undecodable,
    Wire,
    ack_request,
    context,
    encode_arguments,
    framed,
    ttypes,
)

Connect = Callable[..., Awaitable[Wire]]
PROBE = "__can__finagle__trace__v3__"


class OldClient:
    """What Thrift's compiler makes of a service: Apache's own socket, framing and protocol. Sets the original's fields only."""

    def __init__(self, port: int, *, strict: bool) -> None:
        socket = TSocket("127.0.0.1", port)
        socket.setTimeout(20_000)
        self.transport = TFramedTransport(socket)
        self.transport.open()
        self._protocol = TBinaryProtocol(self.transport, strictRead=True, strictWrite=strict)
        self.context = ttypes.RequestContext(source="old", requestId="r-1")

    def call(self, method: str, *arguments: Any) -> Any:
        """One call with its arguments in the order of the IDL. Returns a PinLaterException instead of raising it."""
        protocol = self._protocol
        protocol.writeMessageBegin(method, TMessageType.CALL, 0)
        getattr(PinLater, f"{method}_args")(self.context, *arguments).write(protocol)
        protocol.writeMessageEnd()
        self.transport.flush()
        _, kind, _ = protocol.readMessageBegin()
        if kind == TMessageType.EXCEPTION:
            error = TApplicationException()
            error.read(protocol)
            raise error
        result = getattr(PinLater, f"{method}_result")()
        result.read(protocol)
        protocol.readMessageEnd()
        return result.e or getattr(result, "success", None)


@pytest.fixture(params=[True, False], ids=["strict", "non-strict"])
def old(server: PinLaterServer, request: pytest.FixtureRequest) -> Iterator[OldClient]:
    client = OldClient(server.port, strict=request.param)
    yield client
    client.transport.close()


def test_an_old_clients_whole_day_works_with_both_headers(old: OldClient) -> None:
    """All twelve methods of the original, by a generated client that knows nothing of our additions."""
    queue = f"old_{id(old)}"
    old.call("createQueue", queue)
    assert queue in old.call("getQueueNames")
    jobs = [ttypes.PinLaterJob(body=b"\xff\x00a"), ttypes.PinLaterJob(body=b"b", priority=2, customStatus="new.")]
    first, second = old.call("enqueueJobs", ttypes.PinLaterEnqueueRequest(queue, jobs)).jobDescriptors
    claimed = old.call("dequeueJobs", ttypes.PinLaterDequeueRequest(queue, 10))
    assert claimed.jobs == {first: b"\xff\x00a", second: b"b"}
    assert claimed.jobMetadata[first].attemptsAllowed == claimed.jobMetadata[first].attemptsRemaining == 2
    checkpoint = ttypes.PinLaterCheckpointJobRequest(jobDescriptor=second, prependCustomStatus="step.")
    old.call("checkpointJobs", ttypes.PinLaterCheckpointJobsRequest(queue, [checkpoint]))
    old.call("ackDequeuedJobs", ack_request(queue, first, failed=[second]))
    info = old.call("lookupJobs", ttypes.PinLaterLookupJobRequest([first, second], True))
    assert info[first].jobState == ttypes.PinLaterJobState.SUCCEEDED
    assert (info[second].jobState, info[second].attemptsRemaining, info[second].customStatus) == (0, 1, "step.new.")
    assert old.call("getJobCount", ttypes.PinLaterGetJobCountRequest(queue, 0)) == 1
    scanned = old.call("scanJobs", ttypes.PinLaterScanJobsRequest(queue, 2))
    assert [job.jobDescriptor for job in scanned.scannedJobs] == [first]
    assert scanned.continuation == "-1"
    assert old.call("retryFailedJobs", ttypes.PinLaterRetryFailedJobsRequest(queue)) == 0
    assert old.call("deleteJobs", ttypes.PinLaterDeleteJobsRequest(queue, 2)) == 1
    old.call("deleteQueue", queue, "open sesame")
    assert queue not in old.call("getQueueNames")


def test_old_clients_get_declared_exceptions_with_the_codes_they_know(old: OldClient) -> None:
    raised = old.call("createQueue", "no such name")
    assert isinstance(raised, ttypes.PinLaterException)
    assert raised.errorCode == ttypes.ErrorCode.QUEUE_NAME_INVALID
    assert raised.message == "Invalid queue name: no such name"


def fields_of(protocol: TBinaryProtocol) -> dict[int, Any]:
    """A struct's fields by id, read without any knowledge of what they mean: (type, value)."""
    found: dict[int, Any] = {}
    protocol.readStructBegin()
    while True:
        _, kind, number = protocol.readFieldBegin()
        if kind == TType.STOP:
            return found
        found[number] = (kind, value_of(protocol, kind))


def value_of(protocol: TBinaryProtocol, kind: int) -> Any:
    if kind == TType.STRUCT:
        return fields_of(protocol)
    if kind == TType.MAP:
        key, value, size = protocol.readMapBegin()
        return {value_of(protocol, key): value_of(protocol, value) for _ in range(size)}
    if kind in (TType.LIST, TType.SET):
        element, size = (protocol.readListBegin if kind == TType.LIST else protocol.readSetBegin)()
        return [value_of(protocol, element) for _ in range(size)]
    names = {TType.STRING: "Binary", TType.BOOL: "Bool", TType.BYTE: "Byte", TType.I16: "I16", TType.I32: "I32"}
    names |= {TType.I64: "I64", TType.DOUBLE: "Double"}
    return getattr(protocol, f"read{names[kind]}")()


async def test_an_old_clients_bytes_hold_nothing_but_the_originals_fields_and_are_enough(
    wire: Wire, queue: str
) -> None:
    """A request written by hand with the least an old client may write: no defaults, no optional field."""

    def text(value: bytes) -> bytes:
        return len(value).to_bytes(4, "big") + value

    source = b"\x0c\x00\x01" + b"\x0b\x00\x01" + text(b"old") + b"\x00"
    jobs = b"\x0f\x00\x02" + b"\x0c" + struct.pack(">i", 1) + b"\x0b\x00\x01" + text(b"body") + b"\x00"
    request = b"\x0c\x00\x02" + b"\x0b\x00\x01" + text(queue.encode()) + jobs + b"\x00"
    wire.write(framed(b"\x80\x01\x00\x01" + text(b"enqueueJobs") + struct.pack(">i", 77) + source + request + b"\x00"))
    message = await wire.receive()
    assert (message.name, message.kind, message.seqid) == ("enqueueJobs", TMessageType.REPLY, 77)
    success = fields_of(message.protocol)[0][1]
    assert list(success) == [1]  # nothing of ours where nothing of ours was asked for
    info = await wire.job(success[1][1][0].decode())
    assert (info.attemptsAllowed, info.attemptsRemaining, info.customStatus) == (2, 2, "")
    assert info.jobDescriptor.split(":")[2] == "p1"


async def test_clients_that_do_not_know_an_additional_field_skip_it(wire: Wire, queue: str) -> None:
    """An answer's required fields all have ids below 100, and ours only follow: a reader that skips them sees the original."""
    await wire.enqueue(queue, b"one", headers={"a": "b"})
    wire.send("dequeueJobs", request=ttypes.PinLaterDequeueRequest(queueName=queue, limit=1))
    success = fields_of((await wire.receive()).protocol)[0][1]
    assert {number for number in success if number < 100} == {1, 2}
    [metadata] = success[2][1].values()
    assert {number for number in metadata if number < 100} == {1, 2}


@pytest.mark.parametrize("strict", [True, False])
async def test_unknown_fields_of_newer_clients_are_skipped(wire: Wire, queue: str, strict: bool) -> None:
    unknown = b"\x0d\x03\xe7\x0b\x0c\x00\x00\x00\x01\x00\x00\x00\x01k" + b"\x0b\x00\x05\x00\x00\x00\x00\x00"
    message = encode_arguments("getQueueNames", PinLater.getQueueNames_args(requestContext=context()), 5, strict=strict)
    wire.write(framed(message[:-1] + unknown + b"\x00"))
    assert queue in await wire.result("getQueueNames")


@pytest.mark.parametrize("strict", [True, False])
async def test_replies_are_strict_whatever_the_requests_header(wire: Wire, queue: str, strict: bool) -> None:
    made = PinLater.getQueueNames_args(requestContext=context())
    wire.write(framed(encode_arguments("getQueueNames", made, 99, strict=strict)))
    message = await wire.receive()
    assert message.frame[:2] == b"\x80\x01"
    assert message.seqid == 99


async def test_pipelined_requests_are_answered_in_order_each_with_its_own_sequence_id(wire: Wire, queue: str) -> None:
    ids = [2**31 - 1, -(2**31), 0, -1, 7, 7, *range(1000, 1200)]
    for number in ids:
        request = ttypes.PinLaterEnqueueRequest(queueName=queue, jobs=[ttypes.PinLaterJob(body=str(number).encode())])
        wire.send("enqueueJobs", number, request=request)
        wire.send("getJobCount", number, request=ttypes.PinLaterGetJobCountRequest(queueName=queue, jobState=0))
    counts = []
    for number in ids:
        for method in ("enqueueJobs", "getJobCount"):
            message = await wire.receive()
            assert (message.name, message.seqid) == (method, number)
            if method == "getJobCount":
                counts.append(fields_of(message.protocol)[0][1])
    assert counts == list(range(1, len(ids) + 1))  # and took effect in order


async def test_finagles_probe_is_answered_as_an_unknown_method_and_the_connection_goes_on(wire: Wire) -> None:
    message = b"\x80\x01\x00\x01" + len(PROBE).to_bytes(4, "big") + PROBE.encode() + struct.pack(">i", 0) + b"\x00"
    wire.write(framed(message))
    answer = await wire.receive()
    assert (answer.name, answer.kind, answer.seqid) == (PROBE, TMessageType.EXCEPTION, 0)
    error = TApplicationException()
    error.read(answer.protocol)
    assert error.type == TApplicationException.UNKNOWN_METHOD
    assert await wire.call("getQueueNames") is not None


@pytest.mark.parametrize("name", ["", "nope", "createqueue", "x" * 257, "x" * 100_000, "getServerInfo_args", "ä"])
async def test_any_unknown_method_is_answered_and_the_connection_stays_open(wire: Wire, name: str) -> None:
    raw = name.encode()
    wire.write(
        framed(b"\x80\x01\x00\x01" + len(raw).to_bytes(4, "big") + raw + struct.pack(">i", 3) + b"\x0c\x00\x01\x00\x00")
    )
    answer = await wire.receive()
    assert (answer.name, answer.kind, answer.seqid) == (name, TMessageType.EXCEPTION, 3)
    error = TApplicationException()
    error.read(answer.protocol)
    assert error.type == TApplicationException.UNKNOWN_METHOD
    assert len(error.message) < 200  # a person reads it: of a long name only the beginning
    assert await wire.call("getQueueNames") is not None


def broken_calls() -> dict[str, bytes]:
    """Messages with a good header and a bad rest."""
    good = encode_arguments("createQueue", PinLater.createQueue_args(requestContext=context(), name="fine"), 9)
    head = good[: 4 + 4 + len("createQueue") + 4]
    no_source = b"\x0c\x00\x01\x0b\x00\x02\x00\x00\x00\x01r\x00" + b"\x0b\x00\x02\x00\x00\x00\x01q\x00"
    return {
        "missing required field": head + no_source,
        "missing argument": head + b"\x00",
        "field of a wrong type": head + b"\x08\x00\x01\x00\x00\x00\x01\x00",
        "truncated": good[:-3],
        "no body": head,
        "length beyond the frame": head + b"\x0c\x00\x01\x0b\x00\x01\x7f\xff\xff\xff",
        "negative length": head + b"\x0c\x00\x01\x0b\x00\x01\xff\xff\xff\xff",
        "list of two thousand million": head + b"\x0f\x00\x05\x0b\x7f\xff\xff\xff",
        "nested without end": head + b"\x0c\x00\x09" * 5_000,
        "unknown type": head + b"\x63\x00\x01\x00",
        "bytes left over": good + b"more",
    }


@pytest.mark.parametrize("case", broken_calls())
async def test_a_request_that_cannot_be_decoded_gets_protocol_error_with_its_sequence_id(wire: Wire, case: str) -> None:
    wire.write(framed(broken_calls()[case]))
    answer = await wire.receive()
    assert (answer.name, answer.kind, answer.seqid) == ("createQueue", TMessageType.EXCEPTION, 9)
    error = TApplicationException()
    error.read(answer.protocol)
    assert error.type == TApplicationException.PROTOCOL_ERROR
    assert error.message
    assert "fine" not in await wire.call("getQueueNames")


@pytest.mark.parametrize(
    "junk",
    [
        b"\x00\x00\x00\x04nope",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\xff\xff\xff\xff",
        b"\x80\x00\x00\x00",
        b"\x7f\xff\xff\xff",
        b"\x00\x00\x00\x00",
        struct.pack(">i", 16 * 2**20 + 1),
        framed(b"\x80\x02\x00\x01\x00\x00\x00\x01x\x00\x00\x00\x01\x00"),
        framed(b"\x82\x21\x01\x01x\x00"),
        framed(bytes(range(256))),
    ],
    ids=range(10),
)
async def test_a_frame_that_is_not_thrift_too_long_or_negative_closes_that_connection_only(
    connect: Connect, wire: Wire, junk: bytes
) -> None:
    bad = await connect()
    bad.write(junk)
    async with asyncio.timeout(20):
        await bad.reader.read()  # until it closes; a last word is allowed
    assert await wire.call("getQueueNames") is not None


async def test_a_request_before_a_broken_frame_is_answered(connect: Connect, queue: str) -> None:
    bad = await connect()
    request = ttypes.PinLaterEnqueueRequest(queueName=queue, jobs=[ttypes.PinLaterJob(body=b"kept")])
    bad.send("enqueueJobs", request=request)
    bad.write(b"\xff\xff\xff\xff")
    assert len((await bad.result("enqueueJobs")).jobDescriptors) == 1


async def test_a_stalled_frame_delays_no_other_connection(connect: Connect, wire: Wire) -> None:
    """The original waits for as many bytes as any length claims; here a stalled frame holds only what has come of it."""
    stalled = [await connect() for _ in range(50)]
    for each in stalled:
        each.write(struct.pack(">i", 16 * 2**20) + b"\x80\x01\x00\x01")
    assert await wire.call("getQueueNames") is not None


@pytest.mark.parametrize("first", range(0, 256, 16))
async def test_bodies_of_any_bytes_are_answered_or_close_their_connection_only(
    connect: Connect, wire: Wire, first: int
) -> None:
    """A call with each byte repeated as its body."""
    head = encode_arguments("scanJobs", PinLater.scanJobs_args(), 4)[:-1]
    for byte in range(first, first + 16):
        other = await connect()
        other.write(framed(head + bytes([byte]) * 40))
        with pytest.raises((Undecodable, RefusedOnWire)):
            await other.result("scanJobs")
    assert await wire.call("getQueueNames") is not None


async def test_an_unknown_state_is_an_error(wire: Wire, queue: str) -> None:
    for state in (-1, 4, 2**31 - 1, -(2**31)):
        delete = wire.call("deleteJobs", request=ttypes.PinLaterDeleteJobsRequest(queue, state))
        for call in (wire.count(queue, state), wire.scan(queue, state), delete):
            with pytest.raises(RefusedOnWire) as refusal:
                await call
            assert (refusal.value.code, refusal.value.detail) == (500, "INVALID_ARGUMENT")
