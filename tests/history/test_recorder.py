"""A minute of a server becomes one sample for each queue in which something happened, once."""

from __future__ import annotations

from pinlater.domain.errors import OutcomeUnknown, StoreFull
from pinlater.server.features.history.keeper import HistoryKeeper
from pinlater.server.storage.commands import SaveSamples
from tests.history.conftest import MINUTE_MS, START_MS, World, ack, claim, enqueue, points


async def test_a_minute_says_what_happened_in_it(world: World) -> None:
    server = await world.start_server()
    await server.service.queues.create_queue("q")
    await enqueue(server, 3)
    world.clock.advance(ms=2_000)
    held = await claim(server, 2)
    world.clock.advance(ms=10_000)
    await ack(server, held)
    await ack(server, held)  # without effect, and no run

    await world.minutes()

    [point] = await points(server)
    assert point.at_ms == START_MS
    assert (point.enqueued, point.claimed, point.succeeded, point.failed) == (3, 2, 2, 0)
    assert (point.due, point.scheduled, point.in_progress) == (1, 0, 0)
    assert point.oldest_waiting_ms == MINUTE_MS + 12_000
    assert point.waits is not None
    assert point.waits.number == 2
    assert abs(point.waits.p50_ms - 2_000) <= 2_000 / 16
    assert point.runs is not None
    assert point.runs.number == 2
    assert abs(point.runs.p99_ms - 10_000) <= 10_000 / 16


async def test_an_idle_queue_costs_nothing(world: World) -> None:
    """Also if workers ask it for jobs."""
    server = await world.start_server()
    await server.service.queues.create_queue("q")
    calls = world.stores["1"].calls[SaveSamples]
    for _ in range(5):
        assert not await claim(server)
        await world.minutes()

    assert world.stores["1"].calls[SaveSamples] == calls
    assert not await world.samples()


async def test_a_queue_with_jobs_has_its_depth_in_each_minute_and_zero_once(world: World) -> None:
    server = await world.start_server()
    await server.service.queues.create_queue("q")
    await enqueue(server, 2)
    await world.minutes(3)
    await ack(server, await claim(server))
    await world.minutes(4)

    found = await points(server)

    assert [(point.at_ms - START_MS) // MINUTE_MS for point in found] == [0, 1, 2, 3]
    assert [point.due for point in found] == [2, 2, 2, 0]
    assert [point.enqueued for point in found] == [2, 0, 0, 0]


async def test_servers_add_up_and_the_depth_does_not(world: World) -> None:
    one, other = await world.start_server(), await world.start_server()
    await one.service.queues.create_queue("q")
    await other.service.queue_cache.refresh()
    await enqueue(one, 2)
    world.clock.advance(ms=1)  # or both servers, which have no slots here, would make the same ids
    await enqueue(other, 3)
    await world.minutes()

    [point] = await points(one)

    assert (point.enqueued, point.due) == (5, 5)
    assert len(await world.samples()) == 2


async def test_a_minute_is_one_batch_and_comes_once(world: World) -> None:
    """Also if the work is called several times."""
    server = await world.start_server()
    for name in ("a", "b", "c"):
        await server.service.queues.create_queue(name)
        await enqueue(server, queue=name)
    await world.minutes()
    await server.service.of(HistoryKeeper).keep()
    await server.service.of(HistoryKeeper).keep()

    assert world.stores["1"].calls[SaveSamples] == 1
    assert [sample.queue for sample in await world.samples()] == ["a", "b", "c"]


async def test_a_batch_whose_answer_is_lost_counts_once(world: World) -> None:
    """It is sent again to the same shard, although another takes new batches meanwhile."""
    server = await world.start_server("1", "2")
    await server.service.queues.create_queue("q")
    await enqueue(server, 4)
    world.stores["1"].fails(SaveSamples, error=OutcomeUnknown("lost"), done_first=True)
    await world.minutes(2)

    assert sum(point.enqueued for point in await points(server)) == 4
    assert not await world.samples(shard="2")


async def test_batches_wait_for_their_shard_and_the_oldest_goes(world: World) -> None:
    server = await world.start_server()
    await server.service.queues.create_queue("q")
    world.stores["1"].fails(*[SaveSamples] * 100, error=StoreFull.of("1"))
    for _ in range(13):
        await enqueue(server)
        await world.minutes()

    reading = server.metrics.read()
    assert reading.counters["history_samples_dropped"] == 3


async def test_of_too_many_queues_those_with_the_most_jobs_are_kept(world: World) -> None:
    server = await world.start_server(max_queues=2)
    for number, name in enumerate(("a", "b", "c", "d"), 1):
        await server.service.queues.create_queue(name)
        await enqueue(server, number, queue=name)
    await world.minutes()

    assert [sample.queue for sample in await world.samples()] == ["c", "d"]
    assert server.metrics.read().counters["history_queues_left_out"] == 2


async def test_a_server_that_stops_stores_the_minute_that_has_begun(world: World) -> None:
    server = await world.start_server()
    await server.service.queues.create_queue("q")
    await world.minutes()
    await enqueue(server, 3)
    await server.service.of(HistoryKeeper).stop()

    assert [sample.at_ms for sample in await world.samples()] == [START_MS + MINUTE_MS]


async def test_a_server_that_was_suspended_loses_nothing_and_doubles_nothing(world: World) -> None:
    server = await world.start_server()
    await server.service.queues.create_queue("q")
    await enqueue(server, 3)
    world.clock.advance(ms=47 * MINUTE_MS)
    await world.minutes()

    assert sum(point.enqueued for point in await points(server, 120)) == 3


async def test_a_queue_that_was_made_again_has_none_of_the_former_ones_history(world: World) -> None:
    server = await world.start_server()
    await server.service.queues.create_queue("q")
    await enqueue(server, 3)
    await world.minutes(2)
    await server.service.queues.delete_queue("q", None)
    await server.service.queues.create_queue("q")
    await world.minutes(1)

    assert [point.enqueued for point in await points(server)] == []
