"""The servers behind the API."""

from __future__ import annotations

from pinlater.console.endpoint import ApiCall
from pinlater.console.endpoints.forms import like
from pinlater.console.shapes.fields import Nothing
from pinlater.console.shapes.servers import (
    CallerItem,
    ClusterAnswer,
    ClusterServerItem,
    ClusterShardItem,
    ForwardedItem,
    FrontProcessItem,
    ServerInfoAnswer,
    WaitingAnswer,
    WaitingItem,
)


async def get_server(call: ApiCall[Nothing, Nothing]) -> ServerInfoAnswer:
    """Returns version, features, clock and bounds of the server that answers, and with access control the rights of the caller."""
    info = await call.client.server_info()
    return like(ServerInfoAnswer, info, caller=None if info.caller is None else like(CallerItem, info.caller))


async def get_cluster(call: ApiCall[Nothing, Nothing]) -> ClusterAnswer:
    """Returns the servers of the shards and the owners of their slices, as the server that answers knows them."""
    status = await call.client.cluster()
    return like(
        ClusterAnswer,
        status,
        servers=[like(ClusterServerItem, server, slots=dict(server.slots)) for server in status.servers],
        shards=[like(ClusterShardItem, shard) for shard in status.shards],
        forwarded=[like(ForwardedItem, calls) for calls in status.forwarded],
        front_processes=[like(FrontProcessItem, front) for front in status.front_processes],
    )


async def get_waiting_dequeues(call: ApiCall[Nothing, Nothing]) -> WaitingAnswer:
    """Returns the callers that wait for jobs on the server that answers, by queue and source."""
    return WaitingAnswer(waiting=[like(WaitingItem, waiting) for waiting in await call.client.waiting_dequeues()])
