"""Puts the groups of failures into a server."""

from __future__ import annotations

from pinlater.domain.failures import GROUP_KEPT_MS, HOUR_MS, HOURS_KEPT
from pinlater.server.features.failures.groups import FailureQueries
from pinlater.server.features.failures.methods import METHODS
from pinlater.server.features.feature import Feature
from pinlater.server.front.operations import Forwarded
from pinlater.server.maintenance.sweeps import Sweeps
from pinlater.server.operations.service import Service
from pinlater.server.sharding.shard_lanes import ShardLanes
from pinlater.server.storage.commands import PruneFailures

_PRUNE_MS = 600_000


def _add(service: Service) -> None:
    clock = service.clock

    async def prune(shard: ShardLanes, limit: int) -> int:
        """Deletes groups that are too old, and counts of hours that are shown no more."""
        now_ms = clock.now_ms()
        command = PruneFailures(now_ms - GROUP_KEPT_MS, now_ms // HOUR_MS - HOURS_KEPT, limit)
        return await shard.store.submit(command)

    service.put(FailureQueries(service))
    service.periodic.append(service.of(Sweeps).periodic("failures-garbage", _PRUNE_MS, prune))


FEATURE = Feature(METHODS, _add, Forwarded(FailureQueries, ("mute",), ("list_groups",)))
