"""Bulk runs as structs of the protocol, and back: for clients and servers."""

from __future__ import annotations

from pinlater.domain.bulk import BulkAction, BulkOrder, BulkRun, BulkRunList, BulkState
from pinlater.domain.job import JobState
from pinlater.domain.job_criteria import JobCriteria
from pinlater.wire.generated import structs
from pinlater.wire.generated import structs as types

_ACTIONS = dict(enumerate(BulkAction))
_STATES = dict(enumerate(BulkState))
_JOB_STATES = {int(state): state for state in JobState}
_ACTION_NUMBERS = {action: number for number, action in _ACTIONS.items()}
_STATE_NUMBERS = {state: number for number, state in _STATES.items()}


def wire_order(order: BulkOrder) -> types.BulkOrder:
    """The order as a struct; what chooses no job is absent."""
    wanted = order.criteria
    chosen = types.BulkFilter(
        int(order.state),
        order.priority,
        order.regex,
        sorted(wanted.tasks) or None,
        dict(wanted.headers) or None,
        wanted.error or None,
        wanted.min_attempts or None,
        wanted.enqueued_from_ms,
        wanted.enqueued_before_ms,
        wanted.group or None,
        wanted.skip_cancelled or None,
    )
    return types.BulkOrder(
        order.queue,
        _ACTION_NUMBERS[order.action],
        chosen,
        order.attempts,
        order.jobs_per_second,
        order.for_good or None,
        order.undoes,
        order.expected,
    )


def order_of(order: types.BulkOrder | structs.BulkOrder) -> BulkOrder:
    """The order that a struct says. Raises `KeyError` for a number that names nothing."""
    chosen = order.filter
    criteria = JobCriteria(
        frozenset(chosen.tasks or ()),
        chosen.headers or {},
        chosen.error_text or "",
        chosen.min_attempts or 0,
        chosen.enqueued_from_ms,
        chosen.enqueued_before_ms,
        chosen.group or "",
        bool(chosen.skip_cancelled),
    )
    return BulkOrder(
        order.queue,
        _ACTIONS[order.action],
        _JOB_STATES[chosen.state],
        chosen.priority,
        chosen.regex,
        criteria,
        1 if order.attempts is None else order.attempts,
        order.jobs_per_second,
        bool(order.for_good),
        order.undoes,
        order.expected_jobs,
    )


def wire_run(run: BulkRun) -> types.BulkRun:
    """The run as a struct."""
    return types.BulkRun(
        run.id,
        wire_order(run.order),
        run.who,
        run.started_ms,
        _STATE_NUMBERS[run.state],
        run.looked,
        run.changed,
        run.news_ms,
        run.ended_ms,
        run.detail or None,
        run.undo_until_ms,
        run.to_look_at,
        run.expected,
        run.percent,
        run.left_ms,
    )


def run_of(run: types.BulkRun) -> BulkRun:
    """The run that a struct tells of."""
    return BulkRun(
        run.id,
        order_of(run.order),
        run.who,
        run.started_ms,
        _STATES[run.state],
        run.looked,
        run.changed,
        run.news_ms,
        run.ended_ms,
        run.detail or "",
        run.undo_until_ms,
        run.to_look_at,
        run.expected_changes,
        run.percent,
        run.left_ms,
    )


def wire_list(found: BulkRunList) -> types.BulkRunsResponse:
    """The runs as a struct."""
    missing = list(found.missing_shards) or None
    return types.BulkRunsResponse(list(map(wire_run, found.runs)), found.incomplete or None, missing)


def list_of(found: types.BulkRunsResponse) -> BulkRunList:
    """The runs that a struct tells of."""
    return BulkRunList(tuple(map(run_of, found.runs)), bool(found.incomplete), tuple(found.missing_shards or ()))
