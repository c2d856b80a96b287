"""Operators' changes of jobs: cancel, retry, run now, another priority, delete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pinlater.domain.job import JobState, Outcome
from pinlater.server.operations.service import Service
from pinlater.server.thrift.administrative import Administrative, Fields, given
from pinlater.server.thrift.methods.looking import chosen_by_regex, cost_of_search
from pinlater.server.thrift.methods.record import ServedMethod, queue_of_call, queue_of_request
from pinlater.wire.generated import structs

_MOVED_MAX = 5
STATE_NAMES: Mapping[int, str] = {int(state): state.name for state in JobState}


def _applied(answer: Any) -> int:
    return sum(each.outcome == Outcome.APPLIED for each in answer)


def _named_jobs(call: Any) -> Fields:
    return {"queue": call.queue, "named": len(call.descriptors)}


async def _cancel_jobs(service: Service, call: structs.cancelJobs_args) -> Sequence[structs.AckResult]:
    return await service.claimed_jobs.cancel(call.queue, call.descriptors)


# --- retry and run now --------------------------------------------------------------------------------------------------------
async def _retry_failed_jobs(service: Service, call: structs.retryFailedJobs_args) -> int:
    return await service.bulk.retry_failed(call.request)


def _retry_asked(call: Any) -> Fields:
    request = call.request
    return {
        "queue": request.queue,
        "priority": request.priority,
        "limit": request.limit,
        **given(request, "attempts", "run_after_ms", "skip_cancelled"),
    }


async def _run_jobs(service: Service, call: structs.runJobs_args) -> Sequence[structs.AckResult]:
    return await service.bulk.run_jobs(call.request)


def _run_asked(call: Any) -> Fields:
    request = call.request
    return {
        "queue": request.queue,
        "named": len(request.descriptors),
        **given(request, "attempts", "run_after_ms"),
    }


# --- another priority ---------------------------------------------------------------------------------------------------------
async def _change_priority(service: Service, call: structs.changePriority_args) -> Sequence[structs.MovedJob]:
    return await service.bulk.change_priority(call.request)


def _priority_asked(call: Any) -> Fields:
    request = call.request
    return {"queue": request.queue, "named": len(request.descriptors), "priority": request.priority}


def _moved(answer: Any) -> Fields:
    """Some of the jobs, with their descriptors before and afterwards: the entry is all that leads from the one to the other."""
    moved = [job for job in answer if job.outcome == Outcome.APPLIED and job.moved_to != job.descriptor]
    return {"moved": [f"{job.descriptor} to {job.moved_to}" for job in moved[:_MOVED_MAX]]}


# --- delete -------------------------------------------------------------------------------------------------------------------
async def _delete_jobs(service: Service, call: structs.deleteJobs_args) -> int:
    return await service.bulk.delete_jobs(call.request)


def _delete_asked(call: Any) -> Fields:
    request = call.request
    return {
        "queue": request.queue,
        "state": STATE_NAMES.get(request.state, request.state),
        "priority": request.priority,
        "by_regex": request.regex is not None,
        "limit": request.limit,
    }


async def _delete_by_descriptor(service: Service, call: structs.deleteJobsByDescriptor_args) -> int:
    return await service.bulk.delete_jobs_by_descriptor(call.queue, call.descriptors)


METHODS = [
    ServedMethod(
        "cancelJobs",
        handle=_cancel_jobs,
        queues=queue_of_call,
        administrative=Administrative(_named_jobs, affected=_applied),
    ),
    ServedMethod(
        "retryFailedJobs",
        handle=_retry_failed_jobs,
        queues=queue_of_request,
        administrative=Administrative(_retry_asked, affected=int),
    ),
    ServedMethod(
        "runJobs",
        handle=_run_jobs,
        queues=queue_of_request,
        administrative=Administrative(_run_asked, affected=_applied),
    ),
    ServedMethod(
        "changePriority",
        handle=_change_priority,
        queues=queue_of_request,
        administrative=Administrative(_priority_asked, affected=_applied, answered=_moved),
    ),
    ServedMethod(
        "deleteJobs",
        handle=_delete_jobs,
        queues=queue_of_request,
        chosen=chosen_by_regex,
        cost_bytes=cost_of_search,
        searches=True,
        administrative=Administrative(_delete_asked, affected=int),
    ),
    ServedMethod(
        "deleteJobsByDescriptor",
        handle=_delete_by_descriptor,
        queues=queue_of_call,
        administrative=Administrative(_named_jobs, affected=int),
    ),
]
