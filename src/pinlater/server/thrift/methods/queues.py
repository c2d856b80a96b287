"""Queues: create and delete them, their settings, their statistics."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from pinlater.server.operations.service import Service
from pinlater.server.thrift.administrative import Administrative, Fields, given
from pinlater.server.thrift.methods.callers import named_source
from pinlater.server.thrift.methods.record import AnyQueue, ServedMethod, known_caller_of, queue_of_call, queues_of_call
from pinlater.wire.generated import structs
from pinlater.wire.queue_settings import WIRE_NAMES, config_of


def rows_of_queues(may: AnyQueue, answer: Iterable[Any]) -> list[Any]:
    """Returns the rows about queues that the token allows."""
    return [row for row in answer if may(row.queue)]


def _queue_named(call: Any) -> Collection[str]:
    return (call.name,)


def _name_asked(call: Any) -> Fields:
    return {"queue": call.name}


def _queue_asked(call: Any) -> Fields:
    return {"queue": call.queue}


# --- create and delete --------------------------------------------------------------------------------------------------------
async def _delete_queue(service: Service, call: structs.deleteQueue_args) -> None:
    """A caller without the role may know the admin password, which decides as it does without access control."""
    known = known_caller_of(call)
    password = None if known is not None and known.may else call.password
    await service.queues.delete_queue(call.name, password)


async def _get_queue_names(service: Service, call: structs.getQueueNames_args) -> set[str]:
    del call
    return set(await service.queues.queue_names())


def _allowed_names(may: AnyQueue, answer: Iterable[str]) -> set[str]:
    return {name for name in answer if may(name)}


# --- settings -----------------------------------------------------------------------------------------------------------------
def _settings_asked(call: Any) -> Fields:
    """All settings that the queue has from now on. The rate limit is included even if there is none, so that its removal can be seen."""
    limit = {"maxJobsPerSecond": call.config.max_jobs_per_second}
    return {"queue": call.queue, **limit, **given(call.config, *WIRE_NAMES)}


async def _get_queue_config(service: Service, call: structs.getQueueConfig_args) -> structs.QueueConfig:
    queue = await service.queues.queue_config(call.queue)
    return structs.QueueConfig(**queue.config._asdict(), paused=queue.paused, ordered=queue.life.ordered or None)


async def _pause_queue(service: Service, call: structs.pauseQueue_args) -> None:
    """Keeps the caller with the pause."""
    known = known_caller_of(call)
    who = named_source(call.context) if known is None else known.shown
    await service.queues.set_paused(call.queue, True, who)


def _key_asked(call: Any) -> Fields:
    return {"queue": call.queue, "orderingKey": call.ordering_key}


METHODS = [
    ServedMethod(
        "createQueue",
        handle=lambda service, call: service.queues.create_queue(call.name),
        queues=_queue_named,
        administrative=Administrative(_name_asked),
    ),
    ServedMethod(
        "createOrderedQueue",
        handle=lambda service, call: service.queues.create_queue(call.name, ordered=True),
        queues=_queue_named,
        administrative=Administrative(_name_asked),
    ),
    ServedMethod(
        "ensureQueue",
        handle=lambda service, call: service.queues.create_queue(call.name, for_task=True),
        queues=_queue_named,
        administrative=Administrative(_name_asked, tells_refusals=False),
    ),
    ServedMethod(
        "deleteQueue",
        handle=_delete_queue,
        queues=_queue_named,
        proves_itself=lambda call: bool(call.password),
        wants_known_caller=True,
        administrative=Administrative(_name_asked, takes_password=True),
    ),
    ServedMethod("getQueueNames", handle=_get_queue_names, allowed_part=_allowed_names),
    ServedMethod(
        "configureQueue",
        handle=lambda service, call: service.queues.configure_queue(call.queue, config_of(call.config)),
        queues=queue_of_call,
        administrative=Administrative(_settings_asked),
    ),
    ServedMethod("getQueueConfig", handle=_get_queue_config, queues=queue_of_call),
    ServedMethod(
        "getSettingsInForce",
        handle=lambda service, call: service.queue_settings.in_force(call.queue),
        queues=queue_of_call,
    ),
    ServedMethod(
        "pauseQueue",
        handle=_pause_queue,
        queues=queue_of_call,
        wants_known_caller=True,
        administrative=Administrative(_queue_asked),
    ),
    ServedMethod(
        "resumeQueue",
        handle=lambda service, call: service.queues.set_paused(call.queue, False),
        queues=queue_of_call,
        administrative=Administrative(_queue_asked),
    ),
    ServedMethod(
        "getQueueStats",
        handle=lambda service, call: service.queues.queue_stats(call.queues),
        queues=queues_of_call,
        allowed_part=rows_of_queues,
    ),
    ServedMethod(
        "unblockKey",
        handle=lambda service, call: service.queues.unblock_key(call.queue, call.ordering_key),
        queues=queue_of_call,
        administrative=Administrative(_key_asked),
    ),
]
