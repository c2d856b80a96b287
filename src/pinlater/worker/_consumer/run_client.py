"""The client of a worker's run, from what the worker was given: a client, one to be made, or the addresses of servers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from os import PathLike

from pinlater.client._servers import servers_by_default
from pinlater.client.async_client import AsyncClient
from pinlater.worker._enqueueing.server_access import ServerAccess

Servers = AsyncClient | str | PathLike[str] | Sequence[str] | None
NewClient = Callable[[], AsyncClient]


async def opened(
    stack: contextlib.AsyncExitStack,
    given: Servers | NewClient,
    source: str | None,
    access: ServerAccess,
    enqueue_servers: str | PathLike[str] | Sequence[str] | None = None,
) -> AsyncClient:
    """An open client, which calls itself `source`. The stack closes one that is opened here.

    The caller's client may have other users, so the run gets its own view of it: hanging up ends only this run's long polls.
    """
    if isinstance(given, AsyncClient):
        return given.sharing(wait_for_servers=False)  # the worker tries again itself, and says so
    if callable(given):
        return await stack.enter_async_context(given())
    made = AsyncClient(
        given,
        enqueue_servers=enqueue_servers,
        source=source,
        wait_for_servers=False,
        tls=access.tls,
        token=access.token,
    )
    return await stack.enter_async_context(made)


def servers_of(given: Servers) -> str | PathLike[str] | Sequence[str] | None:
    """What another process can be told of them."""
    return [str(address) for address in given.servers] if isinstance(given, AsyncClient) else given


def servers_text(client: Servers | NewClient) -> str:
    """The servers as they were given."""
    if isinstance(client, AsyncClient):
        return ", ".join(map(str, client.servers))
    if callable(client):
        return "a service of pinlater.testing"
    given = servers_by_default() if client is None else client
    return str(given) if isinstance(given, str | PathLike) else ", ".join(given)
