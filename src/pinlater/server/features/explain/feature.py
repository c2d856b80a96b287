"""Puts the explanation of waiting jobs into a server."""

from __future__ import annotations

from typing import Any

from pinlater.domain.body_masks import BodyMasks
from pinlater.server.features.explain.explain import Explain
from pinlater.server.features.feature import Feature
from pinlater.server.front.operations import Forwarded
from pinlater.server.operations.service import Service
from pinlater.server.thrift.masking import Turns, mask_info
from pinlater.server.thrift.methods.record import ServedMethod, queue_of_call


async def _mask(masks: BodyMasks, call: Any, answer: Any) -> None:
    del call
    if answer.job is not None:
        await mask_info(Turns(), masks.of(answer.descriptor.partition(":")[0]), answer.job)


METHODS = [
    ServedMethod(
        "explainJob",
        handle=lambda service, call: service.of(Explain).explain(call.queue, call.descriptor),
        queues=queue_of_call,
        mask=_mask,
    )
]


def _add(service: Service) -> None:
    service.put(Explain(service))


FEATURE = Feature(METHODS, _add, Forwarded(Explain, looks=("explain",)))
