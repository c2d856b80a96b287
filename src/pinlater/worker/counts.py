"""What a worker has done so far, for summaries and tests."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class WorkerCounts:
    """Jobs since the start. `failed` counts failed attempts; `lost` claims that ended before their job; `released` jobs given
    back; `unknown_tasks` jobs of tasks that this worker doesn't know."""

    claimed: int = 0
    succeeded: int = 0
    failed: int = 0
    released: int = 0
    lost: int = 0
    acks_refused: int = 0
    claim_errors: int = 0
    unknown_tasks: int = 0
    running: int = 0
