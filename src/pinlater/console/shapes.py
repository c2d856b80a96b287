"""What requests and answers of the HTTP API look like. The bounds, the OpenAPI schemas and the reference page follow from these classes.

Times are milliseconds since the epoch in fields that end in `_at_ms` or `_after_ms`; spans are milliseconds in others that end in `_ms`.
The bounds here keep values within the wire's types; servers check the narrower bounds of their settings. A request with an
unknown field is refused, so that a misspelt option is no silent default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

_I32_MAX = 2**31 - 1
_MS_MAX = 2**53 - 1  # the largest integer that every JSON parser reads exactly

State = Literal["pending", "in_progress", "succeeded", "failed"]
Count = Annotated[int, Meta(ge=0, le=_I32_MAX)]
Priority = Annotated[int, Meta(ge=1, le=127, description="1 is the highest.")]
OfPriority = Annotated[Priority | None, Meta(description="Only this priority; 1 is the highest.")]
Limit = Annotated[int, Meta(ge=1, le=_I32_MAX, description="The largest number of jobs.")]
Key = Annotated[str, Meta(min_length=1)]
NotNegative = Annotated[float, Meta(ge=0)]
Attempts = Annotated[int, Meta(ge=1, le=_I32_MAX)]
Moment = Annotated[int, Meta(ge=0, le=_MS_MAX)]
Span = Annotated[int, Meta(ge=0, le=_MS_MAX)]
RunAfter = Annotated[Moment | None, Meta(description="The job is due from this time on. Not with `delay_ms`.")]
Delay = Annotated[Span | None, Meta(description="The job is due after this span. Not with `run_after_ms`.")]
Token = Annotated[
    str | None, Meta(description="The claim token. Without it the request counts for any holder of the job.")
]
Regex = Annotated[str | None, Meta(description="Only jobs in whose body this is found (RE2 syntax).")]
BodyText = Annotated[str | None, Meta(description="The body as text; null if it is not UTF-8.")]
BodyBase64 = Annotated[str | None, Meta(description="The body in base64 if it is not UTF-8, else null.")]
Descriptors = Annotated[Sequence[str], Meta(min_length=1, description="The names of jobs, all of this queue.")]
Incomplete = Annotated[bool, Meta(description="A shard was unreachable, or a time limit made the answer shorter.")]


class AnswerShape(Struct, frozen=True, kw_only=True):
    """An answer, or a part of one."""


class RequestShape(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a caller sends: a body, a part of one, or the query of a URL."""


class Nothing(RequestShape, frozen=True, kw_only=True):
    """No fields."""


# --- enqueue ------------------------------------------------------------------------------------------------------------------


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


# --- dequeue and the life of a claim --------------------------------------------------------------------------------------------


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


class ClaimedJobsAnswer(AnswerShape, frozen=True, kw_only=True):
    """Claimed jobs in the order to run them, and what became of the acks."""

    jobs: Sequence[ClaimedJobItem]
    results: Sequence[ResultItem]


# --- look -------------------------------------------------------------------------------------------------------------------------


class BodiesQuery(RequestShape, frozen=True, kw_only=True):
    """Whether bodies are wanted."""

    bodies: Annotated[bool, Meta(description="Answers the bodies of the jobs too.")] = False


class CountQuery(RequestShape, frozen=True, kw_only=True):
    """Which jobs of a queue."""

    state: State = "pending"
    priority: OfPriority = None
    future: Annotated[bool, Meta(description="Pending jobs that are not due yet, instead of those that are.")] = False
    regex: Regex = None


class ScanQuery(CountQuery, frozen=True, kw_only=True):
    """Which jobs of a queue, and how many."""

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
    error_type: str
    error_text: str
    attempts: Annotated[Sequence[AttemptItem], Meta(description="The latest ones that failed or timed out.")]
    body: Annotated[str | None, Meta(description="The body as text; null if it is not UTF-8 or was not asked for.")]
    body_base64: BodyBase64


class LookupAnswer(AnswerShape, frozen=True, kw_only=True):
    """The jobs that exist, in the order of the request."""

    jobs: Sequence[JobItem]


class ScanAnswer(AnswerShape, frozen=True, kw_only=True):
    """Jobs, newest first."""

    jobs: Sequence[JobItem]
    continuation: Annotated[str | None, Meta(description="Send it to get the next jobs; null if there are none.")]
    incomplete: Incomplete


class JobCountAnswer(AnswerShape, frozen=True, kw_only=True):
    """The number of jobs that a filter finds, or that a call changed."""

    jobs: int
    incomplete: Incomplete = False


# --- bulk -----------------------------------------------------------------------------------------------------------------------------


class DescriptorsRequest(RequestShape, frozen=True, kw_only=True):
    """The jobs to change."""

    descriptors: Descriptors


class RunNowRequest(RequestShape, frozen=True, kw_only=True):
    """The jobs to run, at once unless a time is given."""

    descriptors: Descriptors
    attempts: Annotated[Attempts, Meta(description="Attempts of jobs that had failed.")] = 1
    run_after_ms: RunAfter = None
    delay_ms: Delay = None


class RetryFailedRequest(RequestShape, frozen=True, kw_only=True):
    """Which failed jobs go back to the queue."""

    priority: OfPriority = None
    attempts: Annotated[Attempts, Meta(description="Attempts that each job gets.")] = 1
    limit: Limit = 1000
    run_after_ms: RunAfter = None
    delay_ms: Delay = None
    cancelled: Annotated[bool, Meta(description="Retries cancelled jobs too.")] = False


class DeleteJobsQuery(RequestShape, frozen=True, kw_only=True):
    """Which jobs to delete."""

    state: State
    priority: OfPriority = None
    regex: Regex = None
    limit: Limit = 1000


# --- queues -------------------------------------------------------------------------------------------------------------------------


class CreateQueueRequest(RequestShape, frozen=True, kw_only=True):
    """The queue to create."""

    name: Annotated[str, Meta(description="1 to 64 ASCII letters, digits and underscores.")]


class QueueItem(AnswerShape, frozen=True, kw_only=True):
    """A queue."""

    name: str


class QueuesAnswer(AnswerShape, frozen=True, kw_only=True):
    """All queues, by name."""

    queues: Sequence[QueueItem]


class PausedAnswer(AnswerShape, frozen=True, kw_only=True):
    """A queue and its pause."""

    name: str
    paused: bool


Rate = Annotated[NotNegative | None, Meta(description="Jobs handed out per second; 0 stops dequeues.")]


class SettingsValues(RequestShape, frozen=True, kw_only=True):
    """The settings of a queue. Null leaves a setting to the server."""

    max_jobs_per_second: Rate = None
    claim_timeout_ms: Annotated[Span | None, Meta(description="Of jobs that set none.")] = None
    succeeded_ttl_ms: Annotated[Span | None, Meta(description="How long succeeded jobs are kept.")] = None
    failed_ttl_ms: Annotated[Span | None, Meta(description="How long failed jobs are kept.")] = None
    max_backlog: Annotated[Span | None, Meta(description="The largest number of pending jobs.")] = None
    default_attempts: Annotated[Attempts | None, Meta(description="Of jobs that set none.")] = None
    default_expiry_ms: Annotated[Span | None, Meta(description="Of jobs that set none.")] = None


class ChangedSettings(RequestShape, frozen=True, kw_only=True):
    """The settings to change. Null leaves a setting to the server; a setting that is left out does not change."""

    max_jobs_per_second: Rate | UnsetType = UNSET
    claim_timeout_ms: Span | UnsetType | None = UNSET
    succeeded_ttl_ms: Span | UnsetType | None = UNSET
    failed_ttl_ms: Span | UnsetType | None = UNSET
    max_backlog: Span | UnsetType | None = UNSET
    default_attempts: Attempts | UnsetType | None = UNSET
    default_expiry_ms: Span | UnsetType | None = UNSET


class SettingsAnswer(AnswerShape, frozen=True, kw_only=True):
    """A queue with its settings."""

    name: str
    paused: bool
    settings: Annotated[SettingsValues, Meta(description="As they are stored with the queue.")]
    in_force: Annotated[SettingsValues, Meta(description="As they apply on the server that answered.")]
    origins: Annotated[Mapping[str, str], Meta(description="Where each value in force comes from.")]


class CountsItem(AnswerShape, frozen=True, kw_only=True):
    """Jobs of one priority. `pending` includes `future`, the jobs that are not due yet. Totals count since the queue was created."""

    priority: int
    pending: int
    future: int
    in_progress: int
    succeeded: int
    failed: int
    enqueued_total: int
    claimed_total: int
    succeeded_total: int
    failed_total: int
    retried_total: int


class RatesItem(AnswerShape, frozen=True, kw_only=True):
    """Jobs a second over the last minute, as the server that answered saw them."""

    enqueued: float
    claimed: float
    succeeded: float
    failed: float
    retried: float


class StatsItem(AnswerShape, frozen=True, kw_only=True):
    """Counts and rates of a queue, from counters."""

    queue: str
    paused: bool
    priorities: Sequence[CountsItem]
    rates: RatesItem
    oldest_waiting_ms: Annotated[int | None, Meta(description="How long the oldest due job has waited.")]
    waiting_dequeues: int
    incomplete: Incomplete


class StatsQuery(RequestShape, frozen=True, kw_only=True):
    """Of which queues."""

    queue: Annotated[Sequence[str], Meta(description="A queue; may be repeated. Without it: all queues.")] = ()


class StatsAnswer(AnswerShape, frozen=True, kw_only=True):
    """Counts and rates of queues."""

    queues: Sequence[StatsItem]


# --- servers ------------------------------------------------------------------------------------------------------------------------


class ServerInfoAnswer(AnswerShape, frozen=True, kw_only=True):
    """The server that answered, with its bounds."""

    version: str
    features: Sequence[str]
    store_kind: str
    now_ms: int
    started_at_ms: int
    priority_levels: int
    max_body_bytes: int
    max_frame_bytes: int
    max_jobs_per_request: int
    max_descriptors_per_request: int
    max_wait_ms: int


class WaitingItem(AnswerShape, frozen=True, kw_only=True):
    """Long polls of one caller on one queue that wait on the server that answered."""

    queue: str
    source: str
    number: int


class WaitingAnswer(AnswerShape, frozen=True, kw_only=True):
    """The callers that wait for jobs."""

    waiting: Sequence[WaitingItem]


class ClusterServerItem(AnswerShape, frozen=True, kw_only=True):
    """A server of the shards, as the server that answered knows it."""

    address: str
    name: str
    slots: Annotated[Mapping[str, int], Meta(description="By shard.")]
    answers: Annotated[bool, Meta(description="It is the server that answered.")]
    heard: bool
    heard_ms: Annotated[int | None, Meta(description="How long ago it was heard; null if it never was.")]
    usable: bool
    unanswered_calls: int
    items_sent: int
    items_taken: int


class ClusterShardItem(AnswerShape, frozen=True, kw_only=True):
    """A shard with the owners of its slices."""

    name: str
    in_reach: bool
    version: Annotated[int, Meta(description="Grows with each change of the owners.")]
    owners: Annotated[Sequence[str], Meta(description="Addresses by slice; empty for none.")]
    misplaced: Annotated[Sequence[int], Meta(description="Slices that are about to get another owner.")]


class ForwardedItem(AnswerShape, frozen=True, kw_only=True):
    """Calls of one kind between the server that answered and others since its start."""

    kind: str
    calls_sent: int
    items_sent: int
    calls_taken: int
    items_taken: int


class ClusterAnswer(AnswerShape, frozen=True, kw_only=True):
    """What the server that answered knows of the servers of its shards."""

    address: str
    servers: Sequence[ClusterServerItem]
    shards: Sequence[ClusterShardItem]
    forwarded: Sequence[ForwardedItem]
    moves: int
    answers_lost: int
    incomplete: bool


class Problem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error, as RFC 9457 describes it, with the words of the protocol."""

    type: Annotated[str, Meta(description="`urn:pinlater:error:` and `reason`.")]
    title: str
    status: int
    detail: Annotated[str, Meta(description="A sentence for people.")]
    code: Annotated[str, Meta(description="The name of the error code of the protocol; empty if no server answered.")]
    reason: Annotated[str, Meta(description="A word for programs, finer than the code.")]
    # No default: it is answered in any case.
    retryable: Annotated[bool, Meta(description="Whether the same request may succeed later.")]
    retry_after_ms: int | None = None
    field: Annotated[str | None, Meta(description="The field, parameter or header that is wrong.")] = None
