"""Jobs: look up, list, count, explain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any, Literal

from pinlater.client import JobCount, JobState
from pinlater.client._filtered_jobs import SCAN_END, SCAN_START, count_all
from pinlater.client.values import JobInfo
from pinlater.console import costs
from pinlater.console.endpoint import ApiCall, Content, endpoint
from pinlater.console.endpoints.fields import (
    I32_MAX,
    AnswerShape,
    Bodies,
    BodyBase64,
    BodyMasked,
    Future,
    Incomplete,
    Limit,
    Nothing,
    OfShard,
    PartitionNumberItem,
    RequestShape,
    State,
    doc,
)
from pinlater.console.endpoints.filters import JobsFilter
from pinlater.console.endpoints.forms import body_shown, filter_of, like, state_of
from pinlater.console.problems import refused
from pinlater.domain.job_filter import group_of

SECONDS = 5.0
"""How long one request counts or changes the jobs that a filter selects."""
_HOLDERS_MAX = 200  # jobs that hold a unique key, in an answer of a server
_JOBS, _JOB = "/v1/queues/{queue}/jobs", "/v1/jobs/{descriptor}"


class BodiesQuery(RequestShape, frozen=True, kw_only=True):
    """Selects whether bodies are included."""

    bodies: Bodies = False


class CountQuery(JobsFilter, frozen=True, kw_only=True):
    """Selects jobs of a queue."""

    state: State = "pending"
    future: Future = False


class ScanQuery(JobsFilter, frozen=True, kw_only=True):
    """Selects jobs of a queue, and how many to return."""

    state: State = "pending"
    future: Future = False
    shard: OfShard = None
    limit: Limit = 100
    continuation: Annotated[str | None, doc("From the previous answer.")] = None
    bodies: Bodies = False


class LookupRequest(RequestShape, frozen=True, kw_only=True):
    """The jobs to look up."""

    descriptors: Annotated[Sequence[str], doc("Descriptors of jobs of any queues.", min_length=1)]
    bodies: Bodies = False


class AttemptItem(AnswerShape, frozen=True, kw_only=True):
    """The end of one attempt: `succeeded`, `failed`, `timed_out` or `cancelled`."""

    number: int
    claimed_by: str
    claimed_at_ms: int
    ended_at_ms: int
    outcome: str
    error_type: str
    error_text: str


class JobItem(AnswerShape, frozen=True, kw_only=True):
    """Everything that a server knows about a job."""

    descriptor: str
    state: State
    attempts_allowed: int
    attempts_remaining: int
    custom_status: str
    progress: Annotated[str, doc("The latest progress that the job reported; empty if it reported none.")]
    created_at_ms: int
    run_after_ms: int | None
    updated_at_ms: int | None
    finished_at_ms: int | None
    expires_at_ms: int | None
    claim_descriptor: str | None
    claim_deadline_at_ms: int | None
    headers: Mapping[str, str]
    unique_key: str | None
    ordering_key: str | None
    error_type: str
    error_text: str
    attempts: Annotated[Sequence[AttemptItem], doc("The latest attempts that failed or timed out.")]
    failure_group: Annotated[str | None, doc("The name of the group of failures of a failed job; null for others.")]
    body: Annotated[str | None, doc("The body as text; null if it is not UTF-8 or was not asked for.")]
    body_base64: BodyBase64
    body_masked: BodyMasked


class ReasonItem(AnswerShape, frozen=True, kw_only=True):
    """One reason why a job waits."""

    code: Annotated[
        Literal[
            "paused",
            "not_due",
            "stopped",
            "rate_limit",
            "workers_busy",
            "no_worker",
            "behind",
            "behind_key",
            "behind_former",
            "next",
            "claimed",
            "succeeded",
            "failed",
            "cancelled",
            "expired",
            "quarantined",
            "shard_unreachable",
            "shard_drains",
        ],
        doc("For programs; others may be added."),
    ]
    text: Annotated[str, doc("One or two sentences for people.")]
    figures: Annotated[
        Mapping[str, bool | int | float | str],
        doc("The numbers in the text: times end in `_at_ms`, durations in `_ms`. Unknown ones are left out."),
    ]


class ExplainAnswer(AnswerShape, frozen=True, kw_only=True):
    """Why a job waits, as the server that answers knows it."""

    descriptor: str
    state: Annotated[State | None, doc("Null if the shard of the job is unreachable.")]
    reasons: Annotated[
        Sequence[ReasonItem],
        doc("The reason to deal with first comes first. For a job that does not wait: who runs it, or how it ended."),
    ]
    partition_number: Annotated[
        PartitionNumberItem | None,
        doc("The number of partitions that the queue should have; null if there is only one shard."),
    ] = None


class LookupAnswer(AnswerShape, frozen=True, kw_only=True):
    """The jobs that exist, in the order of the request."""

    jobs: Sequence[JobItem]


class UniqueKeyQuery(RequestShape, frozen=True, kw_only=True):
    """Names a unique key."""

    unique_key: Annotated[str, doc("The whole key.", min_length=1, max_length=1_000)]
    queue: Annotated[Sequence[str], doc("A queue; may be repeated. Without it: all queues.")] = ()


class KeyHoldersAnswer(AnswerShape, frozen=True, kw_only=True):
    """The jobs that hold a unique key now."""

    jobs: Sequence[JobItem]
    incomplete: Annotated[bool, doc("A shard was unreachable, or more jobs than shown hold the key.")]


class ScanAnswer(AnswerShape, frozen=True, kw_only=True):
    """Jobs, newest first."""

    jobs: Sequence[JobItem]
    continuation: Annotated[str | None, doc("Send it to get the next jobs; null if there are none.")]
    incomplete: Annotated[
        bool,
        doc(
            "A shard was unreachable, or a time limit shortened the answer. With a continuation, the next request "
            "continues there."
        ),
    ]


class JobCountAnswer(AnswerShape, frozen=True, kw_only=True):
    """The number of jobs that a filter finds, or that a call changed."""

    jobs: int
    incomplete: Incomplete = False


def job_shown(job: JobInfo) -> JobItem:
    """All that is known about a job."""
    failure_group = (group_of(job) or None) if job.state is JobState.FAILED else None
    deadline_ms, body = job.claim_deadline_ms, body_shown(job.body)
    return like(JobItem, job, claim_deadline_at_ms=deadline_ms, failure_group=failure_group, **body)


@endpoint("GET", _JOB, calls="lookup")
async def get_job(call: ApiCall[BodiesQuery, Nothing]) -> JobItem:
    """Returns what is known about a job."""
    return job_shown(await _found(call, bodies=call.query.bodies))


@endpoint("GET", f"{_JOB}/explain", calls="explain_job")
async def explain_job(call: ApiCall[Nothing, Nothing]) -> ExplainAnswer:
    """Explains why a job waits: a pause, its due time, a rate limit, no worker, or jobs before it and when its turn comes. For other jobs:
    who runs the job, or how it ended."""
    found = await call.client.explain_job(call.descriptor.partition(":")[0], call.descriptor)
    if found.missing:
        raise _no_such_job(call.descriptor)
    return ExplainAnswer(
        descriptor=found.descriptor,
        state=None if found.job is None else found.job.state.name.lower(),  # type: ignore[arg-type]
        reasons=[like(ReasonItem, reason) for reason in found.reasons()],
        partition_number=like(PartitionNumberItem, number) if (number := found.queue.partition_number) else None,
    )


@endpoint("GET", f"{_JOB}/body", calls="lookup")
async def get_job_body(call: ApiCall[Nothing, Nothing]) -> Content:
    """Returns the body of a job, byte for byte. A caller that may not see it gets no body, because a program could mistake the masked one
    for the real one.
    """
    job = await _found(call, bodies=True)
    if job.body_masked:
        detail = "The body is masked for your roles; the job shows what you may see"
        raise refused(HTTPStatus.FORBIDDEN, "BODY_MASKED", detail)
    return Content(job.body or b"")


async def _found(call: ApiCall[Any, Nothing], *, bodies: bool) -> JobInfo:
    jobs = await call.client.lookup([call.descriptor], bodies=bodies)
    if call.descriptor not in jobs:
        raise _no_such_job(call.descriptor)
    return jobs[call.descriptor]


def _no_such_job(descriptor: str) -> Exception:
    return refused(HTTPStatus.NOT_FOUND, "JOB_NOT_FOUND", f"There is no job {descriptor[:200]}")


@endpoint(
    "POST",
    "/v1/jobs/lookup",
    calls="lookup",
    cost=lambda call: costs.of_jobs(len(call.body.descriptors), bodies=call.body.bodies),
)
async def lookup_jobs(call: ApiCall[Nothing, LookupRequest]) -> LookupAnswer:
    """Returns what is known about several jobs, of any queues. Jobs that do not exist are left out."""
    found = await call.client.lookup(call.body.descriptors, bodies=call.body.bodies)
    return LookupAnswer(jobs=[job_shown(job) for job in found.values()])


@endpoint("GET", "/v1/jobs", calls="find_unique_key", cost=lambda _: costs.of_jobs(_HOLDERS_MAX))
async def find_unique_key(call: ApiCall[UniqueKeyQuery, Nothing]) -> KeyHoldersAnswer:
    """Finds the jobs that hold a unique key now, by an index. A job whose key is free again is not found."""
    found = await call.client.find_unique_key(call.query.unique_key, *call.query.queue)
    return KeyHoldersAnswer(jobs=[job_shown(job) for job in found.jobs], incomplete=found.incomplete)


# If jobs are compared, the cost is that of the jobs found so far and of a page of jobs to compare.
@endpoint("GET", _JOBS, calls="scan", cost=lambda call: costs.of_jobs(call.query.limit, bodies=call.query.bodies))
async def scan_jobs(call: ApiCall[ScanQuery, Nothing]) -> ScanAnswer:
    """Lists jobs in a state, newest first, in pages. With a filter by more than `priority`, one request compares only some of the jobs: it
    may return fewer than `limit`, or none, with a continuation."""
    query = call.query
    page = await call.client.scan(
        call.queue,
        filter=filter_of(query, state_of(query.state)),
        future=query.future,
        limit=query.limit,
        continuation=query.continuation or SCAN_START,
        bodies=query.bodies,
        shard=query.shard,
    )
    continuation = None if page.continuation == SCAN_END else page.continuation
    return ScanAnswer(jobs=[job_shown(job) for job in page.jobs], continuation=continuation, incomplete=page.incomplete)


@endpoint("GET", f"{_JOBS}/count", calls="count_jobs")
async def count_jobs(call: ApiCall[CountQuery, Nothing]) -> JobCountAnswer:
    """Counts jobs in a state. With a filter by more than `priority` it reads jobs for a few seconds, and the answer may be incomplete."""
    query = call.query
    wanted = filter_of(query, state_of(query.state))
    counted = await count_all(call.client, call.queue, wanted, (query.future,), seconds=SECONDS)
    return JobCountAnswer(**counted_within(counted, I32_MAX))


def counted_within(counted: JobCount, limit: int) -> dict[str, Any]:
    """How many jobs, at most `limit`, and whether there may be more, as the fields of an answer."""
    return {"jobs": min(counted.jobs, limit), "incomplete": counted.incomplete and counted.jobs < limit}
