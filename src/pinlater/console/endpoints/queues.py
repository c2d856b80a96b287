"""Queues: create, list, settings, pause, statistics, delete."""

from __future__ import annotations

from msgspec import UNSET, structs

from pinlater.client import QueueConfig
from pinlater.client.values import QueueStats
from pinlater.console.endpoint import ApiCall
from pinlater.console.endpoints.forms import like
from pinlater.console.shapes.fields import Nothing
from pinlater.console.shapes.queues import (
    ChangedSettings,
    CountsItem,
    CreateQueueRequest,
    PausedAnswer,
    QueueItem,
    QueuesAnswer,
    RatesItem,
    SettingsAnswer,
    SettingsValues,
    StatsAnswer,
    StatsItem,
    StatsQuery,
)


async def list_queues(call: ApiCall[Nothing, Nothing]) -> QueuesAnswer:
    """Lists the queues by name."""
    return QueuesAnswer(queues=[QueueItem(name=name) for name in await call.client.queue_names()])


async def create_queue(call: ApiCall[Nothing, CreateQueueRequest]) -> QueueItem:
    """Creates a queue. A queue that exists does not change."""
    await call.client.create_queue(call.body.name)
    return QueueItem(name=call.body.name)


async def delete_queue(call: ApiCall[Nothing, Nothing]) -> None:
    """Deletes a queue with all its jobs. Needs the admin password of the server. A missing queue is no error."""
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


async def get_stats(call: ApiCall[StatsQuery, Nothing]) -> StatsAnswer:
    """Returns counts and rates of queues."""
    return StatsAnswer(queues=[_stats(queue) for queue in await call.client.queue_stats(*call.query.queue)])


async def get_queue_stats(call: ApiCall[Nothing, Nothing]) -> StatsItem:
    """Returns counts and rates of a queue."""
    [found] = await call.client.queue_stats(call.queue)
    return _stats(found)


def _stats(found: QueueStats) -> StatsItem:
    priorities = [like(CountsItem, counts) for counts in found.counts]
    return like(StatsItem, found, priorities=priorities, rates=like(RatesItem, found.rates))
