"""Servers that a client reaches by its option `connect`: no socket and no time is between them, and a test says what each one answers."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from pinlater.client.errors import ConnectionLost, ServerUnreachable

Method = Callable[["AskedServer"], Any]


class AskedServer(NamedTuple):
    """A call that has arrived. `server` is the host of its address, `request` the call's first argument."""

    server: str
    method: str
    request: Any
    token: str


def lost(_: object = None) -> ConnectionLost:
    """An answer that does not come, since the connection breaks."""
    return ConnectionLost("Connection lost before the answer came")


class Script:
    """Pass `connect` to a client. A method may return an error, which is then raised, or be a coroutine.

    `away`: hosts that refuse connections, with the error `refused` if that is set. `tried`: the hosts to which connections were made or
    refused, in order. `hangs_up`: whether a server ends each connection after an answer.
    """

    def __init__(self, **methods: Method) -> None:
        self.methods = methods
        self.asked: list[AskedServer] = []
        self.tried: list[str] = []
        self.away: set[str] = set()
        self.refused: Exception | None = None
        self.hangs_up = False

    async def connect(self, address: Any) -> _ScriptedLink:
        self.tried.append(address.host)
        if address.host in self.away:
            raise self.refused or ServerUnreachable(f"Server {address} can't be reached: Connection refused")
        return _ScriptedLink(self, address)

    def servers_of(self, method: str) -> list[str]:
        """The servers that have got the calls of a method, in order."""
        return [one.server for one in self.asked if one.method == method]

    def count_of(self, method: str) -> Counter[str]:
        """How many calls of a method each server has got."""
        return Counter(self.servers_of(method))

    def requests_of(self, method: str) -> list[Any]:
        """The first arguments of the calls of a method."""
        return [one.request for one in self.asked if one.method == method]


class _ScriptedLink:
    """What a client needs of a connection."""

    def __init__(self, script: Script, address: Any) -> None:
        self._script = script
        self.address = address
        self.usable = True

    async def call(self, method: str, source: str, args: tuple[Any, ...], token: str = "") -> Any:
        del source
        if self.address.host in self._script.away:
            self.usable = False
            raise lost()
        asked = AskedServer(self.address.host, method, args[0] if args else None, token)
        self._script.asked.append(asked)
        answer = self._script.methods[method](asked)
        if inspect.isawaitable(answer):
            answer = await answer
        if isinstance(answer, ConnectionLost) or self._script.hangs_up:
            self.usable = False
        if isinstance(answer, Exception):
            raise answer
        return answer

    def unread(self) -> Any:
        return None

    def retire(self) -> None:
        self.usable = False

    hang_up = abort = retire

    async def close(self) -> None:
        self.retire()


async def settle() -> None:
    """Lets the client do what it does in the background."""
    for _ in range(50):
        await asyncio.sleep(0)
