"""The results of a scenario, as plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pinlater.simulation.measure import Intervals, Measure, Percentiles, Sample, TimeRange, percentiles_of
from pinlater.simulation.scenario import PlannedFault

# A wait that begins this long after the end of a fault is not counted as its effect: other servers take over within five seconds.
_AFTERWARDS_MS = 10_000
# The backlog before a fault is the highest within this time.
_BEFORE_MS = 60_000


class FaultReport(NamedTuple):
    """What a fault did. `drained_ms`: from its end until no more jobs waited than before it, or None if that never happened."""

    fault: PlannedFault
    enqueue_gap_ms: int
    enqueue_max_ms: int
    pickup_gap_ms: int
    wait_max_ms: int
    backlog_max: int
    drained_ms: int | None


class SimulationReport(NamedTuple):
    """The outcome. `unfinished`: jobs that had not ended when the simulation gave up waiting for them."""

    seed: int
    enqueued: int
    succeeded: int
    failed: int
    failed_attempts: int
    unfinished: int
    wait: Percentiles | None
    enqueue: Percentiles | None
    backlog_max: Sample
    faults: Sequence[FaultReport]
    errors: Mapping[tuple[str, str], int]
    broken: Sequence[str]
    jobs_stored: int
    simulated_s: float


def fault_report(measure: Measure, fault: PlannedFault, load_began_ms: int) -> FaultReport:
    """`load_began_ms`: when the load began, in the time of the measured intervals."""
    begins_ms, ends_ms = load_began_ms + fault.at_ms, load_began_ms + fault.ends_ms
    window = TimeRange(begins_ms, ends_ms + _AFTERWARDS_MS)
    before = [sample.backlog for sample in measure.samples if begins_ms - _BEFORE_MS <= sample.at_ms < begins_ms]
    usual = max(before, default=0)
    drained = next((one for one in measure.samples if one.at_ms >= ends_ms and one.backlog <= usual), None)
    until_ms = max(window.to_ms, drained.at_ms if drained else measure.samples[-1].at_ms)
    during = [sample.backlog for sample in measure.samples if begins_ms <= sample.at_ms <= until_ms]
    return FaultReport(
        fault,
        _longest_gap(measure.enqueues.values(), window),
        max((length for each in measure.enqueues.values() for length in each.within(window)), default=0),
        _longest_gap(measure.starts.values(), window),
        max((length for each in measure.starts.values() for length in each.within(window)), default=0),
        max(during, default=0),
        None if drained is None else max(0, drained.at_ms - ends_ms),
    )


def _longest_gap(served: Iterable[Intervals], window: TimeRange) -> int:
    return max((gap.length_ms for each in served for gap in each.gaps() if gap.overlaps(window)), default=0)


def all_lengths(served: Iterable[Intervals]) -> Percentiles | None:
    """The percentiles of all of them."""
    return percentiles_of([length for each in served for length in each.lengths()])
