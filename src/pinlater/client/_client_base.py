"""What makes a client a client, without its methods: options, opening, closing, and carrying out a call, async and sync.

The methods are in `async_client`; `sync_client` is made from it.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from copy import copy
from functools import partial
from os import PathLike
from types import TracebackType
from typing import Any, Self, TypeVar

from pinlater.client import _calls, values
from pinlater.client._background import Background
from pinlater.client._bodies import check_jobs
from pinlater.client._client_call import ClientCall
from pinlater.client._connection import Connect
from pinlater.client._connection import connect as connect_over_tcp
from pinlater.client._direct import Dial
from pinlater.client._engine import Engine, EngineOptions, LongPolls
from pinlater.client._servers import (
    EnqueueServers,
    FixedServers,
    ServerAddress,
    ServerSource,
    enqueue_servers_by_default,
    server_source,
    servers_by_default,
)
from pinlater.client._tls import Tls, tls_source
from pinlater.client._token import TokenForCaller, token_source
from pinlater.client._tracebacks import short
from pinlater.client._waiting_calls import SayWaiting, log_waiting
from pinlater.client.errors import ClientClosed, PinLaterError
from pinlater.domain.clock import Clock, SystemClock
from pinlater.domain.setting_types import check_integer, check_yes_or_no

T = TypeVar("T")
_MAX_FRAME_BYTES = 64 * 1024 * 1024


def default_source() -> str:
    """The caller's name unless one is given: `<host>-<process id>`."""
    return f"{socket.gethostname()}-{os.getpid()}"


class ClientBase:
    """The options of a client, as `AsyncClient` and `Client` describe them."""

    def __init__(
        self,
        servers: str | PathLike[str] | Sequence[str] | None = None,
        *,
        enqueue_servers: str | PathLike[str] | Sequence[str] | None = None,
        source: str | None = None,
        timeout_ms: int = 10_000,
        connect_timeout_ms: int = 3_000,
        connections: int = 2,
        retries: int = 3,
        wait_for_servers: bool = True,
        request_keys: bool = True,
        token: str | PathLike[str] | None = None,
        tls: Tls | bool | None = None,
        follow_owners: bool | None = None,
        clock: Clock | None = None,
        connect: Connect | None = None,
    ) -> None:
        check_integer("timeout_ms", timeout_ms, 1)
        check_integer("connect_timeout_ms", connect_timeout_ms, 1)
        check_integer("connections", connections, 1)
        check_integer("retries", retries, 0)
        check_yes_or_no("wait_for_servers", wait_for_servers)
        check_yes_or_no("request_keys", request_keys)
        if follow_owners is not None:
            check_yes_or_no("follow_owners", follow_owners)
        if not isinstance(source, str | None):
            raise TypeError(f"source must be a text, not {type(source).__name__}")
        self._clock = clock or SystemClock()
        # A connection of its own kind ends in this process, which asks for no token.
        self._token = token_source("" if connect is not None and token is None else token, self._clock.monotonic)
        made_with_tls = tls_source(False if connect is not None else tls, self._clock.monotonic)
        given = servers_by_default() if servers is None else servers
        self._servers: ServerSource = server_source(given, self._clock.monotonic)
        self._enqueue_servers: ServerSource | None = None
        if enqueue_servers is None:
            enqueue_servers = enqueue_servers_by_default(servers)
        if enqueue_servers is not None:
            first = server_source(enqueue_servers, self._clock.monotonic)
            self._enqueue_servers = EnqueueServers(first, self._servers)
        self._source = source
        # How the sync client connects without a loop; where connections are made in a way of their own it has to use that.
        self._dial = None if connect else Dial(connect_timeout_ms / 1000, _MAX_FRAME_BYTES, made_with_tls)
        connect = connect or partial(
            connect_over_tcp,
            max_frame_bytes=_MAX_FRAME_BYTES,
            timeout_s=connect_timeout_ms / 1000,
            tls=made_with_tls,
        )
        self._engine_options = EngineOptions(timeout_ms / 1000, connect, connections, retries, self._clock.monotonic)
        self._wait_for_servers = wait_for_servers
        self._request_keys = request_keys
        self._follow_owners = follow_owners
        self._say_waiting: SayWaiting = log_waiting
        self._prepare()

    @property
    def call_timeout_s(self) -> float:
        """The bound on a call with all its tries, without a long poll's wait."""
        return self._engine_options.timeout_s

    def _prepare(self) -> None:
        """What the client needs beside its options."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {', '.join(map(str, self.servers))}>"

    @property
    def servers(self) -> tuple[ServerAddress, ...]:
        """The servers that it may talk to as of now, but for those of enqueues alone."""
        return self._servers.addresses()

    @property
    def source(self) -> str:
        """What it calls itself; unless said otherwise the host and the process, a forked one's own."""
        return default_source() if self._source is None else self._source

    def enqueue_call(
        self,
        queue: str,
        jobs: Sequence[values.Job | bytes],
        request_key: str | None = None,
        repeat: bool = False,
    ) -> ClientCall[values.Enqueued]:
        """An enqueue, for `submit`: with a key of its own if none is given, as this client was told."""
        check_jobs(jobs, "enqueue(queue, [job])")
        if request_key is None and self._request_keys:
            request_key = _calls.new_request_key(self._clock.now_ms())
        return _calls.enqueue(queue, jobs, request_key, repeat)

    def with_new_key(self, call: ClientCall[T]) -> ClientCall[T]:
        """The same enqueue as a new request, with a key that no other one has. From any thread."""
        return _calls.with_request_key(call, _calls.new_request_key(self._clock.now_ms()))

    def _new_engine(self, enqueue_servers: ServerSource | None = None) -> Engine:
        """For calls to `servers`, or to the servers for enqueues, which own no queues."""
        options = self._engine_options._replace(
            token=self._token,
            wait_for_servers=self._wait_for_servers,
            follow_owners=self._follow_owners if enqueue_servers is None else False,
            say_waiting=self._say_waiting,
        )
        return Engine(enqueue_servers or self._servers, self.source, options)


class _OpenClient:
    """What an open client has, for all that share it."""

    def __init__(self) -> None:
        self.engine: Engine | None = None
        self.enqueue_engine: Engine | None = None
        self.loop: asyncio.AbstractEventLoop | None = None


class AsyncClientBase(ClientBase):
    """Carries out calls on the event loop that it was opened on."""

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
        try:
            return await engine.run(
                call, polls=self._polls, wait_for_servers=self._wait_for_servers, token=self._token, alone=self._alone
            )
        except PinLaterError as error:
            raise short(error) from error.__cause__

    async def carry_out(self, call: ClientCall[T]) -> T:
        """Carries out a call that was made before."""
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
        """Carries out a call on the client's loop, from any thread, also that loop's own."""
        if self._opened.loop is None:
            raise ClientClosed("The client is not open: use `async with`, or open() it first")
        return asyncio.run_coroutine_threadsafe(self._run(call), self._opened.loop)


class SyncClientBase(ClientBase):
    """Carries out calls from any thread, long polls on an event loop in a thread of its own. Opens itself with the first call."""

    def _prepare(self) -> None:
        self._background = self._new_background()
        self._enqueue_background = (
            None if self._enqueue_servers is None else self._new_background(self._enqueue_servers)
        )

    def _new_background(self, enqueue_servers: ServerSource | None = None) -> Background:
        return Background(partial(self._new_engine, enqueue_servers), self._dial, self._clock.monotonic)

    def _backgrounds(self) -> Iterable[Background]:
        return filter(None, (self._background, self._enqueue_background))

    def open(self) -> Self:
        """Makes the client ready, also once more after `close`. Connects only with the first call."""
        for background in self._backgrounds():
            background.open()
        return self

    def close(self) -> None:
        """Closes every connection and ends the client's threads; calls under way fail. May be called twice."""
        for background in self._backgrounds():
            background.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, call: ClientCall[T]) -> T:
        return self.carry_out(call)

    def carry_out(self, call: ClientCall[T], meanwhile: Callable[[], None] | None = None) -> T:
        """Carries out a call and waits for it. `meanwhile` is called once while the server is at it, or not at all; it must not raise."""
        background = self._background
        if self._enqueue_background is not None and call.is_enqueue:
            background = self._enqueue_background
        try:
            return (background.running or background.start()).run(call, meanwhile)
        except PinLaterError as error:
            raise short(error) from error.__cause__

    def submit(self, call: ClientCall[T]) -> Future[T]:
        """Carries out a call without waiting for it."""
        background = self._background
        if self._enqueue_background is not None and call.is_enqueue:
            background = self._enqueue_background
        return (background.running or background.start()).submit(call)
