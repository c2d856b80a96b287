"""`pinlater cluster ...`: which servers share the shards, and which of them owns what."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from pinlater.cli import exits, notes, options, output
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
from pinlater.client import AsyncClient, ClusterShard, FrontProcess, ShardMemory
from pinlater.client.errors import PinLaterError
from pinlater.domain.clock import SystemClock
from pinlater.domain.queue import PartitionNumber
from pinlater.domain.slices import slice_of

_NO_OWNER = "none"


def status(
    queue: Annotated[
        str | None,
        typer.Argument(
            metavar="QUEUE",
            show_default=False,
            help="Also show the owner of this queue.",
            autocompletion=options.complete_queue,
        ),
    ] = None,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """Show which servers share the shards, and who owns what. Asks each server of --server which servers it knows, their versions and
    client connections, how many slices of which shards they own, how often slices moved, and how many requests it forwarded to each and
    took from each. Shows the due jobs that servers on MySQL remember, the front processes of a server with several processes on
    SQLite, and the queues with several partitions. Warns if the servers do not agree, if one can't send calls to another, or if ZooKeeper
    does not answer one. Exit code 3 if a server does not answer.

    Example: pinlater cluster status emails --server a:9010,b:9010
    """

    async def ask(client: AsyncClient) -> Sequence[ServerAnswer]:
        found = await asyncio.gather(*(_ask(str(address), timeout) for address in client.servers))
        errors = [error for _, error in found if error is not None]
        if len(errors) == len(found):
            raise errors[0]
        if queue is not None:
            await say_if_missing(client, queue)
        return [answer for answer, _ in found]

    answers = options.ask(server, timeout, ask)
    if json:
        output.print_json(as_json(answers, queue))
    else:
        _print_servers(servers_of(answers))
        output.print_lines([""])
        _print_shards(shards_of(answers))
        _print_memories(memories_of(answers))
        _print_fronts(fronts_of(answers))
        _print_partitions(partitions_of(answers))
        if queue is not None:
            output.print_lines([""])
            rows = [
                (queue, shard, slice_of(queue), owner or _NO_OWNER)
                for shard, owner in owners_of_queue(queue, answers).items()
            ]
            output.print_blocks(["queue", "shard", "slice", "owner"], rows, head="queue ")
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


def _print_servers(servers: Sequence[Server]) -> None:
    columns = ["server", "asked as", "version", "up", "connections", "owns", "moves", "heard", "forwarded", "taken"]
    output.print_blocks(columns, [_server_row(server) for server in servers], head="server ")


def _server_row(server: Server) -> output.Row:
    heard = None if server.heard is None else output.age(server.heard_ms) if server.heard else False
    asked = server.asked or None
    facts = server.facts
    up_ms = None if facts.started_at_ms is None else max(0, SystemClock().now_ms() - facts.started_at_ms)
    said = (facts.version or None, output.age(up_ms), facts.connections)
    items = (server.items_sent, server.items_taken)
    return (server.address or server.name, asked, *said, server.owns or None, server.moves, heard, *items)


def _print_shards(shards: Sequence[ClusterShard]) -> None:
    columns = ["shard", "in reach", "version", "moving", "owners"]
    rows = [
        (shard.name, shard.in_reach, shard.version, len(shard.misplaced), _owners(shard.owners)) for shard in shards
    ]
    output.print_blocks(columns, rows, head="shard ")


def _print_memories(memories: Mapping[str, ShardMemory]) -> None:
    if memories:
        output.print_lines([""])
        columns = ["shard", "remembered jobs", "size", "claims from memory", "stale claims"]
        rows = [
            (name, memory.jobs, output.size(memory.size_bytes), memory.claims, memory.stale_claims)
            for name, memory in memories.items()
        ]
        output.print_blocks(columns, rows, head="shard ")


def _print_partitions(partitions: Mapping[str, PartitionNumber]) -> None:
    if partitions:
        output.print_lines([""])
        now_ms = SystemClock().now_ms()
        rows = [
            (
                queue,
                number.number,
                "servers" if number.automatic else "operator",
                None if number.since_ms is None else output.age(max(0, now_ms - number.since_ms)),
            )
            for queue, number in partitions.items()
        ]
        output.print_blocks(["queue", "partitions", "chosen by", "for"], rows, head="queue ")


def _print_fronts(fronts: Sequence[tuple[str, FrontProcess]]) -> None:
    if fronts:
        output.print_lines([""])
        columns = ["front process", "server", "taken", "under way", "waiting", "unread bytes"]
        rows = [(front.number, server, *front[1:]) for server, front in fronts]
        output.print_blocks(columns, rows, head="front process ")


def _owners(by_slice: Sequence[str]) -> Mapping[str, int]:
    """Returns each owner with the number of its slices, the largest first."""
    counted = sorted(Counter(by_slice).items(), key=lambda pair: (-pair[1], pair[0]))
    return {owner or _NO_OWNER: slices for owner, slices in counted}
