"""Settings and pauses of queues over several shards, of which some are away when they change: the newest holds, on all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from random import Random
from typing import TypeVar

import pytest

from pinlater.domain.errors import DequeueRateLimited, PinLaterError, ShardConnectionFailed
from pinlater.domain.queue import Queue, QueueConfig, Versions
from tests.sharding.farm import PASSWORD, Farm, on_farm, play

T = TypeVar("T")
NAMES = ("1", "2", "3")


async def another_server(farm: Farm) -> Farm:
    """One that starts now, on the same shards."""
    other = Farm(farm.clock)
    other.stores = farm.stores
    await other.open([farm.desired(name) for name in NAMES])
    other.shards.random = Random(2)
    await other.core.catch_up()
    return other


async def kept(farm: Farm, name: str) -> Queue:
    [queue] = [queue for queue in await farm.store(name).within.list_queues() if queue.name == "q"]
    return queue


async def go_away(farm: Farm, name: str) -> None:
    farm.store(name).dead = "connection refused"
    while farm.lanes(name).healthy:
        await farm.pass_time(1_000)
        await farm.core.shard_monitor.ping_all()


async def come_back(farm: Farm, name: str) -> None:
    farm.store(name).dead = None
    while not farm.lanes(name).healthy:
        await farm.pass_time(1_000)


@on_farm(shards=NAMES)
async def test_a_pause_holds_when_a_shard_is_back_that_was_away_and_the_server_restarts(farm: Farm) -> None:
    """Whichever shard it was, the first of the map too."""
    for name in NAMES:
        await farm.put(name)
        await go_away(farm, name)
        await farm.service.queues.set_paused("q", paused=True)
        await farm.service.queues.configure_queue("q", QueueConfig(max_backlog=7))
        farm.store(name).dead = None  # back as the server goes down
        other = await another_server(farm)
        with pytest.raises(DequeueRateLimited):
            await other.dequeue()
        assert (await other.service.queues.queue_config("q")).config == QueueConfig(max_backlog=7)
        assert {(await kept(farm, shard)).paused for shard in NAMES} == {True}
        await come_back(farm, name)
        await other.close()
        await farm.service.queues.set_paused("q", paused=False)
        await farm.service.queues.configure_queue("q", QueueConfig())
        assert len({await kept(farm, shard) for shard in NAMES}) == 1


@on_farm(shards=NAMES)
async def test_a_shard_that_is_back_keeps_what_is_newer_and_gives_it_to_the_others(farm: Farm) -> None:
    """What one server changed while all but one shard were out of its reach."""
    other = await another_server(farm)
    for name in "23":
        await go_away(farm, name)
    await farm.service.queues.set_paused("q", paused=True)
    await go_away(farm, "1")
    for name in "23":
        await come_back(farm, name)
    await farm.service.queue_cache.refresh()
    await other.core.shard_monitor.ping_all()
    await other.service.queues.configure_queue("q", QueueConfig(max_backlog=7))
    await come_back(farm, "1")
    for _ in range(2):
        await farm.service.queue_cache.refresh()
    for name in NAMES:
        queue = await kept(farm, name)
        assert (queue.paused, queue.config) == (True, QueueConfig(max_backlog=7)), name
    await other.close()


@pytest.mark.parametrize("seed", range(20))
def test_after_any_trouble_the_newest_settings_hold_on_all_shards(seed: int) -> None:
    """Two servers, shards that go away and come back, changes that fail on some of them."""

    async def scenario(farm: Farm) -> None:
        random = Random(seed)
        other = await another_server(farm)
        acknowledged: tuple[QueueConfig | None, bool | None] = None, None
        for number in range(30):
            name, server = random.choice(NAMES), random.choice([farm, other])
            match random.choice(["away", "back", "fails", "pause", "configure", "time"]):
                case "away" if sum(store.dead is None for store in farm.stores.values()) > 1:
                    farm.store(name).dead = "connection refused"
                    if random.random() < 0.5:
                        await farm.core.shard_monitor.ping_all()
                case "back":
                    farm.store(name).dead = None
                case "fails":
                    farm.store(name).fails("configure_queue", done_first=random.random() < 0.5)
                case "pause":
                    paused = random.random() < 0.5
                    acknowledged = (
                        acknowledged[0],
                        await changed(server.service.queues.set_paused("q", paused=paused), paused),
                    )
                case "configure":
                    config = QueueConfig(max_backlog=number)
                    acknowledged = (
                        await changed(server.service.queues.configure_queue("q", config), config),
                        acknowledged[1],
                    )
                case _:
                    await farm.pass_time(random.choice([200, 3_000]))
                    await other.core.shard_monitor.look()
        for name in NAMES:
            farm.store(name)._faults.clear()
            farm.store(name).dead = None
        for server in (farm, other):
            for name in NAMES:
                while not server.lanes(name).healthy:
                    await farm.pass_time(1_000)
                    await other.core.shard_monitor.look()
        for server in (farm, other) * 2:
            await server.service.queue_cache.refresh()
        settings = {await kept(farm, name) for name in NAMES}
        assert len(settings) == 1, settings
        [queue] = settings
        assert {await server.service.queues.queue_config("q") for server in (farm, other)} == settings
        assert acknowledged[0] in (None, queue.config)
        assert acknowledged[1] in (None, queue.paused)
        await other.close()

    play(scenario, shards=NAMES)


async def changed(call: Awaitable[None], value: T) -> T | None:
    """The value where the change was acknowledged; None where that is unknown."""
    try:
        await call
    except PinLaterError:
        return None
    return value


@pytest.mark.parametrize("seed", range(10))
def test_of_two_changes_at_once_all_shards_keep_the_same(seed: int) -> None:
    async def scenario(farm: Farm) -> None:
        random = Random(seed)
        other = await another_server(farm)
        faults = [farm.store(name).hangs("configure_queue") for name in NAMES if random.random() < 0.5]
        changes = [
            asyncio.ensure_future(farm.service.queues.configure_queue("q", QueueConfig(max_backlog=1))),
            asyncio.ensure_future(other.service.queues.configure_queue("q", QueueConfig(max_backlog=2))),
            asyncio.ensure_future(farm.service.queues.set_paused("q", paused=True)),
            asyncio.ensure_future(other.service.queues.set_paused("q", paused=False)),
        ]
        random.shuffle(faults)
        for fault in faults:
            await farm.turns(random.choice([0, 1, 5, 40]))
            fault.release()
        await asyncio.gather(*changes)
        settings = {await kept(farm, name) for name in NAMES}
        assert len(settings) == 1, settings
        assert all(settings.pop().versions)
        await other.close()

    play(scenario, shards=NAMES)


@on_farm(shards=NAMES)
async def test_a_queue_deleted_while_a_shard_is_unreachable_is_back_with_the_jobs_of_that_shard(
    farm: Farm,
) -> None:
    """The delete fails and says so; repeated when the shard is back it deletes the rest."""
    for name in NAMES:
        await farm.put(name)
    await farm.service.queues.set_paused("q", paused=True)
    await go_away(farm, "1")
    with pytest.raises(ShardConnectionFailed, match="was deleted from the others"):
        await farm.service.queues.delete_queue("q", PASSWORD)
    await come_back(farm, "1")
    assert list(await farm.service.queues.queue_names()) == ["q"]
    assert [await farm.jobs_on(name) for name in NAMES] == [1, 0, 0]
    assert (await farm.service.queues.queue_config("q")).paused
    await farm.service.queues.delete_queue("q", PASSWORD)
    assert list(await farm.service.queues.queue_names()) == []


@on_farm(shards=NAMES)
async def test_a_delete_during_which_an_away_shard_comes_back_says_that_this_one_kept_the_queue(farm: Farm) -> None:
    """The shard was not asked, so the delete must not be answered as done: its jobs are still there, and handed out."""
    for name in NAMES:
        await farm.put(name)
    await go_away(farm, "1")
    held_up = farm.store("2").hangs("delete_queues")
    deleting = asyncio.ensure_future(farm.service.queues.delete_queue("q", PASSWORD))
    await asyncio.wait_for(held_up.met.wait(), 60)
    await come_back(farm, "1")
    held_up.release()
    with pytest.raises(ShardConnectionFailed, match="was deleted from the others"):
        await deleting
    assert list(await farm.service.queues.queue_names()) == ["q"]
    await farm.service.queues.delete_queue("q", PASSWORD)
    assert [await farm.jobs_on(name) for name in NAMES] == [0, 0, 0]


@on_farm(shards=NAMES)
async def test_a_queue_made_while_a_shard_comes_back_is_on_that_shard_too(farm: Farm) -> None:
    """The shard was brought up to date before the others had the queue, and was no longer away when they did."""
    await go_away(farm, "1")
    held_up = farm.store("2").hangs("create_queues")
    held_up_too = farm.store("3").hangs("create_queues")
    making = asyncio.ensure_future(farm.service.queues.create_queue("made"))
    await asyncio.wait_for(asyncio.gather(held_up.met.wait(), held_up_too.met.wait()), 60)
    await come_back(farm, "1")
    held_up.release()
    held_up_too.release()
    await making
    await farm.pass_time(10_000)
    for name in NAMES:
        assert "made" in {queue.name for queue in await farm.store(name).within.list_queues()}, name


@on_farm(shards=NAMES)
async def test_a_change_by_a_server_that_keeps_no_versions_is_not_undone(farm: Farm) -> None:
    """While a new version is rolled out an older server changes the shards one after the other, and its text has no versions."""
    await farm.service.queues.set_paused("q", paused=True)
    await farm.store("1").within.configure_queue("q", paused=False)
    await farm.service.queue_cache.refresh()
    for name in "23":
        await farm.store(name).within.configure_queue("q", paused=False)
    for _ in range(3):
        await farm.service.queue_cache.refresh()
    assert not (await farm.service.queues.queue_config("q")).paused
    assert {(await kept(farm, name)).versions for name in NAMES} == {Versions()}
