"""Bounds and defaults of jobs and of the calls about them: attempts, claim timeout, longest wait, sizes. Units are in the names.

`JobSettings.claim_timeout_ms` is how long a claim lasts if neither its job (`domain.job.NewJob`) nor its queue (`domain.queue.QueueConfig`)
sets a time. The other defaults that a queue may replace are there, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from pinlater.wire.limits import ANSWER_BYTES_MAX, FRAME_BYTES_MAX

# Jobs that became due which a count or a reading of the statistics moves to the due ones first, in one transaction.
DUE_ROWS_MAX = 10_000
# Of the bodies of all pages that a scan holds in memory at once.
PAGES_BYTES_MAX = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class JobSettings:
    """A call beyond a bound gets an error that names it."""

    priority_levels: int = 3
    max_body_bytes: int = 1024 * 1024
    max_frame_bytes: int = FRAME_BYTES_MAX
    max_answer_bytes: int = ANSWER_BYTES_MAX
    max_jobs_per_request: int = 10_000
    max_descriptors_per_request: int = 50_000
    max_dequeue_limit: int = 1_000
    max_scan_limit: int = 10_000
    max_wait_ms: int = 60_000
    max_backlog: int | None = None
    max_undo_bytes: int = 256 * 1024 * 1024
    max_queues: int = 10_000
    max_header_bytes: int = 16 * 1024
    max_unique_key_bytes: int = 256
    default_attempts: int = 2
    claim_timeout_ms: int = 600_000
    quarantine_after: int = 3
    succeeded_ttl_ms: int = 24 * 3_600_000
    failed_ttl_ms: int = 168 * 3_600_000
    regex_time_budget_ms: int = 2_000
    regex_rows_max: int = 100_000
    regex_pattern_bytes_max: int = 1_000
    regex_steps_max: int = 5_000_000_000
    regex_steps_in_flight_max: int = 10_000_000_000
    regex_processes_max: int = 2

    @property
    def jobs_bytes_max(self) -> int:
        """How many bytes of jobs an answer may hold; the rest is for its envelope."""
        return min(self.max_answer_bytes, self.max_frame_bytes) * 63 // 64
