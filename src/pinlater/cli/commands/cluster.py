"""`pinlater cluster ...`: which servers share the shards, and which of them owns what."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from pinlater.cli import exits, notes, options, output
from pinlater.cli.call import ServerCall
from pinlater.cli.cluster_answers import (
    Server,
    ServerAnswer,
    as_json,
    fronts_of,
    memories_of,
    owners_of_queue,
    partitions_of,
    problems,
    servers_of,
    shards_of,
)
from pinlater.cli.queue_notes import say_if_missing
from pinlater.client import AsyncClient, ClusterShard
from pinlater.client.errors import PinLaterError
from pinlater.domain.clock import SystemClock
from pinlater.domain.slices import slice_of

_NO_OWNER = "none"


def status(
    call: ServerCall,
    queue: Annotated[
        str | None,
        typer.Argument(
            metavar="QUEUE",
            show_default=False,
            help="Also show the owner of this queue.",
            autocompletion=options.complete_queue,
        ),
    ] = None,
) -> None:
    """Show which servers share the shards, and who owns what. Asks each server of --server which servers it knows, their versions and
    client connections, how many slices of which shards they own, how often slices moved, and how many requests it forwarded to each and
    took from each. Shows the due jobs that servers on MySQL remember, the front processes of a server with several processes on
    SQLite, and the queues with several partitions. Warns if the servers do not agree, if one can't send calls to another, or if ZooKeeper
    does not answer one. Exit code 3 if a server does not answer.

    Example: pinlater cluster status emails --server a:9010,b:9010
    """

    async def ask(client: AsyncClient) -> Sequence[ServerAnswer]:
        found = await asyncio.gather(*(_ask(str(address), call.timeout) for address in client.servers))
        errors = [error for _, error in found if error is not None]
        if len(errors) == len(found):
            raise errors[0]
        if queue is not None:
            await say_if_missing(client, queue)
        return [answer for answer, _ in found]

    answers = call.ask(ask)
    call.answer(as_json(answers, queue), lambda: _print(answers, queue))
    for problem in problems(answers):
        notes.warn(problem)
    if any(answer.status is None for answer in answers):
        raise typer.Exit(exits.UNREACHABLE)


async def _ask(address: str, timeout_s: float) -> tuple[ServerAnswer, PinLaterError | None]:
    try:
        async with options.client_for(address, timeout_s) as client:
            return ServerAnswer(address, await client.cluster()), None
    except PinLaterError as error:
        return ServerAnswer(address, None, error.message), error


def _print(answers: Sequence[ServerAnswer], queue: str | None) -> None:
    """Prints a table of servers and one of shards, and those of other things if there are any."""
    output.print_blocks(_SERVERS, servers_of(answers), head="server ")
    output.print_lines([""])
    output.print_blocks(_SHARDS, shards_of(answers), head="shard ")
    memories = [
        (name, memory.jobs, output.size(memory.size_bytes), memory.claims, memory.stale_claims)
        for name, memory in memories_of(answers).items()
    ]
    _print_more(["shard", "remembered jobs", "size", "claims from memory", "stale claims"], memories)
    fronts = [(front.number, server, *front[1:]) for server, front in fronts_of(answers)]
    _print_more(["front process", "server", "taken", "under way", "waiting", "unread bytes"], fronts)
    partitions = [
        (name, number.number, "servers" if number.automatic else "operator", _age(number.since_ms))
        for name, number in partitions_of(answers).items()
    ]
    _print_more(["queue", "partitions", "chosen by", "for"], partitions)
    if queue is not None:
        owners = owners_of_queue(queue, answers).items()
        rows = [(queue, shard, slice_of(queue), owner or _NO_OWNER) for shard, owner in owners]
        _print_more(["queue", "shard", "slice", "owner"], rows, always=True)


def _print_more(columns: Sequence[str], rows: Sequence[output.Row], *, always: bool = False) -> None:
    name, *_ = columns
    if rows or always:
        output.print_lines([""])
        output.print_rows(columns, rows, head=f"{name} ")


def _heard(server: Server) -> str | bool | None:
    if server.heard is None:
        return None
    return output.age(server.heard_ms) if server.heard else False


def _age(since_ms: int | None) -> str | None:
    return None if since_ms is None else output.age(max(0, SystemClock().now_ms() - since_ms))


def _slices_of(by_slice: Sequence[str]) -> Mapping[str, int]:
    """Returns each owner with the number of its slices, the largest first."""
    counted = sorted(Counter(by_slice).items(), key=lambda pair: (-pair[1], pair[0]))
    return {owner or _NO_OWNER: slices for owner, slices in counted}


_SERVERS: output.Columns[Server] = {
    "server": lambda server: server.address or server.name,
    "asked as": lambda server: server.asked or None,
    "version": lambda server: server.facts.version or None,
    "up": lambda server: _age(server.facts.started_at_ms),
    "connections": lambda server: server.facts.connections,
    "owns": lambda server: server.owns or None,
    "moves": lambda server: server.moves,
    "heard": _heard,
    "forwarded": lambda server: server.items_sent,
    "taken": lambda server: server.items_taken,
}
_SHARDS: output.Columns[ClusterShard] = {
    "shard": lambda shard: shard.name,
    "in reach": lambda shard: shard.in_reach,
    "version": lambda shard: shard.version,
    "moving": lambda shard: len(shard.misplaced),
    "owners": lambda shard: _slices_of(shard.owners),
}
