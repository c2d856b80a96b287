"""Bulk changes that the servers execute in the background, as client and server both see them. Pure."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from pinlater.domain.history import LONGEST_MS
from pinlater.domain.job import JobState
from pinlater.domain.job_filter import JobFilter

BULK_KEPT_MS = LONGEST_MS
"""How long a run is shown, from its start."""
RESTORABLE_MS = 24 * 3_600_000
"""How long the jobs that a run has deleted can be restored, from its start."""
BULK_RUNNING_MAX = 50
BULKS_OF_QUEUE_MAX, BULKS_KEPT_MAX = 100, 500
"""How many runs there may be of the last 30 days, and of those with `max_jobs` besides, of the last day."""
BULKS_SHOWN_MAX = 500
RATE_MIN, RATE_MAX = 0.1, 100_000.0
EXPECTED_MAX = 2**53


class BulkAction(str, Enum):  # noqa: UP042 - also the words of the wire, of commands and of pages
    """What happens to each job."""

    RETRY = "retry"
    DELETE = "delete"
    CANCEL = "cancel"
    RESTORE = "restore"


STATES_OF: dict[BulkAction, tuple[JobState, ...]] = {
    BulkAction.RETRY: (JobState.FAILED,),
    BulkAction.DELETE: tuple(JobState),
    BulkAction.CANCEL: (JobState.PENDING, JobState.IN_PROGRESS),
    BulkAction.RESTORE: (),
}
"""The states of jobs to which the action applies. A run that restores also restores the jobs that another one has deleted, whatever their
state."""


class BulkState(str, Enum):  # noqa: UP042 - as above
    """How far a run is."""

    RUNNING = "running"
    STOPPED = "stopped"
    DONE = "done"
    FAILED = "failed"


class BulkOrder(NamedTuple):
    """What to do, with which jobs of a queue.

    `filter`: which jobs.
    `attempts`: of each job that is retried.
    `jobs_per_second`: the most changes; None sets no limit.
    `for_good`: no copies of deleted jobs are kept.
    `undoes`: the run whose deleted jobs are restored; then only this and the rate count, and the servers fill in the rest.
    `expected`: how many matching jobs the caller has found, only for display.
    `max_jobs`: the run ends after that number of changes. Only servers that know `startLimitedBulkRun` accept such an order.
    """

    queue: str
    action: BulkAction
    filter: JobFilter
    attempts: int = 1
    jobs_per_second: float | None = None
    for_good: bool = False
    undoes: str | None = None
    expected: int | None = None
    max_jobs: int | None = None
