"""What charts show of queues, and the marks of deploys in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pinlater.domain.history import HistoryPoint
from pinlater.server.features.history.queries import HistoryQueries
from pinlater.server.operations.long_lists import JOBS_A_TURN, in_turns
from pinlater.server.operations.service import Service
from pinlater.server.thrift.administrative import TEXT_MAX, Administrative, Fields
from pinlater.server.thrift.methods.record import ServedMethod, queues_of_request
from pinlater.wire.generated import structs


async def _get_queue_history(service: Service, call: structs.getQueueHistory_args) -> structs.QueueHistoryResponse:
    """In pieces between which other calls get their turn."""
    request = call.request
    history = await service.of(HistoryQueries).queue_history(
        request.queues, request.from_ms, request.until_ms, request.step_s
    )
    queues = [
        structs.QueueHistory(each.queue, await in_turns(each.points, _points, JOBS_A_TURN)) for each in history.queues
    ]
    return structs.QueueHistoryResponse(
        queues,
        [structs.DeployMark(mark.at_ms, mark.text, mark.queue or None) for mark in history.marks],
        history.step_s,
        history.from_ms,
        history.until_ms,
        history.incomplete or None,
    )


def _points(points: Iterable[HistoryPoint]) -> list[structs.HistoryPoint]:
    return [
        structs.HistoryPoint(
            point.at_ms,
            point.enqueued,
            point.claimed,
            point.succeeded,
            point.failed,
            point.timed_out,
            point.expired,
            point.due,
            point.scheduled,
            point.running,
            point.oldest_ms,
            None if point.waits is None else structs.Percentiles(*point.waits),
            None if point.runs is None else structs.Percentiles(*point.runs),
        )
        for point in points
    ]


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
