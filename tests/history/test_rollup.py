"""The coarser steps hold what the finer ones do, each window once, whichever servers roll it up."""

from __future__ import annotations

from pinlater.domain.errors import ShardConnectionFailed
from pinlater.server.features.history.keeper import HistoryKeeper
from pinlater.server.features.history.rollup import Rollup
from pinlater.server.storage.commands import ListSamples, SaveSamples, TrimSamples
from tests.history.conftest import MINUTE_MS, START_MS, World, ack, claim, enqueue, points

TEN_MS = 10 * MINUTE_MS


async def busy(world: World, minutes: int) -> None:
    """A job in each minute."""
    server = world.servers[0]
    for _ in range(minutes):
        await enqueue(server)
        await ack(server, await claim(server))
        await world.minutes()


async def test_ten_minutes_are_the_sum_of_their_minutes(world: World) -> None:
    server = await world.start_server()
    await server.service.queues.create_queue("q")
    await busy(world, 24)

    rows = [row for row in await world.samples(600) if row.queue]
    found = await points(server, 60, step_s=600)

    assert [(row.at_ms - START_MS) // TEN_MS for row in rows] == [0, 1]
    assert [point.enqueued for point in found] == [10, 10, 4]
    assert [point.waits.number for point in found if point.waits] == [10, 10, 4]


async def test_hours_come_of_ten_minutes_and_nothing_counts_twice(world: World) -> None:
    server = await world.start_server()
    await server.service.queues.create_queue("q")
    await busy(world, 130)

    of_hours = await points(server, 24 * 60, step_s=3_600)

    assert [row.at_ms for row in await world.samples(3_600) if row.queue] == [START_MS, START_MS + 60 * MINUTE_MS]
    assert [point.enqueued for point in of_hours] == [60, 60, 10]
    assert sum(point.enqueued for point in await points(server, 180, step_s=600)) == 130
    assert sum(point.enqueued for point in await points(server, 180, step_s=60)) == 130


async def test_a_server_goes_on_where_another_stopped(world: World) -> None:
    """It looks for the windows that are done, and does not read their samples again."""
    server = await world.start_server()
    await server.service.queues.create_queue("q")
    await busy(world, 35)
    before = await world.samples(600)
    store = world.stores["1"]
    another = Rollup(server.shards, world.clock)
    calls = store.calls[SaveSamples]
    for _ in range(6):
        await another.run()

    assert await world.samples(600) == before
    assert store.calls[SaveSamples] == calls


async def test_two_servers_that_both_roll_up_write_the_same(world: World) -> None:
    one = await world.start_server()
    await world.start_server()
    await one.service.queues.create_queue("q")
    await busy(world, 24)

    assert [point.enqueued for point in await points(one, 60, step_s=600)] == [10, 10, 4]


async def test_a_window_that_failed_is_made_again(world: World) -> None:
    server = await world.start_server()
    await server.service.queues.create_queue("q")
    await busy(world, 12)
    world.stores["1"].fails(ListSamples, error=ShardConnectionFailed("gone"))
    world.clock.advance(ms=MINUTE_MS)
    try:
        await server.service.of(HistoryKeeper).keep()
    except ShardConnectionFailed:
        await world.minutes(2)

    assert [row.at_ms for row in await world.samples(600) if row.queue] == [START_MS]


async def test_a_server_leaves_shards_to_the_one_that_sweeps_them(world: World) -> None:
    server = await world.start_server()
    await server.service.queues.create_queue("q")
    server.sweeps.swept_by_others = lambda: {"1"}
    await busy(world, 24)

    assert not await world.samples(600)
    assert [point.due for point in await points(server, 60, step_s=60)] == [None] * 24


async def test_what_is_too_old_goes(world: World) -> None:
    """A sample of a minute after six hours, of ten minutes after 25 hours, of an hour after 30 days: so the space is bounded."""
    server = await world.start_server()
    await server.service.queues.create_queue("q")
    await busy(world, 24)
    world.clock.advance(ms=6 * 60 * MINUTE_MS)
    await world.minutes(11)
    assert not await world.samples()
    assert await world.samples(600)
    world.clock.advance(ms=20 * 60 * MINUTE_MS)
    await world.minutes(11)
    assert not await world.samples(600)
    assert await world.samples(3_600)
    world.clock.advance(ms=30 * 24 * 60 * MINUTE_MS)
    await world.minutes(11)
    assert not await world.samples(3_600)


async def test_an_idle_server_reads_little(world: World) -> None:
    """Each shard is asked for a window of ten minutes once, and for what is too old once in ten minutes."""
    server = await world.start_server()
    await server.service.queues.create_queue("q")
    await world.minutes(20)
    calls = dict(world.stores["1"].calls)
    await world.minutes(60)
    later = world.stores["1"].calls

    assert later[SaveSamples] == 0
    assert later[ListSamples] - calls[ListSamples] <= 7
    assert later[TrimSamples] - calls[TrimSamples] <= 6 * 9


async def test_an_idle_server_that_starts_passes_over_hours_without_samples_at_once(world: World) -> None:
    """A day has 144 windows of ten minutes."""
    server = await world.start_server()
    await server.service.queues.create_queue("q")
    await world.minutes(3)
    assert world.stores["1"].calls[ListSamples] <= 12
