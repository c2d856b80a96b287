"""Groups of failures: list and mute them."""

from __future__ import annotations

from typing import Any

from pinlater.domain.body_masks import BodyMasks, masked_text
from pinlater.server.features.failures.groups import FailureQueries
from pinlater.server.operations.service import Service
from pinlater.server.thrift.administrative import TEXT_MAX, Administrative, Fields, given
from pinlater.server.thrift.methods.record import ServedMethod, queues_of_request
from pinlater.wire.generated import structs


async def _get_failures(service: Service, call: structs.getFailures_args) -> structs.FailuresResponse:
    return await service.of(FailureQueries).list_groups(call.request.queues)


async def _mask(masks: BodyMasks, call: Any, answer: Any) -> None:
    del call
    for group in answer.groups:
        if masks.of(group.queue).texts:
            group.pattern = masked_text(group.pattern)


async def _mute_failures(service: Service, call: structs.muteFailures_args) -> None:
    await service.of(FailureQueries).mute(call.mute.queue, call.mute.name, call.mute.until_ms)


def _mute_asked(call: Any) -> Fields:
    return {"queue": call.mute.queue, "group": call.mute.name[:TEXT_MAX], **given(call.mute, "until_ms")}


METHODS = [
    ServedMethod("getFailures", handle=_get_failures, queues=queues_of_request, mask=_mask),
    ServedMethod(
        "muteFailures",
        handle=_mute_failures,
        queues=lambda call: (call.mute.queue,),
        administrative=Administrative(_mute_asked),
    ),
]
