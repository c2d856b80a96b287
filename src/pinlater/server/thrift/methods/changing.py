"""Operators' changes of jobs: cancel, retry, run now, another priority, delete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pinlater.domain.calls import MovedJob
from pinlater.domain.job import JobState, Outcome
from pinlater.server.operations.long_lists import in_turns
from pinlater.server.operations.service import Service
from pinlater.server.operations.values import JobFilter
from pinlater.server.thrift.audit import Audited, Fields, given
from pinlater.server.thrift.methods.jobs import ack_outcomes
from pinlater.server.thrift.methods.looking import chosen_by_regex, cost_of_search, number, state_of
from pinlater.server.thrift.methods.record import ServedMethod, queue_of_call, queue_of_request
from pinlater.wire.generated import received
from pinlater.wire.generated import ttypes as types

_MOVED_MAX = 5
STATE_NAMES: Mapping[int, str] = {int(state): state.name for state in JobState}


def _applied(answer: Any) -> int:
    return sum(each.outcome == Outcome.APPLIED for each in answer)


def _named_jobs(call: Any) -> Fields:
    return {"queue": call.queueName, "named": len(call.jobDescriptors)}


async def _cancel_jobs(service: Service, call: received.cancelJobs_args) -> list[types.AckOutcome]:
    results = await service.claimed_jobs.cancel(call.queueName, call.jobDescriptors)
    return await in_turns(results, ack_outcomes)


# --- retry and run now --------------------------------------------------------------------------------------------------------
async def _retry_failed_jobs(service: Service, call: received.retryFailedJobs_args) -> int:
    request = call.request
    return number(
        await service.bulk.retry_failed(
            request.queueName,
            request.priority,
            request.attemptsToAllow,
            request.runAfterTimestampMillis,
            request.limit,
            skip_cancelled=bool(request.skipCancelled),
        )
    )


def _retry_asked(call: Any) -> Fields:
    request = call.request
    return {
        "queue": request.queueName,
        "priority": request.priority,
        "limit": request.limit,
        **given(request, "attemptsToAllow", "runAfterTimestampMillis", "skipCancelled"),
    }


async def _run_jobs(service: Service, call: received.runJobs_args) -> list[types.AckOutcome]:
    request = call.request
    results = await service.bulk.run_jobs(
        request.queueName, request.jobDescriptors, request.attemptsToAllow, request.runAfterTimestampMillis
    )
    return await in_turns(results, ack_outcomes)


def _run_asked(call: Any) -> Fields:
    request = call.request
    return {
        "queue": request.queueName,
        "named": len(request.jobDescriptors),
        **given(request, "attemptsToAllow", "runAfterTimestampMillis"),
    }


# --- another priority ---------------------------------------------------------------------------------------------------------
async def _change_priority(service: Service, call: received.changePriority_args) -> list[types.MovedJob]:
    request = call.request
    results = await service.bulk.change_priority(request.queueName, request.jobDescriptors, request.priority)
    return await in_turns(results, _moved_jobs)


def _moved_jobs(results: Sequence[MovedJob]) -> list[types.MovedJob]:
    return [
        types.MovedJob(descriptor, outcome, moved_to or None, holder or None, held_since_ms)
        for descriptor, outcome, moved_to, holder, held_since_ms in results
    ]


def _priority_asked(call: Any) -> Fields:
    request = call.request
    return {"queue": request.queueName, "named": len(request.jobDescriptors), "priority": request.priority}


def _moved(answer: Any) -> Fields:
    """Some of the jobs, with their descriptors before and afterwards: the entry is all that leads from the one to the other."""
    moved = [job for job in answer if job.outcome == Outcome.APPLIED and job.movedTo != job.descriptor]
    return {"moved": [f"{job.descriptor} to {job.movedTo}" for job in moved[:_MOVED_MAX]]}


# --- delete -------------------------------------------------------------------------------------------------------------------
async def _delete_jobs(service: Service, call: received.deleteJobs_args) -> int:
    request = call.request
    jobs = JobFilter(request.queueName, state_of(request.jobState), request.priority, False, request.bodyRegexToMatch)
    return number(await service.bulk.delete_jobs(jobs, request.limit))


def _delete_asked(call: Any) -> Fields:
    request = call.request
    return {
        "queue": request.queueName,
        "state": STATE_NAMES.get(request.jobState, request.jobState),
        "priority": request.priority,
        "by_regex": request.bodyRegexToMatch is not None,
        "limit": request.limit,
    }


async def _delete_by_descriptor(service: Service, call: received.deleteJobsByDescriptor_args) -> int:
    return number(await service.bulk.delete_jobs_by_descriptor(call.queueName, call.jobDescriptors))


METHODS = [
    ServedMethod(
        "cancelJobs", handle=_cancel_jobs, queues=queue_of_call, audited=Audited(_named_jobs, affected=_applied)
    ),
    ServedMethod(
        "retryFailedJobs",
        handle=_retry_failed_jobs,
        queues=queue_of_request,
        audited=Audited(_retry_asked, affected=int),
    ),
    ServedMethod("runJobs", handle=_run_jobs, queues=queue_of_request, audited=Audited(_run_asked, affected=_applied)),
    ServedMethod(
        "changePriority",
        handle=_change_priority,
        queues=queue_of_request,
        audited=Audited(_priority_asked, affected=_applied, answered=_moved),
    ),
    ServedMethod(
        "deleteJobs",
        handle=_delete_jobs,
        queues=queue_of_request,
        chosen=chosen_by_regex,
        cost_bytes=cost_of_search,
        searches=True,
        audited=Audited(_delete_asked, affected=int),
    ),
    ServedMethod(
        "deleteJobsByDescriptor",
        handle=_delete_by_descriptor,
        queues=queue_of_call,
        audited=Audited(_named_jobs, affected=int),
    ),
]
