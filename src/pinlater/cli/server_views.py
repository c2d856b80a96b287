"""Which of the shards a server uses, according to the server itself: over Thrift, as clients ask, or on the pages of its HTTP port.

The shards themselves list their servers. Another server may have shards of the same names, so names alone prove nothing: a server's
report counts if the shards know the server.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any, NamedTuple

from pinlater.cli import exits, options
from pinlater.cli.shard_queries import Seen
from pinlater.client._token import token_source
from pinlater.client.cluster import ClusterServer
from pinlater.client.errors import PinLaterError
from pinlater.wire.wrong_port import THRIFT_PORT

_HEALTHY = "shard-healthy-"
_CHARS_MAX = 200  # characters of the text of a refusal


class ServerView(NamedTuple):
    """A server's report about these shards. `in_use`: by shard, or None if it can't tell; then `problem` gives the reason.

    `address`: the address that was asked. `name`: host and process, or `cluster_address` of one that has just started; over HTTP the host
    and the Thrift port. `cluster_address`: where the other servers reach it.
    """

    address: str
    name: str | None = None
    in_use: dict[str, bool] | None = None
    problem: str | None = None
    answered: bool = True
    cluster_address: str | None = None

    def of(self, shard: str) -> bool | None:
        """Returns whether the server uses that shard, or None if it does not report it."""
        return None if self.in_use is None else self.in_use.get(shard)


def ask_servers(servers: str, seen: Sequence[Seen], timeout_s: float) -> ServerView:
    """Returns the view of the first of these servers that uses the shards, or of the first one if none does. `servers`: as in --server."""

    async def ask() -> ServerView:
        views: list[ServerView] = []
        for address in options.client_for(servers, timeout_s).servers:
            views.append(await _ask(str(address), seen, timeout_s))
            if views[-1].in_use is not None:
                return views[-1]
        return views[0]

    return asyncio.run(ask())


async def _ask(address: str, seen: Sequence[Seen], timeout_s: float) -> ServerView:
    try:
        async with options.client_for(address, timeout_s) as client:
            status = await client.cluster()
    except PinLaterError as error:
        answered = exits.code_for(error) != exits.UNREACHABLE
        head = f"the server at {address} does not say what it uses" if answered else f"no server answers at {address}"
        return ServerView(
            address, problem=f"{head}: {error.message} {exits.hint_for(error)}".rstrip(), answered=answered
        )
    own = next((server for server in status.servers if server.answers), ClusterServer(status.address))
    name = own.name or own.address
    if not any(_is_listed(server, seen) for server in status.servers):
        return _of_other_shards(address, name)
    in_use = {shard.name: shard.in_reach for shard in status.shards}
    return ServerView(address, name, in_use, cluster_address=own.address)


def _is_listed(server: ClusterServer, seen: Sequence[Seen]) -> bool:
    """Returns whether one of the shards has this server, with its process and its address, in the slot that it has. A server that has just
    started does not know its own address there yet."""
    return any(
        (member.slot, member.name) == (server.slots.get(shard.place.name), server.name)
        and server.address in ("", member.address)
        for shard in seen
        if shard.look is not None
        for member in shard.look.members
    )


def ask_pages(address: str, seen: Sequence[Seen], timeout_s: float) -> ServerView:
    """The view of the server with this HTTP port."""
    try:
        info = _page(address, "server_info", timeout_s)
        gauges = _page(address, "stats.json", timeout_s)["gauges"]
        members = {(member["name"], member["started_at_ms"]) for member in info["members"]}
    except urllib.error.HTTPError as error:
        return ServerView(address, problem=_refusal(address, error))
    except (OSError, http.client.HTTPException) as error:
        return ServerView(
            address,
            problem=f"no server answers at {address}: {getattr(error, 'reason', None) or error}",
            answered=False,
        )
    except (ValueError, KeyError, TypeError):
        return ServerView(address, problem=f"what answers at {address} is not a PinLater server")
    name = info.get("server")
    known = {(member.name, member.started_at_ms) for shard in seen if shard.look for member in shard.look.members}
    if not members & known:
        return _of_other_shards(address, name)
    health = {key.removeprefix(_HEALTHY): value > 0 for key, value in gauges.items() if key.startswith(_HEALTHY)}
    return ServerView(address, name, health, cluster_address=info.get("cluster_address"))


def _of_other_shards(address: str, name: str | None) -> ServerView:
    return ServerView(address, name, problem=f"the server at {address} ({name}) does not serve these shards")


def _refusal(address: str, error: urllib.error.HTTPError) -> str:
    """Returns the server's own report, and what to do if it is the port for clients."""
    with error:
        text = " ".join(error.read(_CHARS_MAX).decode(errors="replace").split()) or error.reason
    hint = f" (`--server {address}` asks there)" if text.startswith(THRIFT_PORT) else ""
    return f"{address} answers {error.code}: {text}{hint}"


def _page(address: str, page: str, timeout_s: float) -> dict[str, Any]:
    token = token_source(None, time.monotonic)()
    request = urllib.request.Request(f"http://{address}/{page}")
    if token:
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=timeout_s) as answer:  # noqa: S310 - its scheme is http
        found: dict[str, Any] = json.load(answer)
    return found
