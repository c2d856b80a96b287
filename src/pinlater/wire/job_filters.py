"""Converts filters of jobs, and orders of bulk runs, to structs of the protocol and back: for clients, and for servers, which store
orders."""

from __future__ import annotations

from pinlater.domain.bulk import BulkAction, BulkOrder
from pinlater.domain.job import JobState
from pinlater.domain.job_filter import JobFilter
from pinlater.wire.generated import structs

_ACTIONS = dict(enumerate(BulkAction))
_JOB_STATES = {int(state): state for state in JobState}
_ACTION_NUMBERS = {action: number for number, action in _ACTIONS.items()}
_UNSET = JobFilter._field_defaults


def wire_filter(chosen: JobFilter) -> structs.JobFilter:
    """Returns the filter as a struct; fields that are not set are absent."""
    given = {name: value for name, value in chosen._asdict().items() if name not in _UNSET or value != _UNSET[name]}
    if chosen.tasks:
        given["tasks"] = sorted(chosen.tasks)
    return structs.JobFilter(**{**given, "state": int(chosen.state)})


def filter_of(struct: structs.JobFilter) -> JobFilter:
    """Returns the filter from a struct. Raises `KeyError` for a number that is not a state."""
    given = {name: value for name in JobFilter._fields if (value := getattr(struct, name)) is not None}
    return JobFilter(**{**given, "state": _JOB_STATES[struct.state], "tasks": frozenset(struct.tasks or ())})


def wire_order(order: BulkOrder) -> structs.BulkOrder:
    """Returns the order as a struct; conditions that are not set are absent."""
    return structs.BulkOrder(
        order.queue,
        _ACTION_NUMBERS[order.action],
        wire_filter(order.filter),
        order.attempts,
        order.jobs_per_second,
        order.for_good or None,
        order.undoes,
        order.expected,
        order.max_jobs,
    )


def order_of(order: structs.BulkOrder) -> BulkOrder:
    """Returns the order from a struct. Raises `KeyError` for an unknown number."""
    return BulkOrder(
        order.queue,
        _ACTIONS[order.action],
        filter_of(order.filter),
        1 if order.attempts is None else order.attempts,
        order.jobs_per_second,
        bool(order.for_good),
        order.undoes,
        order.expected_jobs,
        order.max_jobs,
    )
