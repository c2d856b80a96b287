"""Queues: create, list, settings, pause, statistics, delete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType, defstruct, structs

from pinlater.client import QueueConfig
from pinlater.console.endpoint import ApiCall, HeaderParameter, endpoint
from pinlater.console.endpoints.fields import (
    AnswerShape,
    Incomplete,
    Nothing,
    PartitionNumberItem,
    QueuesQuery,
    RequestShape,
    doc,
)
from pinlater.console.endpoints.forms import like
from pinlater.domain.queue_settings import QUEUE_SETTINGS, QueueSetting

_ADMIN_PASSWORD = HeaderParameter(
    "PinLater-Admin-Password", "The admin password of the server; not needed with a token of the role admin."
)
_QUEUE = "/v1/queues/{queue}"


class CreateQueueRequest(RequestShape, frozen=True, kw_only=True):
    """The queue to create."""

    name: Annotated[str, doc("1 to 64 ASCII letters, digits and underscores.")]
    ordered: Annotated[bool, doc("Its jobs run one after the other. This cannot be changed later.")] = False


class QueueItem(AnswerShape, frozen=True, kw_only=True):
    """A queue."""

    name: str


class QueuesAnswer(AnswerShape, frozen=True, kw_only=True):
    """All queues, by name."""

    queues: Sequence[QueueItem]


class PausedAnswer(AnswerShape, frozen=True, kw_only=True):
    """A queue, and whether it is paused."""

    name: str
    paused: bool


def _type_of(setting: QueueSetting) -> Any:
    if setting.words:
        value: Any = Literal[tuple(setting.words)]
    else:
        value = Annotated[float if setting.is_fraction else int, Meta(ge=setting.least, le=setting.most)]
    return Annotated[value | None, doc(setting.help)]


SettingsValues: Any = defstruct(
    "SettingsValues",
    [(setting.field, _type_of(setting), None) for setting in QUEUE_SETTINGS],
    bases=(RequestShape,),
    namespace={"__doc__": "The settings of a queue. Null leaves a setting to the server."},
    module=__name__,
    frozen=True,
    kw_only=True,
)
ChangedSettings: Any = defstruct(
    "ChangedSettings",
    [(setting.field, _type_of(setting) | UnsetType, UNSET) for setting in QUEUE_SETTINGS],
    bases=(RequestShape,),
    namespace={
        "__doc__": "The settings to change. Null leaves a setting to the server; a setting that is left out does not change."
    },
    module=__name__,
    frozen=True,
    kw_only=True,
)


class SettingsAnswer(AnswerShape, frozen=True, kw_only=True):
    """A queue with its settings."""

    name: str
    paused: bool
    ordered: Annotated[bool, doc("All its jobs run one after the other.")]
    settings: Annotated[SettingsValues, doc("The settings stored with the queue.")]
    in_force: Annotated[SettingsValues, doc("The settings in force on the server that answered.")]
    origins: Annotated[Mapping[str, str], doc("Where each value in force comes from.")]


class UnblockRequest(RequestShape, frozen=True, kw_only=True):
    """The ordering key to unblock."""

    ordering_key: Annotated[str, Meta(min_length=1, max_length=128)]


class UnblockedAnswer(AnswerShape, frozen=True, kw_only=True):
    """The number of failed jobs that blocked the key."""

    jobs: int


class CountsItem(AnswerShape, frozen=True, kw_only=True):
    """Jobs of one priority. `pending` includes `future`, the jobs that are not due yet, and `future` includes `behind_key`, those that wait
    behind others of their ordering keys: 10,000 of a shard stand for that or more. Totals count since the queue was created."""

    priority: int
    pending: int
    future: int
    behind_key: int
    in_progress: int
    succeeded: int
    failed: int
    enqueued_total: int
    claimed_total: int
    succeeded_total: int
    failed_total: int
    retried_total: int


class RatesItem(AnswerShape, frozen=True, kw_only=True):
    """Jobs a second over the last minute, of all servers together."""

    enqueued: float
    claimed: float
    succeeded: float
    failed: float
    retried: float


class StatsItem(AnswerShape, frozen=True, kw_only=True):
    """Counts and rates of a queue, from counters."""

    queue: str
    paused: bool
    priorities: Sequence[CountsItem]
    rates: RatesItem
    oldest_waiting_ms: Annotated[int | None, doc("How long the oldest due job has waited.")]
    waiting_dequeues: int
    incomplete: Incomplete
    max_jobs_per_second: Annotated[float | None, doc("The rate limit in force; null if there is none.")] = None
    partitions: Annotated[Sequence[str], doc("The shards that store the queue; empty if there is only one shard.")] = ()
    strays: Annotated[Mapping[str, int], doc("Unfinished jobs on other reachable shards, by shard.")] = {}
    partition_number: Annotated[
        PartitionNumberItem | None,
        doc("The number of partitions that the queue should have; null if there is only one shard."),
    ] = None


class StatsAnswer(AnswerShape, frozen=True, kw_only=True):
    """Counts and rates of queues."""

    queues: Sequence[StatsItem]


@endpoint("GET", "/v1/queues", calls="queue_names")
async def list_queues(call: ApiCall[Nothing, Nothing]) -> QueuesAnswer:
    """Lists the queues by name."""
    return QueuesAnswer(queues=[QueueItem(name=name) for name in await call.client.queue_names()])


@endpoint("POST", "/v1/queues", calls="create_queue", status=HTTPStatus.CREATED)
async def create_queue(call: ApiCall[Nothing, CreateQueueRequest]) -> QueueItem:
    """Creates a queue. A queue that exists does not change. With `ordered`, it is an error if it exists and is not ordered."""
    await call.client.create_queue(call.body.name, ordered=call.body.ordered)
    return QueueItem(name=call.body.name)


@endpoint("GET", _QUEUE, calls="queue_config")
async def get_queue(call: ApiCall[Nothing, Nothing]) -> QueueItem:
    """Tells whether a queue exists: if it does not, the answer is an error. `settings` and `stats` tell more."""
    await call.client.queue_config(call.queue)
    return QueueItem(name=call.queue)


@endpoint("DELETE", _QUEUE, calls="delete_queue", status=HTTPStatus.NO_CONTENT, header=_ADMIN_PASSWORD)
async def delete_queue(call: ApiCall[Nothing, Nothing]) -> None:
    """Deletes a queue with all its jobs. Needs the admin password of the server. A missing queue is not an error."""
    await call.client.delete_queue(call.queue, call.header)


async def _settings(call: ApiCall[Any, Any]) -> SettingsAnswer:
    queue = await call.client.queue_config(call.queue)
    in_force = await call.client.settings_in_force(call.queue)
    return like(
        SettingsAnswer,
        queue,
        settings=like(SettingsValues, queue.config),
        in_force=like(SettingsValues, in_force.values),
        origins=in_force.origins,
    )


@endpoint("GET", f"{_QUEUE}/settings", calls="queue_config, settings_in_force")
async def get_settings(call: ApiCall[Nothing, Nothing]) -> SettingsAnswer:
    """Returns the settings stored with a queue, the settings in force, and where each value comes from."""
    return await _settings(call)


@endpoint("PUT", f"{_QUEUE}/settings", calls="configure_queue")
async def replace_settings(call: ApiCall[Nothing, SettingsValues]) -> SettingsAnswer:
    """Replaces all settings of a queue. A setting that is left out reverts to the default of the server."""
    await call.client.configure_queue(call.queue, QueueConfig(**structs.asdict(call.body)))
    return await _settings(call)


@endpoint("PATCH", f"{_QUEUE}/settings", calls="queue_config, configure_queue")
async def change_settings(call: ApiCall[Nothing, ChangedSettings]) -> SettingsAnswer:
    """Changes the given settings. It reads and stores all of them, so one of two simultaneous changes may be lost."""
    changes = {name: value for name, value in structs.asdict(call.body).items() if value is not UNSET}
    now = await call.client.queue_config(call.queue)
    if changes:
        await call.client.configure_queue(call.queue, now.config._replace(**changes))
    return await _settings(call)


@endpoint("POST", f"{_QUEUE}/pause", calls="pause_queue")
async def pause_queue(call: ApiCall[Nothing, Nothing]) -> PausedAnswer:
    """Stops dequeues. Enqueues and acks continue."""
    await call.client.pause_queue(call.queue)
    return PausedAnswer(name=call.queue, paused=True)


@endpoint("POST", f"{_QUEUE}/resume", calls="resume_queue")
async def resume_queue(call: ApiCall[Nothing, Nothing]) -> PausedAnswer:
    """Allows dequeues again."""
    await call.client.resume_queue(call.queue)
    return PausedAnswer(name=call.queue, paused=False)


@endpoint("POST", f"{_QUEUE}/unblock", calls="unblock_key")
async def unblock_key(call: ApiCall[Nothing, UnblockRequest]) -> UnblockedAnswer:
    """Makes jobs that have failed for good no longer block their ordering key. They remain failed."""
    return UnblockedAnswer(jobs=await call.client.unblock_key(call.queue, call.body.ordering_key))


@endpoint("GET", f"{_QUEUE}/stats", calls="queue_stats")
async def get_queue_stats(call: ApiCall[Nothing, Nothing]) -> StatsItem:
    """Returns counts and rates of a queue."""
    [found] = await call.client.queue_stats(call.queue)
    return like(StatsItem, found, priorities=[like(CountsItem, counts) for counts in found.counts])


@endpoint("GET", "/v1/stats", calls="queue_stats")
async def get_stats(call: ApiCall[QueuesQuery, Nothing]) -> StatsAnswer:
    """Returns counts and rates of queues."""
    found = await call.client.queue_stats(*call.query.queue)
    return StatsAnswer(
        queues=[like(StatsItem, one, priorities=[like(CountsItem, counts) for counts in one.counts]) for one in found]
    )
