"""The fake server leaves no connection open that comes as it stops."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from tests.client.fake_server import FakeServer

_DEADLINE_S = 5.0


@pytest.mark.parametrize("turns", range(6))
async def test_a_connection_that_comes_as_the_server_stops_is_closed(turns: int) -> None:
    """Also one that was accepted and has no transport yet. One that is left open is an error of this test."""
    async with FakeServer() as server:
        host, port = server.address.split(":")
        client = socket.create_connection((host, int(port)), _DEADLINE_S)
        for _ in range(turns):
            await asyncio.sleep(0)
    with client, contextlib.suppress(ConnectionResetError):
        assert await asyncio.to_thread(client.recv, 1) == b""
