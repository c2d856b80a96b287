"""Connections of callers with a token, which send without waiting for answers."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

from pinlater.wire.codec import Decoder, Reply, encode_call
from tests import structs as types
from tests.access.conftest import GuardedServer

DEADLINE_S = 30.0
QUEUE = "other"
LONG_POLL = types.DequeueRequest(QUEUE, 1, wait_ms=60_000)


class TokenCaller:
    """One connection. `token`: sent with each call that names no other one."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str | None) -> None:
        self.reader = reader
        self.writer = writer
        self._token = token

    def send(self, method: str, seqid: int = 1, *, token: str = "", request_id: str = "", **arguments: Any) -> None:
        """`request_id`: whatever makes the frame long in front of its token."""
        context = types.RequestContext("tests", request_id, token or self._token)
        self.writer.write(encode_call(method, seqid, context=context, **arguments))

    async def receive(self) -> Reply:
        async with asyncio.timeout(DEADLINE_S):
            size = int.from_bytes(await self.reader.readexactly(4), "big")
            return Decoder().reply(await self.reader.readexactly(size))

    async def call(self, method: str, **arguments: Any) -> Reply:
        self.send(method, **arguments)
        return await self.receive()

    async def refusal(self, method: str, **arguments: Any) -> str:
        """The detail of the error that is the answer; '' for none."""
        reply = await self.call(method, **arguments)
        assert reply.application_error is None, reply
        return "" if reply.exception is None else reply.exception.detail

    async def closed(self) -> bytes:
        """Waits until the server has closed; returns what came before."""
        async with asyncio.timeout(DEADLINE_S):
            return await self.reader.read()

    def close(self) -> None:
        self.writer.close()


async def connect(
    server: GuardedServer, token: str | None, *, tls: ssl.SSLContext | None = None, limit: int = 2**16
) -> TokenCaller:
    """A connection; `limit`: about twice as many bytes of answers are taken from the kernel before they are asked for."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.server.port, ssl=tls, limit=limit)
    server.callers.append(writer)
    return TokenCaller(reader, writer, token)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.002)


def jobs_of(*bodies: bytes, queue: str = QUEUE) -> types.EnqueueRequest:
    return types.EnqueueRequest(queue, [types.Job(body) for body in bodies])
