"""Bounds and defaults of jobs and of the calls about them: attempts, claim timeout, longest wait, sizes. Units are in the names.

`JobSettings.claim_timeout_ms` is how long a claim lasts if neither its job (`storage.options`) nor its queue (`domain.queue.QueueConfig`)
sets a time. The other defaults that a queue may replace are there, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from pinlater.domain.transitions import ATTEMPTS_KEPT_MAX
from pinlater.wire.limits import ANSWER_BYTES_MAX, FRAME_BYTES_MAX

# Jobs that have become due which a count or a read of the statistics moves to the due ones first, in one transaction.
DUE_ROWS_MAX = 10_000
# Bytes of the bodies of all pages that a scan holds in memory at once.
PAGES_BYTES_MAX = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class JobSettings:
    """A call beyond a bound gets an error that names it."""

    priority_levels: Annotated[int, Meta(le=127)] = 3  # a byte on the wire
    """Priorities run from 1 (highest) to this."""
    max_body_bytes: int = 1024 * 1024
    """Longest body of a job."""
    max_frame_bytes: int = FRAME_BYTES_MAX
    max_answer_bytes: int = ANSWER_BYTES_MAX
    max_jobs_per_request: int = 10_000
    """Most jobs in one enqueue."""
    max_descriptors_per_request: int = 50_000
    """Most descriptors in one lookup, ack, checkpoint, heartbeat, release or cancel."""
    max_dequeue_limit: int = 1_000
    """Most jobs that one dequeue hands out; a larger limit is cut to this."""
    max_scan_limit: int = 10_000
    """Most jobs that one scan returns; a larger limit is cut to this."""
    max_compared_jobs: Annotated[int, Meta(ge=1)] = 20_000
    """Most jobs that one scan or count compares with a filter. The client continues with the next call."""
    max_wait_ms: int = 60_000
    """Longest wait of a dequeue; a longer one is cut to this."""
    max_backlog: int | None = None
    """Most PENDING jobs in a queue that sets no limit of its own; beyond it enqueues are rejected."""
    max_undo_bytes: Annotated[int, Meta(ge=0, le=2**50)] = 256 * 1024 * 1024
    """About the most that the copies take, on each shard, of jobs that bulk deletes have deleted. A run that would exceed it fails. 0: only
    deletes for good are possible."""
    max_queues: int = 10_000
    """Most queues; createQueue of one more is refused."""
    auto_create: bool = True
    """Whether tasks and workers create the queues that they need. Commands and clients that are asked to create a queue always may."""
    max_header_bytes: int = 16 * 1024
    """Most bytes of one job's headers, names and values together."""
    max_unique_key_bytes: int = 256
    """Longest unique key or request key."""
    default_attempts: Annotated[int, Meta(le=2**31 - 1)] = 2
    """Attempts of a job that doesn't say, in a queue that doesn't either."""
    claim_timeout_ms: int = 600_000
    """How long a claim lasts without a heartbeat or checkpoint, where job and queue say nothing."""
    quarantine_after: Annotated[int, Meta(ge=0, le=ATTEMPTS_KEPT_MAX)] = 3  # the history tells
    """A task's job is given up after this number of claims in a row that timed out: it may kill its workers. 0: never."""
    succeeded_ttl_ms: int = 24 * 3_600_000
    """How long SUCCEEDED jobs are kept, counted from the finish, where the queue says nothing."""
    failed_ttl_ms: int = 168 * 3_600_000
    """How long FAILED jobs are kept, counted from the finish, where the queue says nothing."""
    regex_time_budget_ms: int = 2_000
    """How long one call may search bodies; then it ends with an error that says so."""
    regex_rows_max: int = 100_000
    """Most jobs of a shard and priority that a count with a regex counts."""
    regex_pattern_bytes_max: int = 1_000
    """Longest regex."""
    regex_steps_max: int = 5_000_000_000
    """Most that one call may spend on a regex: instructions of its program times bytes to search."""
    regex_steps_in_flight_max: int = 10_000_000_000
    """The same for all searches at one time; beyond it a call is refused, and may try again."""
    regex_processes_max: int = 2
    """Most processes that search bodies. They start when a regex needs one."""

    @property
    def jobs_bytes_max(self) -> int:
        """How many bytes of jobs an answer may hold; the rest is for its envelope."""
        return min(self.max_answer_bytes, self.max_frame_bytes) * 63 // 64
