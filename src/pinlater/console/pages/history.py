"""Queries the history for pages, and draws its charts. A server without a history has no charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pinlater.console.endpoints.queues_history import (
    HistoriesQuery,
    HistoryAnswer,
    HistoryPointItem,
    HistoryQuery,
    get_history,
    get_queue_history,
)
from pinlater.console.pages.charts import Range
from pinlater.console.pages.page import PageCall
from pinlater.domain.errors import UnknownMethod
from pinlater.domain.history import MINUTE_MS

Span = Literal["15m", "1h", "6h", "1d", "7d", "30d"]
SPANS: Mapping[Span, int] = {"15m": 15, "1h": 60, "6h": 360, "1d": 1_440, "7d": 10_080, "30d": 43_200}
"""In minutes."""
SPARK_MS = 30 * MINUTE_MS
MINUTE_STEP_S: Literal[60] = 60


async def history_of(call: PageCall, span: Span) -> HistoryAnswer | None:
    """Returns the history of the queue of the page, up to now."""
    from_ms = call.now_ms - SPANS[span] * MINUTE_MS
    try:
        return await call.api.ask(get_queue_history, queue=call.queue, query=HistoryQuery(from_ms=from_ms))
    except UnknownMethod:
        return None


async def recent_points(
    call: PageCall, queues: Sequence[str]
) -> tuple[Range, Mapping[str, Sequence[HistoryPointItem]]]:
    """Returns the points of the last half hour by queue, for at most a hundred queues."""
    shown = Range(call.now_ms - SPARK_MS, call.now_ms, MINUTE_MS)
    if not queues:
        return shown, {}
    query = HistoriesQuery(from_ms=shown.from_ms, step_s=MINUTE_STEP_S, queue=queues)
    try:
        answer = await call.api.ask(get_history, query=query)
    except UnknownMethod:
        return shown, {}
    return shown, {each.queue: each.points for each in answer.queues}
