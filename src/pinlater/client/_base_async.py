"""What makes the asynchronous client a client, without its methods: opening, closing, sharing, and executing a call."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from copy import copy
from types import TracebackType
from typing import Any, Self, TypeVar

from pinlater.client._client_call import ClientCall, short
from pinlater.client._engine import Engine
from pinlater.client._options import ClientBase
from pinlater.client._servers import FixedServers, ServerAddress
from pinlater.client._token import TokenForCaller, token_source
from pinlater.client._tries import Caller, CallTries, LongPolls
from pinlater.client.errors import ClientClosed, PinLaterError

T = TypeVar("T")


class _OpenClient:
    """What an open client has, for all that share it."""

    def __init__(self) -> None:
        self.engine: Engine | None = None
        self.enqueue_engine: Engine | None = None
        self.loop: asyncio.AbstractEventLoop | None = None


class AsyncClientBase(ClientBase):
    """Executes calls on the event loop that it was opened on."""

    def _prepare(self) -> None:
        self._opened = _OpenClient()
        self._alone = False
        self._polls = LongPolls()

    async def open(self) -> Self:
        """Makes the client ready for this event loop. Connects only with the first call."""
        if self._opened.engine is None:
            self._opened.engine = self._new_engine()
            if self._enqueue_servers is not None:
                self._opened.enqueue_engine = self._new_engine(self._enqueue_servers)
            self._opened.loop = asyncio.get_running_loop()
        return self

    async def close(self) -> None:
        """Closes every connection. May be called twice."""
        engines = self._opened.engine, self._opened.enqueue_engine
        self._opened.engine = self._opened.enqueue_engine = None
        for engine in engines:
            if engine is not None:
                await engine.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _run(self, call: ClientCall[T]) -> T:
        engine = self._opened.engine
        if self._opened.enqueue_engine is not None and call.is_enqueue:
            engine = self._opened.enqueue_engine
        if engine is None:
            raise ClientClosed("The client is not open: use `async with`, or open() it first")
        caller = Caller(self._token, self._polls, self._wait_for_servers, self._alone)
        try:
            return await CallTries(engine, call, caller, engine.deadline_of(call)).run()
        except PinLaterError as error:
            raise short(error) from error.__cause__

    async def carry_out(self, call: ClientCall[T]) -> T:
        """Executes a call that was made before."""
        return await self._run(call)

    def sharing(self, *, wait_for_servers: bool | None = None) -> Self:
        """The same client, open or not, over the same connections, for another user: `hang_up` and `unread` are of its own long polls.

        `wait_for_servers`: otherwise than this one.
        """
        other = copy(self)
        if wait_for_servers is not None:
            other._wait_for_servers = wait_for_servers  # noqa: SLF001 - its own class
        other._polls = LongPolls()  # noqa: SLF001 - its own class
        return other

    def with_token(self, token: str, on_behalf_of: str = "", *, address: str = "", through: str = "") -> Self:
        """The same client for a caller with another token, '' for none. `on_behalf_of`: the user that it speaks for. The audit shows this
        name if the token may speak for others. `address`: the IP address of that caller, which the audit shows before that of this process.
        `through`: what has named user or address, as a part of the source. Raises ValueError for what can't be a token.

        Each of its calls has a connection for itself, so that a server that is slow to refuse it delays no other caller. `hang_up` ends its
        own long polls; that of this client ends them, too.
        """
        other = copy(self)
        source = token_source(token, self._clock.monotonic)
        for_caller = (
            (lambda: TokenForCaller(source(), on_behalf_of, address, through)) if on_behalf_of or address else source
        )
        other._token = for_caller  # noqa: SLF001 - its own class
        other._polls = LongPolls(among=self._polls)  # noqa: SLF001 - its own class
        other._alone = True  # noqa: SLF001 - its own class
        return other

    def hang_up(self) -> None:
        """For a worker that stops: its long polls end, with what the server has answered."""
        self._polls.hang_up()

    def unread(self) -> list[Any]:
        """What long polls would return, had the event loop got to their answers. For another thread, while the loop is blocked."""
        return self._polls.unread()

    def unopened_copy(self) -> Self:
        """Another client with the same options, not open yet: for another thread's event loop."""
        other = copy(self)
        AsyncClientBase._prepare(other)
        return other

    def of_server(self, address: ServerAddress) -> Self:
        """Another client with the same options for one of the servers alone, not open yet. It does not wait for a server that is away."""
        other = self.unopened_copy()
        other._servers = FixedServers((address,))  # noqa: SLF001 - its own class
        other._enqueue_servers = None  # noqa: SLF001 - its own class
        other._wait_for_servers = False  # noqa: SLF001 - its own class
        other._follow_owners = False  # noqa: SLF001 - its own class
        return other

    def submit(self, call: ClientCall[T]) -> Future[T]:
        """Executes a call on the client's loop. May be called from any thread, also from that loop."""
        if self._opened.loop is None:
            raise ClientClosed("The client is not open: use `async with`, or open() it first")
        return asyncio.run_coroutine_threadsafe(self._run(call), self._opened.loop)
