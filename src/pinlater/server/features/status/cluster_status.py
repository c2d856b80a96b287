"""What a server says of the servers of its shards, and of who owns what. Made of what the server knows already; no I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from math import isinf

from pinlater.domain.calls import (
    ClusterServer,
    ClusterShard,
    ClusterStatus,
    ForwardedCalls,
    ServerFacts,
    addresses_by_name,
)
from pinlater.domain.slices import SLICES
from pinlater.server.cluster.forwarding.forwarding import Forwarding
from pinlater.server.cluster.forwarding.messages import CallKind
from pinlater.server.cluster.forwarding.traffic import Traffic, TrafficByServer
from pinlater.server.cluster.ownership.ownership import Ownership
from pinlater.server.sharding.shards import ShardLanes, Shards
from pinlater.server.storage.values import NO_OWNER, Member

# The most of each that an answer names. Each server has a slot on each shard, so both together bound its size.
SERVERS_MAX = SHARDS_MAX = 200


def status_alone(shards: Shards, address: str) -> ClusterStatus:
    """Of a server that has its shards for itself."""
    listed = list(islice(shards, SHARDS_MAX))
    slots = {shard.name: shard.unguarded.slot for shard in listed}
    return ClusterStatus(
        address,
        [ClusterServer(address, slots=slots, answers=True, heard=True, usable=True)],
        [ClusterShard(shard.name, shard.healthy, 0, [address] * SLICES) for shard in listed],
        incomplete=len(shards) > SHARDS_MAX,
    )


def status_of(
    shards: Shards,
    members: Mapping[ShardLanes, Sequence[Member]],
    ownership: Ownership,
    forwarding: Forwarding,
    taken: TrafficByServer,
    was_heard_s: Callable[[str], float],
) -> ClusterStatus:
    """Of a server among others. `taken`: what it took from these; `was_heard_s(address)`: when it heard a server last, also over a
    connection that has ended."""
    listed = [
        ClusterShard(
            shard.name,
            shard.healthy,
            ownership.version(shard.name),
            ownership.owners(shard.name),
            ownership.misplaced(shard.name),
        )
        for shard in islice(shards, SHARDS_MAX)
    ]
    known = _servers(members, {owner for shard in listed for owner in shard.owners}, ownership.address)
    now_s = shards.clock.monotonic()

    def completed(server: ClusterServer) -> ClusterServer:
        address = server.address
        connection = forwarding.connections.get(address)
        answers = address == ownership.address
        silent_s = now_s - was_heard_s(address)
        return server._replace(
            answers=answers,
            heard=answers or ownership.hears(address),
            heard_ms=None if answers or isinf(silent_s) else max(0, round(silent_s * 1000)),
            usable=answers or (connection is not None and connection.usable),
            unanswered_calls=0 if connection is None else connection.unanswered,
            items_sent=forwarding.sent.items(address),
            items_taken=taken.items(address),
            facts=server.facts if connection is None or connection.told is None else connection.told.facts,
        )

    return ClusterStatus(
        ownership.address,
        [completed(server) for server in known[:SERVERS_MAX]],
        listed,
        _by_kind(forwarding.sent.whole, taken.whole),
        ownership.moves,
        forwarding.sent.whole.lost,
        len(shards) > SHARDS_MAX or len(known) > SERVERS_MAX,
    )


def _servers(
    members: Mapping[ShardLanes, Sequence[Member]], owners: Iterable[str], own_address: str
) -> Sequence[ClusterServer]:
    """This server, then the others by address. One that has an address on no shard is starting or stopping."""
    rows = [(shard.name, member) for shard, there in islice(members.items(), SHARDS_MAX) for member in there]
    addresses = addresses_by_name((member.name, member.address) for _, member in rows)
    found: dict[str, dict[str, Member]] = {}
    for shard_name, member in rows:
        address = member.address or addresses.get(member.name, "")
        known = found.setdefault(address or member.name, {})
        if member.address or shard_name not in known:
            known[shard_name] = member._replace(address=address)
    missing = {own_address, *owners} - found.keys() - {NO_OWNER}
    servers = [_server(by_shard) for by_shard in found.values()] + [ClusterServer(address) for address in missing]
    return sorted(servers, key=lambda server: (server.address != own_address, server.address, server.name))


def _server(by_shard: Mapping[str, Member]) -> ClusterServer:
    """A slot of an earlier server at the same address, which ended without giving it up, is left out. The server started when it got the
    oldest of its slots, as far as the shards know."""
    newest = max(by_shard.values(), key=lambda member: member.started_at_ms)
    own = {shard: member for shard, member in by_shard.items() if member.name == newest.name}
    facts = ServerFacts(started_at_ms=min(member.started_at_ms for member in own.values()))
    slots = {shard: member.slot for shard, member in own.items()}
    return ClusterServer(newest.address, newest.name, slots, facts=facts)


def _by_kind(sent: Traffic, taken: Traffic) -> Sequence[ForwardedCalls]:
    return [
        ForwardedCalls(kind.name.lower(), sent.calls[kind], sent.items[kind], taken.calls[kind], taken.items[kind])
        for kind in CallKind
    ]
