"""What goes into a call and what comes out of it, as client and service both see it: plain values that know neither Thrift nor SQL.

Times are integer milliseconds since the epoch, durations integer milliseconds, bodies bytes. None means: not said, so that the
queue's or the server's default holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pinlater.domain.errors import PinLaterError
from pinlater.domain.job import Outcome, UniqueKey
from pinlater.domain.queue import PriorityCounts, QueueConfig, Rates


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


class Ack(NamedTuple):
    """The end of an attempt. Without a token it counts for the job's present holder; a client takes '' for none."""

    descriptor: str
    succeeded: bool = True
    token: str | None = None
    append_status: str = ""
    retry_delay_ms: int = 0
    final: bool = False
    error_type: str = ""
    error_text: str = ""


class AckBatch(NamedTuple):
    """Acks of one queue: those of a call (ackJobs, ackDequeuedJobs), or those that come with a dequeue.

    Without `per_item_errors` one that can't be carried out refuses the whole dequeue; with it that is told by its own outcome.
    """

    queue: str
    acks: Sequence[Ack]
    per_item_errors: bool = False


class Checkpoint(NamedTuple):
    """Progress of a job in hand: renews the claim; what is None stays as it is, but `run_after_ms`, which then becomes now."""

    descriptor: str
    token: str | None = None
    new_body: bytes | None = None
    move_to_pending: bool = False
    run_after_ms: int | None = None
    attempts_allowed: int | None = None
    prepend_status: str = ""


class Claim(NamedTuple):
    """A claim as its holder names it: for heartbeats and releases."""

    descriptor: str
    token: str


class AckResult(NamedTuple):
    """What became of an ack, checkpoint, heartbeat, release or cancel. With STALE_CLAIM: who holds the job now, and since when.

    `error` comes with the outcome ERROR, which only calls with `per_item_errors` get: why this item was not carried out, or may not
    have been. If it is retryable the same item may be sent again.
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


class QueueStats(NamedTuple):
    """What an operator asks of a queue. `oldest_waiting_ms`: age of the job that has been due longest, or None.

    `waiting_dequeues`: at all servers of the shards that the one which answers hears. `incomplete`: a shard was unreachable, and its jobs
    are not counted. `max_jobs_per_second`: the limit of dequeues in force, if any.
    """

    queue: str
    paused: bool
    counts: Sequence[PriorityCounts]
    oldest_waiting_ms: int | None
    rates: Rates
    waiting_dequeues: int
    incomplete: bool = False
    max_jobs_per_second: float | None = None

    def total(self, field: str) -> int:
        """The sum of a count over all priorities, by its name in `PriorityCounts`."""
        return sum(int(getattr(counts, field)) for counts in self.counts)


class SettingsInForce(NamedTuple):
    """A queue's settings as they hold on the server that answers. `origins`, by field: `queue`, `limits file` or the server's setting."""

    values: QueueConfig
    origins: Mapping[str, str]
