"""Jobs, as calls of a client send and get them: plain frozen values that know no Thrift.

Times are integer milliseconds since the epoch, durations integer milliseconds, bodies bytes. None means: not said, so that the
queue's or the server's default holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pinlater.domain.errors import PinLaterError
from pinlater.domain.job import Attempt, JobState, Outcome, UniqueKey


class Job(NamedTuple):
    """A job as a producer describes it. `run_after_ms` is a time, not a delay. Jobs of a queue with the same `ordering_key` run one after
    the other, in the order in which they were enqueued."""

    body: bytes
    priority: int = 1
    run_after_ms: int | None = None
    attempts_allowed: int | None = None
    custom_status: str = ""
    headers: Mapping[str, str] | None = None
    unique: UniqueKey | None = None
    claim_timeout_ms: int | None = None
    expires_at_ms: int | None = None
    ordering_key: str | None = None


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

    `per_item_errors`: an ack that the server can't execute gets an outcome of its own; otherwise the server refuses the whole dequeue.
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
    """The result of an ack, checkpoint, heartbeat, release or cancel. With STALE_CLAIM: who holds the job now, and since when.

    `error` comes with the outcome ERROR, which only calls with `per_item_errors` get: why the server did not execute this item,
    or may not have. If it is retryable, the same item may be sent again.
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


class JobInfo(NamedTuple):
    """All that a server tells of a job. `body` is None unless it was asked for. `body_masked`: the roles of the caller do not let it see
    the body, or parts of it: `body` is empty, or JSON with `[masked]` in the place of values. `progress`: what the job said last of how far
    it is (`40 % row 2`); '' if it said nothing. `failure_group`: its group of failures, if its texts are masked, so that the caller can't
    compute it. What an original server does not say is None or empty."""

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
    expires_at_ms: int | None = None
    progress: str = ""
    body_masked: bool = False
    failure_group: str = ""
    ordering_key: str | None = None


class Scanned(NamedTuple):
    """A page of jobs, newest first. `continuation` is '-1' at the end; `incomplete`: a shard or a time budget cut it short. A
    scan with a filter may have fewer jobs than its limit, or none, before the end, without being incomplete."""

    jobs: Sequence[JobInfo]
    continuation: str = "-1"
    incomplete: bool = False


class KeyHolders(NamedTuple):
    """The jobs that hold a unique key now, without bodies. `incomplete`: a shard was unreachable, or there are more of them."""

    jobs: Sequence[JobInfo]
    incomplete: bool = False


class JobCount(NamedTuple):
    """How many jobs a filter finds. `incomplete`: a shard was unreachable, and its jobs are not counted. `continuation`: where a count in
    parts goes on; '-1' at the end."""

    jobs: int
    incomplete: bool = False
    continuation: str = "-1"


class MovedJob(NamedTuple):
    """What became of a job that was to get another priority. `moved_to`: with APPLIED, its descriptor from now on, which is `descriptor`
    itself if it had that priority already. With STALE_CLAIM: who holds the job, and since when."""

    descriptor: str
    outcome: Outcome
    moved_to: str = ""
    holder: str = ""
    held_since_ms: int | None = None

    @property
    def applied(self) -> bool:
        """Whether it has the new priority."""
        return self.outcome is Outcome.APPLIED
