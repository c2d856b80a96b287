"""Servers and shards: the server that answers, the cluster, who owns which queues."""

from __future__ import annotations

from typing import Any

from pinlater.domain.calls import CallerRights, ClusterStatus, ShardDetails
from pinlater.server.features.status.status import Status
from pinlater.server.operations.service import Service
from pinlater.server.thrift.methods.looking import number
from pinlater.server.thrift.methods.record import ServedMethod, known_caller_of
from pinlater.wire.generated import structs


# --- the server ---------------------------------------------------------------------------------------------------------------
async def _get_server_info(service: Service, call: structs.getServerInfo_args) -> structs.ServerInfo:
    info, known = await service.of(Status).server_info(), known_caller_of(call)
    rights = info.caller if known is None else known.rights
    return structs.ServerInfo(
        version=info.version,
        features=list(info.features),
        store_kind=info.store_kind,
        now_ms=info.now_ms,
        started_at_ms=info.started_at_ms,
        priority_levels=number(info.priority_levels),
        max_body_bytes=number(info.max_body_bytes),
        max_frame_bytes=number(info.max_frame_bytes),
        max_jobs_per_request=number(info.max_jobs_per_request),
        max_descriptors_per_request=number(info.max_descriptors_per_request),
        max_wait_ms=number(info.max_wait_ms),
        access=info.access or None,
        server_id=info.server_id or None,
        caller=None if rights is None else _caller_rights(rights),
    )


def _caller_rights(caller: CallerRights) -> structs.CallerRights:
    return structs.CallerRights(
        caller.token_name or None,
        list(caller.roles),
        list(caller.queues),
        caller.expires_at_ms,
        caller.speaks_for_others or None,
    )


# --- the cluster --------------------------------------------------------------------------------------------------------------
async def _get_cluster(service: Service, call: structs.getCluster_args) -> structs.ClusterStatus:
    del call
    return _cluster_status(await service.of(Status).cluster())


def _cluster_status(status: ClusterStatus) -> structs.ClusterStatus:
    """Servers and shards, with owners as indices."""
    places = {server.address: index for index, server in enumerate(status.servers) if server.address}
    servers = [
        structs.ClusterServer(
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
        structs.ClusterShard(
            shard.name,
            shard.in_reach,
            shard.version,
            [places.get(owner, -1) for owner in shard.owners],
            list(shard.misplaced),
            None if shard.details is None else _shard_details(shard.details),
        )
        for shard in status.shards
    ]
    return structs.ClusterStatus(
        status.address,
        servers,
        shards,
        [structs.ForwardedCalls(*each) for each in status.forwarded],
        status.moves,
        status.answers_lost,
        status.incomplete or None,
        [structs.FrontProcess(*each) for each in status.front_processes] or None,
    )


def _shard_details(shard: ShardDetails) -> structs.ShardDetails:
    size, drain = shard.size, shard.drain
    return structs.ShardDetails(
        kind=shard.kind,
        address=shard.address or None,
        takes_enqueues=shard.takes_enqueues,
        since_ms=shard.since_ms,
        failure=shard.failure or None,
        failed_at_ms=shard.failed_at_ms,
        probing=shard.probing,
        stalled=shard.stalled,
        full=shard.full or None,
        jobs=None if shard.jobs is None else structs.ShardJobs(*shard.jobs),
        size=structs.ShardSize(*size[:-1], size.late or None),
        drain=None if drain is None else structs.ShardDrain(*drain),
        lanes=[
            structs.ShardLane(lane.kind, number(lane.waiting), number(lane.running), *lane[3:]) for lane in shard.lanes
        ],
        failure_kind=shard.failure_kind or None,
        memory=None if shard.memory is None else structs.ShardMemory(*shard.memory),
    )


def _without_texts(status: Any) -> Any:
    """Keeps the kinds of failures, and whether a shard is full."""
    for shard in status.shards:
        if shard.details is not None:
            shard.details.failure = None
            shard.details.full = shard.details.full and "full"
    return status


# --- owners -------------------------------------------------------------------------------------------------------------------
async def _get_queue_owners(service: Service, call: structs.getQueueOwners_args) -> structs.QueueOwners:
    del call
    owners = await service.of(Status).owners()
    return structs.QueueOwners(
        [structs.OwningServer(server.id, server.address or None) for server in owners.servers],
        [structs.OwnedShard(shard.name, shard.takes_enqueues, list(shard.owners)) for shard in owners.shards],
    )


METHODS = [
    ServedMethod("getServerInfo", handle=_get_server_info, wants_known_caller=True),
    ServedMethod("getCluster", handle=_get_cluster, without_texts=_without_texts),
    ServedMethod("getQueueOwners", handle=_get_queue_owners),
]
