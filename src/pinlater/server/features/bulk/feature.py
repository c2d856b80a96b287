"""Puts bulk runs into a server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pinlater.domain.body_masks import MASKED_VALUE, BodyMasks, masked_text
from pinlater.domain.bulk import BulkAction, BulkOrder
from pinlater.domain.errors import InvalidArgument
from pinlater.domain.job_filter import FILTER_FIELDS, FieldKind
from pinlater.server.features.bulk.runs import BulkRuns
from pinlater.server.features.feature import Feature
from pinlater.server.front.operations import Forwarded
from pinlater.server.maintenance.runner import Periodic
from pinlater.server.operations.service import Service
from pinlater.server.thrift.administrative import TEXT_MAX, Administrative, Fields, given
from pinlater.server.thrift.methods.changing import STATE_NAMES
from pinlater.server.thrift.methods.record import (
    AnyQueue,
    Chosen,
    ServedMethod,
    known_caller_of,
    queue_of_call,
    queues_of_call,
    queues_of_request,
)
from pinlater.wire.generated import structs
from pinlater.wire.job_filters import order_of

# How often the server looks for runs that no server executes.
_LOOK_MS = 10_000
_TASKS_MAX = 5
_TOLD = [field.field for field in FILTER_FIELDS if field.kind in {FieldKind.NUMBER, FieldKind.MOMENT}]
"""The fields of a filter whose values the log and the audit may hold."""
_ACTIONS = {number: action.value for number, action in enumerate(BulkAction)}


# --- start and stop -----------------------------------------------------------------------------------------------------------
async def _start_bulk_run(
    service: Service, call: structs.startBulkRun_args | structs.startLimitedBulkRun_args
) -> structs.BulkRun:
    """Keeps the caller with the run, until it ends."""
    source, known, order = call.context.source, known_caller_of(call), _bulk_order(call.order)
    if known is None:
        return await service.of(BulkRuns).start(order, source, source)
    return await service.of(BulkRuns).start(order, known.shown, source, known.caller)


def _bulk_order(order: structs.BulkOrder) -> BulkOrder:
    try:
        return order_of(order)
    except KeyError as error:
        raise InvalidArgument(
            f"{error} is no action of a bulk run, or no job state; there are 0 RETRY, 1 DELETE, 2 CANCEL, 3 RESTORE"
        ) from None


def _start_asked(call: Any) -> Fields:
    order, chosen = call.order, call.order.filter
    if order.undoes:  # no field of the filter applies
        undoes = {"action": _ACTIONS.get(order.action, order.action), "undoes": order.undoes[:TEXT_MAX]}
        return {"queue": order.queue, **undoes, **given(order, "jobs_per_second")}
    return {
        "queue": order.queue,
        "action": _ACTIONS.get(order.action, order.action),
        "state": STATE_NAMES.get(chosen.state, chosen.state),
        "by_regex": chosen.regex is not None,
        "by_error": bool(chosen.error_text),
        "headers": len(chosen.headers or ()),
        "tasks": [task[:TEXT_MAX] for task in (chosen.tasks or ())[:_TASKS_MAX]],
        "group": (chosen.group or "")[:TEXT_MAX],
        **given(order, "attempts", "jobs_per_second", "for_good", "max_jobs"),
        **given(chosen, *_TOLD, "skip_cancelled"),
    }


def _chosen(call: Any) -> Chosen:
    return Chosen(call.order.queue, call.order.filter.regex, call.order.filter.error_text)


def _stop_asked(call: Any) -> Fields:
    return {"queue": call.queue, "run": call.run_id[:TEXT_MAX]}


# --- look at them -------------------------------------------------------------------------------------------------------------
async def _get_bulk_runs(service: Service, call: structs.getBulkRuns_args) -> list[structs.BulkRun]:
    return list(await service.of(BulkRuns).runs(call.queues or None))


def _allowed_runs(may: AnyQueue, answer: Iterable[Any]) -> Any:
    return [run for run in answer if may(run.order.queue)]


def _allowed_listed_runs(may: AnyQueue, answer: Any) -> Any:
    answer.runs = _allowed_runs(may, answer.runs)
    return answer


def _without_texts(runs: Iterable[Any]) -> Any:
    """Keeps the reason why a run has ended, which is in no database."""
    shown = list(runs)
    for run in shown:
        if run.detail and run.ended_ms is None:
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
    """Masks the filter: a caller that sees the bodies may have chosen jobs by their content."""
    del call
    for run in answer:
        mask, chosen = masks.of(run.order.queue), run.order.filter
        if mask.hides and chosen.regex is not None:
            chosen.regex = MASKED_VALUE
        if mask.texts:
            chosen.error_text = masked_text(chosen.error_text)


METHODS = [
    *[
        ServedMethod(
            name,
            handle=_start_bulk_run,
            queues=lambda call: (call.order.queue,),
            wants_known_caller=True,
            chosen=_chosen,
            mask=_mask_run,
            administrative=Administrative(_start_asked),
        )
        for name in ("startBulkRun", "startLimitedBulkRun")
    ],
    ServedMethod(
        "stopBulkRun",
        handle=lambda service, call: service.of(BulkRuns).stop(call.queue, call.run_id),
        queues=queue_of_call,
        mask=_mask_run,
        administrative=Administrative(_stop_asked),
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
        handle=lambda service, call: service.of(BulkRuns).list_runs(call.request.queues or None),
        queues=queues_of_request,
        allowed_part=_allowed_listed_runs,
        mask=_mask_listed_runs,
        without_texts=_listed_without_texts,
    ),
]


def _add(service: Service) -> None:
    runs = BulkRuns(service, service.settings, lambda: service.identity.life)
    service.put(runs)
    service.periodic.append(Periodic("bulk-runs", _LOOK_MS, runs.look))
    service.closing.append(runs.close)


FEATURE = Feature(METHODS, _add, Forwarded(BulkRuns, ("start", "stop"), ("runs", "list_runs")))
