"""What a worker has done so far, for summaries, metrics and tests. Counted on the worker's event loop, read from anywhere."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from pinlater.worker._attempts.endings import Kind

# Upper bounds in seconds; what took longer is counted in one more, without a bound.
DURATION_BOUNDS_S = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
    1800.0,
)


class Tally:
    """The attempts of one task: how they ended, and how long its function took (seconds)."""

    __slots__ = ("durations", "ended", "total_s")

    def __init__(self) -> None:
        self.ended: dict[Kind, int] = {}
        self.durations = [0] * (len(DURATION_BOUNDS_S) + 1)
        self.total_s = 0.0

    def note(self, kind: Kind, took_s: float) -> None:
        """An attempt ended."""
        self.ended[kind] = self.ended.get(kind, 0) + 1
        self.durations[bisect_left(DURATION_BOUNDS_S, took_s)] += 1
        self.total_s += took_s


@dataclass(slots=True)
class WorkerCounts:
    """Jobs since the start. `failed` counts failed attempts; `lost` claims that ended before their job; `released` jobs given
    back; `unknown_tasks` jobs of tasks that this worker doesn't know. `tallies` are by queue and task."""

    claimed: int = 0
    succeeded: int = 0
    failed: int = 0
    released: int = 0
    lost: int = 0
    acks_refused: int = 0
    claim_errors: int = 0
    unknown_tasks: int = 0
    running: int = 0
    tallies: dict[tuple[str, str], Tally] = field(default_factory=dict, repr=False, compare=False)

    def tally(self, queue: str, task: str) -> Tally:
        """The tally of a task; made when first asked for."""
        found = self.tallies.get((queue, task))
        if found is None:
            found = self.tallies[queue, task] = Tally()
        return found
