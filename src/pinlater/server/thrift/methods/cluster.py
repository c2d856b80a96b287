"""Servers and shards: the server that answers, the cluster, who owns which queues."""

from __future__ import annotations

from typing import Any

from pinlater.domain.calls import CallerRights, ClusterStatus, ShardDetails
from pinlater.server.operations.service import Service
from pinlater.server.thrift.methods.looking import number
from pinlater.server.thrift.methods.record import ServedMethod, asker_of
from pinlater.wire.generated import received
from pinlater.wire.generated import ttypes as types


# --- the server ---------------------------------------------------------------------------------------------------------------
async def _get_server_info(service: Service, call: received.getServerInfo_args) -> types.ServerInfo:
    info, asker = await service.server_info(), asker_of(call)
    rights = info.caller if asker is None else asker.rights
    return types.ServerInfo(
        version=info.version,
        features=list(info.features),
        storeKind=info.store_kind,
        nowMillis=info.now_ms,
        startedAtMillis=info.started_at_ms,
        priorityLevels=number(info.priority_levels),
        maxBodyBytes=number(info.max_body_bytes),
        maxFrameBytes=number(info.max_frame_bytes),
        maxJobsPerRequest=number(info.max_jobs_per_request),
        maxDescriptorsPerRequest=number(info.max_descriptors_per_request),
        maxWaitMillis=number(info.max_wait_ms),
        access=info.access or None,
        serverId=info.server_id or None,
        caller=None if rights is None else _caller_rights(rights),
    )


def _caller_rights(caller: CallerRights) -> types.CallerRights:
    return types.CallerRights(
        caller.token_name or None,
        list(caller.roles),
        list(caller.queues),
        caller.expires_at_ms,
        caller.speaks_for_others or None,
    )


# --- the cluster --------------------------------------------------------------------------------------------------------------
async def _get_cluster(service: Service, call: received.getCluster_args) -> types.ClusterStatus:
    del call
    return _cluster_status(await service.cluster())


def _cluster_status(status: ClusterStatus) -> types.ClusterStatus:
    """Servers and shards, with owners as indices."""
    places = {server.address: index for index, server in enumerate(status.servers) if server.address}
    servers = [
        types.ClusterServer(
            server.address,
            server.name or None,
            server.slots,
            server.answers,
            server.heard,
            server.heard_ms,
            server.usable,
            number(server.unanswered_calls),
            server.items_sent,
            server.items_taken,
            server.facts.version or None,
            *server.facts[1:],
        )
        for server in status.servers
    ]
    shards = [
        types.ClusterShard(
            shard.name,
            shard.in_reach,
            shard.version,
            [places.get(owner, -1) for owner in shard.owners],
            list(shard.misplaced),
            None if shard.details is None else _shard_details(shard.details),
        )
        for shard in status.shards
    ]
    return types.ClusterStatus(
        status.address,
        servers,
        shards,
        [types.ForwardedCalls(*each) for each in status.forwarded],
        status.moves,
        status.answers_lost,
        status.incomplete or None,
        [types.FrontProcess(*each) for each in status.front_processes] or None,
    )


def _shard_details(shard: ShardDetails) -> types.ShardDetails:
    size, drain = shard.size, shard.drain
    return types.ShardDetails(
        kind=shard.kind,
        address=shard.address or None,
        takesEnqueues=shard.takes_enqueues,
        sinceMillis=shard.since_ms,
        failure=shard.failure or None,
        failedAtMillis=shard.failed_at_ms,
        probing=shard.probing,
        stalled=shard.stalled,
        full=shard.full or None,
        jobs=None if shard.jobs is None else types.ShardJobs(*shard.jobs),
        size=types.ShardSize(*size[:-1], size.late or None),
        drain=None if drain is None else types.ShardDrain(*drain),
        lanes=[
            types.ShardLane(lane.kind, number(lane.waiting), number(lane.running), *lane[3:]) for lane in shard.lanes
        ],
        failureKind=shard.failure_kind or None,
        memory=None if shard.memory is None else types.ShardMemory(*shard.memory),
    )


def _without_texts(status: Any) -> Any:
    """Keeps the kinds of failures, and whether a shard is full."""
    for shard in status.shards:
        if shard.details is not None:
            shard.details.failure = None
            shard.details.full = shard.details.full and "full"
    return status


# --- owners -------------------------------------------------------------------------------------------------------------------
async def _get_queue_owners(service: Service, call: received.getQueueOwners_args) -> types.QueueOwners:
    del call
    owners = await service.owners()
    return types.QueueOwners(
        [types.OwningServer(server.id, server.address or None) for server in owners.servers],
        [types.OwnedShard(shard.name, shard.takes_enqueues, list(shard.owners)) for shard in owners.shards],
    )


METHODS = [
    ServedMethod("getServerInfo", handle=_get_server_info, wants_asker=True),
    ServedMethod("getCluster", handle=_get_cluster, without_texts=_without_texts),
    ServedMethod("getQueueOwners", handle=_get_queue_owners),
]
