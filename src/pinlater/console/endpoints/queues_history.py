"""Queues: what happened in them lately, and the deploy marks beside it."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Any, Literal

from pinlater.client.values import Histories, QueueHistory, SpanPercentiles
from pinlater.console.endpoint import ApiCall, endpoint
from pinlater.console.endpoints.fields import AnswerShape, Incomplete, Moment, Nothing, RequestShape, doc
from pinlater.console.endpoints.forms import like
from pinlater.domain.history import HOUR_MS, MARK_CHARS_MAX, QUEUES_MAX


class HistoryQuery(RequestShape, frozen=True, kw_only=True):
    """The range of a history."""

    from_ms: Annotated[Moment | None, doc("At most 30 days ago. Without it: an hour before the end.")] = None
    until_ms: Annotated[Moment | None, doc("Without it: now.")] = None
    step_s: Annotated[
        Literal[60, 600, 3600] | None, doc("Without it: the smallest step that is kept for the range.")
    ] = None


class HistoriesQuery(HistoryQuery, frozen=True, kw_only=True):
    """The range, and the queues."""

    queue: Annotated[Sequence[str], doc("A queue; may be repeated.", min_length=1, max_length=QUEUES_MAX)]


class PercentilesItem(AnswerShape, frozen=True, kw_only=True):
    """Percentiles of `number` durations, in milliseconds, accurate to one sixteenth."""

    number: int
    p50: int
    p90: int
    p99: int


class HistoryPointItem(AnswerShape, frozen=True, kw_only=True):
    """What happened in a step, on all servers, and the highest depth in it; null if that is not known.

    `failed` counts attempts, `timed_out` claims. `wait_ms`: from when a job was due to its hand-out; `run_ms`: from a claim to its ack.
    """

    at_ms: int
    enqueued: int
    claimed: int
    succeeded: int
    failed: int
    timed_out: int
    expired: int
    due: int | None
    scheduled: int | None
    running: int | None
    oldest_ms: Annotated[int | None, doc("How long the oldest due job had waited.")]
    wait_ms: PercentilesItem | None
    run_ms: PercentilesItem | None


class MarkItem(AnswerShape, frozen=True, kw_only=True):
    """A deploy mark. `queue`: null for all queues."""

    at_ms: int
    text: str
    queue: str | None


class HistoryAnswer(AnswerShape, frozen=True, kw_only=True):
    """The points of a queue by time. A step without a point: nothing happened, and there was no unfinished job."""

    queue: str
    step_s: int
    from_ms: int
    until_ms: int
    points: Sequence[HistoryPointItem]
    marks: Sequence[MarkItem]
    incomplete: Incomplete


class QueuePointsItem(AnswerShape, frozen=True, kw_only=True):
    """A queue and its points."""

    queue: str
    points: Sequence[HistoryPointItem]


class HistoriesAnswer(AnswerShape, frozen=True, kw_only=True):
    """The points of several queues. Queues that do not exist are left out, unless only one was requested."""

    step_s: int
    from_ms: int
    until_ms: int
    queues: Sequence[QueuePointsItem]
    marks: Sequence[MarkItem]
    incomplete: Incomplete


class MarkRequest(RequestShape, frozen=True, kw_only=True):
    """A mark for the charts, such as a deployment."""

    text: Annotated[str, doc("Printable characters only.", min_length=1, max_length=MARK_CHARS_MAX)]
    at_ms: Annotated[Moment | None, doc("At most an hour ahead. Without it: now.")] = None
    queue: Annotated[str | None, doc("Without it: all queues; this needs a token for all queues.")] = None


@endpoint("GET", "/v1/queues/{queue}/history", calls="queue_history")
async def get_queue_history(call: ApiCall[HistoryQuery, Nothing]) -> HistoryAnswer:
    """Returns what happened in a queue, for charts: rates, depth, age, waits and run times, and the deploy marks."""
    found = await _history(call, call.query, [call.queue])
    [of_queue] = found.queues
    return like(HistoryAnswer, found, queue=call.queue, points=_points(of_queue), marks=_marks(found))


@endpoint("GET", "/v1/history", calls="queue_history")
async def get_history(call: ApiCall[HistoriesQuery, Nothing]) -> HistoriesAnswer:
    """Returns the same for several queues, up to 5,000 points in total."""
    found = await _history(call, call.query, call.query.queue)
    queues = [QueuePointsItem(queue=each.queue, points=_points(each)) for each in found.queues]
    return like(HistoriesAnswer, found, queues=queues, marks=_marks(found))


@endpoint("POST", "/v1/marks", calls="add_mark", status=HTTPStatus.CREATED)
async def add_mark(call: ApiCall[Nothing, MarkRequest]) -> MarkItem:
    """Adds a mark, which the charts show for 30 days. A repeat with the same time and text changes nothing."""
    mark = call.body
    at_ms = call.now_ms if mark.at_ms is None else mark.at_ms
    await call.client.add_mark(mark.text, at_ms=at_ms, queue=mark.queue or "")
    return MarkItem(at_ms=at_ms, text=mark.text, queue=mark.queue or None)


async def _history(call: ApiCall[Any, Nothing], query: HistoryQuery, queues: Sequence[str]) -> Histories:
    until_ms = call.now_ms if query.until_ms is None else query.until_ms
    from_ms = until_ms - HOUR_MS if query.from_ms is None else query.from_ms
    return await call.client.queue_history(*queues, from_ms=from_ms, until_ms=query.until_ms, step_s=query.step_s)


def _points(found: QueueHistory) -> Sequence[HistoryPointItem]:
    return [
        like(HistoryPointItem, point, wait_ms=_percentiles(point.waits), run_ms=_percentiles(point.runs))
        for point in found.points
    ]


def _percentiles(found: SpanPercentiles | None) -> PercentilesItem | None:
    return found and PercentilesItem(number=found.number, p50=found.p50_ms, p90=found.p90_ms, p99=found.p99_ms)


def _marks(found: Histories) -> Sequence[MarkItem]:
    return [like(MarkItem, mark, queue=mark.queue or None) for mark in found.marks]
