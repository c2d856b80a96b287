"""What goes into the operations and what comes out: plain values that know neither Thrift nor SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pinlater.domain.errors import PinLaterError
from pinlater.domain.job import Job, JobState, Outcome, UniqueKey
from pinlater.domain.queue import QueueConfig, QueueCounts, Rates
from pinlater.server.dispatch.claiming import FromShard


class Caller(NamedTuple):
    """Who asks: the request context. `source` is what bare checkpoints compare, by equality."""

    source: str = ""
    request_id: str = ""


class JobToEnqueue(NamedTuple):
    """A job as a producer describes it. None means: not said, the queue's or the server's default holds."""

    body: bytes
    priority: int = 1
    run_after_ms: int | None = None
    attempts_allowed: int | None = None
    custom_status: str = ""
    headers: Mapping[str, str] | None = None
    unique: UniqueKey | None = None
    claim_timeout_ms: int | None = None
    expires_at_ms: int | None = None


class Enqueued(NamedTuple):
    """Descriptors in the order of the jobs; `existing`: indices whose job was there already."""

    descriptors: Sequence[str]
    existing: Sequence[int] = ()


class AckItem(NamedTuple):
    """One job's end, as its worker reports it. `descriptor` is not parsed yet."""

    descriptor: str
    succeeded: bool
    token: str | None = None
    append_status: str = ""
    retry_delay_ms: int = 0
    final: bool = False
    error_type: str = ""
    error_text: str = ""


class AckBatch(NamedTuple):
    """Acks of one queue. `per_item_errors`: a shard's error is the outcome of the items that it holds, and fails nothing else."""

    queue: str
    items: Sequence[AckItem]
    per_item_errors: bool = False


class AckResult(NamedTuple):
    """What became of an ack, checkpoint, heartbeat, release or cancel; mirrors the wire's AckOutcome. `error` with `Outcome.ERROR` only."""

    descriptor: str
    outcome: Outcome
    holder: str = ""
    held_since_ms: int | None = None
    deadline_ms: int | None = None
    error: PinLaterError | None = None


class DequeueCommand(NamedTuple):
    """A dequeue: acks that ride first, then a claim of up to `limit` jobs, waiting for them up to `wait_ms`."""

    queue: str
    limit: int
    acks: AckBatch | None = None
    dry_run: bool = False
    coverage: float = 1.0
    wait_ms: int = 0


class Dequeued(NamedTuple):
    """Jobs in the order to run them, by the claim that gave them, and the outcomes of the acks that rode along."""

    claimed: Sequence[FromShard]
    ack_results: Sequence[AckResult] = ()


class CheckpointItem(NamedTuple):
    """One checkpoint, as its worker sends it."""

    descriptor: str
    token: str | None = None
    new_body: bytes | None = None
    move_to_pending: bool = False
    run_after_ms: int | None = None
    attempts_allowed: int | None = None
    prepend_status: str = ""


class ClaimItem(NamedTuple):
    """A claim as its holder names it: for heartbeats and releases."""

    descriptor: str
    token: str


class JobFilter(NamedTuple):
    """Which jobs a count or a scan looks at. `future`: PENDING jobs that are not due yet, and only they; no job of another state."""

    queue: str
    state: JobState
    priority: int | None = None
    future: bool = False
    body_regex: str | None = None


class ScanCommand(NamedTuple):
    """A scan. `paged` asks for a continuation that goes on where this one stopped."""

    filter: JobFilter
    limit: int = 100
    continuation: str = "0"
    paged: bool = False
    bodies: bool = False


class Scanned(NamedTuple):
    """Jobs, newest first, each with its descriptor. `incomplete`: a shard or a time budget cut it short."""

    jobs: Sequence[tuple[str, Job]]
    continuation: str = "-1"
    incomplete: bool = False


class QueueStats(NamedTuple):
    """What an operator asks of a queue. `oldest_waiting_ms`: age of the job that has been due longest, or None."""

    queue: str
    paused: bool
    counts: Sequence[QueueCounts]
    oldest_waiting_ms: int | None
    rates: Rates
    waiting_dequeues: int
    incomplete: bool = False


class JobCount(NamedTuple):
    """How many jobs a filter finds. `incomplete`: a shard was out of reach, and its jobs are not counted."""

    jobs: int
    incomplete: bool = False


class SettingsInForce(NamedTuple):
    """A queue's settings as they hold on this server, and where each value comes from, by its field."""

    values: QueueConfig
    origins: Mapping[str, str]


class WaitingDequeues(NamedTuple):
    """Long polls of one caller on one queue that wait on this server now."""

    queue: str
    source: str
    number: int


class ServerInfo(NamedTuple):
    """What a client may want to know before it talks."""

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
