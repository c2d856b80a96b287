"""One connection to a server, spoken byte by byte with Apache's own binary protocol, not with our codec.

`call` is what a program does; `send` and `receive` are for what a program in another language, or a broken one, may do.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TApplicationException, TMessageType
from thrift.transport.TTransport import TMemoryBuffer

from tests.compiled import PinLater as _service
from tests.compiled import ttypes as _ttypes

# Generated code has no types.
PinLater: Any = _service
ttypes: Any = _ttypes

DEADLINE_S = 30.0
PENDING, IN_PROGRESS, SUCCEEDED, FAILED = 0, 1, 2, 3
APPLIED, ALREADY_FINAL, STALE_CLAIM, NOT_FOUND = 0, 1, 2, 3


class RefusedOnWire(Exception):
    """A PinLaterException as it came. Generated exceptions are immutable, which `raise` can't live with."""

    def __init__(self, answer: Any) -> None:
        super().__init__(f"{answer.errorCode} {answer.detail}: {answer.message}")
        self.code = int(answer.errorCode)
        self.detail = answer.detail
        self.message = str(answer.message)
        self.retryable = answer.retryable
        self.retry_after_ms = answer.retryAfterMillis


class Undecodable(Exception):
    """A TApplicationException as it came."""

    def __init__(self, answer: TApplicationException) -> None:
        super().__init__(answer.message)
        self.kind = answer.type


class Message(NamedTuple):
    """A reply, not yet read beyond its header."""

    name: str
    kind: int
    seqid: int
    protocol: TBinaryProtocol
    frame: bytes


def encode_arguments(method: str, arguments: Any, seqid: int = 1, *, strict: bool = True) -> bytes:
    """A frame without its length."""
    buffer = TMemoryBuffer()
    protocol = TBinaryProtocol(buffer, strictWrite=strict)
    protocol.writeMessageBegin(method, TMessageType.CALL, seqid)
    arguments.write(protocol)
    protocol.writeMessageEnd()
    return bytes(buffer.getvalue())


def framed(message: bytes) -> bytes:
    """The message with its length before it."""
    return len(message).to_bytes(4, "big") + message


def context(source: str = "tests") -> Any:
    return ttypes.RequestContext(source=source)


class Wire:
    """A connection. One call at a time with `call`; as many as you like with `send`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, source: str) -> None:
        self.reader = reader
        self.writer = writer
        self.source = source
        self._seqid = 0

    @classmethod
    async def connect(cls, port: int, source: str = "tests") -> Wire:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**26)
        return cls(reader, writer, source)

    async def close(self) -> None:
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()

    # --- bytes ----------------------------------------------------------------------------------------------------------
    def write(self, data: bytes) -> None:
        self.writer.write(data)

    def send(self, method: str, seqid: int | None = None, /, **arguments: Any) -> int:
        """Sends a call; returns its sequence id."""
        if seqid is None:
            self._seqid = seqid = self._seqid + 1
        source = arguments.pop("source", self.source)
        made = getattr(PinLater, f"{method}_args")(requestContext=context(source), **arguments)
        self.write(framed(encode_arguments(method, made, seqid)))
        return seqid

    async def receive(self) -> Message:
        """The next reply's header. Raises `IncompleteReadError` where the server closed instead."""
        async with asyncio.timeout(DEADLINE_S):
            size = int.from_bytes(await self.reader.readexactly(4), "big")
            frame = await self.reader.readexactly(size)
        protocol = TBinaryProtocol(TMemoryBuffer(frame), strictRead=True)
        name, kind, seqid = protocol.readMessageBegin()
        return Message(name, kind, seqid, protocol, frame)

    async def result(self, method: str) -> Any:
        """The next reply's value. Raises `RefusedOnWire` or `Undecodable`."""
        message = await self.receive()
        if message.kind == TMessageType.EXCEPTION:
            error = TApplicationException()
            error.read(message.protocol)
            raise Undecodable(error)
        assert (message.name, message.kind) == (method, TMessageType.REPLY)
        result = getattr(PinLater, f"{method}_result")()
        result.read(message.protocol)
        if result.e is not None:
            raise RefusedOnWire(result.e)
        return getattr(result, "success", None)

    async def call(self, method: str, /, **arguments: Any) -> Any:
        self.send(method, **arguments)
        return await self.result(method)

    async def closed(self) -> bool:
        """Whether the server has closed, with no further byte."""
        async with asyncio.timeout(DEADLINE_S):
            try:
                return await self.reader.read() == b""
            except ConnectionResetError:
                return True

    # --- calls that tests make again and again ----------------------------------------------------------------------------
    async def create(self, queue: str) -> str:
        await self.call("createQueue", name=queue)
        return queue

    async def enqueue(self, queue: str, *bodies: bytes, **more: Any) -> list[str]:
        """Descriptors of new jobs, all made with `more`."""
        jobs = [ttypes.PinLaterJob(body=body, **more) for body in bodies]
        return list((await self.enqueue_jobs(queue, jobs)).jobDescriptors)

    async def enqueue_jobs(self, queue: str, jobs: Sequence[Any], **more: Any) -> Any:
        request = ttypes.PinLaterEnqueueRequest(queueName=queue, jobs=list(jobs), **more)
        return await self.call("enqueueJobs", request=request)

    async def dequeue(self, queue: str, limit: int = 10, **more: Any) -> Any:
        call = {"source": more.pop("source")} if "source" in more else {}
        request = ttypes.PinLaterDequeueRequest(queueName=queue, limit=limit, **more)
        return await self.call("dequeueJobs", request=request, **call)

    async def claim(self, queue: str, limit: int = 10, **more: Any) -> list[tuple[str, str]]:
        """(descriptor, token) of claimed jobs, in the order to run them."""
        answer = await self.dequeue(queue, limit, **more)
        return [(each, answer.jobMetadata[each].claimToken) for each in answer.jobOrder or ()]

    async def bodies(self, queue: str, limit: int = 10, **more: Any) -> list[bytes]:
        """Bodies of claimed jobs, in the order to run them."""
        answer = await self.dequeue(queue, limit, **more)
        return [answer.jobs[each] for each in answer.jobOrder or ()]

    async def ack(self, queue: str, *succeeded: str, failed: Sequence[str] = (), **more: Any) -> list[int]:
        """Outcomes. `more` goes into each of the infos."""
        answer = await self.call("ackJobs", request=ack_request(queue, *succeeded, failed=failed, **more))
        return [each.outcome for each in answer]

    async def checkpoint(self, queue: str, descriptor: str, **more: Any) -> Any:
        """The outcome."""
        call = {"source": more.pop("source")} if "source" in more else {}
        one = ttypes.PinLaterCheckpointJobRequest(jobDescriptor=descriptor, **more)
        request = ttypes.PinLaterCheckpointJobsRequest(queueName=queue, requests=[one])
        return (await self.call("checkpointJobsFenced", request=request, **call))[0]

    async def lookup(self, *descriptors: str, body: bool = False) -> dict[str, Any]:
        request = ttypes.PinLaterLookupJobRequest(jobDescriptors=list(descriptors), includeBody=body)
        return dict(await self.call("lookupJobs", request=request))

    async def job(self, descriptor: str) -> Any:
        """All that a lookup says of one job, its body too."""
        return (await self.lookup(descriptor, body=True))[descriptor]

    async def state(self, descriptor: str) -> int:
        return int((await self.job(descriptor)).jobState)

    async def count(self, queue: str, state: int = PENDING, **more: Any) -> int:
        request = ttypes.PinLaterGetJobCountRequest(queueName=queue, jobState=state, **more)
        return int(await self.call("getJobCount", request=request))

    async def scan(self, queue: str, state: int = PENDING, **more: Any) -> Any:
        request = ttypes.PinLaterScanJobsRequest(queueName=queue, jobState=state, **more)
        return await self.call("scanJobs", request=request)

    async def configure(self, queue: str, **more: Any) -> None:
        await self.call("configureQueue", queueName=queue, config=ttypes.QueueConfig(**more))


def ack_request(queue: str, *succeeded: str, failed: Sequence[str] = (), **more: Any) -> Any:
    """Acks of one queue; `more` goes into each of the infos."""

    def infos(descriptors: Sequence[str]) -> list[Any]:
        return [ttypes.PinLaterJobAckInfo(jobDescriptor=each, **more) for each in descriptors]

    return ttypes.PinLaterJobAckRequest(queueName=queue, jobsSucceeded=infos(succeeded), jobsFailed=infos(failed))


@asynccontextmanager
async def connected(port: int, source: str = "tests") -> AsyncIterator[Wire]:
    """A connection that is closed at the end."""
    wire = await Wire.connect(port, source)
    try:
        yield wire
    finally:
        await wire.close()
