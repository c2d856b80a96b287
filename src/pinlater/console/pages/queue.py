"""A queue: its figures, its settings, and its jobs by state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal

from pinlater.console.endpoints.fields import State
from pinlater.console.endpoints.jobs import ScanQuery, scan_jobs
from pinlater.console.endpoints.queues import get_queue_stats, get_settings
from pinlater.console.endpoints.queues_history import HistoryAnswer, HistoryPointItem
from pinlater.console.pages.audit import pause_of
from pinlater.console.pages.charts import drawn
from pinlater.console.pages.filter_fields import FilterQuery, asked_of, inputs_of, wanted_of
from pinlater.console.pages.history import MINUTE_STEP_S, SPANS, Span, history_of, recent_points
from pinlater.console.pages.listed_job import age_column, rows_of
from pinlater.console.pages.page import PageCall, PageView, bulk_path, queue_path
from pinlater.console.pages.queue_figures import figures_of
from pinlater.console.pages.setting_fields import fields_shown

ROWS = 50
Tab = Literal["due", "scheduled", "running", "failed", "succeeded"]


# With which state the API selects the jobs of a tab, and whether only pending ones that are not due.
_TABS: Mapping[Tab, tuple[State, bool]] = {
    "due": ("pending", False),
    "scheduled": ("pending", True),
    "running": ("in_progress", False),
    "failed": ("failed", False),
    "succeeded": ("succeeded", False),
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


async def show(call: PageCall) -> PageView:
    """Shows the page. Makes five calls: counters, two for the settings, the history, and a page of jobs. One more for the forecast if the
    steps are longer, and one for a paused queue.

    A page that searches, or shows a table, does not reload by itself. `numbers`: jobs by tab. `pause`: the audit's entry of the pause, if
    it is known. `bulk_path`: the page that changes all jobs of this filter, due or not.
    """
    query = call.read(QueuePageQuery)
    state, future = _TABS[query.tab]
    stats = await call.api.ask(get_queue_stats, queue=call.queue)
    settings = await call.api.ask(get_settings, queue=call.queue)
    wanted = ScanQuery(state=state, future=future, **wanted_of(call, query), limit=ROWS, continuation=query.after)
    page = await call.api.ask(scan_jobs, queue=call.queue, query=wanted)
    history = await history_of(call, query.range)
    queue = figures_of(stats)
    pause = await pause_of(call) if queue.paused else None
    if queue.due:
        queue = queue.with_forecast(await _minutes(call, history), call.now_ms)
    return PageView(
        call.queue,
        polls=not query.is_slow and not query.after and not query.table,
        path=partial(_path, call.queue, query),
        bulk_path=bulk_path(call.queue, state=state, **asked_of(query)),
        query=query,
        queue=queue,
        pause=pause,
        priorities=[one for one in stats.priorities if one.enqueued_total or one.pending],
        settings=fields_shown(settings),
        max_jobs_per_second=settings.in_force.max_jobs_per_second,
        stats=stats,
        numbers={name: getattr(queue, name) for name in _TABS},
        common_inputs=inputs_of(query, common=True),
        more_inputs=inputs_of(query, common=False),
        jobs=rows_of(page.jobs, call.links),
        time_column=age_column(state),
        next_page=page.continuation or "",
        incomplete=page.incomplete or stats.incomplete,
        ranges=list(SPANS),
        history=history and drawn(history),
        points=history.points if history is not None and query.table else (),
    )


def _path(queue: str, query: QueuePageQuery, **changes: object) -> str:
    """The same filters of jobs and charts with changes; a change begins at the first page."""
    shown_range = "" if query.range == "1h" else query.range
    kept = {"tab": query.tab, "range": shown_range, "table": query.table, **asked_of(query)}
    return queue_path(queue, **{**kept, **changes})


async def _minutes(call: PageCall, history: HistoryAnswer | None) -> Sequence[HistoryPointItem]:
    """The last minutes of the queue."""
    if history is not None and history.step_s == MINUTE_STEP_S:
        return history.points
    _, recent = await recent_points(call, [call.queue])
    return recent.get(call.queue, ())
