"""A server that stood still carries out nothing that came before: its clients have gone, and may have been answered elsewhere."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from pinlater.domain.clock import ManualClock
from pinlater.domain.request_keys import BEGUN_WITHIN_MS, REPEATED_WITHIN_MS, REQUEST_KEY_KEPT_MS
from pinlater.server.thrift.server import REFUSING_S
from pinlater.server.thrift.settings import ThriftSettings
from pinlater.wire.codec import encode_call
from pinlater.wire.generated.structs import PinLaterEnqueueRequest, PinLaterJob
from tests.thrift_server.conftest import CONTEXT, DEADLINE_S, ThriftServerUnderTest
from tests.thrift_server.fake_operations import Gate

Start = Callable[..., Awaitable[ThriftServerUnderTest]]


def asked(desk: ThriftServerUnderTest) -> list[object]:
    return [arguments[0] for name, arguments, _ in desk.operations.asked if name == "create_queue"]


def create(name: str) -> bytes:
    return encode_call("createQueue", 1, context=CONTEXT, name=name)


async def works_again(desk: ThriftServerUnderTest, clock: ManualClock) -> None:
    """New connections are taken in once those from before must all have been cut."""
    clock.advance(seconds=REFUSING_S)
    async with asyncio.timeout(DEADLINE_S):
        while "after" not in asked(desk):
            client = await desk.connect()
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                assert (await client.call("createQueue", name="after")).exception is None


async def test_connections_with_requests_from_a_standstill_are_closed_unread(start: Start) -> None:
    """Whatever the loop gets to first, its timer or the sockets."""
    clock = ManualClock()
    desk = await start(clock, standstill_s=20)
    clients = [await desk.connect() for _ in range(20)]
    for client in clients:
        await client.call("createQueue", name="before")
    clock.advance(seconds=21)
    for client in clients:
        client.writer.write(create("meanwhile"))
    for client in clients:
        assert await client.closed() == b""
    assert asked(desk) == ["before"] * 20
    assert desk.counted("thrift_standstills") == 1
    await works_again(desk, clock)


async def test_connections_that_were_made_while_the_server_stood_still_are_closed_unread(start: Start) -> None:
    """The system takes them in, with what is sent on them, whether the server runs or not."""
    clock = ManualClock()
    desk = await start(clock, standstill_s=20)
    clock.advance(seconds=21)
    made = [socket.create_connection(("127.0.0.1", desk.server.port)) for _ in range(200)]  # the loop has no turn here
    for one in made:
        one.sendall(create("meanwhile"))
        one.setblocking(False)
    loop = asyncio.get_running_loop()
    for one in made:
        with one:
            try:
                assert await asyncio.wait_for(loop.sock_recv(one, 1), 30) == b""
            except ConnectionResetError:
                continue
    assert asked(desk) == []
    await works_again(desk, clock)


async def test_requests_read_but_not_begun_before_a_standstill_are_not_carried_out(start: Start) -> None:
    clock = ManualClock()
    desk = await start(clock, standstill_s=20)
    gate = Gate("create_queue")
    desk.operations.before = gate
    client, other = await desk.connect(), await desk.connect()
    client.writer.write(create("begun") + create("queued") * 5)
    await gate.arrived.wait()
    clock.advance(seconds=21)
    other.writer.write(create("meanwhile"))
    gate.open()
    answered = await client.closed()
    assert await other.closed() == b""
    assert b"queued" not in answered
    assert set(asked(desk)) <= {"begun"}
    await works_again(desk, clock)


async def test_a_server_that_has_nothing_to_do_does_not_stand_still(start: Start) -> None:
    """Its timer says so, also while it drains."""
    desk = await start(standstill_s=0.4)
    client = await desk.connect()
    loop = asyncio.get_running_loop()
    began = loop.time()
    await desk.until(lambda: loop.time() > began + 1.2)
    assert (await client.call("createQueue", name="q")).exception is None
    assert desk.counted("thrift_standstills") == 0


async def test_an_enqueue_that_waits_behind_other_requests_knows_when_it_arrived(start: Start) -> None:
    """Its time to be begun does not start anew when its turn comes."""
    clock = ManualClock()
    desk = await start(clock, standstill_s=20)
    gate = Gate("create_queue")
    desk.operations.before = gate
    client = await desk.connect()
    request = PinLaterEnqueueRequest("q", [PinLaterJob(b"x")], request_key="key")
    enqueue = encode_call("enqueueJobs", 2, context=CONTEXT, request=request)
    arrived_s = clock.monotonic()
    client.writer.write(create("long") + enqueue)
    await gate.arrived.wait()
    for _ in range(3):
        clock.advance(seconds=15)
        desk.server.standstill.runs(clock.monotonic())
    gate.open()
    await desk.until(lambda: len(desk.operations.asked) == 2)
    _, _, named = desk.operations.asked[1]
    assert named["arrived_s"] == arrived_s


@pytest.mark.parametrize("standstill_ms", [round(ThriftSettings().standstill_s * 1000), BEGUN_WITHIN_MS])
def test_no_enqueue_is_begun_after_its_keys_life(standstill_ms: int) -> None:
    """A repeat as late as may be lies as long as it may unread in a socket, then until a lane begins it, then in a database's turn."""
    begun_ms = REPEATED_WITHIN_MS + standstill_ms + BEGUN_WITHIN_MS + BEGUN_WITHIN_MS
    assert begun_ms < REQUEST_KEY_KEPT_MS - 10_000
