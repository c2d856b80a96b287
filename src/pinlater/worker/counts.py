"""What a worker has done so far. The worker's event loop counts; any thread may read."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from pinlater.worker._attempts.endings import Kind

# Upper bounds of the histogram in seconds; one more bucket has no bound.
# fmt: off
DURATION_BOUNDS_S = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0,
)
# fmt: on


class TaskCounts:
    """The attempts of one task: how they ended, and how long they took (seconds)."""

    __slots__ = ("_too_many", "durations", "ended", "total_s")

    def __init__(self) -> None:
        self.ended: dict[Kind, int] = {}
        # Attempts in `ended` that were lost: that many of the next ones of the kind are not added.
        self._too_many: dict[Kind, int] = {}
        self.durations = [0] * (len(DURATION_BOUNDS_S) + 1)
        self.total_s = 0.0

    def note(self, kind: Kind, took_s: float) -> None:
        """An attempt ended."""
        if self._too_many and self._too_many.get(kind):
            self._too_many[kind] -= 1
        else:
            self.ended[kind] = self.ended.get(kind, 0) + 1
        self.durations[bisect_left(DURATION_BOUNDS_S, took_s)] += 1
        self.total_s += took_s

    def was_lost(self, kind: Kind) -> None:
        """An attempt that was noted as `kind` counts as lost: its claim had ended before.

        A counter of Prometheus must not go down, so that the next attempt of this kind makes up for it.
        """
        self.ended[Kind.LOST] = self.ended.get(Kind.LOST, 0) + 1
        self._too_many[kind] = self._too_many.get(kind, 0) + 1


@dataclass(slots=True)
class WorkerCounts:
    """Since the start: `failed` attempts, `lost` claims (that ended before their jobs), `released` jobs (given back), jobs of
    `unknown_tasks`; `by_task` has the attempts of each queue and task."""

    claimed: int = 0
    succeeded: int = 0
    failed: int = 0
    released: int = 0
    lost: int = 0
    acks_refused: int = 0
    claim_errors: int = 0
    unknown_tasks: int = 0
    running: int = 0
    by_task: dict[tuple[str, str], TaskCounts] = field(default_factory=dict, repr=False, compare=False)

    def of_task(self, queue: str, task: str) -> TaskCounts:
        """The counts of one task, zero at first."""
        found = self.by_task.get((queue, task))
        if found is None:
            found = self.by_task[queue, task] = TaskCounts()
        return found
