"""Plans the owners of slices: a pure function of the present servers and the present owners.

Equal shares, with the fewest moves that these need, and each server in as few shards as possible: a server that owns a little of every
shard makes small batches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from pinlater.server.storage.values import NO_OWNER


class ShardView(NamedTuple):
    """One shard. `owners`: its slices' servers, `NO_OWNER` for none; `servers`: those that use the shard now and may own slices of it."""

    owners: Sequence[str]
    servers: Collection[str]


def plan(shards: Mapping[str, ShardView], *, balance: bool = True) -> dict[str, list[str]]:
    """The owners of each shard's slices, by shard. A slice of a shard that no server uses has none.

    The result is the same for every server that sees the same state. A plan of its own result changes nothing. Without `balance` a slice
    moves only if its owner does not use the shard: then no two servers revert each other's changes, even if they see different shards.
    """
    planned = {
        name: [owner if owner in view.servers else NO_OWNER for owner in view.owners]
        for name, view in sorted(shards.items())
    }
    shares = _shares(shards, planned)
    if balance:
        for server, share in shares.items():
            _give_up(server, share, planned)
    _hand_out(shards, shares, planned)
    return planned


def gathered(owners: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The same owners, with the shares of each shard that they would have if all of them had joined at once.

    Plans of small changes leave a server some slices of each of several shards, and shards with several owners. `owners`: by shard, of
    shards that the same servers use, as `plan` leaves them. Returns the owners unchanged if no shard would have fewer owners; a plan of
    the result changes nothing.
    """
    servers = sorted({owner for by_slice in owners.values() for owner in by_slice} - {NO_OWNER})
    target = plan({name: ShardView([NO_OWNER] * len(by_slice), servers) for name, by_slice in owners.items()})
    if not _has_fewer_owners(target, owners):
        return {name: list(by_slice) for name, by_slice in owners.items()}
    has, wanted = _slices_by_server(owners), _slices_by_server(target)
    parts = {server: wanted[part] for server, part in _parts(servers, has, wanted).items()}
    result = {}
    for name, by_slice in sorted(owners.items()):
        left = Counter({server: parts[server][name] for server in servers})
        kept = []
        for owner in by_slice:
            kept.append(owner if left[owner] > 0 else NO_OWNER)
            left[owner] -= left[owner] > 0
        others = iter(left.elements())
        result[name] = [owner if owner != NO_OWNER else next(others) for owner in kept]
    return result


def _has_fewer_owners(target: Mapping[str, Sequence[str]], owners: Mapping[str, Sequence[str]]) -> bool:
    """Returns whether the largest number of owners of a shard is smaller, or the sum over all shards."""
    wanted, found = ([len(set(by_slice)) for by_slice in each.values()] for each in (target, owners))
    return max(wanted, default=0) < max(found, default=0) or sum(wanted) < sum(found)


def _slices_by_server(owners: Mapping[str, Sequence[str]]) -> Mapping[str, Counter[str]]:
    """Returns how many slices of each shard each server owns."""
    slices: dict[str, Counter[str]] = {}
    for name, by_slice in owners.items():
        for owner in by_slice:
            slices.setdefault(owner, Counter())[name] += 1
    return slices


def _parts(
    servers: Sequence[str], has: Mapping[str, Counter[str]], wanted: Mapping[str, Counter[str]]
) -> Mapping[str, str]:
    """Assigns the parts of the target to servers, beginning with the pair that has the most slices in common."""
    pairs = sorted((-(has[server] & wanted[part]).total(), server, part) for server in servers for part in servers)
    parts: dict[str, str] = {}
    for _, server, part in pairs:
        if server not in parts and part not in parts.values():
            parts[server] = part
    return parts


def _shares(shards: Mapping[str, ShardView], planned: Mapping[str, list[str]]) -> dict[str, int]:
    """Returns how many slices each server may own. If shares differ by one, the servers that own the most get the larger ones."""
    servers = {server for view in shards.values() for server in view.servers}
    if not servers:
        return {}
    owned = Counter(owner for owners in planned.values() for owner in owners)
    total = sum(len(view.owners) for view in shards.values() if view.servers)
    share, larger = divmod(total, len(servers))
    ordered = sorted(servers, key=lambda server: (-owned[server], server))
    return {server: share + (place < larger) for place, server in enumerate(ordered)}


def _give_up(server: str, share: int, planned: Mapping[str, list[str]]) -> None:
    """Takes from each server what it owns beyond its share, beginning with the shards in which it owns the least."""
    by_shard = {name: owners.count(server) for name, owners in planned.items() if server in owners}
    excess = sum(by_shard.values()) - share
    for name in sorted(by_shard, key=lambda name: (by_shard[name], name)):
        owners = planned[name]
        for index in reversed(range(len(owners))):
            if excess <= 0:
                return
            if owners[index] == server:
                owners[index] = NO_OWNER
                excess -= 1


def _hand_out(shards: Mapping[str, ShardView], shares: Mapping[str, int], planned: Mapping[str, list[str]]) -> None:
    """Gives slices without an owner to servers with less than their share, beginning with the largest piece of one shard and one server."""
    owned = Counter(owner for owners in planned.values() for owner in owners)
    left = {server: share - owned[server] for server, share in shares.items()}
    free = {name: owners.count(NO_OWNER) for name, owners in planned.items() if shards[name].servers}
    while any(free.values()):
        pieces = [
            (
                planned[name].count(server) > 0,
                min(free[name], left[server]) == free[name],
                min(free[name], left[server]),
                name,
                server,
            )
            for name in free
            if free[name]
            for server in sorted(shards[name].servers)
            if left[server] > 0
        ]
        if not pieces:  # servers with less than their share use none of these shards
            _hand_out_beyond(shards, free, owned, planned)
            return
        *_, size, name, server = max(pieces, key=lambda piece: piece[:3])
        _give(server, size, planned[name])
        owned[server] += size
        left[server] -= size
        free[name] -= size


def _hand_out_beyond(
    shards: Mapping[str, ShardView], free: Mapping[str, int], owned: Counter[str], planned: Mapping[str, list[str]]
) -> None:
    for name, slices in free.items():
        for _ in range(slices):
            server = min(sorted(shards[name].servers), key=lambda server: owned[server])
            _give(server, 1, planned[name])
            owned[server] += 1


def _give(server: str, slices: int, owners: list[str]) -> None:
    for index, owner in enumerate(owners):
        if slices and owner == NO_OWNER:
            owners[index] = server
            slices -= 1
