"""Claims: what workers send, and the outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, UnsetType

from pinlater.console.shapes.fields import (
    AnswerShape,
    Attempts,
    BodyBase64,
    BodyMasked,
    BodyText,
    Limit,
    Moment,
    RequestShape,
    Span,
    Token,
)


class ClaimItem(RequestShape, frozen=True, kw_only=True):
    """A claim as its holder names it."""

    descriptor: str
    token: Annotated[str, Meta(description="The claim token.")]


class AckItem(RequestShape, frozen=True, kw_only=True):
    """The end of an attempt."""

    descriptor: str
    token: Token = None
    succeeded: bool = True
    append_status: Annotated[str, Meta(description="Text that is added to the custom status.")] = ""
    retry_delay_ms: Annotated[Span, Meta(description="A failed job is due again after this span.")] = 0
    final: Annotated[bool, Meta(description="A failed job is not retried, whatever attempts it has.")] = False
    error_type: str = ""
    error_text: str = ""


class AckRequest(RequestShape, frozen=True, kw_only=True):
    """The ends of attempts."""

    jobs: Annotated[Sequence[AckItem], Meta(min_length=1)]


class DequeueRequest(RequestShape, frozen=True, kw_only=True):
    """How many jobs to claim."""

    limit: Limit = 1
    wait_ms: Annotated[int, Meta(ge=0, le=60_000, description="How long to wait for a job.")] = 0
    acks: Annotated[Sequence[AckItem], Meta(description="Acks that the server executes before it claims.")] = ()
    coverage: Annotated[
        float, Meta(gt=0, le=1, description="The share of the shards to claim from, at least one shard.")
    ] = 1.0
    dry_run: Annotated[bool, Meta(description="Shows jobs and claims none.")] = False


class HeartbeatRequest(RequestShape, frozen=True, kw_only=True):
    """The claims to renew."""

    jobs: Annotated[Sequence[ClaimItem], Meta(min_length=1)]


class ReleaseRequest(RequestShape, frozen=True, kw_only=True):
    """The claims to give back."""

    jobs: Annotated[Sequence[ClaimItem], Meta(min_length=1)]
    delay_ms: Annotated[Span, Meta(description="The jobs are due after this span.")] = 0


class CheckpointItem(RequestShape, frozen=True, kw_only=True):
    """Progress of a job. At most one of the three bodies is given, and replaces the body of the job."""

    descriptor: str
    token: Token = None
    body: Annotated[str | UnsetType, Meta(description="A new body as text.")] = UNSET
    body_json: Annotated[Raw, Meta(description="A new body as a JSON value.")] | UnsetType = UNSET
    body_base64: Annotated[str | UnsetType, Meta(description="A new body in base64.")] = UNSET
    prepend_status: Annotated[str, Meta(description="Text that is put before the custom status.")] = ""
    move_to_pending: Annotated[bool, Meta(description="Ends the claim; the job goes back to the queue.")] = False
    run_after_ms: Annotated[Moment | None, Meta(description="When a job that goes back is due.")] = None
    attempts_allowed: Attempts | None = None


class CheckpointRequest(RequestShape, frozen=True, kw_only=True):
    """Progress of jobs."""

    jobs: Annotated[Sequence[CheckpointItem], Meta(min_length=1)]


class ClaimedJobItem(AnswerShape, frozen=True, kw_only=True):
    """A claimed job."""

    descriptor: str
    token: Annotated[str | None, Meta(description="Send it with each ack, heartbeat, checkpoint and release.")]
    body: BodyText
    body_base64: BodyBase64
    body_masked: BodyMasked
    headers: Mapping[str, str]
    attempt: Annotated[int, Meta(description="Counts from 1.")]
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
    """What became of one job."""

    descriptor: str
    outcome: Literal["applied", "already_final", "stale_claim", "not_found", "error"]
    holder: Annotated[str | None, Meta(description="With `stale_claim`: the claim descriptor of the present holder.")]
    held_since_ms: int | None
    claim_deadline_at_ms: int | None
    error: Annotated[ItemError | None, Meta(description="With `error`. A repeat of the item is safe.")]


class ResultsAnswer(AnswerShape, frozen=True, kw_only=True):
    """What became of each job, in the order of the request."""

    results: Sequence[ResultItem]


class MovedJobItem(AnswerShape, frozen=True, kw_only=True):
    """What became of one job that was to get another priority."""

    descriptor: str
    outcome: Literal["applied", "already_final", "stale_claim", "not_found"]
    moved_to: Annotated[str | None, Meta(description="With `applied`: the descriptor of the job from now on.")]
    holder: Annotated[str | None, Meta(description="With `stale_claim`: the claim descriptor of the present holder.")]
    held_since_ms: int | None


class MovedJobsAnswer(AnswerShape, frozen=True, kw_only=True):
    """What became of each job, in the order of the request."""

    results: Sequence[MovedJobItem]


class ClaimedJobsAnswer(AnswerShape, frozen=True, kw_only=True):
    """Claimed jobs in the order to run them, and what became of the acks."""

    jobs: Sequence[ClaimedJobItem]
    results: Sequence[ResultItem]
