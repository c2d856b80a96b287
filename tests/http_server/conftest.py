"""A real server on a free port, and ways to talk to it."""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import AsyncExitStack
from typing import NamedTuple, Protocol

import pytest

from pinlater.domain.queue import QueueCounts
from pinlater.server.http.messages import Handler
from pinlater.server.http.server import HttpServer
from pinlater.server.http.settings import HttpSettings
from pinlater.server.http.status import OneServer, Readiness
from pinlater.server.telemetry.metrics import Metrics


class HttpAnswer(NamedTuple):
    """What a client got. Header names are lower-case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


class Site:
    """A running server with what its pages show, which tests change."""

    def __init__(self, settings: HttpSettings, pages: Mapping[str, Handler]) -> None:
        self.metrics = Metrics()
        self.readiness = Readiness(True)
        self.counts: list[QueueCounts] = []
        self.server = HttpServer(
            settings,
            self.metrics,
            OneServer(
                self.metrics,
                lambda: self.readiness,
                lambda: {"name": "pinlater", "version": "1.2.3"},
                lambda: self.counts,
            ),
        )
        self.server.pages |= pages

    async def get(self, path: str, method: str = "GET", **headers: str) -> HttpAnswer:
        """One request by the standard library's client, in a thread."""
        return await asyncio.to_thread(self._get, path, method, headers)

    def _get(self, path: str, method: str, headers: Mapping[str, str]) -> HttpAnswer:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)
        try:
            connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return HttpAnswer(response.status, found, response.read())
        finally:
            connection.close()

    async def raw(self, data: bytes) -> bytes:
        """Sends bytes; everything that comes back until the server closes."""
        reader, writer = await self.connect()
        try:
            writer.write(data)
            await writer.drain()
            return await asyncio.wait_for(reader.read(), 30)
        finally:
            writer.close()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.server.port)


class Serve(Protocol):
    """Starts a site that the test's end stops."""

    def __call__(self, settings: HttpSettings | None = None, pages: Mapping[str, Handler] = {}) -> Awaitable[Site]: ...


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    async with AsyncExitStack() as stack:

        async def start(settings: HttpSettings | None = None, pages: Mapping[str, Handler] = {}) -> Site:
            site = Site(settings or HttpSettings(port=0), pages)
            stack.push_async_callback(site.server.stop)
            await site.server.start()
            return site

        yield start


@pytest.fixture
async def site(serve: Serve) -> Site:
    return await serve()
