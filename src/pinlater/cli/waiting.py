"""Says on standard error that a command waits for a server that accepts no connections."""

from __future__ import annotations

import asyncio

from pinlater.cli import notes
from pinlater.client import AsyncClient
from pinlater.client._connection import Connect, Link
from pinlater.client._servers import ServerAddress
from pinlater.client.errors import ServerUnreachable

_SAID_AFTER_S = 1.0


def say_waiting(client: AsyncClient, timeout_s: float) -> None:
    """Once, when no server has accepted a connection of the client, not open yet, for a second. Its calls last `timeout_s` at most."""
    client._connect = _Connecting(client._connect, timeout_s)  # noqa: SLF001 - the client has no other way to report its tries


class _Connecting:
    """Makes connections as `connect` does, and says when that has failed for a second."""

    def __init__(self, connect: Connect, timeout_s: float) -> None:
        self._connect = connect
        self._timeout_s = timeout_s
        self._failure = ""
        self._saying: asyncio.TimerHandle | None = None

    async def __call__(self, address: ServerAddress) -> Link:
        try:
            link = await self._connect(address)
        except ServerUnreachable as error:
            self._failure = error.message
            if self._saying is None:
                self._saying = asyncio.get_running_loop().call_later(_SAID_AFTER_S, self._say)
            raise
        if self._saying is not None:
            self._saying.cancel()
        return link

    def _say(self) -> None:
        notes.write(f"note: {self._failure}; trying until --timeout {self._timeout_s:g}s")
