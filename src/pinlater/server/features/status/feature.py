"""Puts the status of servers and shards into a server."""

from __future__ import annotations

from pinlater.server.features.feature import Feature
from pinlater.server.features.status.methods import METHODS
from pinlater.server.features.status.shard_details import ShardReports
from pinlater.server.features.status.status import Status
from pinlater.server.front.operations import Forwarded
from pinlater.server.maintenance.rates import RateSampler
from pinlater.server.maintenance.runner import Periodic
from pinlater.server.operations.service import Service
from pinlater.server.telemetry.metrics import TICK_S


def _add(service: Service) -> None:
    rates = service.of(RateSampler)
    reports = ShardReports(service.shards, service.clock, rates.jobs_of, rates.drains.of)

    async def sample() -> None:
        reports.lane_minute.sample()

    service.put(Status(service, reports))
    service.periodic.append(Periodic("lanes", round(TICK_S * 1000), sample))
    service.closing.append(reports.close)


FEATURE = Feature(METHODS, _add, Forwarded(Status, looks=("cluster", "owners", "server_info")))
