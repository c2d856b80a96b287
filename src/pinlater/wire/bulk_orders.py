"""Orders of bulk runs as structs of the protocol, and back: for clients, and for servers, which keep orders."""

from __future__ import annotations

from pinlater.domain.bulk import BulkAction, BulkOrder
from pinlater.domain.job import JobState
from pinlater.domain.job_criteria import JobCriteria
from pinlater.wire.generated import structs

_ACTIONS = dict(enumerate(BulkAction))
_JOB_STATES = {int(state): state for state in JobState}
_ACTION_NUMBERS = {action: number for number, action in _ACTIONS.items()}


def wire_order(order: BulkOrder) -> structs.BulkOrder:
    """Returns the order as a struct, without the filters that are not set."""
    wanted = order.criteria
    chosen = structs.BulkFilter(
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
    return structs.BulkOrder(
        order.queue,
        _ACTION_NUMBERS[order.action],
        chosen,
        order.attempts,
        order.jobs_per_second,
        order.for_good or None,
        order.undoes,
        order.expected,
    )


def order_of(order: structs.BulkOrder) -> BulkOrder:
    """Returns the order from a struct. Raises `KeyError` for a number that names nothing."""
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
