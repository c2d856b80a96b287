"""A worker's metrics in Prometheus' text format, without a library.

The event loop counts; any thread may read. A task without attempts has no lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import NamedTuple

from pinlater.worker.counts import DURATION_BOUNDS_S, TaskCounts, WorkerCounts

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
JOBS, DURATIONS = "pinlater_worker_jobs_total", "pinlater_worker_job_duration_seconds"
_BOUND_TEXTS = (*(f"{bound:g}" for bound in DURATION_BOUNDS_S), "+Inf")


class WorkerSnapshot(NamedTuple):
    """A worker's numbers at one moment."""

    counts: WorkerCounts
    concurrency: int
    abandoned_functions: int
    heartbeat_errors: int
    heartbeats_failing: bool
    loop_blocked_s: float
    memory_bytes: int
    started_at_s: float


class Metric(NamedTuple):
    """A number of the whole worker."""

    name: str
    kind: str
    help: str
    value: Callable[[WorkerSnapshot], float]


METRICS = (
    Metric("pinlater_worker_jobs_claimed_total", "counter", "Jobs claimed", lambda s: s.counts.claimed),
    Metric("pinlater_worker_jobs_running", "gauge", "Jobs that run now", lambda s: s.counts.running),
    Metric("pinlater_worker_slots", "gauge", "Jobs that may run at once", lambda s: s.concurrency),
    Metric("pinlater_worker_jobs_released_total", "counter", "Jobs given back", lambda s: s.counts.released),
    Metric("pinlater_worker_claim_errors_total", "counter", "Claims that failed", lambda s: s.counts.claim_errors),
    Metric(
        "pinlater_worker_claims_lost_total", "counter", "Claims that ended before their job", lambda s: s.counts.lost
    ),
    Metric(
        "pinlater_worker_acks_refused_total", "counter", "Acks that changed nothing", lambda s: s.counts.acks_refused
    ),
    Metric(
        "pinlater_worker_unknown_tasks_total", "counter", "Jobs of tasks unknown here", lambda s: s.counts.unknown_tasks
    ),
    Metric(
        "pinlater_worker_functions_left_behind",
        "gauge",
        "Functions that outlasted their jobs",
        lambda s: s.abandoned_functions,
    ),
    Metric("pinlater_worker_heartbeat_errors_total", "counter", "Heartbeats that failed", lambda s: s.heartbeat_errors),
    Metric(
        "pinlater_worker_heartbeats_failing", "gauge", "1 while the latest failed", lambda s: int(s.heartbeats_failing)
    ),
    Metric(
        "pinlater_worker_loop_blocked_seconds",
        "gauge",
        "For how long the event loop is late",
        lambda s: s.loop_blocked_s,
    ),
    Metric("pinlater_worker_memory_bytes", "gauge", "Memory of the process", lambda s: s.memory_bytes),
    Metric("pinlater_worker_start_time_seconds", "gauge", "When it started, since the epoch", lambda s: s.started_at_s),
)


def page_of(state: WorkerSnapshot, labels: Mapping[str, str] | None = None) -> str:
    """The page. Every line gets `labels`."""
    tasks = sorted(state.counts.by_task.copy().items())
    common = labels or {}
    lines = [_head(JOBS, "counter", "Attempts that ended, by outcome"), *_outcomes(tasks, common)]
    lines += [_head(DURATIONS, "histogram", "How long tasks took"), *_durations(tasks, common)]
    for metric in METRICS:
        lines += [_head(metric.name, metric.kind, metric.help), _line(metric.name, common, metric.value(state))]
    return "\n".join(lines) + "\n"


def merged(pages: Iterable[str]) -> str:
    """Several workers' pages as one, which describes each metric once. Their labels must differ."""
    lines: dict[str, list[str]] = {}
    for page in pages:
        found: list[str] = []
        for line in page.splitlines():
            if line.startswith("# HELP "):
                found = lines.setdefault(line, [])
            elif line not in found:
                found.append(line)
    return "".join(f"{head}\n" + "".join(f"{line}\n" for line in rest) for head, rest in lines.items())


def _outcomes(tasks: Iterable[tuple[tuple[str, str], TaskCounts]], common: Mapping[str, str]) -> Iterator[str]:
    for (queue, task), counts in tasks:
        for kind, number in counts.ended.copy().items():
            outcome = kind.value.replace(" ", "_")
            yield _line(JOBS, {**common, "queue": queue, "task": task, "outcome": outcome}, number)


def _durations(tasks: Iterable[tuple[tuple[str, str], TaskCounts]], common: Mapping[str, str]) -> Iterator[str]:
    for (queue, task), counts in tasks:
        labels = {**common, "queue": queue, "task": task}
        at_most = list(accumulate(counts.durations))
        for bound, number in zip(_BOUND_TEXTS, at_most, strict=True):
            yield _line(f"{DURATIONS}_bucket", {**labels, "le": bound}, number)
        yield _line(f"{DURATIONS}_sum", labels, counts.total_s)
        yield _line(f"{DURATIONS}_count", labels, at_most[-1])


def _head(name: str, kind: str, text: str) -> str:
    return f"# HELP {name} {text}\n# TYPE {name} {kind}"


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"{name}{{{inside}}} {value!r}" if inside else f"{name} {value!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
