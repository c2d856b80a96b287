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
from pinlater.console.pages.filter_fields import FilterQuery, InputField, asked_of, inputs_of, wanted_of
from pinlater.console.pages.history import MINUTE_STEP_S, SPANS, Span, history_of, recent_points
from pinlater.console.pages.listed_job import ListedJob, age_column, rows_of
from pinlater.console.pages.page import PageCall, PageView, bulk_path, queue_path
from pinlater.console.pages.queue_figures import QueueFigures, figures_of
from pinlater.console.pages.setting_fields import SettingField, fields_shown
from pinlater.console.shapes.audit import AuditItem
from pinlater.console.shapes.fields import PartitionNumberItem, State
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


class QueuePageQuery(FilterQuery, frozen=True, kw_only=True):
    """Which jobs of the queue. `after`: the continuation of the previous page. `range`: that of the charts, or of a `table` with the same
    figures."""

    tab: Tab = "due"
    range: Span = "1h"
    table: bool = False
    after: str | None = None

    @property
    def is_slow(self) -> bool:
        """Whether the list may read many jobs to find few."""
        return bool(asked_of(self).keys() - {"priority"})

    @property
    def has_more(self) -> bool:
        """Whether a filter is set that the page hides at first."""
        return any(field.value for field in inputs_of(self, common=False))

    @property
    def is_filtered(self) -> bool:
        return bool(asked_of(self))


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
        """The same filters of jobs and charts with changes; a change begins at the first page."""
        query = self.query
        kept = {
            "tab": query.tab,
            "range": "" if query.range == "1h" else query.range,
            "table": "true" if query.table else "",
            **asked_of(query),
        }
        return queue_path(self.queue.name, **{**kept, **changes})

    @property
    def bulk_path(self) -> str:
        """The page that changes all jobs of this filter, due or not."""
        return bulk_path(self.queue.name, state=_TABS[self.query.tab].state, **asked_of(self.query))

    @property
    def common_inputs(self) -> Sequence[InputField]:
        return inputs_of(self.query, common=True)

    @property
    def more_inputs(self) -> Sequence[InputField]:
        return inputs_of(self.query, common=False)


async def show(call: PageCall) -> QueueView:
    """Shows the page. Makes five calls: counters, two for the settings, the history, and a page of jobs. One more for the forecast if the
    steps are longer, and one for a paused queue.

    A page that searches, or shows a table, does not reload by itself.
    """
    query = call.read(QueuePageQuery)
    jobs = _TABS[query.tab]
    stats = await call.api.ask(get_queue_stats, queue=call.queue)
    settings = await call.api.ask(get_settings, queue=call.queue)
    wanted = ScanQuery(
        state=jobs.state,
        future=jobs.future,
        **wanted_of(call, query),
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
