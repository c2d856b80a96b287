"""Asks the servers of a client, and by them all others of their shards, what they know of workers."""

from __future__ import annotations

import asyncio

from pinlater.client._servers import ServerAddress
from pinlater.client.async_client import AsyncClient
from pinlater.client.errors import PinLaterError, ServerUnreachable, UnknownMethod
from pinlater.client.worker_judgement import misses_servers
from pinlater.client.workers import ServerReply


async def worker_replies(client: AsyncClient, timeout_s: float) -> list[ServerReply]:
    """A reply for each address of the client, and perhaps one more: several processes may have one address, and a server may be reached by
    the others only.

    Raises the first error if no server answers, unless the servers are too old to know workers.
    """
    addresses = client.servers
    if len(addresses) == 1:
        found = [await _ask(client, addresses[0], timeout_s, everywhere=True)]
    else:
        found = await asyncio.gather(*(_ask_alone(client, address, timeout_s) for address in addresses))
    errors = [error for _, error in found if error is not None]
    if len(errors) == len(found) and not isinstance(errors[0], UnknownMethod):
        raise errors[0]
    replies = [reply for reply, _ in found]
    if len(addresses) > 1 and misses_servers(replies):
        answered = next(address for address, (_, error) in zip(addresses, found, strict=True) if error is None)
        more, error = await _ask_alone(client, answered, timeout_s, everywhere=True)
        replies += [more] if error is None else []
    return replies


async def _ask_alone(
    client: AsyncClient, address: ServerAddress, timeout_s: float, *, everywhere: bool = False
) -> tuple[ServerReply, PinLaterError | None]:
    async with client.of_server(address) as one:
        return await _ask(one, address, timeout_s, everywhere=everywhere)


async def _ask(
    client: AsyncClient, address: ServerAddress, timeout_s: float, *, everywhere: bool
) -> tuple[ServerReply, PinLaterError | None]:
    try:
        async with asyncio.timeout(timeout_s):
            return ServerReply(str(address), await client.workers(everywhere=everywhere)), None
    except PinLaterError as error:
        return ServerReply(str(address), (), error.message), error
    except TimeoutError:
        late = ServerUnreachable(f"no answer within {timeout_s:g} s")
        return ServerReply(str(address), (), late.message), late
