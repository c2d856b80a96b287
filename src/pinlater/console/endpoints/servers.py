"""The servers behind the API."""

from __future__ import annotations

from pinlater.client.values import ClusterServer, ClusterShard, ShardDetails
from pinlater.console.endpoint import ApiCall
from pinlater.console.endpoints.forms import like
from pinlater.console.shapes.fields import Nothing, PartitionNumberItem
from pinlater.console.shapes.servers import (
    CallerItem,
    ClusterAnswer,
    ClusterServerItem,
    ClusterShardItem,
    ForwardedItem,
    FrontProcessItem,
    ServerInfoAnswer,
    ShardDetailsItem,
    ShardDrainItem,
    ShardJobsItem,
    ShardLaneItem,
    ShardMemoryItem,
    ShardSizeItem,
    WaitingAnswer,
    WaitingItem,
)


async def get_server(call: ApiCall[Nothing, Nothing]) -> ServerInfoAnswer:
    """Returns version, features, clock and bounds of the server that answers, and with access control the rights of the caller."""
    info = await call.client.server_info()
    return like(ServerInfoAnswer, info, caller=None if info.caller is None else like(CallerItem, info.caller))


async def get_cluster(call: ApiCall[Nothing, Nothing]) -> ClusterAnswer:
    """Returns the servers of the shards, how each shard is, and the owners of the slices, as the server that answers knows them.

    It reads no jobs, and asks each store at most twice a minute.
    """
    status = await call.client.cluster()
    return like(
        ClusterAnswer,
        status,
        servers=[_server(server) for server in status.servers],
        shards=[_shard(shard) for shard in status.shards],
        forwarded=[like(ForwardedItem, calls) for calls in status.forwarded],
        front_processes=[like(FrontProcessItem, front) for front in status.front_processes],
        partitions={queue: like(PartitionNumberItem, number) for queue, number in status.partitions.items()},
    )


def _server(server: ClusterServer) -> ClusterServerItem:
    facts = server.facts
    return like(
        ClusterServerItem,
        server,
        slots=dict(server.slots),
        version=facts.version or None,
        started_at_ms=facts.started_at_ms,
        connections=facts.connections,
        loop_lag_ms=facts.loop_lag_ms,
    )


def _shard(shard: ClusterShard) -> ClusterShardItem:
    return like(ClusterShardItem, shard, details=None if shard.details is None else _details(shard.details))


def _details(details: ShardDetails) -> ShardDetailsItem:
    return like(
        ShardDetailsItem,
        details,
        jobs=None if details.jobs is None else like(ShardJobsItem, details.jobs),
        size=like(ShardSizeItem, details.size),
        drain=None if details.drain is None else like(ShardDrainItem, details.drain),
        lanes=[like(ShardLaneItem, lane) for lane in details.lanes],
        memory=None if details.memory is None else like(ShardMemoryItem, details.memory),
    )


async def get_waiting_dequeues(call: ApiCall[Nothing, Nothing]) -> WaitingAnswer:
    """Returns the callers that wait for jobs on the server that answers, by queue and source."""
    return WaitingAnswer(waiting=[like(WaitingItem, waiting) for waiting in await call.client.waiting_dequeues()])
