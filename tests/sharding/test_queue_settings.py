"""Settings and pauses of queues over several shards, of which some are away when they change: the newest holds, on all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from random import Random
from typing import TypeVar

import pytest

from pinlater.domain.errors import DequeueRateLimited, PinLaterError, ShardConnectionFailed
from pinlater.domain.queue import Queue, QueueConfig
from pinlater.server.storage.commands import ConfigureQueue, DeleteQueues, ListQueues, MergeQueues
from tests.sharding.sharded_server import PASSWORD, ShardedServer, on_shards, run_on_shards

T = TypeVar("T")
NAMES = ("1", "2", "3")


async def another_server(server: ShardedServer) -> ShardedServer:
    """One that starts now, on the same shards."""
    other = ShardedServer(server.clock)
    other.stores = server.stores
    await other.open([server.desired(name) for name in NAMES])
    other.shards.random = Random(2)
    await other.core.catch_up()
    return other


async def kept(server: ShardedServer, name: str) -> Queue:
    [queue] = [queue for queue in await server.store(name).within.submit(ListQueues()) if queue.name == "q"]
    return queue


async def go_away(server: ShardedServer, name: str) -> None:
    server.store(name).dead = "connection refused"
    while server.lanes(name).healthy:
        await server.pass_time(1_000)
        await server.core.shard_monitor.ping_all()


async def come_back(server: ShardedServer, name: str) -> None:
    server.store(name).dead = None
    while not server.lanes(name).healthy:
        await server.pass_time(1_000)


@on_shards(shards=NAMES)
async def test_a_pause_holds_when_a_shard_is_back_that_was_away_and_the_server_restarts(server: ShardedServer) -> None:
    """Whichever shard it was, the first of the map too."""
    for name in NAMES:
        await server.place(name)
        await go_away(server, name)
        await server.service.queues.set_paused("q", paused=True)
        await server.service.queues.configure_queue("q", QueueConfig(max_backlog=7))
        server.store(name).dead = None  # back as the server goes down
        other = await another_server(server)
        with pytest.raises(DequeueRateLimited):
            await other.dequeue()
        assert (await other.service.queues.queue_config("q")).config == QueueConfig(max_backlog=7)
        assert {(await kept(server, shard)).paused for shard in NAMES} == {True}
        await come_back(server, name)
        await other.close()
        await server.service.queues.set_paused("q", paused=False)
        await server.service.queues.configure_queue("q", QueueConfig())
        assert len({await kept(server, shard) for shard in NAMES}) == 1


@on_shards(shards=NAMES)
async def test_a_shard_that_is_back_keeps_what_is_newer_and_gives_it_to_the_others(server: ShardedServer) -> None:
    """What one server changed while all but one shard were out of its reach."""
    other = await another_server(server)
    for name in "23":
        await go_away(server, name)
    await server.service.queues.set_paused("q", paused=True)
    await go_away(server, "1")
    for name in "23":
        await come_back(server, name)
    await server.service.queue_cache.refresh()
    await other.core.shard_monitor.ping_all()
    await other.service.queues.configure_queue("q", QueueConfig(max_backlog=7))
    await come_back(server, "1")
    for _ in range(2):
        await server.service.queue_cache.refresh()
    for name in NAMES:
        queue = await kept(server, name)
        assert (queue.paused, queue.config) == (True, QueueConfig(max_backlog=7)), name
    await other.close()


@pytest.mark.parametrize("seed", range(20))
def test_after_any_trouble_the_newest_settings_hold_on_all_shards(seed: int) -> None:
    """Two servers, shards that go away and come back, changes that fail on some of them."""

    async def scenario(server: ShardedServer) -> None:
        random = Random(seed)
        other = await another_server(server)
        acknowledged: tuple[QueueConfig | None, bool | None] = None, None
        for number in range(30):
            name, asked = random.choice(NAMES), random.choice([server, other])
            match random.choice(["away", "back", "fails", "pause", "configure", "time"]):
                case "away" if sum(store.dead is None for store in server.stores.values()) > 1:
                    server.store(name).dead = "connection refused"
                    if random.random() < 0.5:
                        await server.core.shard_monitor.ping_all()
                case "back":
                    server.store(name).dead = None
                case "fails":
                    server.store(name).fails(ConfigureQueue, done_first=random.random() < 0.5)
                case "pause":
                    paused = random.random() < 0.5
                    acknowledged = (
                        acknowledged[0],
                        await changed(asked.service.queues.set_paused("q", paused=paused), paused),
                    )
                case "configure":
                    config = QueueConfig(max_backlog=number)
                    acknowledged = (
                        await changed(asked.service.queues.configure_queue("q", config), config),
                        acknowledged[1],
                    )
                case _:
                    await server.pass_time(random.choice([200, 3_000]))
                    await other.core.shard_monitor.look()
        for name in NAMES:
            server.store(name).forget_faults()
            server.store(name).dead = None
        for asked in (server, other):
            for name in NAMES:
                while not asked.lanes(name).healthy:
                    await server.pass_time(1_000)
                    await other.core.shard_monitor.look()
        for asked in (server, other) * 2:
            await asked.service.queue_cache.refresh()
        settings = {await kept(server, name) for name in NAMES}
        assert len(settings) == 1, settings
        [queue] = settings
        assert {await asked.service.queues.queue_config("q") for asked in (server, other)} == settings
        assert acknowledged[0] in (None, queue.config)
        assert acknowledged[1] in (None, queue.paused)
        await other.close()

    run_on_shards(scenario, shards=NAMES)


async def changed(call: Awaitable[None], value: T) -> T | None:
    """The value where the change was acknowledged; None where that is unknown."""
    try:
        await call
    except PinLaterError:
        return None
    return value


@pytest.mark.parametrize("seed", range(10))
def test_of_two_changes_at_once_all_shards_keep_the_same(seed: int) -> None:
    async def scenario(server: ShardedServer) -> None:
        random = Random(seed)
        other = await another_server(server)
        faults = [server.store(name).hangs(ConfigureQueue) for name in NAMES if random.random() < 0.5]
        changes = [
            asyncio.ensure_future(server.service.queues.configure_queue("q", QueueConfig(max_backlog=1))),
            asyncio.ensure_future(other.service.queues.configure_queue("q", QueueConfig(max_backlog=2))),
            asyncio.ensure_future(server.service.queues.set_paused("q", paused=True)),
            asyncio.ensure_future(other.service.queues.set_paused("q", paused=False)),
        ]
        random.shuffle(faults)
        for fault in faults:
            await server.turns(random.choice([0, 1, 5, 40]))
            fault.release()
        await asyncio.gather(*changes)
        settings = {await kept(server, name) for name in NAMES}
        assert len(settings) == 1, settings
        assert all(settings.pop().versions[:2])
        await other.close()

    run_on_shards(scenario, shards=NAMES)


@on_shards(shards=NAMES)
async def test_a_queue_deleted_while_a_shard_is_unreachable_is_back_with_the_jobs_of_that_shard(
    server: ShardedServer,
) -> None:
    """The delete fails and says so; repeated when the shard is back it deletes the rest."""
    for name in NAMES:
        await server.place(name)
    await server.service.queues.set_paused("q", paused=True)
    await go_away(server, "1")
    with pytest.raises(ShardConnectionFailed, match="was deleted from the others"):
        await server.service.queues.delete_queue("q", PASSWORD)
    await come_back(server, "1")
    assert list(await server.service.queues.queue_names()) == ["q"]
    assert [await server.jobs_on(name) for name in NAMES] == [1, 0, 0]
    assert (await server.service.queues.queue_config("q")).paused
    await server.service.queues.delete_queue("q", PASSWORD)
    assert list(await server.service.queues.queue_names()) == []


@on_shards(shards=NAMES)
async def test_a_delete_during_which_an_away_shard_comes_back_says_that_this_one_kept_the_queue(
    server: ShardedServer,
) -> None:
    """The shard was not asked, so the delete must not be answered as done: its jobs are still there, and handed out."""
    for name in NAMES:
        await server.place(name)
    await go_away(server, "1")
    held_up = server.store("2").hangs(DeleteQueues)
    deleting = asyncio.ensure_future(server.service.queues.delete_queue("q", PASSWORD))
    await asyncio.wait_for(held_up.met.wait(), 60)
    await come_back(server, "1")
    held_up.release()
    with pytest.raises(ShardConnectionFailed, match="was deleted from the others"):
        await deleting
    assert list(await server.service.queues.queue_names()) == ["q"]
    await server.service.queues.delete_queue("q", PASSWORD)
    assert [await server.jobs_on(name) for name in NAMES] == [0, 0, 0]


@on_shards(shards=NAMES)
async def test_a_queue_made_while_a_shard_comes_back_is_on_that_shard_too(server: ShardedServer) -> None:
    """The shard was brought up to date before the others had the queue, and was no longer away when they did."""
    await go_away(server, "1")
    held_up = server.store("2").hangs(MergeQueues)
    held_up_too = server.store("3").hangs(MergeQueues)
    making = asyncio.ensure_future(server.service.queues.create_queue("made"))
    await asyncio.wait_for(asyncio.gather(held_up.met.wait(), held_up_too.met.wait()), 60)
    await come_back(server, "1")
    held_up.release()
    held_up_too.release()
    await making
    await server.pass_time(10_000)
    for name in NAMES:
        assert "made" in {queue.name for queue in await server.store(name).within.submit(ListQueues())}, name


@on_shards(shards=NAMES)
async def test_a_change_by_a_server_that_keeps_no_versions_is_not_undone(server: ShardedServer) -> None:
    """While a new version is rolled out an older server changes the shards one after the other, and its text has no versions."""
    await server.service.queues.set_paused("q", paused=True)
    await server.store("1").within.submit(ConfigureQueue("q", paused=False))
    await server.service.queue_cache.refresh()
    for name in "23":
        await server.store(name).within.submit(ConfigureQueue("q", paused=False))
    for _ in range(3):
        await server.service.queue_cache.refresh()
    assert not (await server.service.queues.queue_config("q")).paused
    assert {(await kept(server, name)).versions.paused for name in NAMES} == {""}
