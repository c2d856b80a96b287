"""Groups of failures: list and mute them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pinlater.domain.body_masks import BodyMasks, masked_text
from pinlater.domain.failures import FailureGroup
from pinlater.server.operations.long_lists import JOBS_A_TURN, in_turns
from pinlater.server.operations.service import Service
from pinlater.server.thrift.audit import TEXT_MAX, Audited, Fields, given
from pinlater.server.thrift.methods.record import ServedMethod, queues_of_request
from pinlater.wire.generated import received
from pinlater.wire.generated import ttypes as types


async def _get_failures(service: Service, call: received.getFailures_args) -> types.FailuresResponse:
    """In pieces between which other calls get their turn."""
    found = await service.failures.failure_groups(call.request.queueNames)
    groups = await in_turns(found.groups, _groups, JOBS_A_TURN)
    return types.FailuresResponse(groups, found.incomplete or None)


def _groups(groups: Iterable[FailureGroup]) -> list[types.FailureGroup]:
    """The struct has the same fields in the same order."""
    return [types.FailureGroup(*group[:-1], group.muted_until_ms or None) for group in groups]


async def _mask(masks: BodyMasks, call: Any, answer: Any) -> None:
    del call
    for group in answer.groups:
        if masks.of(group.queueName).texts:
            group.pattern = masked_text(group.pattern)


async def _mute_failures(service: Service, call: received.muteFailures_args) -> None:
    await service.failures.mute(call.mute.queueName, call.mute.name, call.mute.untilMillis)


def _mute_asked(call: Any) -> Fields:
    return {"queue": call.mute.queueName, "group": call.mute.name[:TEXT_MAX], **given(call.mute, "untilMillis")}


METHODS = [
    ServedMethod("getFailures", handle=_get_failures, queues=queues_of_request, mask=_mask),
    ServedMethod(
        "muteFailures",
        handle=_mute_failures,
        queues=lambda call: (call.mute.queueName,),
        audited=Audited(_mute_asked),
    ),
]
