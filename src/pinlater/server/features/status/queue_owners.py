"""Reports which servers own queues, for clients that send their calls there, from what the server already knows. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from pinlater.server.features.status.cluster_status import NO_PLACE, SHARDS_MAX
from pinlater.server.sharding.shards import ShardLanes
from pinlater.wire.generated.structs import OwnedShard, OwningServer, QueueOwners


class KnownServer(NamedTuple):
    """A server that announces its address for clients. `busy`: it has little capacity left."""

    named: OwningServer
    busy: bool


def queue_owners(
    shards: Iterable[ShardLanes],
    owners_of: Callable[[str], Sequence[str]],
    known: Mapping[str, KnownServer],
    partitions: Mapping[str, int],
) -> QueueOwners:
    """`owners_of(shard)`: the addresses of a shard's owners, by slice; `known`: the servers by these addresses. `partitions`: the number
    of partitions of each queue that has several.

    Clients that call the owner save the other servers work, and add to the owner's. So a busy server is named only if all are busy: the
    others can take over some of its work.
    """
    all_busy = all(server.busy for server in known.values())
    named = {address: server.named for address, server in known.items() if all_busy or not server.busy}
    places = {address: place for place, address in enumerate(named)}
    return QueueOwners(
        list(named.values()),
        [
            OwnedShard(
                shard.name, shard.takes_enqueues, [places.get(address, NO_PLACE) for address in owners_of(shard.name)]
            )
            for shard in islice(shards, SHARDS_MAX)
        ],
        partitions,
    )
