"""Workers: which ones wait for jobs, and which ones hold some."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pinlater.console.endpoints.jobs import scan_jobs
from pinlater.console.endpoints.queues import get_stats
from pinlater.console.endpoints.servers import get_waiting_dequeues
from pinlater.console.pages.listed_job import worker_of
from pinlater.console.pages.page import PageCall, PageView
from pinlater.console.pages.queue_figures import figures_of
from pinlater.console.shapes.jobs import JobItem, ScanQuery
from pinlater.console.shapes.queues import StatsQuery

QUEUES, JOBS = 10, 100  # that are searched for held jobs: the queues with the most, and jobs of each
ROWS = 200
_RUNNING = ScanQuery(state="in_progress", limit=JOBS)


@dataclass(slots=True)
class WorkerRow:
    """A worker, by what it calls itself. `ends_first`: the job whose claim ends first."""

    name: str
    waits: dict[str, int] = field(default_factory=dict)
    holds: dict[str, int] = field(default_factory=dict)
    ends_first: JobItem | None = None

    @property
    def held(self) -> int:
        """Jobs in its hands."""
        return sum(self.holds.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersView(PageView):
    """`total`: workers that were found; the page shows the first. `running`: jobs of all queues; `seen`: those that were looked at."""

    workers: Sequence[WorkerRow]
    total: int
    running: int
    seen: int


async def show(call: PageCall) -> WorkersView:
    """Two calls, and one for each queue with running jobs, up to ten."""
    waiting = await call.api.ask(get_waiting_dequeues)
    answer = await call.api.ask(get_stats, query=StatsQuery())
    busy = sorted(
        (queue for queue in map(figures_of, answer.queues) if queue.running), key=lambda queue: -queue.running
    )
    found: dict[str, WorkerRow] = {}
    for one in waiting.waiting:
        row = found.setdefault(one.source, WorkerRow(one.source))
        row.waits[one.queue] = row.waits.get(one.queue, 0) + one.number
    seen = 0
    for queue in busy[:QUEUES]:
        for job in (await call.api.ask(scan_jobs, queue=queue.name, query=_RUNNING)).jobs:
            seen += 1
            _count_job(found, queue.name, job)
    rows = sorted(found.values(), key=lambda row: (_deadline(row.ends_first), row.name))
    running = sum(queue.running for queue in busy)
    return WorkersView(title="Workers", workers=rows[:ROWS], total=len(rows), running=running, seen=seen)


def _count_job(found: dict[str, WorkerRow], queue: str, job: JobItem) -> None:
    name = worker_of(job.claim_descriptor)
    row = found.setdefault(name, WorkerRow(name))
    row.holds[queue] = row.holds.get(queue, 0) + 1
    if _deadline(job) < _deadline(row.ends_first):
        row.ends_first = job


def _deadline(job: JobItem | None) -> float:
    deadline = None if job is None else job.claim_deadline_at_ms
    return float("inf") if deadline is None else deadline
