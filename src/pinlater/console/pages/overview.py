"""The overview: all queues with their depth and rates, those that need attention first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Literal

from pinlater.console.endpoints.fields import QueuesQuery, RequestShape
from pinlater.console.endpoints.queues import get_stats, list_queues
from pinlater.console.pages.api import Api
from pinlater.console.pages.charts import sparkline_of
from pinlater.console.pages.history import recent_points
from pinlater.console.pages.page import Goto, PageCall, PageView, job_path, paths, queue_path, with_fields
from pinlater.console.pages.queue_figures import QueueFigures, figures_of

ROWS = 50
_TOTALS = ("due", "running", "scheduled", "failed", "rate_in", "rate_out")
Sort = Literal["attention", "name", "due", "running", "scheduled", "failed", "in", "out", "failing", "oldest", "limit"]
Show = Literal["all", "attention", "paused", "failed", "busy"]

_SORTS: Mapping[Sort, Callable[[QueueFigures], Any]] = {
    "attention": lambda queue: (queue.urgency, queue.name),
    "name": lambda queue: queue.name,
    "due": lambda queue: (-queue.due, queue.name),
    "running": lambda queue: (-queue.running, queue.name),
    "scheduled": lambda queue: (-queue.scheduled, queue.name),
    "failed": lambda queue: (-queue.failed, queue.name),
    "in": lambda queue: (-queue.rate_in, queue.name),
    "out": lambda queue: (-queue.rate_out, queue.name),
    "failing": lambda queue: (-(queue.failure_share or 0), queue.name),
    "oldest": lambda queue: (-(queue.oldest_waiting_ms or 0), queue.name),
    "limit": lambda queue: (queue.max_jobs_per_second is None, queue.max_jobs_per_second, queue.name),
}
_SHOWN: Mapping[Show, Callable[[QueueFigures], bool]] = {
    "all": lambda queue: True,
    "attention": lambda queue: bool(queue.concerns),
    "paused": lambda queue: queue.paused,
    "failed": lambda queue: bool(queue.failed),
    "busy": lambda queue: bool(queue.due or queue.running or queue.rate_in),
}


class OverviewQuery(RequestShape, frozen=True, kw_only=True):
    """Which queues. `filter`: a part of their names."""

    filter: str = ""
    sort: Sort = "attention"
    show: Show = "all"
    page: int = 1


async def show(call: PageCall) -> PageView:
    """Shows the page. Takes all queues of one answer, filters, sorts and cuts them to a page, and then reads the last half hour of those
    on it."""
    view = overview_of(await call.api.shared(_all_figures), call.read(OverviewQuery), call.pins)
    shown, points = await recent_points(call, [queue.name for queue in view.queues if queue.is_in_use])
    view.queues = [queue.with_forecast(points.get(queue.name, ()), call.now_ms) for queue in view.queues]
    view.sparks = {name: sparkline_of(found, shown) for name, found in points.items()}
    return view


async def _all_figures(api: Api) -> Sequence[QueueFigures]:
    answer = await api.ask(get_stats, query=QueuesQuery())
    return [figures_of(stats) for stats in answer.queues]


def overview_of(queues: Sequence[QueueFigures], query: OverviewQuery, pins: Set[str] = frozenset()) -> PageView:
    """The page number of the query, or the last one. `found`: queues on all pages; `total`: without a filter. `numbers`: how many queues
    each filter shows.
    """
    word = query.filter.lower()
    named = [queue for queue in queues if word in queue.name.lower()]
    order = _SORTS[query.sort]
    found = sorted(filter(_SHOWN[query.show], named), key=lambda queue: (queue.name not in pins, order(queue)))
    pages = max(1, -(-len(found) // ROWS))
    page = min(max(1, query.page), pages)
    totals = {name: sum(getattr(queue, name) for queue in named) for name in _TOTALS}
    return PageView(
        "Overview",
        path=paths("/", query),
        query=query,
        queues=found[(page - 1) * ROWS : page * ROWS],
        found=len(found),
        total=len(queues),
        page=page,
        pages=pages,
        numbers={name: sum(map(chosen, named)) for name, chosen in _SHOWN.items()},
        incomplete=any(queue.incomplete for queue in named),
        pins=pins,
        **totals,
    )


class FindQuery(RequestShape, frozen=True, kw_only=True):
    """The text in the search field of each page: a job, a queue, or a part of a queue's name."""

    text: str = ""


async def find(call: PageCall) -> Goto:
    """The page that a text means: of a job, of a queue, the overview of the queues with the text in their names, or a search in jobs."""
    text = call.read(FindQuery).text.strip()
    if ":" in text:
        return Goto(job_path(text))
    names = {queue.name for queue in (await call.api.ask(list_queues)).queues}
    if text in names:
        return Goto(queue_path(text))
    if text and not any(text.lower() in name.lower() for name in names):
        return Goto(with_fields("/search", text=text))
    return Goto(with_fields("/", filter=text))
