"""Puts the status of servers and shards into a server."""

from __future__ import annotations

from pinlater.server.features.feature import Feature
from pinlater.server.features.status.shard_details import ShardReports
from pinlater.server.features.status.status import Status
from pinlater.server.front.operations import Forwarded
from pinlater.server.maintenance.rates import RateSampler
from pinlater.server.maintenance.runner import Periodic
from pinlater.server.operations.service import Service
from pinlater.server.telemetry.metrics import TICK_S
from pinlater.server.thrift.methods.record import ServedMethod, known_caller_of
from pinlater.wire.generated import structs


async def _get_server_info(service: Service, call: structs.getServerInfo_args) -> structs.ServerInfo:
    """Adds what access control knows about the caller."""
    info, known = await service.of(Status).server_info(), known_caller_of(call)
    if known is not None:
        info.caller = known.rights
    return info


def _without_texts(status: structs.ClusterStatus) -> structs.ClusterStatus:
    """Keeps the kinds of failures, and whether a shard is full."""
    for shard in status.shards:
        if shard.details is not None:
            shard.details.failure = None
            shard.details.full = shard.details.full and "full"
    return status


METHODS = [
    ServedMethod("getServerInfo", handle=_get_server_info, wants_known_caller=True),
    ServedMethod("getCluster", handle=lambda service, call: service.of(Status).cluster(), without_texts=_without_texts),
    ServedMethod("getQueueOwners", handle=lambda service, call: service.of(Status).owners()),
]


def _add(service: Service) -> None:
    rates = service.of(RateSampler)
    reports = ShardReports(service.shards, service.clock, rates.jobs_of, rates.drains.of)

    async def sample() -> None:
        reports.lane_minute.sample()

    service.put(Status(service, reports))
    service.periodic.append(Periodic("lanes", round(TICK_S * 1000), sample))
    service.closing.append(reports.close)


FEATURE = Feature(METHODS, _add, Forwarded(Status, looks=("cluster", "owners", "server_info")))
