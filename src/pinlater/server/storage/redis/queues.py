"""Creates, deletes and configures queues. Decides here from the data in Redis, and decides again if that has changed meanwhile."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from pinlater.domain.errors import QueueNotFound
from pinlater.domain.queue import Home, Queue, QueueConfig, queue_of, settings_text
from pinlater.server.storage.redis.access import conflict
from pinlater.server.storage.redis.arguments import encode
from pinlater.server.storage.redis.queue_cache import RedisQueueCache
from pinlater.server.storage.redis.readers import Readers
from pinlater.server.storage.redis.writer import Writer
from pinlater.server.storage.values import DELETION_KEPT_MS

# Answers of `merge_queues` and `configure_queue`, and how often they are tried while other servers change the same queues.
_NO_QUEUE, _CONFIGURED = 0, 1
_TRIES = 20
# If there are more, some may exist and others not yet when a call fails; repeating it is safe.
_QUEUES_A_CALL = 200
# Queues' numbers have four bytes. Those of queues that were made as ordered ones have the highest bit, so that each call that has the
# number knows it.
_FIRST_NUMBER_MAX, _ORDERED = 2**30, 2**31


async def merge(
    writer: Writer, readers: Readers, cache: RedisQueueCache, shard: str, queues: Sequence[Queue]
) -> list[Queue]:
    """Executes `MergeQueues`."""
    merged: list[Queue] = []
    for start in range(0, len(queues), _QUEUES_A_CALL):
        some = queues[start : start + _QUEUES_A_CALL]
        merged += await _merge(writer, readers, shard, some)
        names = [queue.name for queue in some]
        cache.learn(zip(names, await readers.run("find_queues", encode(names)), strict=True))
    return merged


async def _merge(writer: Writer, readers: Readers, shard: str, queues: Sequence[Queue]) -> list[Queue]:
    for _ in range(_TRIES):
        states = await readers.run("find_states", encode([queue.name for queue in queues]))
        decided = [_merged(shard, queue, state) for queue, state in zip(queues, states, strict=True)]
        changes = [change for _, change in decided if change is not None]
        if not changes:
            return [queue for queue, _ in decided]
        first_number = secrets.randbelow(_FIRST_NUMBER_MAX)
        if await writer.run("merge_queues", encode(changes), first_number) == [_CONFIGURED]:
            return [queue for queue, _ in decided]
    raise conflict()


def _merged(shard: str, given: Queue, state: Sequence[bytes]) -> tuple[Queue, tuple[bytes | str | int, ...] | None]:
    """Returns the result for a queue in this state (`find_states.lua`), and the change for `merge_queues.lua`, if any."""
    known, kept, deleted_ms = state
    if known:
        before = unpacked(given.name, kept)
        queue = before.row_of(shard, given)
        unchanged = queue == before
    else:
        queue = given.made_after(int(deleted_ms or 0))
        unchanged = queue.life.over
    first = _ORDERED if queue.life.ordered else 0
    return queue, None if unchanged else (given.name, known, kept, deleted_ms, _packed(queue, shard), first)


async def delete(writer: Writer, names: Sequence[str], deleted_ms: int, now_ms: int) -> int:
    """Executes `DeleteQueues`."""
    newest_ms = 0
    for start in range(0, len(names), _QUEUES_A_CALL):
        part = encode(list(names[start : start + _QUEUES_A_CALL]))
        [found] = await writer.run("delete_queues", part, deleted_ms, now_ms - DELETION_KEPT_MS)
        newest_ms = max(newest_ms, int(found))
    return newest_ms


async def configure(
    writer: Writer,
    readers: Readers,
    shard: str,
    name: str,
    config: QueueConfig | None,
    paused: bool | None,
    version: str,
    by: str,
) -> None:
    """Implements `QueueStore.configure_queue`."""
    for _ in range(_TRIES):
        answer = await readers.run("find_settings", name)
        if not answer:
            raise QueueNotFound.of(name)
        queue = unpacked(name, answer[0]).changed(config, paused, version, by)
        [done] = await writer.run("configure_queue", name, answer[0], _settings(queue, shard))
        if done == _CONFIGURED:
            return
        if done == _NO_QUEUE:
            raise QueueNotFound.of(name)
    raise conflict()


async def takes_order(readers: Readers, shard: str, name: str) -> bool:
    """Returns whether the shard accepts the jobs with ordering keys of a queue."""
    answer = await readers.run("find_settings", name)
    return bool(answer) and unpacked(name, answer[0]).home.is_at(shard)


async def move_home(
    writer: Writer, readers: Readers, shard: str, name: str, known: Home, home: Home
) -> Home | QueueNotFound:
    """Executes `MoveHome`."""
    for _ in range(_TRIES):
        answer = await readers.run("find_settings", name)
        if not answer:
            return QueueNotFound.of(name)
        queue = unpacked(name, answer[0])
        if queue.home != known:
            return queue.home
        [done] = await writer.run("configure_queue", name, answer[0], _settings(queue._replace(home=home), shard))
        if done == _CONFIGURED:
            return home
    raise conflict()


def is_ordered(queue: bytes) -> bool:
    """Returns whether the queue of this number was made as one that is ordered as a whole."""
    return int.from_bytes(queue, "big") >= _ORDERED


def unpacked(name: str, settings: bytes) -> Queue:
    """A queue from its stored form: one byte for paused, then the settings; nothing if it was never changed."""
    return queue_of(name, settings[1:].decode() if settings else "{}", settings[:1] == b"1")


def _packed(queue: Queue, shard: str) -> bytes:
    return b"" if queue == Queue(queue.name) else _settings(queue, shard)


def _settings(queue: Queue, shard: str) -> bytes:
    """Returns the packed settings. At its home they also contain `order`: scripts do not know the name of the shard."""
    text = settings_text(queue)
    if queue.home.is_at(shard):
        text = f'{text[:-1]}, "order": "{"waits" if queue.home.waits else "takes"}"}}'
    return b"%d" % queue.paused + text.encode()
