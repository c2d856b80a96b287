"""Queues: create, list, settings, pause, statistics, delete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, structs

from pinlater.client import QueueConfig
from pinlater.client.values import Histories, QueueHistory, QueueStats, SpanPercentiles
from pinlater.console.endpoint import ApiCall
from pinlater.console.endpoints.forms import like, number_shown
from pinlater.console.shapes.fields import Nothing
from pinlater.console.shapes.queues import (
    ChangedSettings,
    CountsItem,
    CreateQueueRequest,
    HistoriesAnswer,
    HistoriesQuery,
    HistoryAnswer,
    HistoryPointItem,
    HistoryQuery,
    MarkItem,
    MarkRequest,
    PausedAnswer,
    PercentilesItem,
    QueueItem,
    QueuePointsItem,
    QueuesAnswer,
    RatesItem,
    SettingsAnswer,
    SettingsValues,
    StatsAnswer,
    StatsItem,
    StatsQuery,
    UnblockedAnswer,
    UnblockRequest,
)
from pinlater.domain.history import HOUR_MS


async def list_queues(call: ApiCall[Nothing, Nothing]) -> QueuesAnswer:
    """Lists the queues by name."""
    return QueuesAnswer(queues=[QueueItem(name=name) for name in await call.client.queue_names()])


async def get_queue(call: ApiCall[Nothing, Nothing]) -> QueueItem:
    """Tells whether a queue exists: the answer is an error if it does not. Its `settings` and `stats` tell more."""
    await call.client.queue_config(call.queue)
    return QueueItem(name=call.queue)


async def create_queue(call: ApiCall[Nothing, CreateQueueRequest]) -> QueueItem:
    """Creates a queue. A queue that exists does not change. With `ordered`, it is an error if it exists and is not ordered."""
    await call.client.create_queue(call.body.name, ordered=call.body.ordered)
    return QueueItem(name=call.body.name)


async def delete_queue(call: ApiCall[Nothing, Nothing]) -> None:
    """Deletes a queue with all its jobs. Needs the admin password of the server. A missing queue is not an error."""
    await call.client.delete_queue(call.queue, call.header)


async def get_settings(call: ApiCall[Nothing, Nothing]) -> SettingsAnswer:
    """Returns the settings of a queue, those that apply, and where each comes from."""
    return await _settings(call)


async def replace_settings(call: ApiCall[Nothing, SettingsValues]) -> SettingsAnswer:
    """Replaces all settings of a queue. A setting that is left out gets the default of the server."""
    await call.client.configure_queue(call.queue, QueueConfig(**structs.asdict(call.body)))
    return await _settings(call)


async def change_settings(call: ApiCall[Nothing, ChangedSettings]) -> SettingsAnswer:
    """Changes the settings that are given. Reads and stores all of them, so of two changes at the same time one may be lost."""
    changes = {name: value for name, value in structs.asdict(call.body).items() if value is not UNSET}
    now = await call.client.queue_config(call.queue)
    if changes:
        await call.client.configure_queue(call.queue, now.config._replace(**changes))
    return await _settings(call)


async def _settings(
    call: ApiCall[Nothing, Nothing] | ApiCall[Nothing, SettingsValues] | ApiCall[Nothing, ChangedSettings],
) -> SettingsAnswer:
    queue = await call.client.queue_config(call.queue)
    in_force = await call.client.settings_in_force(call.queue)
    return SettingsAnswer(
        name=call.queue,
        paused=queue.paused,
        ordered=queue.ordered,
        settings=SettingsValues(**queue.config._asdict()),
        in_force=SettingsValues(**in_force.values._asdict()),
        origins=dict(in_force.origins),
    )


async def pause_queue(call: ApiCall[Nothing, Nothing]) -> PausedAnswer:
    """Stops dequeues. Enqueues and acks continue."""
    await call.client.pause_queue(call.queue)
    return PausedAnswer(name=call.queue, paused=True)


async def resume_queue(call: ApiCall[Nothing, Nothing]) -> PausedAnswer:
    """Allows dequeues again."""
    await call.client.resume_queue(call.queue)
    return PausedAnswer(name=call.queue, paused=False)


async def unblock_key(call: ApiCall[Nothing, UnblockRequest]) -> UnblockedAnswer:
    """Has jobs that failed finally no longer stop their ordering key. They stay failed."""
    return UnblockedAnswer(jobs=await call.client.unblock_key(call.queue, call.body.ordering_key))


async def get_stats(call: ApiCall[StatsQuery, Nothing]) -> StatsAnswer:
    """Returns counts and rates of queues."""
    return StatsAnswer(queues=[_stats(queue) for queue in await call.client.queue_stats(*call.query.queue)])


async def get_queue_stats(call: ApiCall[Nothing, Nothing]) -> StatsItem:
    """Returns counts and rates of a queue."""
    [found] = await call.client.queue_stats(call.queue)
    return _stats(found)


async def get_queue_history(call: ApiCall[HistoryQuery, Nothing]) -> HistoryAnswer:
    """Returns what happened in a queue, for charts: rates, depth, age, waits and run times, and the deploy marks."""
    found = await _history(call, call.query, [call.queue])
    [of_queue] = found.queues
    return like(HistoryAnswer, found, queue=call.queue, points=_points(of_queue), marks=_marks(found))


async def get_history(call: ApiCall[HistoriesQuery, Nothing]) -> HistoriesAnswer:
    """Returns the same of several queues, up to 5,000 points together."""
    found = await _history(call, call.query, call.query.queue)
    queues = [QueuePointsItem(queue=each.queue, points=_points(each)) for each in found.queues]
    return like(HistoriesAnswer, found, queues=queues, marks=_marks(found))


async def add_mark(call: ApiCall[Nothing, MarkRequest]) -> MarkItem:
    """Keeps a mark for 30 days, which the charts show. A repeat with the same time and text changes nothing."""
    mark = call.body
    at_ms = call.now_ms() if mark.at_ms is None else mark.at_ms
    await call.client.add_mark(mark.text, at_ms=at_ms, queue=mark.queue or "")
    return MarkItem(at_ms=at_ms, text=mark.text, queue=mark.queue or None)


async def _history(call: ApiCall[Any, Nothing], query: HistoryQuery, queues: Sequence[str]) -> Histories:
    until_ms = call.now_ms() if query.until_ms is None else query.until_ms
    from_ms = until_ms - HOUR_MS if query.from_ms is None else query.from_ms
    return await call.client.queue_history(*queues, from_ms=from_ms, until_ms=query.until_ms, step_s=query.step_s)


def _points(found: QueueHistory) -> Sequence[HistoryPointItem]:
    return [
        like(
            HistoryPointItem,
            point,
            wait_ms=_percentiles(point.waits),
            run_ms=_percentiles(point.runs),
        )
        for point in found.points
    ]


def _percentiles(found: SpanPercentiles | None) -> PercentilesItem | None:
    if found is None:
        return None
    return PercentilesItem(number=found.number, p50=found.p50_ms, p90=found.p90_ms, p99=found.p99_ms)


def _marks(found: Histories) -> Sequence[MarkItem]:
    return [MarkItem(at_ms=mark.at_ms, text=mark.text, queue=mark.queue or None) for mark in found.marks]


def _stats(found: QueueStats) -> StatsItem:
    priorities = [like(CountsItem, counts) for counts in found.counts]
    return like(
        StatsItem,
        found,
        priorities=priorities,
        rates=like(RatesItem, found.rates),
        partition_number=number_shown(found.partition_number),
    )
