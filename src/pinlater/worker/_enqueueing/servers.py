"""The servers of a worker, as it was given them, and the clients that it opens for them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from os import PathLike
from typing import NamedTuple

from pinlater.client._servers import servers_by_default
from pinlater.client._tls import Tls
from pinlater.client.async_client import AsyncClient
from pinlater.client.sync_client import Client
from pinlater.domain.clock import Clock

Addresses = str | PathLike[str] | Sequence[str] | None
NewClient = Callable[[], AsyncClient]
WHERE_FROM = (
    "A worker takes its token from Worker(token=...), PINLATER_TOKEN, or the file that PINLATER_TOKEN_FILE names."
)


class WorkerServers(NamedTuple):
    """`given`: addresses, a client, or what makes one. The others are for addresses, as for `AsyncClient`."""

    given: AsyncClient | Client | Addresses | NewClient
    enqueue_servers: Addresses = None
    source: str | None = None
    tls: Tls | bool | None = None
    token: str | PathLike[str] | None = None

    def __repr__(self) -> str:
        """The servers as they were given, without the token."""
        if isinstance(self.given, AsyncClient | Client):
            return ", ".join(map(str, self.given.servers))
        if callable(self.given):
            return "a service of pinlater.testing"
        given = servers_by_default() if self.given is None else self.given
        return str(given) if isinstance(given, str | PathLike) else ", ".join(given)

    def instead(self, given: AsyncClient | Client | Addresses) -> WorkerServers:
        """Other servers, for jobs and enqueues alike, with the same source and access."""
        return self._replace(given=given, enqueue_servers=None)

    async def open(self, stack: contextlib.AsyncExitStack) -> AsyncClient:
        """An open client for a run. The stack closes one that is opened here.

        The caller's client may have other users, so the run gets its own view of it: hanging up ends only this run's long polls.
        """
        given, enqueue_servers, source, tls, token = self
        if isinstance(given, AsyncClient):
            return given.sharing(wait_for_servers=False)  # the worker tries again itself, and says so
        assert not isinstance(given, Client)  # noqa: S101 - `check_client` refuses it
        if callable(given):
            return await stack.enter_async_context(given())
        made = AsyncClient(
            given, enqueue_servers=enqueue_servers, source=source, wait_for_servers=False, tls=tls, token=token
        )
        return await stack.enter_async_context(made)

    def sync_client(self, clock: Clock) -> Client:
        """A client for enqueues. Connects with its first call."""
        given, enqueue_servers, source, tls, token = self
        assert not isinstance(given, AsyncClient | Client)  # noqa: S101 - these are used as they are
        assert not callable(given)  # noqa: S101 - tasks enqueue through the client of the service
        return Client(given, enqueue_servers=enqueue_servers, source=source, tls=tls, token=token, clock=clock)

    @property
    def for_children(self) -> Addresses:
        """What a child process can be told of them."""
        given = self.given
        assert not callable(given)  # noqa: S101 - a service runs tasks in threads
        return [str(address) for address in given.servers] if isinstance(given, AsyncClient | Client) else given
