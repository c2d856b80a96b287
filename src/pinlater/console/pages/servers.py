"""The servers and shards behind the console, as the server that answers knows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pinlater.console.endpoints.servers import get_cluster, get_server
from pinlater.console.pages.page import PageCall, PageView
from pinlater.console.shapes.servers import ClusterAnswer, ClusterShardItem, ServerInfoAnswer


class ShardRow(NamedTuple):
    """A shard. `owned`: slices by the server that owns them; '' for those without an owner."""

    shard: ClusterShardItem
    owned: Sequence[tuple[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServersView(PageView):
    """`server`: the one that answered."""

    server: ServerInfoAnswer
    cluster: ClusterAnswer
    shards: Sequence[ShardRow]


async def show(call: PageCall) -> ServersView:
    """Two calls."""
    server = await call.api.ask(get_server)
    cluster = await call.api.ask(get_cluster)
    shards = [ShardRow(shard, sorted(Counter(shard.owners).items())) for shard in cluster.shards]
    return ServersView(title="Servers and shards", server=server, cluster=cluster, shards=shards)
