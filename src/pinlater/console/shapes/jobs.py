"""Jobs: what to store, to look up and to change, and what is answered of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, UnsetType

from pinlater.console.shapes.fields import (
    AnswerShape,
    Attempts,
    BodyBase64,
    BodyMasked,
    Delay,
    Descriptors,
    Incomplete,
    Key,
    Limit,
    Moment,
    OfShard,
    PartitionNumberItem,
    Priority,
    RequestShape,
    RunAfter,
    Span,
    State,
)
from pinlater.console.shapes.filters import JobsFilter


class NewJobOptions(RequestShape, frozen=True, kw_only=True):
    """What holds for a job besides its body and headers."""

    priority: Priority = 1
    run_after_ms: RunAfter = None
    delay_ms: Delay = None
    attempts_allowed: Annotated[Attempts | None, Meta(description="Without it the default of the queue applies.")] = (
        None
    )
    custom_status: Annotated[str, Meta(description="Text that is shown with the job.")] = ""
    unique_key: Annotated[Key | None, Meta(description="At most one job of the queue holds it.")] = None
    unique_scope: Annotated[
        Literal["pending", "unfinished", "time"],
        Meta(
            description="How long the unique key is taken: until the first claim, until the job is finished, or for a span."
        ),
    ] = "unfinished"
    unique_for_ms: Annotated[Span | None, Meta(description="The span of scope `time`.")] = None
    ordering_key: Annotated[
        str | None,
        Meta(description="Jobs of the queue with the same key run one after the other. 1 to 128 bytes."),
    ] = None
    claim_timeout_ms: Annotated[Span | None, Meta(description="The claim timeout of this job.")] = None
    expires_at_ms: Annotated[Moment | None, Meta(description="The job fails if it waits until then.")] = None
    expires_in_ms: Annotated[Span | None, Meta(description="As `expires_at_ms`, from now on. Not with it.")] = None


class EnqueueQuery(NewJobOptions, frozen=True, kw_only=True):
    """The options of a job whose body is the body of the request."""

    header: Annotated[Sequence[str], Meta(description="A header of the job, as `NAME=VALUE`; may be repeated.")] = ()


class NewJobItem(NewJobOptions, frozen=True, kw_only=True):
    """A job to store. Exactly one of the three bodies is given."""

    body: Annotated[str | UnsetType, Meta(description="The body as text.")] = UNSET
    body_json: (
        Annotated[Raw, Meta(description="The body as a JSON value, stored as it is written here.")] | UnsetType
    ) = UNSET
    body_base64: Annotated[str | UnsetType, Meta(description="The body in base64.")] = UNSET
    headers: Annotated[Mapping[str, str], Meta(description="Headers of the job.")] = {}


class EnqueueBatchRequest(RequestShape, frozen=True, kw_only=True):
    """Jobs to store; on one shard all of them are stored, or none."""

    jobs: Annotated[Sequence[NewJobItem], Meta(min_length=1)]


class EnqueuedItem(AnswerShape, frozen=True, kw_only=True):
    """A stored job, or the one that holds its unique key."""

    descriptor: str
    existing: Annotated[bool, Meta(description="Another job held the unique key; nothing was stored.")]


class EnqueueBatchAnswer(AnswerShape, frozen=True, kw_only=True):
    """In the order of the request."""

    jobs: Sequence[EnqueuedItem]


class BodiesQuery(RequestShape, frozen=True, kw_only=True):
    """Whether bodies are wanted."""

    bodies: Annotated[bool, Meta(description="Answers the bodies of the jobs too.")] = False


class CountQuery(JobsFilter, frozen=True, kw_only=True):
    """Which jobs of a queue."""

    state: State = "pending"
    future: Annotated[bool, Meta(description="Pending jobs that are not due yet, instead of those that are.")] = False


class ScanQuery(JobsFilter, frozen=True, kw_only=True):
    """Which jobs of a queue, and how many."""

    state: State = "pending"
    future: Annotated[bool, Meta(description="Pending jobs that are not due yet, instead of those that are.")] = False
    shard: OfShard = None
    limit: Limit = 100
    continuation: Annotated[str | None, Meta(description="From the previous answer.")] = None
    bodies: Annotated[bool, Meta(description="Answers the bodies of the jobs too.")] = False


class LookupRequest(RequestShape, frozen=True, kw_only=True):
    """The jobs to look up."""

    descriptors: Annotated[Sequence[str], Meta(min_length=1, description="The names of jobs, of any queues.")]
    bodies: Annotated[bool, Meta(description="Answers the bodies of the jobs too.")] = False


class AttemptItem(AnswerShape, frozen=True, kw_only=True):
    """How one attempt ended: `succeeded`, `failed`, `timed_out` or `cancelled`."""

    number: int
    claimed_by: str
    claimed_at_ms: int
    ended_at_ms: int
    outcome: str
    error_type: str
    error_text: str


class JobItem(AnswerShape, frozen=True, kw_only=True):
    """All that a server knows of a job."""

    descriptor: str
    state: State
    attempts_allowed: int
    attempts_remaining: int
    custom_status: str
    progress: Annotated[str, Meta(description="The latest progress that the job reported; empty if it reported none.")]
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
    attempts: Annotated[Sequence[AttemptItem], Meta(description="The latest ones that failed or timed out.")]
    failure_group: Annotated[
        str | None, Meta(description="The name of the group of failures of a failed job; null for others.")
    ]
    body: Annotated[str | None, Meta(description="The body as text; null if it is not UTF-8 or was not asked for.")]
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
        Meta(description="For programs; others may be added."),
    ]
    text: Annotated[str, Meta(description="A sentence or two for people.")]
    figures: Annotated[
        Mapping[str, bool | int | float | str],
        Meta(
            description="What the text says in numbers: times end in `_at_ms`, spans in `_ms`. What is not known is left out."
        ),
    ]


class ExplainAnswer(AnswerShape, frozen=True, kw_only=True):
    """Why a job waits, as the server that answers knows it."""

    descriptor: str
    state: Annotated[State | None, Meta(description="Null if the shard of the job is unreachable.")]
    reasons: Annotated[
        Sequence[ReasonItem],
        Meta(description="What has to be changed first comes first. Or who runs the job, or how it ended."),
    ]
    partition_number: Annotated[
        PartitionNumberItem | None,
        Meta(description="How many partitions the queue is to have; null where there is one shard only."),
    ] = None


class LookupAnswer(AnswerShape, frozen=True, kw_only=True):
    """The jobs that exist, in the order of the request."""

    jobs: Sequence[JobItem]


class UniqueKeyQuery(RequestShape, frozen=True, kw_only=True):
    """Names a unique key."""

    unique_key: Annotated[str, Meta(min_length=1, max_length=1_000, description="The whole key.")]
    queue: Annotated[Sequence[str], Meta(description="A queue; may be repeated. Without it: all queues.")] = ()


class KeyHoldersAnswer(AnswerShape, frozen=True, kw_only=True):
    """The jobs that hold a unique key now."""

    jobs: Sequence[JobItem]
    incomplete: Annotated[bool, Meta(description="A shard was unreachable, or more jobs than shown hold the key.")]


class ScanAnswer(AnswerShape, frozen=True, kw_only=True):
    """Jobs, newest first."""

    jobs: Sequence[JobItem]
    continuation: Annotated[str | None, Meta(description="Send it to get the next jobs; null if there are none.")]
    incomplete: Annotated[
        bool,
        Meta(
            description="A shard was unreachable, or a limit of time made the answer shorter. With a continuation, the next request "
            "goes on there."
        ),
    ]


class JobCountAnswer(AnswerShape, frozen=True, kw_only=True):
    """The number of jobs that a filter finds, or that a call changed."""

    jobs: int
    incomplete: Incomplete = False


Continuation = Annotated[
    str | None, Meta(description="From the answer to a request with the same filter: goes on where that one ended.")
]
DryRun = Annotated[bool, Meta(description="Changes nothing: the answer has the number of jobs that would change.")]


class DescriptorsRequest(RequestShape, frozen=True, kw_only=True):
    """The jobs to change."""

    descriptors: Descriptors


class RunNowRequest(RequestShape, frozen=True, kw_only=True):
    """The jobs to run, at once unless a time is given."""

    descriptors: Descriptors
    attempts: Annotated[Attempts, Meta(description="Attempts of jobs that had failed.")] = 1
    run_after_ms: RunAfter = None
    delay_ms: Delay = None


class ChangePriorityRequest(RequestShape, frozen=True, kw_only=True):
    """The jobs that get another priority."""

    descriptors: Descriptors
    priority: Priority


class RetryFailedRequest(JobsFilter, frozen=True, kw_only=True):
    """Which failed jobs go back to the queue."""

    attempts: Annotated[Attempts, Meta(description="Attempts that each job gets.")] = 1
    limit: Limit = 1000
    run_after_ms: RunAfter = None
    delay_ms: Delay = None
    cancelled: Annotated[bool, Meta(description="Retries cancelled jobs too.")] = False
    continuation: Continuation = None
    dry_run: DryRun = False


class DeleteJobsQuery(JobsFilter, frozen=True, kw_only=True):
    """Which jobs to delete."""

    state: State
    limit: Limit = 1000
    for_good: Annotated[
        bool,
        Meta(
            description="Deletes jobs that a filter chooses without copies: frees space at once, and cannot be undone."
        ),
    ] = False
    continuation: Continuation = None
    dry_run: DryRun = False


class ChangedAnswer(JobCountAnswer, frozen=True, kw_only=True):
    """The number of jobs that were changed."""

    continuation: Annotated[
        str | None,
        Meta(
            description="Of a change by a filter, but for bulk runs, that ended before it had looked at all jobs: send it to go on."
        ),
    ] = None


class DeletedAnswer(ChangedAnswer, frozen=True, kw_only=True):
    """The number of jobs that were deleted."""

    run: Annotated[
        str | None,
        Meta(
            description="The bulk run that deletes them, and can be undone; null if none does. `incomplete`: it goes on."
        ),
    ] = None
