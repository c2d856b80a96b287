"""A worker's health, for probes and metrics.

The worker's event loop writes marks; any thread may read them. While a task blocks the loop, the marks grow old, which shows the problem.
Reading must never wait for the loop. Weakness: code that holds the interpreter's lock stops the reading thread too; a probe's own time
limit notices that.

The metrics are in Prometheus' text format, written without a library. A task without attempts has no lines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from pinlater.domain.clock import Clock
from pinlater.supervision.resident_memory import resident_bytes
from pinlater.worker.counts import DURATION_BOUNDS_S, TaskCounts

if TYPE_CHECKING:
    from pinlater.worker._consumer.consumer import Consumer
    from pinlater.worker._consumer.worker_run import WorkerRun

_MARK_S = 0.5
JOBS, DURATIONS = "pinlater_worker_jobs_total", "pinlater_worker_job_duration_seconds"
_BOUND_TEXTS = (*(f"{bound:g}" for bound in DURATION_BOUNDS_S), "+Inf")


class HealthReport(msgspec.Struct, frozen=True):
    """Reasons why the worker is `unhealthy` or `unready`, none if it isn't, and the page of `metrics`."""

    unhealthy: list[str]
    unready: list[str]
    metrics: str


class _Metric(NamedTuple):
    """A number of the whole worker."""

    name: str
    kind: str
    help: str
    value: float


class WorkerHealth:
    """The health of one worker run. All its metrics get `labels`."""

    def __init__(
        self, run: WorkerRun, consumers: Sequence[Consumer], clock: Clock, labels: Mapping[str, str] | None = None
    ) -> None:
        self._run = run
        self._consumers = consumers
        self._clock = clock
        self._labels = labels or {}
        self._stuck_s = run.settings.stuck_ms / 1000
        self._started_s = self._marked_s = clock.monotonic()
        self._started_at_s = clock.now_ms() / 1000
        self._abandoned = 0
        self._memory_bytes = resident_bytes()

    async def mark_until_cancelled(self) -> None:
        """Runs on the worker's loop: writes marks, and recycles the worker when a limit is reached."""
        while True:
            self._marked_s = self._clock.monotonic()
            self._abandoned = self._run.abandoned_functions
            self._memory_bytes = resident_bytes()
            self._run.recycle_at_a_limit(self._marked_s - self._started_s, self._memory_bytes)
            await asyncio.sleep(_MARK_S)

    async def report(self, metrics: bool) -> HealthReport:
        """The health now, and the page of `metrics` only if it is wanted. On any loop; waits for nothing."""
        unhealthy = self._unhealthy()
        return HealthReport(unhealthy, [*unhealthy, *self._unready()], self._metrics() if metrics else "")

    def _blocked_s(self) -> float:
        return max(0.0, self._clock.monotonic() - self._marked_s - _MARK_S)

    def _unhealthy(self) -> list[str]:
        found = []
        blocked_s = self._blocked_s()
        if blocked_s >= self._stuck_s:
            found.append(f"the event loop has been blocked for {blocked_s:.0f} s")
        now = self._clock.monotonic()
        for consumer in self._consumers:
            since = consumer.claimer.blocked_since_s
            if since is not None and now - since >= self._stuck_s:
                found.append(f"queue {consumer.queue}: functions that don't end hold all slots")
        return found

    def _unready(self) -> list[str]:
        if self._run.stop.is_set():
            return ["stopping"]
        unanswered = [consumer.queue for consumer in self._consumers if not consumer.claimer.server_answers]
        blocked = [consumer.queue for consumer in self._consumers if consumer.claimer.blocked_since_s is not None]
        return [
            *(f"queue {queue}: no answer from the server" for queue in unanswered),
            *(f"queue {queue}: waits for functions that don't end" for queue in blocked),
        ]

    def _metrics(self) -> str:
        tasks = sorted(self._run.counts.by_task.copy().items())
        lines = [_head(JOBS, "counter", "Attempts that ended, by outcome"), *_outcomes(tasks, self._labels)]
        lines += [_head(DURATIONS, "histogram", "How long tasks took"), *_durations(tasks, self._labels)]
        for metric in self._numbers():
            lines += [_head(metric.name, metric.kind, metric.help), _line(metric.name, self._labels, metric.value)]
        return "\n".join(lines) + "\n"

    def _numbers(self) -> Sequence[_Metric]:
        counts, renewals = self._run.counts, self._run.heartbeater.renewals
        failing = renewals.failing and counts.running > 0  # without a job there is nothing to lose
        return (
            _Metric("pinlater_worker_jobs_claimed_total", "counter", "Jobs claimed", counts.claimed),
            _Metric("pinlater_worker_jobs_running", "gauge", "Jobs that run now", counts.running),
            _Metric("pinlater_worker_slots", "gauge", "Jobs that may run at once", self._run.settings.concurrency),
            _Metric("pinlater_worker_jobs_released_total", "counter", "Jobs given back", counts.released),
            _Metric("pinlater_worker_claim_errors_total", "counter", "Claims that failed", counts.claim_errors),
            _Metric("pinlater_worker_claims_lost_total", "counter", "Claims that ended before their job", counts.lost),
            _Metric("pinlater_worker_acks_refused_total", "counter", "Acks that changed nothing", counts.acks_refused),
            _Metric(
                "pinlater_worker_unknown_tasks_total", "counter", "Jobs of tasks unknown here", counts.unknown_tasks
            ),
            _Metric(
                "pinlater_worker_functions_left_behind", "gauge", "Functions that outlasted their jobs", self._abandoned
            ),
            _Metric("pinlater_worker_heartbeat_errors_total", "counter", "Heartbeats that failed", renewals.errors),
            _Metric("pinlater_worker_heartbeats_failing", "gauge", "1 while the latest failed", int(failing)),
            _Metric(
                "pinlater_worker_loop_blocked_seconds",
                "gauge",
                "For how long the event loop is late",
                self._blocked_s(),
            ),
            _Metric("pinlater_worker_memory_bytes", "gauge", "Memory of the process", self._memory_bytes),
            _Metric(
                "pinlater_worker_start_time_seconds", "gauge", "When it started, since the epoch", self._started_at_s
            ),
        )


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
