"""Reports the servers of the shards and their slices, from what the server already knows. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, islice
from math import isinf

from pinlater.domain.servers import ServerFacts, addresses_by_name
from pinlater.domain.slices import SLICES
from pinlater.server.cluster.forwarding.forwarding import Forwarding
from pinlater.server.cluster.forwarding.messages import CallKind
from pinlater.server.cluster.forwarding.traffic import Traffic, TrafficByServer
from pinlater.server.cluster.ownership.ownership import Ownership
from pinlater.server.sharding.shards import ShardLanes, Shards
from pinlater.server.storage.values import NO_OWNER, Member
from pinlater.wire.generated.structs import ClusterServer, ClusterShard, ClusterStatus, ForwardedCalls

# The most of each that an answer contains. Each server has a slot on each shard, so both bounds together limit its size.
SERVERS_MAX = SHARDS_MAX = 200
NO_PLACE = -1
"""Stands for an owner if there is none, or one that is not listed."""
_NO_SLOTS: Mapping[str, int] = {}


def status_alone(shards: Shards, address: str) -> ClusterStatus:
    """Returns the status of a server that has its shards for itself."""
    listed = list(islice(shards, SHARDS_MAX))
    server = _server(address, slots={shard.name: shard.unguarded.slot for shard in listed})
    server.answers = server.heard = server.usable = True
    own = [0 if address else NO_PLACE] * SLICES
    return ClusterStatus(
        address,
        [server],
        [ClusterShard(shard.name, shard.healthy, 0, own, []) for shard in listed],
        [],
        moves=0,
        answers_lost=0,
        incomplete=len(shards) > SHARDS_MAX or None,
    )


def status_of(
    shards: Shards,
    members: Mapping[ShardLanes, Sequence[Member]],
    ownership: Ownership,
    forwarding: Forwarding,
    taken: TrafficByServer,
    was_heard_s: Callable[[str], float],
) -> ClusterStatus:
    """Returns the status of a server among others.

    `taken`: the calls that it took from these.
    `was_heard_s(address)`: when it last heard a server, also over a connection that has ended.
    """
    listed = list(islice(shards, SHARDS_MAX))
    owners = {shard.name: ownership.owners(shard.name) for shard in listed}
    known = _servers(members, chain.from_iterable(owners.values()), ownership.address)
    servers = known[:SERVERS_MAX]
    now_s = shards.clock.monotonic()
    for server in servers:
        address = server.address
        connection = forwarding.connections.get(address)
        silent_s = now_s - was_heard_s(address)
        server.answers = address == ownership.address
        server.heard = server.answers or ownership.hears(address)
        server.heard_ms = None if server.answers or isinf(silent_s) else max(0, round(silent_s * 1000))
        server.usable = server.answers or (connection is not None and connection.usable)
        server.unanswered_calls = 0 if connection is None else connection.unanswered
        server.items_sent = forwarding.sent.items(address)
        server.items_taken = taken.items(address)
        if connection is not None and connection.told is not None:
            put_facts(server, connection.told.facts)
    places = {server.address: place for place, server in enumerate(servers) if server.address}
    return ClusterStatus(
        ownership.address,
        servers,
        [
            ClusterShard(
                shard.name,
                shard.healthy,
                ownership.version(shard.name),
                [places.get(owner, NO_PLACE) for owner in owners[shard.name]],
                ownership.misplaced(shard.name),
            )
            for shard in listed
        ],
        _by_kind(forwarding.sent.whole, taken.whole),
        ownership.moves,
        forwarding.sent.whole.lost,
        len(shards) > SHARDS_MAX or len(known) > SERVERS_MAX or None,
    )


def put_facts(server: ClusterServer, facts: ServerFacts) -> None:
    """Adds the facts that a server reports about itself."""
    server.version = facts.version or None
    server.started_at_ms, server.connections, server.loop_lag_ms = facts[1:]


def members_of(status: ClusterStatus) -> int:
    """Returns how many servers share the shards. A server without an address is starting or stopping."""
    return sum(server.address != "" for server in status.servers)


def _servers(
    members: Mapping[ShardLanes, Sequence[Member]], owners: Iterable[str], own_address: str
) -> Sequence[ClusterServer]:
    """This server, then the others by address. A server that has an address on no shard is starting or stopping."""
    rows = [(shard.name, member) for shard, there in islice(members.items(), SHARDS_MAX) for member in there]
    addresses = addresses_by_name((member.name, member.address) for _, member in rows)
    found: dict[str, dict[str, Member]] = {}
    for shard_name, member in rows:
        address = member.address or addresses.get(member.name, "")
        known = found.setdefault(address or member.name, {})
        if member.address or shard_name not in known:
            known[shard_name] = member._replace(address=address)
    missing = {own_address, *owners} - found.keys() - {NO_OWNER}
    servers = [_member(by_shard) for by_shard in found.values()] + [_server(address) for address in missing]
    return sorted(servers, key=lambda server: (server.address != own_address, server.address, server.name or ""))


def _member(by_shard: Mapping[str, Member]) -> ClusterServer:
    """Leaves out the slot of an earlier server at the same address, which ended without giving it up.

    The server started when it got the oldest of its slots, as far as the shards know.
    """
    newest = max(by_shard.values(), key=lambda member: member.started_at_ms)
    own = {shard: member for shard, member in by_shard.items() if member.name == newest.name}
    server = _server(newest.address, newest.name, {shard: member.slot for shard, member in own.items()})
    server.started_at_ms = min(member.started_at_ms for member in own.values())
    return server


def _server(address: str, name: str = "", slots: Mapping[str, int] = _NO_SLOTS) -> ClusterServer:
    """Returns the status of a server that was never heard."""
    return ClusterServer(address, name or None, slots, False, False, None, False, 0, 0, 0)


def _by_kind(sent: Traffic, taken: Traffic) -> Sequence[ForwardedCalls]:
    return [
        ForwardedCalls(kind.name.lower(), sent.calls[kind], sent.items[kind], taken.calls[kind], taken.items[kind])
        for kind in CallKind
    ]
