"""What a server knows of queues that other servers make."""

from __future__ import annotations

import asyncio

import pytest

from pinlater.domain.clock import SystemClock
from pinlater.domain.errors import QueueNotFound, ShardConnectionFailed
from pinlater.domain.queue import Queue
from pinlater.server.operations.queue_cache import QueueCache
from pinlater.server.storage.commands import DeleteQueues, ListQueues, create_queues
from pinlater.server.storage.sqlite.memory import MemoryShard
from tests.assembly import open_core
from tests.sharding.faulty import FaultyShard


async def cache_on(store: FaultyShard) -> QueueCache:
    core = await open_core(store.as_shard(), clock=SystemClock())
    return core.service.queue_cache


async def test_a_queue_that_another_server_has_just_made_is_there() -> None:
    """Its maker may use it at once, whichever server its next request goes to."""
    store = FaultyShard(MemoryShard("1"))
    cache = await cache_on(store)
    await cache.refresh()
    for name in ("a", "b", "c"):
        with pytest.raises(QueueNotFound):
            await cache.require(name)
        await store.submit(create_queues([name], 0))
        assert (await cache.require(name)).name == name


async def test_callers_with_wrong_names_share_one_look() -> None:
    store = FaultyShard(MemoryShard("1"))
    cache = await cache_on(store)
    await cache.refresh()
    before = store.calls[ListQueues]
    answers = await asyncio.gather(*(cache.require(f"wrong-{n}") for n in range(500)), return_exceptions=True)
    assert all(isinstance(answer, QueueNotFound) for answer in answers)
    assert store.calls[ListQueues] == before + 1


async def test_a_cancelled_caller_does_not_cancel_the_refresh_of_the_others() -> None:
    store = FaultyShard(MemoryShard("1"))
    cache = await cache_on(store)
    await store.submit(create_queues(["a"], 0))
    first, second = asyncio.create_task(cache.require("a")), asyncio.create_task(cache.require("a"))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).name == "a"


async def test_an_unreachable_store_is_not_a_missing_queue() -> None:
    store = FaultyShard(MemoryShard("1"))
    cache = await cache_on(store)
    store.dead = "gone"
    with pytest.raises(ShardConnectionFailed):
        await cache.require("a")


async def test_queues_created_or_deleted_during_a_refresh_are_not_forgotten() -> None:
    """The list was read before the change, and taken over after it."""
    store = FaultyShard(MemoryShard("1"))
    cache = await cache_on(store)
    await store.submit(create_queues(["old"], 0))
    await cache.refresh()
    fault = store.hangs(ListQueues, done_first=True)
    reading = asyncio.create_task(cache.refresh())
    await fault.met.wait()
    await store.submit(create_queues(["new"], 0))
    cache.add(Queue("new"))
    await store.submit(DeleteQueues(["old"]))
    cache.remove("old")
    fault.release()
    await reading
    assert list(cache.queues) == ["new"]


async def test_a_list_that_was_read_earlier_does_not_replace_a_newer_one() -> None:
    store = FaultyShard(MemoryShard("1"))
    cache = await cache_on(store)
    fault = store.hangs(ListQueues, done_first=True)
    early = asyncio.create_task(cache.refresh())
    await fault.met.wait()
    fault.left = 0  # the next one finds nothing in its way
    await store.submit(create_queues(["new"], 0))
    await cache.refresh()
    fault.release()
    await early
    assert list(cache.queues) == ["new"]
