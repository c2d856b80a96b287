"""A queue: its figures, its settings, and its jobs by state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from pinlater.console.endpoints.jobs import scan_jobs
from pinlater.console.endpoints.queues import get_queue_stats, get_settings
from pinlater.console.pages.audit import pause_of
from pinlater.console.pages.charts import (
    Chart,
    Label,
    MarkLine,
    Range,
    charts_of,
    labels_of,
    mark_lines,
)
from pinlater.console.pages.history import MINUTE_STEP_S, SPANS, Span, history_of, recent_points
from pinlater.console.pages.listed_job import ListedJob, age_column, rows_of
from pinlater.console.pages.page import PageCall, PageView, bulk_path, queue_path
from pinlater.console.pages.queue_figures import QueueFigures, figures_of
from pinlater.console.pages.setting_fields import SettingField, fields_shown
from pinlater.console.shapes.audit import AuditItem
from pinlater.console.shapes.fields import MinAttempts, OfPriority, PartitionNumberItem, RequestShape, State
from pinlater.console.shapes.jobs import ScanQuery
from pinlater.console.shapes.queues import CountsItem, HistoryAnswer, HistoryPointItem

ROWS = 50
Tab = Literal["due", "scheduled", "running", "failed", "succeeded"]


class _Jobs(NamedTuple):
    """The parameters with which the API selects the jobs of a tab."""

    state: State
    future: bool = False


_TABS: Mapping[Tab, _Jobs] = {
    "due": _Jobs("pending"),
    "scheduled": _Jobs("pending", True),
    "running": _Jobs("in_progress"),
    "failed": _Jobs("failed"),
    "succeeded": _Jobs("succeeded"),
}


class QueuePageQuery(RequestShape, frozen=True, kw_only=True):
    """Which jobs of the queue. `header`: NAME=VALUE. `text` and `body`: a string and a regular expression in the body, of which one is
    given. `older`, `newer`: how long ago they were enqueued, as `10m`. `group`: of failures. `after`: the continuation of the page before.
    `range`: of the charts, or of a `table` with the same figures."""

    tab: Tab = "due"
    range: Span = "1h"
    table: bool = False
    priority: OfPriority = None
    task: str | None = None
    header: str | None = None
    text: str | None = None
    body: str | None = None
    error: str | None = None
    attempts: MinAttempts = 0
    older: str | None = None
    newer: str | None = None
    group: str | None = None
    after: str | None = None

    @property
    def is_slow(self) -> bool:
        """Whether the list may read many jobs for a few."""
        return bool(self.task or self.header or self.text) or self.has_more

    @property
    def has_more(self) -> bool:
        """Whether the filters count that a page hides at first."""
        return bool(self.body or self.error or self.attempts or self.older or self.newer or self.group)

    @property
    def is_filtered(self) -> bool:
        return self.is_slow or self.priority is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView(PageView):
    """`numbers`: jobs by tab. `next_page`: the continuation; empty at the end. `pause`: the audit's entry of the pause, if it is known."""

    query: QueuePageQuery
    queue: QueueFigures
    pause: AuditItem | None
    priorities: Sequence[CountsItem]
    settings: Sequence[SettingField]
    max_jobs_per_second: float | None
    partitions: Sequence[str]
    partition_number: PartitionNumberItem | None
    strays: Mapping[str, int]
    numbers: Mapping[str, int]
    jobs: Sequence[ListedJob]
    time_column: str
    next_page: str
    incomplete: bool
    ranges: Sequence[Span]
    charts: Sequence[Chart]
    labels: Sequence[Label]
    marks: Sequence[MarkLine]
    points: Sequence[HistoryPointItem]

    def path(self, **changes: object) -> str:
        """The same choice of jobs and charts with changes; a change begins at the first page."""
        query = self.query
        kept = {
            "tab": query.tab,
            "range": "" if query.range == "1h" else query.range,
            "table": "true" if query.table else "",
            **self._chosen,
        }
        return queue_path(self.queue.name, **{**kept, **changes})

    @property
    def bulk_path(self) -> str:
        """The page that changes all jobs of this choice, due or not."""
        return bulk_path(self.queue.name, state=_TABS[self.query.tab].state, **self._chosen)

    @property
    def _chosen(self) -> Mapping[str, object]:
        query = self.query
        return {
            "priority": query.priority,
            "task": query.task,
            "header": query.header,
            "text": query.text,
            "body": query.body,
            "error": query.error,
            "attempts": query.attempts or "",
            "older": query.older,
            "newer": query.newer,
            "group": query.group,
        }


async def show(call: PageCall) -> QueueView:
    """Shows the page. Makes five calls: counters, two for the settings, the history, and a page of jobs. One more for the forecast if the
    steps are longer, and one for a paused queue.

    A page that searches, or shows a table, does not ask again by itself.
    """
    query = call.read(QueuePageQuery)
    jobs = _TABS[query.tab]
    stats = await call.api.ask(get_queue_stats, queue=call.queue)
    settings = await call.api.ask(get_settings, queue=call.queue)
    wanted = ScanQuery(
        state=jobs.state,
        future=jobs.future,
        priority=query.priority,
        task=(query.task,) if query.task else (),
        header=(query.header,) if query.header else (),
        regex=query.body,
        text=query.text,
        error=query.error or "",
        min_attempts=query.attempts,
        enqueued_from_ms=call.ago_ms("newer"),
        enqueued_before_ms=call.ago_ms("older"),
        group=query.group or "",
        limit=ROWS,
        continuation=query.after,
    )
    page = await call.api.ask(scan_jobs, queue=call.queue, query=wanted)
    history = await history_of(call, query.range)
    charts, labels, marks = [], [], []
    if history is not None:
        shown = Range(history.from_ms, history.until_ms, history.step_s * 1000)
        charts, labels, marks = charts_of(history.points, shown), labels_of(shown), mark_lines(history.marks, shown)
    queue = figures_of(stats)
    pause = await pause_of(call) if queue.paused else None
    if queue.due:
        queue = queue.with_forecast(await _minutes(call, history), call.now_ms)
    return QueueView(
        title=call.queue,
        polls=not query.is_slow and not query.after and not query.table,
        query=query,
        queue=queue,
        pause=pause,
        priorities=[one for one in stats.priorities if one.enqueued_total or one.pending],
        settings=fields_shown(settings),
        max_jobs_per_second=settings.in_force.max_jobs_per_second,
        partitions=stats.partitions,
        partition_number=stats.partition_number,
        strays=stats.strays,
        numbers={
            "due": queue.due,
            "scheduled": queue.scheduled,
            "running": queue.running,
            "failed": queue.failed,
            "succeeded": queue.succeeded,
        },
        jobs=rows_of(page.jobs, call.links),
        time_column=age_column(jobs.state),
        next_page=page.continuation or "",
        incomplete=page.incomplete or stats.incomplete,
        ranges=list(SPANS),
        charts=charts,
        labels=labels,
        marks=marks,
        points=history.points if history is not None and query.table else (),
    )


async def _minutes(call: PageCall, history: HistoryAnswer | None) -> Sequence[HistoryPointItem]:
    """The last minutes of the queue."""
    if history is not None and history.step_s == MINUTE_STEP_S:
        return history.points
    _, recent = await recent_points(call, [call.queue])
    return recent.get(call.queue, ())
