"""Asks each server what it knows of workers: those of a client, and the others of their shards."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pinlater.client import _calls
from pinlater.client._owners import SERVERS_MAX
from pinlater.client._servers import ServerAddress, parse_address
from pinlater.client.async_client import AsyncClient
from pinlater.client.errors import PinLaterError, ServerUnreachable, UnknownMethod
from pinlater.domain.workers import ServerReply

_OTHER_S = 2.0


async def worker_replies(client: AsyncClient, timeout_s: float) -> list[ServerReply]:
    """A reply for each address of the client, and of each other server that was reached.

    Raises the first error if no server answers, unless the servers are too old to know workers.
    """
    addresses = client.servers
    if len(addresses) == 1:
        found = [await _ask(client, addresses[0], timeout_s)]
    else:
        found = await asyncio.gather(*(_ask_alone(client, address, timeout_s) for address in addresses))
    errors = [error for _, error in found if error is not None]
    if len(errors) == len(found) and not isinstance(errors[0], UnknownMethod):
        raise errors[0]
    replies = [reply for reply, _ in found]
    return [*replies, *await _others(client, replies)]


async def _ask_alone(
    client: AsyncClient, address: ServerAddress, timeout_s: float
) -> tuple[ServerReply, PinLaterError | None]:
    async with client.of_server(address) as one:
        return await _ask(one, address, timeout_s)


async def _ask(
    client: AsyncClient, address: ServerAddress, timeout_s: float
) -> tuple[ServerReply, PinLaterError | None]:
    try:
        async with asyncio.timeout(timeout_s):
            return ServerReply(str(address), await client.workers()), None
    except PinLaterError as error:
        return ServerReply(str(address), None, error.message), error
    except TimeoutError:
        late = ServerUnreachable(f"no answer within {timeout_s:g} s")
        return ServerReply(str(address), None, late.message), late


async def _others(client: AsyncClient, replies: Sequence[ServerReply]) -> list[ServerReply]:
    """The servers of the shards that are not among the client's, where those say that they are. One that is not reached is left out: the
    answers say how many servers there are."""
    known = {reply.found.server_id: reply.found.servers for reply in replies if reply.found is not None}
    if len(known) >= max(known.values(), default=0):
        return []
    try:
        owners = await client.carry_out(_calls.queue_owners())
    except PinLaterError:
        return []
    others = [(each.id, each.address) for each in owners.servers if each.address and each.id not in known]
    found = await asyncio.gather(*(_ask_other(client, *other) for other in others[:SERVERS_MAX]))
    return [reply for reply in found if reply is not None]


async def _ask_other(client: AsyncClient, server_id: str, address: str) -> ServerReply | None:
    """The server gets a token only after it has said its id: another one may have the address by now."""
    try:
        async with asyncio.timeout(_OTHER_S), client.of_server(parse_address(address)) as one:
            if (await one.with_token("").server_info()).server_id != server_id:
                return None
            return ServerReply(address, await one.workers())
    except (PinLaterError, TimeoutError, ValueError):
        return None
