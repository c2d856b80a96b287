"""Failed jobs of all queues, with what went wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pinlater.console.endpoints.jobs import scan_jobs
from pinlater.console.endpoints.queues import get_stats
from pinlater.console.pages.listed_job import ListedJob, rows_of
from pinlater.console.pages.page import PageCall, PageView, with_fields
from pinlater.console.pages.queue_figures import QueueFigures, figures_of
from pinlater.console.shapes.fields import RequestShape
from pinlater.console.shapes.jobs import ScanQuery
from pinlater.console.shapes.queues import StatsQuery

QUEUES, ROWS = 10, 10  # of a page, and of a queue


class FailedQuery(RequestShape, frozen=True, kw_only=True):
    """Which queues. `filter`: a part of their names."""

    filter: str = ""
    page: int = 1


class FailedQueue(NamedTuple):
    """A queue with its newest failed jobs."""

    queue: QueueFigures
    jobs: Sequence[ListedJob]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedView(PageView):
    """`found`: queues with failed jobs, on all pages. `failed`: their failed jobs."""

    query: FailedQuery
    queues: Sequence[FailedQueue]
    found: int
    failed: int
    page: int
    pages: int
    incomplete: bool

    def path(self, **changes: object) -> str:
        """The same choice with changes."""
        return with_fields("/failed", **{"filter": self.query.filter, **changes})


async def show(call: PageCall) -> FailedView:
    """One call for the counters, and one for each queue of the page. The queues with the most failed jobs come first."""
    query = call.read(FailedQuery)
    word = query.filter.lower()
    answer = await call.api.ask(get_stats, query=StatsQuery())
    failing = [queue for queue in map(figures_of, answer.queues) if queue.failed and word in queue.name.lower()]
    failing.sort(key=lambda queue: (-queue.failed, queue.name))
    pages = max(1, -(-len(failing) // QUEUES))
    page = min(max(1, query.page), pages)
    shown = [
        FailedQueue(queue, rows_of((await call.api.ask(scan_jobs, queue=queue.name, query=_NEWEST)).jobs))
        for queue in failing[(page - 1) * QUEUES : page * QUEUES]
    ]
    return FailedView(
        title="Failed jobs",
        query=query,
        queues=shown,
        found=len(failing),
        failed=sum(queue.failed for queue in failing),
        page=page,
        pages=pages,
        incomplete=any(stats.incomplete for stats in answer.queues),
    )


_NEWEST = ScanQuery(state="failed", limit=ROWS)
