"""What charts show of queues, and the marks of deploys in them."""

from __future__ import annotations

from typing import Any

from pinlater.server.features.history.queries import HistoryQueries
from pinlater.server.operations.service import Service
from pinlater.server.thrift.administrative import TEXT_MAX, Administrative, Fields
from pinlater.server.thrift.methods.record import ServedMethod, queues_of_request
from pinlater.wire.generated import structs


async def _get_queue_history(service: Service, call: structs.getQueueHistory_args) -> structs.QueueHistoryResponse:
    return await service.of(HistoryQueries).queue_history(call.request)


async def _add_deploy_mark(service: Service, call: structs.addDeployMark_args) -> None:
    await service.of(HistoryQueries).add_mark(call.mark.text, call.mark.at_ms, call.mark.queue or "")


def _mark_asked(call: Any) -> Fields:
    return {"queue": call.mark.queue or "", "at_ms": call.mark.at_ms, "text": call.mark.text[:TEXT_MAX]}


METHODS = [
    ServedMethod("getQueueHistory", handle=_get_queue_history, queues=queues_of_request),
    ServedMethod(
        "addDeployMark",
        handle=_add_deploy_mark,
        queues=lambda call: (call.mark.queue or "",),  # a mark for all queues, without a name, needs a token for all
        administrative=Administrative(_mark_asked),
    ),
]
