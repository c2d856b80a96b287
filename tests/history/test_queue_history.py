"""What callers read: whole points of all servers and shards, with marks, for few statements."""

from __future__ import annotations

from collections import Counter

import pytest

from pinlater.domain.errors import InvalidArgument, QueueNotFound
from pinlater.server.features.history.queries import HistoryQueries
from pinlater.server.features.history.sample import QueueSample, pack
from pinlater.server.storage.commands import ListSamples, SaveSamples
from pinlater.server.storage.values import StoredSample
from pinlater.wire.generated.structs import DeployMark, QueueHistoryRequest
from tests.history.conftest import MINUTE_MS, START_MS, World, enqueue, history, points


async def test_the_samples_of_several_shards_are_one_history(world: World) -> None:
    """While a shard is unreachable, the minutes go to the next one."""
    server = await world.start_server("1", "2")
    await server.service.queues.create_queue("q")
    await enqueue(server, 2)
    await world.minutes()
    elsewhere = pack(QueueSample(enqueued=3))
    await world.stores["2"].within.submit(SaveSamples([StoredSample(60, START_MS + MINUTE_MS, "q", "a", elsewhere)]))
    await world.stores["2"].within.submit(SaveSamples([StoredSample(60, START_MS, "q", "b", elsewhere)]))
    await world.minutes(2)

    assert [point.enqueued for point in await points(server)][:2] == [5, 3]


@pytest.mark.parametrize("step_s", [60, 600, 3_600])
async def test_a_chart_costs_each_shard_one_statement_and_reads_no_job(world: World, step_s: int) -> None:
    server = await world.start_server("1", "2")
    await server.service.queues.create_queue("q")
    before = {name: Counter(store.calls) for name, store in world.stores.items()}

    await history(server, 300, step_s=step_s)

    for name, store in world.stores.items():
        assert store.calls - before[name] == {ListSamples: 1}


async def test_many_queues_cost_one_statement(world: World) -> None:
    server = await world.start_server()
    names = [f"q{number}" for number in range(100)]
    for name in names:
        await server.service.queues.create_queue(name)
        await enqueue(server, queue=name)
    await world.minutes()
    before = Counter(world.stores["1"].calls)

    found = await server.service.of(HistoryQueries).queue_history(QueueHistoryRequest(names, START_MS, None, 600))

    assert world.stores["1"].calls - before == {ListSamples: 1}
    assert [(each.queue, each.points[0].enqueued) for each in found.queues] == [(name, 1) for name in names]


async def test_the_step_follows_the_range(world: World) -> None:
    server = await world.start_server()
    await server.service.queues.create_queue("q")

    steps = {minutes: (await history(server, minutes)).step_s for minutes in (15, 60, 360, 1_440, 10_080, 43_200)}

    assert steps == {15: 60, 60: 60, 360: 60, 1_440: 600, 10_080: 3_600, 43_200: 3_600}


async def test_a_range_and_its_points_are_bounded(world: World) -> None:
    server = await world.start_server()
    await server.service.queues.create_queue("q")
    read = server.service.of(HistoryQueries).queue_history
    for names, from_ms, until_ms, step_s in (
        (["q"], START_MS, START_MS - 1, None),
        (["q"], START_MS - MINUTE_MS, None, 61),
        ([], START_MS - MINUTE_MS, None, None),
        (["q"] * 101, START_MS - MINUTE_MS, None, None),
        (["q"], START_MS - 30 * 24 * 60 * MINUTE_MS, None, 60),
        (["q"], START_MS + 1, None, None),
    ):
        with pytest.raises(InvalidArgument):
            await read(QueueHistoryRequest(names, from_ms, until_ms, step_s))
    assert (await read(QueueHistoryRequest(["q"], -(2**60), 2**60))).from_ms == START_MS - 30 * 24 * 60 * MINUTE_MS


async def test_a_missing_queue_is_an_error_alone_and_left_out_among_others(world: World) -> None:
    server = await world.start_server()
    await server.service.queues.create_queue("q")
    read = server.service.of(HistoryQueries).queue_history
    with pytest.raises(QueueNotFound):
        await read(QueueHistoryRequest(["gone"], START_MS - MINUTE_MS))
    found = await read(QueueHistoryRequest(["gone", "q", "q"], START_MS - MINUTE_MS))
    assert [each.queue for each in found.queues] == ["q"]


async def test_marks_come_with_the_queues_that_they_are_for(world: World) -> None:
    server = await world.start_server()
    for name in ("q", "other"):
        await server.service.queues.create_queue(name)
    add = server.service.of(HistoryQueries).add_mark
    world.clock.advance(ms=5 * MINUTE_MS)
    await add("v2 of all", START_MS + 1)
    await add("v3 of q", START_MS + 2, "q")
    await add("v3 of q", START_MS + 2, "q")  # a repeat
    await add("not here", START_MS + 3, "other")
    await add("now")

    found = (await history(server)).marks

    assert list(found) == [
        DeployMark(START_MS + 1, "v2 of all"),
        DeployMark(START_MS + 2, "v3 of q", "q"),
    ]
    world.clock.advance(ms=MINUTE_MS)
    assert (await history(server)).marks[-1] == DeployMark(START_MS + 5 * MINUTE_MS, "now")


async def test_marks_are_checked_and_bounded(world: World) -> None:
    server = await world.start_server()
    await server.service.queues.create_queue("q")
    add = server.service.of(HistoryQueries).add_mark
    for text, at_ms in (
        ("", None),
        ("x" * 201, None),
        ("two\nlines", None),
        ("old", START_MS - 30 * 24 * 60 * MINUTE_MS),
        ("far", START_MS + 61 * MINUTE_MS),
    ):
        with pytest.raises(InvalidArgument):
            await add(text, at_ms)
    with pytest.raises(QueueNotFound):
        await add("v2", None, "gone")
    kept = [StoredSample(0, START_MS - number, "", "id", b"v") for number in range(1_000)]
    await world.stores["1"].within.submit(SaveSamples(kept))
    with pytest.raises(InvalidArgument, match="1000 marks"):
        await add("one more")
