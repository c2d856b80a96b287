"""Workers: who asks for jobs and who holds some, those in trouble first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pinlater.console.endpoints.workers import get_workers
from pinlater.console.pages.page import PageCall, PageView
from pinlater.console.shapes.workers import WorkerItem, WorkerProcessItem, WorkersAnswer, WorkersQuery
from pinlater.domain.workers import SILENT_MS

ROWS, PROCESSES = 200, 5


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersView(PageView):
    """`workers`: the first of `answer`."""

    workers: Sequence[WorkerRow]
    answer: WorkersAnswer


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker. `processes`: the last heard; `more`: how many others there are. `shared`: several processes
    with its source were heard lately, so that a job in hand may be of any of them."""

    worker: WorkerItem
    processes: Sequence[WorkerProcessItem]
    more: int
    shared: bool

    @property
    def held(self) -> int:
        """Jobs in its hands."""
        return sum(self.worker.holds.values())

    @property
    def lost(self) -> int:
        """Claims that timed out."""
        return self.worker.timed_out


async def show(call: PageCall) -> WorkersView:
    """One call to each server, and one for each queue with running jobs, up to ten."""
    answer = await call.api.ask(get_workers, query=WorkersQuery())
    return WorkersView(title="Workers", workers=[_row(worker) for worker in answer.workers[:ROWS]], answer=answer)


def _row(worker: WorkerItem) -> WorkerRow:
    present = [each for each in worker.processes if each.heard_ms is not None and each.heard_ms < SILENT_MS]
    shown = worker.processes[:PROCESSES]
    return WorkerRow(worker, shown, len(worker.processes) - len(shown), len(present) > 1)
