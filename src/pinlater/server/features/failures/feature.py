"""Puts the groups of failures into a server."""

from __future__ import annotations

from typing import Any

from pinlater.domain.body_masks import BodyMasks, masked_text
from pinlater.domain.failures import GROUP_KEPT_MS, HOUR_MS, HOURS_KEPT
from pinlater.server.features.failures.groups import FailureQueries
from pinlater.server.features.feature import Feature
from pinlater.server.front.operations import Forwarded
from pinlater.server.maintenance.sweeps import Sweeps
from pinlater.server.operations.service import Service
from pinlater.server.sharding.shard_lanes import ShardLanes
from pinlater.server.storage.commands import PruneFailures
from pinlater.server.thrift.administrative import TEXT_MAX, Administrative, Fields, given
from pinlater.server.thrift.methods.record import ServedMethod, queues_of_request

_PRUNE_MS = 600_000


async def _mask(masks: BodyMasks, call: Any, answer: Any) -> None:
    del call
    for group in answer.groups:
        if masks.of(group.queue).texts:
            group.pattern = masked_text(group.pattern)


def _mute_asked(call: Any) -> Fields:
    return {"queue": call.mute.queue, "group": call.mute.name[:TEXT_MAX], **given(call.mute, "until_ms")}


METHODS = [
    ServedMethod(
        "getFailures",
        handle=lambda service, call: service.of(FailureQueries).list_groups(call.request.queues),
        queues=queues_of_request,
        mask=_mask,
    ),
    ServedMethod(
        "muteFailures",
        handle=lambda service, call: service.of(FailureQueries).mute(
            call.mute.queue, call.mute.name, call.mute.until_ms
        ),
        queues=lambda call: (call.mute.queue,),
        administrative=Administrative(_mute_asked),
    ),
]


def _add(service: Service) -> None:
    clock = service.clock

    async def prune(shard: ShardLanes, limit: int) -> int:
        """Deletes groups that are too old, and hourly counts that are no longer shown."""
        now_ms = clock.now_ms()
        command = PruneFailures(now_ms - GROUP_KEPT_MS, now_ms // HOUR_MS - HOURS_KEPT, limit)
        return await shard.store.submit(command)

    service.put(FailureQueries(service))
    service.periodic.append(service.of(Sweeps).periodic("failures-garbage", _PRUNE_MS, prune))


FEATURE = Feature(METHODS, _add, Forwarded(FailureQueries, ("mute",), ("list_groups",)))
