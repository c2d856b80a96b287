"""Looks at jobs: by descriptor, by unique key, by a scan, and counts of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from pinlater.domain.access import BODIES
from pinlater.domain.body_masks import BodyMasks
from pinlater.domain.calls import KeyHolders
from pinlater.domain.errors import InvalidArgument
from pinlater.domain.job import Attempt, JobInfo, JobState
from pinlater.server.operations.job_queries import HOLDERS_MAX
from pinlater.server.operations.job_settings import PAGES_BYTES_MAX
from pinlater.server.operations.long_lists import JOBS_A_TURN, in_turns
from pinlater.server.operations.service import Service
from pinlater.server.operations.values import JobFilter, ScanCommand
from pinlater.server.thrift.costs import MemoryBounds
from pinlater.server.thrift.masking import Turns, mask_info
from pinlater.server.thrift.methods.record import (
    Chosen,
    ServedMethod,
    known_caller_of,
    queue_of_request,
    queues_of_request,
)
from pinlater.wire.generated import structs

I32_MAX = 2**31 - 1
_STATES = {int(state): state for state in JobState}


def state_of(number: int) -> JobState:
    """Returns the state with this number. Raises InvalidArgument for a number that is none."""
    state = _STATES.get(number)
    if state is None:
        raise InvalidArgument(f"{number} is not a job state; there are 0 PENDING, 1 IN_PROGRESS, 2 SUCCEEDED, 3 FAILED")
    return state


def number(value: int) -> int:
    """Returns a count, cut to what an i32 holds."""
    return min(value, I32_MAX)


def chosen_by_regex(call: Any) -> Chosen:
    """Returns what a request with a regex for bodies chooses jobs by."""
    return Chosen(call.request.queue, call.request.regex)


def cost_of_search(bounds: MemoryBounds, call: Any) -> int:
    """Returns what a call that shows no jobs needs if it looks into bodies."""
    del bounds
    return PAGES_BYTES_MAX if call.request.regex is not None else 0


# --- jobs as the wire shows them ----------------------------------------------------------------------------------------------
def job_info(job: JobInfo) -> structs.JobInfo:
    """Returns all that the wire shows of a job."""
    return structs.JobInfo(
        descriptor=job.descriptor,
        state=job.state,
        attempts_allowed=job.attempts_allowed,
        attempts_remaining=job.attempts_remaining,
        custom_status=job.custom_status,
        created_at_ms=job.created_at_ms,
        run_after_ms=job.run_after_ms,
        updated_at_ms=job.updated_at_ms,
        claim_descriptor=job.claim_descriptor,
        body=job.body,
        headers=job.headers or None,
        unique_key=job.unique_key,
        claim_deadline_ms=job.claim_deadline_ms,
        error_type=job.error_type or None,
        error_text=job.error_text or None,
        attempts=[_attempt(attempt) for attempt in job.attempts] or None,
        finished_at_ms=job.finished_at_ms,
        expires_at_ms=job.expires_at_ms,
        progress=job.progress or None,
    )


def _attempt(attempt: Attempt) -> structs.Attempt:
    return structs.Attempt(
        attempt.number,
        attempt.claimed_by,
        attempt.claimed_at_ms,
        attempt.ended_at_ms,
        attempt.outcome,
        attempt.error_type or None,
        attempt.error_text or None,
    )


def _job_infos(jobs: Sequence[JobInfo]) -> list[structs.JobInfo]:
    return [job_info(job) for job in jobs]


# --- by descriptor ------------------------------------------------------------------------------------------------------------
async def _lookup_jobs(service: Service, call: structs.lookupJobs_args) -> dict[str, structs.JobInfo]:
    request = call.request
    found = await service.job_queries.lookup(request.descriptors, bodies=request.bodies)
    return dict(await in_turns(found, _looked_up))


def _looked_up(jobs: Sequence[tuple[str, JobInfo]]) -> list[tuple[str, structs.JobInfo]]:
    return [(descriptor, job_info(job)) for descriptor, job in jobs]


def _queues_of_descriptors(call: Any) -> Collection[str]:
    return {descriptor.partition(":")[0] for descriptor in call.request.descriptors}


def _with_bodies(call: Any) -> str | None:
    return BODIES if call.request.bodies else None


async def _mask_looked_up(masks: BodyMasks, call: Any, answer: Any) -> None:
    del call
    turns = Turns()
    for descriptor, info in answer.items():
        await mask_info(turns, masks.of(descriptor.partition(":")[0]), info)


def _cost_of_lookup(bounds: MemoryBounds, call: Any) -> int:
    return bounds.shown(len(call.request.descriptors), bodies=call.request.bodies)


# --- by unique key ------------------------------------------------------------------------------------------------------------
async def _find_unique_key(service: Service, call: structs.findUniqueKey_args) -> structs.KeyHolders:
    """Looks into the queues of the token where a call names none, so that what is in others takes no place in the answer."""
    queues, known = call.request.queues, known_caller_of(call)
    if not queues and known is not None and known.queues is not None:
        queues = sorted(filter(known.queues, await service.queues.queue_names()))
        if not queues:
            return _key_holders(KeyHolders(()), [])
    found = await service.job_queries.find_unique_key(queues, call.request.unique_key)
    return _key_holders(found, await in_turns(found.jobs, _job_infos, JOBS_A_TURN))


def _key_holders(value: KeyHolders, jobs: list[structs.JobInfo]) -> structs.KeyHolders:
    return structs.KeyHolders(jobs, value.incomplete or None)


async def _mask_holders(masks: BodyMasks, call: Any, answer: Any) -> None:
    del call
    turns = Turns()
    for info in answer.jobs:
        await mask_info(turns, masks.of(info.descriptor.partition(":")[0]), info)


def _cost_of_holders(bounds: MemoryBounds, call: Any) -> int:
    del call
    return bounds.shown(HOLDERS_MAX, bodies=False)


# --- scans and counts ---------------------------------------------------------------------------------------------------------
async def _scan_jobs(service: Service, call: structs.scanJobs_args) -> structs.Scanned:
    found = await service.job_queries.scan(_scan_command(call.request))
    jobs = await in_turns(found.jobs, _job_infos, JOBS_A_TURN)
    return structs.Scanned(jobs, found.continuation, found.incomplete or None)


def _scan_command(request: structs.ScanRequest) -> ScanCommand:
    state = state_of(request.state)
    jobs = JobFilter(request.queue, state, request.priority, request.future, request.regex)
    paged, bodies = bool(request.paged), bool(request.bodies)
    return ScanCommand(jobs, request.limit, request.continuation, paged, bodies, request.shard or "")


async def _mask_scanned(masks: BodyMasks, call: Any, answer: Any) -> None:
    turns, mask = Turns(), masks.of(call.request.queue)
    for info in answer.jobs:
        await mask_info(turns, mask, info)


def _cost_of_scan(bounds: MemoryBounds, call: Any) -> int:
    request = call.request
    shown = bounds.shown(request.limit, bodies=request.bodies)
    if request.regex is not None:
        return shown + PAGES_BYTES_MAX
    return shown + bounds.read(request.limit) if request.bodies else shown


async def _get_job_count(service: Service, call: structs.getJobCount_args) -> int:
    return number(await service.job_queries.count(_count_filter(call.request)))


async def _count_jobs(service: Service, call: structs.countJobs_args) -> structs.JobCount:
    count = await service.job_queries.count_jobs(_count_filter(call.request))
    return structs.JobCount(count.jobs, count.incomplete or None)


def _count_filter(request: structs.JobFilter) -> JobFilter:
    state = state_of(request.state)
    return JobFilter(request.queue, state, request.priority, request.future, request.regex)


METHODS = [
    ServedMethod(
        "lookupJobs",
        handle=_lookup_jobs,
        queues=_queues_of_descriptors,
        variant=_with_bodies,
        mask=_mask_looked_up,
        cost_bytes=_cost_of_lookup,
        jobs_shown=lambda answer: answer,
    ),
    ServedMethod(
        "findUniqueKey",
        handle=_find_unique_key,
        queues=queues_of_request,
        wants_known_caller=True,
        mask=_mask_holders,
        cost_bytes=_cost_of_holders,
        jobs_shown=lambda answer: answer.jobs,
    ),
    ServedMethod(
        "scanJobs",
        handle=_scan_jobs,
        queues=queue_of_request,
        chosen=chosen_by_regex,
        mask=_mask_scanned,
        cost_bytes=_cost_of_scan,
        searches=True,
        jobs_shown=lambda answer: answer.jobs,
    ),
    ServedMethod(
        "getJobCount",
        handle=_get_job_count,
        queues=queue_of_request,
        chosen=chosen_by_regex,
        cost_bytes=cost_of_search,
        searches=True,
    ),
    ServedMethod("countJobs", handle=_count_jobs, queues=queue_of_request, chosen=chosen_by_regex),
]
