"""What charts show of queues, and the marks of deploys in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pinlater.domain.history import HistoryPoint
from pinlater.server.operations.long_lists import JOBS_A_TURN, in_turns
from pinlater.server.operations.service import Service
from pinlater.server.thrift.audit import TEXT_MAX, Audited, Fields
from pinlater.server.thrift.methods.record import ServedMethod, queues_of_request
from pinlater.wire.generated import received
from pinlater.wire.generated import ttypes as types


async def _get_queue_history(service: Service, call: received.getQueueHistory_args) -> types.QueueHistoryResponse:
    """In pieces between which other calls get their turn."""
    request = call.request
    history = await service.history.queue_history(
        request.queueNames, request.fromMillis, request.untilMillis, request.stepSeconds
    )
    queues = [
        types.QueueHistory(each.queue, await in_turns(each.points, _points, JOBS_A_TURN)) for each in history.queues
    ]
    return types.QueueHistoryResponse(
        queues,
        [types.DeployMark(mark.at_ms, mark.text, mark.queue or None) for mark in history.marks],
        history.step_s,
        history.from_ms,
        history.until_ms,
        history.incomplete or None,
    )


def _points(points: Iterable[HistoryPoint]) -> list[types.HistoryPoint]:
    return [
        types.HistoryPoint(
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
            None if point.waits is None else types.Percentiles(*point.waits),
            None if point.runs is None else types.Percentiles(*point.runs),
        )
        for point in points
    ]


async def _add_deploy_mark(service: Service, call: received.addDeployMark_args) -> None:
    await service.history.add_mark(call.mark.text, call.mark.atMillis, call.mark.queueName or "")


def _mark_asked(call: Any) -> Fields:
    return {"queue": call.mark.queueName or "", "at_ms": call.mark.atMillis, "text": call.mark.text[:TEXT_MAX]}


METHODS = [
    ServedMethod("getQueueHistory", handle=_get_queue_history, queues=queues_of_request),
    ServedMethod(
        "addDeployMark",
        handle=_add_deploy_mark,
        queues=lambda call: (
            call.mark.queueName or "",
        ),  # a mark for all queues, without a name, needs a token for all
        audited=Audited(_mark_asked),
    ),
]
