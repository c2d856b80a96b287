"""Requests that give way at any moment: each call is answered in its turn, and carried out whole or, where it is refused, not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from pinlater.wire.codec import Reply, encode_call
from pinlater.wire.generated import structs as types
from tests.thrift_server.conftest import CONTEXT, Client, ThriftServerUnderTest

Start = Callable[..., Awaitable[ThriftServerUnderTest]]
LONG_POLL = types.PinLaterDequeueRequest("q", 1, wait_ms=60_000)
CALLS, CONNECTIONS = 60, 3
SIZES = (1, 300, 600, 5_000, 70_000, 400_000)


def name_of(connection: int, seqid: int, size: int) -> str:
    return f"{connection}_{seqid}_" + "q" * size


class SheddingCaller:
    """A client that sends calls in pieces without waiting, every third a long poll."""

    def __init__(self, number: int, random: Random) -> None:
        self._random = random
        self.names = {seqid: name_of(number, seqid, random.choice(SIZES)) for seqid in range(CALLS)}
        self._polls = {seqid for seqid in self.names if random.random() < 1 / 3}
        self.refused: set[int] = set()
        self.done: set[int] = set()

    def _call(self, seqid: int) -> bytes:
        if seqid in self._polls:
            return encode_call("dequeueJobs", seqid, context=CONTEXT, request=LONG_POLL)
        return encode_call("createQueue", seqid, context=CONTEXT, name=self.names[seqid])

    async def send(self, client: Client) -> None:
        stream = b"".join([self._call(seqid) for seqid in self.names])
        while stream:
            size = self._random.choice([1, 3, 700, 20_000, 200_000])
            client.writer.write(stream[:size])
            stream = stream[size:]
            await client.writer.drain()
            for _ in range(self._random.randrange(3)):
                await asyncio.sleep(0)

    async def receive(self, client: Client) -> None:
        for seqid in self.names:
            reply: Reply = await client.receive()
            assert reply.seqid == seqid
            assert reply.exception is None or reply.exception.detail == "TOO_MANY_WAITING", reply.exception
            if seqid not in self._polls:
                (self.done if reply.exception is None else self.refused).add(seqid)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("budget_bytes", [4_000_000, 2**30])
async def test_whatever_gives_way_each_call_is_answered_in_its_turn_and_carried_out_whole_or_not_at_all(
    start: Start, seed: int, budget_bytes: int
) -> None:
    random = Random(seed)
    desk = await start(max_buffered_bytes=budget_bytes, max_frame_bytes=500_000)

    async def before(name: str, *arguments: Any, **named: Any) -> None:
        del arguments, named
        for _ in range(random.randrange(20) if name == "dequeue" else 0):
            await asyncio.sleep(0)

    desk.operations.before = before
    callers = [SheddingCaller(number, random) for number in range(CONNECTIONS)]
    clients = [await desk.connect(f"127.0.0.{number + 1}") for number in range(CONNECTIONS)]
    calls = [caller.send(client) for caller, client in zip(callers, clients, strict=True)]
    calls += [caller.receive(client) for caller, client in zip(callers, clients, strict=True)]
    working = asyncio.gather(*calls)
    while not working.done():
        if random.random() < 0.05 and desk.server.opened_connections:
            random.choice(list(desk.server.opened_connections)).shed()
        await asyncio.sleep(0)
    await working
    made = [arguments[0] for name, arguments, _ in desk.operations.asked if name == "create_queue"]
    assert sorted(made) == sorted(caller.names[seqid] for caller in callers for seqid in caller.done)
    assert sum(len(caller.refused) for caller in callers) > 0
    for client in clients:
        client.close()
    await desk.until(lambda: not desk.server.connections)
    assert desk.server.budget.free_bytes == desk.server.budget.limit_bytes
