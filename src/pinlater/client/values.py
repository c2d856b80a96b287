"""What goes into a client's calls and what comes out: plain frozen values that know no Thrift.

Times are integer milliseconds since the epoch, durations integer milliseconds, bodies bytes. None means: not said, so that the
queue's or the server's default holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pinlater.client.errors import PinLaterError
from pinlater.domain.job import PROGRESS_MARK
from pinlater.domain.job import Attempt as Attempt
from pinlater.domain.job import JobState as JobState
from pinlater.domain.job import Outcome as Outcome
from pinlater.domain.job import UniqueKey as UniqueKey
from pinlater.domain.job import UniqueScope as UniqueScope
from pinlater.domain.queue import QueueConfig as QueueConfig


class Job(NamedTuple):
    """A job as a producer describes it. `run_after_ms` is a time, not a delay."""

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
    """Descriptors in the order of the jobs; `existing`: indices whose job was there already under its unique key."""

    descriptors: Sequence[str]
    existing: Sequence[int] = ()


class ClaimedJob(NamedTuple):
    """A job in hand. `token` names the claim in acks, heartbeats, checkpoints and releases ('' from servers without them).

    `attempt` counts from 1; 0 where the server didn't say.
    """

    descriptor: str
    queue: str
    body: bytes
    token: str = ""
    attempt: int = 0
    attempts_allowed: int = 0
    attempts_remaining: int = 0
    headers: Mapping[str, str] = {}
    created_at_ms: int | None = None
    claim_deadline_ms: int | None = None


class AckResult(NamedTuple):
    """What became of an ack, checkpoint, heartbeat, release or cancel. With STALE_CLAIM: who holds the job now, and since when.

    `error` comes with the outcome ERROR, which only calls with `per_item_errors` get: why this item was not carried out, or may not
    have been. Where it is retryable the same item may be sent again.
    """

    descriptor: str
    outcome: Outcome
    holder: str = ""
    held_since_ms: int | None = None
    deadline_ms: int | None = None
    error: PinLaterError | None = None

    @property
    def applied(self) -> bool:
        """Whether it took effect."""
        return self.outcome is Outcome.APPLIED


class Dequeued(NamedTuple):
    """Jobs in the order to run them, and what became of the acks that rode along."""

    jobs: Sequence[ClaimedJob] = ()
    ack_results: Sequence[AckResult] = ()


class Ack(NamedTuple):
    """The end of an attempt. Without a token it counts for the job's present holder."""

    descriptor: str
    succeeded: bool = True
    token: str = ""
    append_status: str = ""
    retry_delay_ms: int = 0
    final: bool = False
    error_type: str = ""
    error_text: str = ""


class AckBatch(NamedTuple):
    """Acks of one queue, to ride on a dequeue.

    Without `per_item_errors` one that can't be carried out refuses the whole dequeue; with it that is told by its own outcome.
    """

    queue: str
    acks: Sequence[Ack]
    per_item_errors: bool = False


class Checkpoint(NamedTuple):
    """Progress of a job in hand: renews the claim; what is None stays as it is, but `run_after_ms`, which then becomes now."""

    descriptor: str
    token: str = ""
    new_body: bytes | None = None
    move_to_pending: bool = False
    run_after_ms: int | None = None
    attempts_allowed: int | None = None
    prepend_status: str = ""


class Claim(NamedTuple):
    """A claim as its holder names it: for heartbeats and releases."""

    descriptor: str
    token: str


class JobInfo(NamedTuple):
    """All that a server tells of a job. `body` is None unless it was asked for."""

    descriptor: str
    state: JobState
    attempts_allowed: int
    attempts_remaining: int
    custom_status: str
    created_at_ms: int
    run_after_ms: int | None = None
    updated_at_ms: int | None = None
    claim_descriptor: str | None = None
    body: bytes | None = None
    headers: Mapping[str, str] = {}
    unique_key: str | None = None
    claim_deadline_ms: int | None = None
    error_type: str = ""
    error_text: str = ""
    attempts: Sequence[Attempt] = ()
    finished_at_ms: int | None = None

    @property
    def progress(self) -> str:
        """What the job said last of how far it is (`40 % row 2`); '' where it said nothing."""
        lines = self.custom_status.splitlines()
        return next((line.removeprefix(PROGRESS_MARK) for line in lines if line.startswith(PROGRESS_MARK)), "")


class Scanned(NamedTuple):
    """A page of jobs, newest first. `continuation` is '-1' at the end; `incomplete`: a shard or a time budget cut it short."""

    jobs: Sequence[JobInfo]
    continuation: str = "-1"
    incomplete: bool = False


class PriorityCounts(NamedTuple):
    """A queue's jobs of one priority. `pending` includes `future`, the jobs that aren't due yet. Totals: since the queue was made."""

    priority: int
    pending: int = 0
    future: int = 0
    in_progress: int = 0
    succeeded: int = 0
    failed: int = 0
    enqueued_total: int = 0
    claimed_total: int = 0
    succeeded_total: int = 0
    failed_total: int = 0
    retried_total: int = 0


class Rates(NamedTuple):
    """Jobs a second over the last minute."""

    enqueued: float = 0.0
    claimed: float = 0.0
    succeeded: float = 0.0
    failed: float = 0.0
    retried: float = 0.0


class QueueStats(NamedTuple):
    """What an operator asks of a queue. `oldest_waiting_ms`: age of the job that has been due longest, or None.

    `incomplete`: a shard was out of reach, and its jobs are not counted.
    """

    queue: str
    paused: bool
    counts: Sequence[PriorityCounts]
    oldest_waiting_ms: int | None
    rates: Rates
    waiting_dequeues: int
    incomplete: bool = False

    def total(self, field: str) -> int:
        """The sum of a count over all priorities, by its name in `PriorityCounts`."""
        return sum(int(getattr(counts, field)) for counts in self.counts)


class QueueInfo(NamedTuple):
    """A queue's settings as they are kept in the store."""

    name: str
    config: QueueConfig
    paused: bool = False


class JobCount(NamedTuple):
    """How many jobs a filter finds. `incomplete`: a shard was out of reach, and its jobs are not counted."""

    jobs: int
    incomplete: bool = False


class SettingsInForce(NamedTuple):
    """A queue's settings as they hold on the server that answers. `origins`, by field: `queue`, `limits file` or the server's setting."""

    values: QueueConfig
    origins: Mapping[str, str]


class WaitingDequeues(NamedTuple):
    """Long polls of one caller on one queue that wait on the server that answers."""

    queue: str
    source: str
    number: int


class ServerInfo(NamedTuple):
    """What a client may want to know before it talks. `now_ms` is the server's clock."""

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
