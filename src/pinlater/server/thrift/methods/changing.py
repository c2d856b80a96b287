"""Operators' changes of jobs: cancel, retry, run now, another priority, delete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pinlater.domain.job import JobState, Outcome
from pinlater.server.operations.job_queries import check_state
from pinlater.server.operations.service import Service
from pinlater.server.thrift.administrative import Administrative, Fields, given
from pinlater.server.thrift.methods.looking import chosen_by_regex, cost_of_search
from pinlater.server.thrift.methods.record import ServedMethod, queue_of_call, queue_of_request

_MOVED_MAX = 5
STATE_NAMES: Mapping[int, str] = {int(state): state.name for state in JobState}


def _applied(answer: Any) -> int:
    return sum(each.outcome == Outcome.APPLIED for each in answer)


def _named_jobs(call: Any) -> Fields:
    return {"queue": call.queue, "named": len(call.descriptors)}


def _named_jobs_in_state(call: Any) -> Fields:
    return {**_named_jobs(call), "state": STATE_NAMES.get(call.state, call.state)}


# --- retry and run now --------------------------------------------------------------------------------------------------------
def _retry_asked(call: Any) -> Fields:
    request = call.request
    return {
        "queue": request.queue,
        "priority": request.priority,
        "limit": request.limit,
        **given(request, "attempts", "run_after_ms", "skip_cancelled"),
    }


def _run_asked(call: Any) -> Fields:
    request = call.request
    return {
        "queue": request.queue,
        "named": len(request.descriptors),
        **given(request, "attempts", "run_after_ms", "only_failed"),
    }


# --- another priority ---------------------------------------------------------------------------------------------------------
def _priority_asked(call: Any) -> Fields:
    request = call.request
    return {"queue": request.queue, "named": len(request.descriptors), "priority": request.priority}


def _moved(answer: Any) -> Fields:
    """Some of the jobs, with their descriptors before and afterwards: the entry is the only link between the two."""
    moved = [job for job in answer if job.outcome == Outcome.APPLIED and job.moved_to != job.descriptor]
    return {"moved": [f"{job.descriptor} to {job.moved_to}" for job in moved[:_MOVED_MAX]]}


# --- delete -------------------------------------------------------------------------------------------------------------------
def _delete_asked(call: Any) -> Fields:
    request = call.request
    return {
        "queue": request.queue,
        "state": STATE_NAMES.get(request.state, request.state),
        "priority": request.priority,
        "by_regex": request.regex is not None,
        "limit": request.limit,
    }


async def _delete_in_state(service: Service, call: Any) -> int:
    check_state(call.state)
    return await service.bulk.delete_jobs_by_descriptor(call.queue, call.descriptors, JobState(call.state))


METHODS = [
    ServedMethod(
        "cancelJobs",
        handle=lambda service, call: service.claimed_jobs.cancel(call.queue, call.descriptors),
        queues=queue_of_call,
        administrative=Administrative(_named_jobs, affected=_applied),
    ),
    ServedMethod(
        "retryFailedJobs",
        handle=lambda service, call: service.bulk.retry_failed(call.request),
        queues=queue_of_request,
        administrative=Administrative(_retry_asked, affected=int),
    ),
    ServedMethod(
        "runJobs",
        handle=lambda service, call: service.bulk.run_jobs(call.request),
        queues=queue_of_request,
        administrative=Administrative(_run_asked, affected=_applied),
    ),
    ServedMethod(
        "changePriority",
        handle=lambda service, call: service.bulk.change_priority(call.request),
        queues=queue_of_request,
        administrative=Administrative(_priority_asked, affected=_applied, answered=_moved),
    ),
    ServedMethod(
        "deleteJobs",
        handle=lambda service, call: service.bulk.delete_jobs(call.request),
        queues=queue_of_request,
        chosen=chosen_by_regex,
        cost_bytes=cost_of_search,
        searches=lambda call: call.request.regex is not None,
        administrative=Administrative(_delete_asked, affected=int),
    ),
    ServedMethod(
        "deleteJobsByDescriptor",
        handle=lambda service, call: service.bulk.delete_jobs_by_descriptor(call.queue, call.descriptors),
        queues=queue_of_call,
        administrative=Administrative(_named_jobs, affected=int),
    ),
    ServedMethod(
        "deleteJobsInState",
        handle=_delete_in_state,
        queues=queue_of_call,
        administrative=Administrative(_named_jobs_in_state, affected=int),
    ),
]
