"""Claims: dequeue, ack, heartbeat, checkpoint, release. An error of one shard is the outcome of its items, never of the whole request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, UnsetType, structs

from pinlater.client import Ack, AckBatch, Checkpoint, Claim, ClaimedJob
from pinlater.client.errors import ConnectionLost
from pinlater.client.values import AckResult
from pinlater.console.endpoint import ApiCall, endpoint
from pinlater.console.endpoints.fields import (
    AnswerShape,
    Attempts,
    BodyBase64,
    BodyMasked,
    BodyText,
    Limit,
    Moment,
    Nothing,
    RequestShape,
    Span,
    Token,
    doc,
)
from pinlater.console.endpoints.forms import body_given, body_shown, like
from pinlater.console.problems import reason_of

_JOBS = "/v1/queues/{queue}/jobs"


class ClaimItem(RequestShape, frozen=True, kw_only=True):
    """A claim, as its holder identifies it."""

    descriptor: str
    token: Annotated[str, doc("The claim token.")]


class AckItem(RequestShape, frozen=True, kw_only=True):
    """The end of an attempt."""

    descriptor: str
    token: Token = None
    succeeded: bool = True
    append_status: Annotated[str, doc("Text to append to the custom status.")] = ""
    retry_delay_ms: Annotated[Span, doc("The delay until a failed job is due again.")] = 0
    final: Annotated[bool, doc("A failed job is not retried, even if attempts remain.")] = False
    error_type: str = ""
    error_text: str = ""


class AckRequest(RequestShape, frozen=True, kw_only=True):
    """The ends of attempts."""

    jobs: Annotated[Sequence[AckItem], Meta(min_length=1)]


class DequeueRequest(RequestShape, frozen=True, kw_only=True):
    """The number of jobs to claim, and how long to wait."""

    limit: Limit = 1
    wait_ms: Annotated[int, doc("How long to wait for a job.", ge=0, le=60_000)] = 0
    acks: Annotated[Sequence[AckItem], doc("Acks that the server processes before it claims jobs.")] = ()
    coverage: Annotated[
        float, doc("The fraction of the shards to claim from; at least one shard is used.", gt=0, le=1)
    ] = 1.0
    dry_run: Annotated[bool, doc("Returns jobs without claiming them.")] = False


class HeartbeatRequest(RequestShape, frozen=True, kw_only=True):
    """The claims to renew."""

    jobs: Annotated[Sequence[ClaimItem], Meta(min_length=1)]


class ReleaseRequest(RequestShape, frozen=True, kw_only=True):
    """The claims to release."""

    jobs: Annotated[Sequence[ClaimItem], Meta(min_length=1)]
    delay_ms: Annotated[Span, doc("The delay until the jobs are due again.")] = 0


class CheckpointItem(RequestShape, frozen=True, kw_only=True):
    """Progress of a job. At most one of the three bodies may be given; it replaces the body of the job."""

    descriptor: str
    token: Token = None
    body: Annotated[str | UnsetType, doc("A new body as text.")] = UNSET
    body_json: Annotated[Raw, doc("A new body as a JSON value.")] | UnsetType = UNSET
    body_base64: Annotated[str | UnsetType, doc("A new body in base64.")] = UNSET
    prepend_status: Annotated[str, doc("Text to prepend to the custom status.")] = ""
    move_to_pending: Annotated[bool, doc("Ends the claim and returns the job to the queue.")] = False
    run_after_ms: Annotated[Moment | None, doc("When a job that is returned to the queue is due.")] = None
    attempts_allowed: Attempts | None = None


class CheckpointRequest(RequestShape, frozen=True, kw_only=True):
    """Progress of jobs."""

    jobs: Annotated[Sequence[CheckpointItem], Meta(min_length=1)]


class ClaimedJobItem(AnswerShape, frozen=True, kw_only=True):
    """A claimed job."""

    descriptor: str
    token: Annotated[str | None, doc("Send it with each ack, heartbeat, checkpoint and release.")]
    body: BodyText
    body_base64: BodyBase64
    body_masked: BodyMasked
    headers: Mapping[str, str]
    attempt: Annotated[int, doc("The number of the attempt, from 1.")]
    attempts_allowed: int
    attempts_remaining: int
    created_at_ms: int | None
    claim_deadline_at_ms: int | None


class ItemError(AnswerShape, frozen=True, kw_only=True):
    """Why a shard could not execute an item, or may not have executed it."""

    code: str
    reason: str
    detail: str
    retryable: bool
    retry_after_ms: int | None


class ResultItem(AnswerShape, frozen=True, kw_only=True):
    """The outcome for one job."""

    descriptor: str
    outcome: Literal["applied", "already_final", "stale_claim", "not_found", "error"]
    holder: Annotated[str | None, doc("With `stale_claim`: the claim descriptor of the present holder.")]
    held_since_ms: int | None
    claim_deadline_at_ms: int | None
    error: Annotated[ItemError | None, doc("With `error`. It is safe to repeat the item.")]


class ResultsAnswer(AnswerShape, frozen=True, kw_only=True):
    """The outcome for each job, in the order of the request."""

    results: Sequence[ResultItem]


class MovedJobItem(AnswerShape, frozen=True, kw_only=True):
    """The outcome for one job whose priority was to be changed."""

    descriptor: str
    outcome: Literal["applied", "already_final", "stale_claim", "not_found"]
    moved_to: Annotated[str | None, doc("With `applied`: the descriptor of the job from now on.")]
    holder: Annotated[str | None, doc("With `stale_claim`: the claim descriptor of the present holder.")]
    held_since_ms: int | None


class MovedJobsAnswer(AnswerShape, frozen=True, kw_only=True):
    """The outcome for each job, in the order of the request."""

    results: Sequence[MovedJobItem]


class ClaimedJobsAnswer(AnswerShape, frozen=True, kw_only=True):
    """Claimed jobs in the order to run them, and the outcomes of the acks."""

    jobs: Sequence[ClaimedJobItem]
    results: Sequence[ResultItem]


async def _give_back(call: ApiCall[Nothing, DequeueRequest], answer: ClaimedJobsAnswer) -> None:
    """Releases jobs whose caller is gone."""
    claims = [Claim(job.descriptor, job.token) for job in answer.jobs if job.token]
    if claims and not call.body.dry_run:
        await call.client.release(call.queue, claims, per_item_errors=True)


@endpoint("POST", f"{_JOBS}/dequeue", calls="dequeue", give_back=_give_back)
async def dequeue(call: ApiCall[Nothing, DequeueRequest]) -> ClaimedJobsAnswer:
    """Claims due jobs, and can wait for one. A claim ends with an ack, with a release, or when it times out. If the caller
    disconnects, its jobs are released."""
    body = call.body
    acks = AckBatch(call.queue, _acks(body.acks), per_item_errors=True) if body.acks else None
    try:
        with call.poll_limit.place(body.wait_ms):
            dequeued = await call.client.dequeue(
                call.queue, body.limit, wait_ms=body.wait_ms, acks=acks, dry_run=body.dry_run, coverage=body.coverage
            )
    except ConnectionLost:
        if acks is None and call.stopping():
            return ClaimedJobsAnswer(jobs=[], results=[])
        raise
    return ClaimedJobsAnswer(jobs=list(map(_claimed, dequeued.jobs)), results=_items(dequeued.ack_results))


def _claimed(job: ClaimedJob) -> ClaimedJobItem:
    token, body = job.token or None, body_shown(job.body)
    return like(ClaimedJobItem, job, token=token, claim_deadline_at_ms=job.claim_deadline_ms, **body)


@endpoint("POST", f"{_JOBS}/ack", calls="ack")
async def ack_jobs(call: ApiCall[Nothing, AckRequest]) -> ResultsAnswer:
    """Ends attempts as succeeded or failed."""
    return results_shown(await call.client.ack(call.queue, _acks(call.body.jobs), per_item_errors=True))


def _acks(items: Sequence[AckItem]) -> list[Ack]:
    return [Ack(**structs.asdict(item)) for item in items]


def _claims(items: Sequence[ClaimItem]) -> list[Claim]:
    return [Claim(item.descriptor, item.token) for item in items]


@endpoint("POST", f"{_JOBS}/heartbeat", calls="heartbeat")
async def heartbeat_jobs(call: ApiCall[Nothing, HeartbeatRequest]) -> ResultsAnswer:
    """Renews claims."""
    return results_shown(await call.client.heartbeat(call.queue, _claims(call.body.jobs), per_item_errors=True))


@endpoint("POST", f"{_JOBS}/checkpoint", calls="checkpoint")
async def checkpoint_jobs(call: ApiCall[Nothing, CheckpointRequest]) -> ResultsAnswer:
    """Saves the progress of claimed jobs and renews their claims."""
    items = []
    for index, item in enumerate(call.body.jobs):
        fields = {name: getattr(item, name) for name in Checkpoint._fields if name != "new_body"}
        items.append(Checkpoint(**fields, new_body=body_given(item, f"jobs[{index}]")))
    return results_shown(await call.client.checkpoint(call.queue, items, per_item_errors=True))


@endpoint("POST", f"{_JOBS}/release", calls="release")
async def release_jobs(call: ApiCall[Nothing, ReleaseRequest]) -> ResultsAnswer:
    """Returns claimed jobs to the queue without spending an attempt."""
    claims = _claims(call.body.jobs)
    done = await call.client.release(call.queue, claims, delay_ms=call.body.delay_ms, per_item_errors=True)
    return results_shown(done)


def results_shown(results: Iterable[AckResult]) -> ResultsAnswer:
    """Returns the outcome of each job, in the order of `results`."""
    return ResultsAnswer(results=_items(results))


def _items(results: Iterable[AckResult]) -> list[ResultItem]:
    return [
        like(
            ResultItem,
            result,
            holder=result.holder or None,
            claim_deadline_at_ms=result.deadline_ms,
            error=_item_error(result),
        )
        for result in results
    ]


def _item_error(result: AckResult) -> ItemError | None:
    error = result.error
    if error is None:
        return None
    code = "" if error.code is None else error.code.name
    return like(ItemError, error, code=code, reason=reason_of(error), detail=error.message)
