"""What a server knows of queues that other servers make."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

import pytest

from pinlater.dispatch.dispatcher import Dispatcher
from pinlater.dispatch.limits import RateLimits
from pinlater.dispatch.settings import DispatchSettings
from pinlater.domain.clock import SystemClock
from pinlater.domain.errors import QueueNotFound, ShardConnectionFailed
from pinlater.domain.queue import Queue
from pinlater.service.queue_book import QueueBook
from pinlater.sharding.reload import DesiredShard, open_shards
from pinlater.storage.memory import MemoryShard
from tests.sharding.faulty import FaultyShard


async def book_on(store: FaultyShard) -> QueueBook:
    clock = SystemClock()
    shards = await open_shards([DesiredShard("1", store.as_shard)], clock, Random(0))
    limits = RateLimits(clock, file_limits=dict, servers=lambda: 1)
    return QueueBook(shards, Dispatcher(shards, limits, clock, DispatchSettings()), clock)


async def test_a_queue_that_another_server_has_just_made_is_there() -> None:
    """Whoever made it may use it at once, by whatever server its next request goes to."""
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


async def test_an_older_look_that_ends_later_takes_no_queue_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """It began before the queue was made, and its answer took long."""
    store = FaultyShard(MemoryShard("1"))
    book = await book_on(store)
    read, arrived = store.within.list_queues, asyncio.Event()

    async def slow() -> Sequence[Queue]:
        found = await read()
        await arrived.wait()
        return found

    monkeypatch.setattr(store.within, "list_queues", slow)
    older = asyncio.create_task(book.refresh())
    await asyncio.sleep(0.01)
    monkeypatch.setattr(store.within, "list_queues", read)
    await store.within.create_queues(["a"], 0)
    await book.refresh()
    arrived.set()
    await older
    assert book.get("a") is not None
