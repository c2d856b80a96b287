"""Bulk runs: changes of many jobs that a server carries out by itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pinlater.domain.body_masks import MASKED_VALUE, BodyMasks, masked_text
from pinlater.domain.bulk_runs import BulkAction, BulkOrder
from pinlater.domain.errors import InvalidArgument
from pinlater.server.operations.service import Service
from pinlater.server.thrift.audit import TEXT_MAX, Audited, Fields, given
from pinlater.server.thrift.methods.changing import STATE_NAMES
from pinlater.server.thrift.methods.record import (
    AnyQueue,
    Chosen,
    ServedMethod,
    asker_of,
    queue_of_call,
    queues_of_call,
    queues_of_request,
)
from pinlater.wire.bulk_runs import order_of, wire_list, wire_run
from pinlater.wire.generated import received
from pinlater.wire.generated import ttypes as types

_TASKS_MAX = 5
_ACTIONS = {number: action.value for number, action in enumerate(BulkAction)}


# --- start and stop -----------------------------------------------------------------------------------------------------------
async def _start_bulk_run(service: Service, call: received.startBulkRun_args) -> types.BulkRun:
    """Keeps the caller with the run, and for the audit, when the run ends."""
    source, asker, order = call.requestContext.source, asker_of(call), _bulk_order(call.order)
    if asker is None:
        return wire_run(await service.bulk_runs.start(order, source, source))
    return wire_run(await service.bulk_runs.start(order, asker.shown, source, asker.caller))


def _bulk_order(order: received.BulkOrder) -> BulkOrder:
    try:
        return order_of(order)
    except KeyError as error:
        raise InvalidArgument(
            f"{error} is no action of a bulk run, or no job state; there are 0 RETRY, 1 DELETE, 2 CANCEL, 3 RESTORE"
        ) from None


def _start_asked(call: Any) -> Fields:
    order, chosen = call.order, call.order.filter
    if order.undoes:  # of the filter nothing counts
        undoes = {"action": _ACTIONS.get(order.action, order.action), "undoes": order.undoes[:TEXT_MAX]}
        return {"queue": order.queueName, **undoes, **given(order, "jobsPerSecond")}
    return {
        "queue": order.queueName,
        "action": _ACTIONS.get(order.action, order.action),
        "state": STATE_NAMES.get(chosen.jobState, chosen.jobState),
        "by_regex": chosen.bodyRegexToMatch is not None,
        "by_error": bool(chosen.errorText),
        "headers": len(chosen.headers or ()),
        "tasks": [task[:TEXT_MAX] for task in (chosen.tasks or ())[:_TASKS_MAX]],
        "group": (chosen.groupName or "")[:TEXT_MAX],
        **given(order, "attemptsToAllow", "jobsPerSecond", "forGood"),
        **given(chosen, "priority", "minAttempts", "enqueuedFromMillis", "enqueuedBeforeMillis", "skipCancelled"),
    }


def _chosen(call: Any) -> Chosen:
    return Chosen(call.order.queueName, call.order.filter.bodyRegexToMatch, call.order.filter.errorText)


async def _stop_bulk_run(service: Service, call: received.stopBulkRun_args) -> types.BulkRun:
    return wire_run(await service.bulk_runs.stop(call.queueName, call.runId))


def _stop_asked(call: Any) -> Fields:
    return {"queue": call.queueName, "run": call.runId[:TEXT_MAX]}


# --- look at them -------------------------------------------------------------------------------------------------------------
async def _get_bulk_runs(service: Service, call: received.getBulkRuns_args) -> list[types.BulkRun]:
    return list(map(wire_run, await service.bulk_runs.runs(call.queueNames or None)))


async def _list_bulk_runs(service: Service, call: received.listBulkRuns_args) -> types.BulkRunsResponse:
    return wire_list(await service.bulk_runs.list_runs(call.request.queueNames or None))


def _allowed_runs(may: AnyQueue, answer: Iterable[Any]) -> Any:
    return [run for run in answer if may(run.order.queueName)]


def _allowed_listed_runs(may: AnyQueue, answer: Any) -> Any:
    answer.runs = _allowed_runs(may, answer.runs)
    return answer


def _without_texts(runs: Iterable[Any]) -> Any:
    """Keeps why a run has ended, which no database says."""
    shown = list(runs)
    for run in shown:
        if run.detail and run.endedMillis is None:
            run.detail = "waits"
    return shown


def _listed_without_texts(answer: Any) -> Any:
    answer.runs = _without_texts(answer.runs)
    return answer


async def _mask_run(masks: BodyMasks, call: Any, answer: Any) -> None:
    await _mask_runs(masks, call, [answer])


async def _mask_listed_runs(masks: BodyMasks, call: Any, answer: Any) -> None:
    await _mask_runs(masks, call, answer.runs)


async def _mask_runs(masks: BodyMasks, call: Any, answer: Any) -> None:
    """A caller that sees the bodies may have chosen jobs by what they hold."""
    del call
    for run in answer:
        mask, chosen = masks.of(run.order.queueName), run.order.filter
        if mask.hides and chosen.bodyRegexToMatch is not None:
            chosen.bodyRegexToMatch = MASKED_VALUE
        if mask.texts:
            chosen.errorText = masked_text(chosen.errorText)


METHODS = [
    ServedMethod(
        "startBulkRun",
        handle=_start_bulk_run,
        queues=lambda call: (call.order.queueName,),
        wants_asker=True,
        chosen=_chosen,
        mask=_mask_run,
        audited=Audited(_start_asked),
    ),
    ServedMethod(
        "stopBulkRun", handle=_stop_bulk_run, queues=queue_of_call, mask=_mask_run, audited=Audited(_stop_asked)
    ),
    ServedMethod(
        "getBulkRuns",
        handle=_get_bulk_runs,
        queues=queues_of_call,
        allowed_part=_allowed_runs,
        mask=_mask_runs,
        without_texts=_without_texts,
    ),
    ServedMethod(
        "listBulkRuns",
        handle=_list_bulk_runs,
        queues=queues_of_request,
        allowed_part=_allowed_listed_runs,
        mask=_mask_listed_runs,
        without_texts=_listed_without_texts,
    ),
]
