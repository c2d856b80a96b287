"""Slow, silent and many clients of the console: every wait for a client ends, and the number of connections is bounded."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from pinlater.console.app import Console
from pinlater.console.connection import ConnectionLimits
from pinlater.console.counted_response import CountedResponse
from pinlater.console.run import LIMITS, ConsoleServer, listening, within
from pinlater.domain.byte_budget import ByteBudget

LARGE = 32 * 1024 * 1024
SHORT_S, LONG_S = 0.2, 30.0
OTHER_HOST = "127.0.0.2"
GET = b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Application:
    """Takes the place of the console's: `/` is answered at once, `/wait` when told so, and `/large` does not fit into buffers."""

    def __init__(self) -> None:
        self.budget = ByteBudget(2 * LARGE)
        self.go_on = asyncio.Event()
        self.started = 0

    @property
    def app(self) -> Application:
        return self

    def stop(self) -> None:
        self.go_on.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            for kind in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{kind}.complete"})
            return
        self.started += 1
        path = Request(scope).url.path
        if path == "/wait":
            await self.go_on.wait()
        size = LARGE if path == "/large" else 2
        await CountedResponse(self.budget, bytes(size), 200, None)(scope, receive, send)


class ListeningConsole:
    """The application at a port."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.application = Application()
        self.server = ConsoleServer(cast("Console", self.application), limits)
        self.listener = listening("127.0.0.1", 0)
        self.clients: list[ConsoleCaller] = []

    async def connect(self, host: str = "127.0.0.1") -> ConsoleCaller:
        """A caller at that address."""
        client = ConsoleCaller(*await asyncio.open_connection(*self.listener.getsockname(), local_addr=(host, 0)))
        self.clients.append(client)
        return client


class ConsoleCaller:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def get(self, path: bytes = b"/") -> bytes:
        """The head of the answer."""
        self.writer.write(GET % path)
        head = await self._reader.readuntil(b"\r\n\r\n")
        await self._reader.readexactly(2)
        return head

    async def over(self, *, drips: bytes = b"", within_s: float = 10.0) -> bool:
        """Whether the server closes the connection, though a byte is sent again and again. A reset is an end, too: bytes were unread."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while True:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(SHORT_S / 10):
                            with contextlib.suppress(ConnectionResetError):
                                await self._reader.read()
                            return True
                    with contextlib.suppress(OSError):
                        self.writer.write(drips)
        return False


@asynccontextmanager
async def served(**limits: Any) -> AsyncIterator[ListeningConsole]:
    site = ListeningConsole(ConnectionLimits(**{"head_s": LONG_S, **limits}))
    serving = asyncio.create_task(site.server.serve([site.listener]))
    await until(lambda: site.server.started)
    try:
        yield site
    finally:
        for client in site.clients:
            client.writer.close()
        site.server.should_exit = True
        site.application.stop()
        await serving


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not reached():
            await asyncio.sleep(0.005)


async def test_a_head_that_does_not_come_or_comes_too_slowly_is_given_up() -> None:
    async with served(head_s=SHORT_S) as site:
        assert await (await site.connect()).over()
        slow = await site.connect()
        slow.writer.write(b"GET / HTTP/1.1\r\nX: ")
        assert await slow.over(drips=b"x")


async def test_the_second_request_of_a_connection_has_the_same_time_limit() -> None:
    async with served(head_s=SHORT_S) as site:
        client = await site.connect()
        await client.get()
        client.writer.write(b"GET ")
        assert await client.over(drips=b"/")


async def test_the_rest_of_a_body_after_the_answer_has_a_time_limit() -> None:
    async with served(head_s=SHORT_S) as site:
        client = await site.connect()
        client.writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n")
        assert await client.over(drips=b"x")


async def test_a_request_may_be_answered_for_longer_and_a_connection_may_be_idle_for_longer() -> None:
    async with served(head_s=SHORT_S) as site:
        client = await site.connect()
        client.writer.write(GET % b"/wait")
        assert not await client.over(within_s=2 * SHORT_S)
        site.application.go_on.set()
        client = await site.connect()
        await client.get()
        assert not await client.over(within_s=2 * SHORT_S)
        assert b" 200 " in await client.get()


async def test_an_answer_that_is_not_read_is_given_up_and_counts_until_then() -> None:
    async with served(unread_s=SHORT_S) as site:
        budget = site.application.budget
        with socket.socket() as client:
            client.setblocking(False)
            await asyncio.get_running_loop().sock_connect(client, site.listener.getsockname())
            await asyncio.get_running_loop().sock_sendall(client, GET % b"/large")
            await until(lambda: budget.answer_bytes == LARGE)
            await until(lambda: budget.answer_bytes == 0)
            await until(lambda: len(site.server.connections) == 0)


async def test_a_new_connection_takes_the_place_of_the_one_that_was_silent_longest() -> None:
    async with served(connections_max=3) as site:
        clients = [await site.connect() for _ in range(3)]
        for client in reversed(clients):
            assert b" 200 " in await client.get()
        first, second, third = clients
        new = await site.connect()
        assert await third.over()
        assert b" 200 " in await new.get()
        assert not await first.over(within_s=SHORT_S)
        assert b" 200 " in await second.get()
        assert len(site.server.connections) == 3


def test_the_number_of_connections_fits_the_files_that_the_process_may_open() -> None:
    assert within(10_000) == LIMITS
    assert within(1_024).connections_max == 480


async def test_connections_whose_requests_are_answered_are_kept_and_the_new_one_is_closed() -> None:
    async with served(connections_max=2) as site:
        clients = [await site.connect() for _ in range(2)]
        for client in clients:
            client.writer.write(GET % b"/wait")
        await until(lambda: site.application.started == 2)
        assert await (await site.connect()).over()
        assert not await clients[0].over(within_s=SHORT_S)


async def test_the_address_with_the_most_connections_makes_place_for_others() -> None:
    async with served(connections_max=4) as site:
        operator = await site.connect(OTHER_HOST)
        assert b" 200 " in await operator.get()
        first = await site.connect()
        for _ in range(20):
            await site.connect()
        assert await first.over()
        assert b" 200 " in await operator.get()
        assert b" 200 " in await (await site.connect(OTHER_HOST)).get()
        assert len(site.server.connections) == 4


async def test_an_address_whose_requests_take_all_places_makes_place_for_an_address_with_fewer() -> None:
    async with served(connections_max=3) as site:
        clients = [await site.connect() for _ in range(3)]
        for number, client in enumerate(clients, 1):
            client.writer.write(GET % b"/wait")
            await until(lambda number=number: site.application.started == number)  # type: ignore[misc]
        operator = await site.connect(OTHER_HOST)
        operator.writer.write(GET % b"/wait")
        assert await clients[0].over()
        await until(lambda: site.application.started == 4)
        assert await (await site.connect(OTHER_HOST)).over()  # that address would have as many then
        assert await (await site.connect()).over()
        for one in (operator, *clients[1:]):
            assert not await one.over(within_s=SHORT_S)
