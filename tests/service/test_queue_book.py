"""What a server knows of queues that other servers make."""

from __future__ import annotations

import asyncio

import pytest

from pinlater.domain.clock import SystemClock
from pinlater.domain.errors import QueueNotFound, ShardConnectionFailed
from pinlater.domain.queue import Queue
from pinlater.server.operations.queue_cache import QueueCache
from pinlater.server.storage.memory import MemoryShard
from tests.assembly import open_core
from tests.sharding.faulty import FaultyShard


async def book_on(store: FaultyShard) -> QueueCache:
    core = await open_core(store.as_shard(), clock=SystemClock())
    return core.service.queue_cache


async def test_a_queue_that_another_server_has_just_made_is_there() -> None:
    """Its maker may use it at once, whichever server its next request goes to."""
    store = FaultyShard(MemoryShard("1"))
    book = await book_on(store)
    await book.refresh()
    for name in ("a", "b", "c"):
        with pytest.raises(QueueNotFound):
            await book.require(name)
        await store.create_queues([name], 0)
        assert (await book.require(name)).name == name


async def test_callers_with_wrong_names_share_one_look() -> None:
    store = FaultyShard(MemoryShard("1"))
    book = await book_on(store)
    await book.refresh()
    before = store.calls["list_queues"]
    answers = await asyncio.gather(*(book.require(f"wrong-{n}") for n in range(500)), return_exceptions=True)
    assert all(isinstance(answer, QueueNotFound) for answer in answers)
    assert store.calls["list_queues"] == before + 1


async def test_one_who_gives_up_does_not_take_the_look_from_the_others() -> None:
    store = FaultyShard(MemoryShard("1"))
    book = await book_on(store)
    await store.create_queues(["a"], 0)
    first, second = asyncio.create_task(book.require("a")), asyncio.create_task(book.require("a"))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).name == "a"


async def test_a_store_out_of_reach_is_no_missing_queue() -> None:
    store = FaultyShard(MemoryShard("1"))
    book = await book_on(store)
    store.dead = "gone"
    with pytest.raises(ShardConnectionFailed):
        await book.require("a")


async def test_what_is_made_or_deleted_while_all_queues_are_read_is_not_forgotten() -> None:
    """The list was read before the change, and taken over after it."""
    store = FaultyShard(MemoryShard("1"))
    book = await book_on(store)
    await store.create_queues(["old"], 0)
    await book.refresh()
    fault = store.hangs("list_queues", done_first=True)
    reading = asyncio.create_task(book.refresh())
    await fault.met.wait()
    await store.create_queues(["new"], 0)
    book.add(Queue("new"))
    await store.delete_queues(["old"])
    book.remove("old")
    fault.release()
    await reading
    assert list(book.queues) == ["new"]


async def test_a_list_that_was_read_earlier_does_not_replace_a_newer_one() -> None:
    store = FaultyShard(MemoryShard("1"))
    book = await book_on(store)
    fault = store.hangs("list_queues", done_first=True)
    early = asyncio.create_task(book.refresh())
    await fault.met.wait()
    fault.left = 0  # the next one finds nothing in its way
    await store.create_queues(["new"], 0)
    await book.refresh()
    fault.release()
    await early
    assert list(book.queues) == ["new"]
