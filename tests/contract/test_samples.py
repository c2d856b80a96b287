"""Samples of the history: kept by step, time, queue and origin, read in that order, forgotten from the oldest on."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pinlater.server.storage.commands import ListSamples, SaveSamples, TrimSamples
from pinlater.server.storage.interface import Shard
from pinlater.server.storage.values import SAMPLE_BYTES_MAX, SampleRange, StoredSample
from tests.contract.desk import QUEUE, Desk

STEP_S = 60


def sample(
    at_ms: int, queue: str = QUEUE, origin: str = "a", data: bytes = b"data", step_s: int = STEP_S
) -> StoredSample:
    return StoredSample(step_s, at_ms, queue, origin, data)


async def all_of(shard: Shard, step_s: int = STEP_S) -> Sequence[StoredSample]:
    return await shard.submit(ListSamples([SampleRange(step_s, 0, 10**15)]))


async def test_samples_come_in_the_order_of_time_queue_and_origin(shard: Shard) -> None:
    ordered = [
        sample(1, "emails", "b"),
        sample(2, "emails", ""),
        sample(2, "emails", "a"),
        sample(2, "images", "a"),
        sample(10, "emails", "a"),
    ]

    await shard.submit(SaveSamples(ordered[::-1]))

    assert list(await all_of(shard)) == ordered


async def test_a_sample_that_comes_twice_is_there_once_as_it_came_last(shard: Shard) -> None:
    """So a save whose answer was lost may be repeated, and a total may grow."""
    await shard.submit(SaveSamples([sample(1, data=b"first"), sample(1, origin="b", data=b"other")]))

    await shard.submit(SaveSamples([sample(1, data=b"second, and longer")]))

    assert list(await all_of(shard)) == [sample(1, data=b"second, and longer"), sample(1, origin="b", data=b"other")]


async def test_a_range_has_its_begin_and_not_its_end(shard: Shard) -> None:
    await shard.submit(SaveSamples([sample(at_ms) for at_ms in (10, 20, 30)]))

    found = await shard.submit(ListSamples([SampleRange(STEP_S, 10, 30)]))

    assert [one.at_ms for one in found] == [10, 20]


async def test_steps_do_not_meet(shard: Shard) -> None:
    await shard.submit(SaveSamples([sample(10), sample(10, step_s=600, data=b"coarse")]))

    assert list(await all_of(shard, 600)) == [sample(10, step_s=600, data=b"coarse")]


async def test_only_the_samples_of_named_queues_come(shard: Shard) -> None:
    await shard.submit(SaveSamples([sample(at_ms, queue) for at_ms in (10, 20) for queue in ("a", "b", "c", "")]))

    found = await shard.submit(ListSamples([SampleRange(STEP_S, 0, 100, ["c", "a", "unknown"])]))
    nothing = await shard.submit(ListSamples([SampleRange(STEP_S, 0, 100, [])]))
    of_none = await shard.submit(ListSamples([SampleRange(STEP_S, 0, 100, [""])]))

    assert [(one.at_ms, one.queue) for one in found] == [(10, "a"), (10, "c"), (20, "a"), (20, "c")]
    assert list(nothing) == []
    assert [(one.at_ms, one.queue) for one in of_none] == [(10, ""), (20, "")]


async def test_several_ranges_come_one_after_the_other(shard: Shard) -> None:
    """Each as if it was asked for alone."""
    steps = (60, 600, 3_600)
    await shard.submit(
        SaveSamples(
            [
                sample(at_ms, queue, step_s=step_s)
                for at_ms in (10, 20, 30)
                for queue in ("a", "b", "c")
                for step_s in steps
            ]
        )
    )
    ranges = [
        SampleRange(600, 0, 100, ["b", "a"], limit=4),
        SampleRange(1, 0, 100),
        SampleRange(60, 10, 30, after=(10, "b", "a")),
        SampleRange(3_600, 0, 100, []),
    ]

    found = await shard.submit(ListSamples(ranges))

    assert list(found) == [one for wanted in ranges for one in await shard.submit(ListSamples([wanted]))]
    assert [one.step_s for one in found] == [600] * 4 + [60] * 4
    assert list(await shard.submit(ListSamples(ranges[3:]))) == []


@pytest.mark.parametrize("queues", [None, ["a", "b"]])
async def test_a_long_range_is_read_page_by_page(shard: Shard, queues: Sequence[str] | None) -> None:
    every = [sample(at_ms, queue, origin) for at_ms in (1, 2, 3) for queue in ("a", "b") for origin in ("", "x", "y")]
    await shard.submit(SaveSamples(every))

    read: list[StoredSample] = []
    while True:
        after = read[-1][1:4] if read else None
        page = await shard.submit(ListSamples([SampleRange(STEP_S, 0, 100, queues, after=after, limit=4)]))
        read += page
        if len(page) < 4:
            break

    assert read == every


async def test_trimming_takes_the_oldest_of_one_step(shard: Shard) -> None:
    await shard.submit(SaveSamples([*(sample(at_ms) for at_ms in (10, 20, 30)), sample(10, step_s=600)]))

    first = await shard.submit(TrimSamples(STEP_S, 30, 1))
    kept = await all_of(shard)
    second = await shard.submit(TrimSamples(STEP_S, 30, 100))
    third = await shard.submit(TrimSamples(STEP_S, 30, 100))

    assert (first, second, third) == (1, 1, 0)
    assert [one.at_ms for one in kept] == [20, 30]
    assert [one.at_ms for one in await all_of(shard)] == [30]
    assert len(await all_of(shard, 600)) == 1


async def test_data_comes_back_byte_for_byte(shard: Shard) -> None:
    every = [
        sample(1, "q" * 64, "o" * 64, bytes(range(256)) * 255),
        sample(2, data=b""),
        sample(3, data=b"\x00'\\\xff"),
        sample(4, data=b"x" * SAMPLE_BYTES_MAX),
    ]

    await shard.submit(SaveSamples(every))

    assert list(await all_of(shard)) == every


async def test_hundreds_of_queues_are_saved_and_listed_at_once(shard: Shard) -> None:
    every = sorted(sample(60_000, f"queue{number}") for number in range(600))

    await shard.submit(SaveSamples(every))

    assert list(await all_of(shard)) == every
    names = [one.queue for one in every[::2]]
    assert list(await shard.submit(ListSamples([SampleRange(STEP_S, 0, 10**15, names)]))) == every[::2]


async def test_no_samples_are_no_work(shard: Shard) -> None:
    await shard.submit(SaveSamples([]))

    assert list(await all_of(shard)) == []
    assert await shard.submit(TrimSamples(STEP_S, 10, 100)) == 0


async def test_samples_outlive_a_restart(desk: Desk) -> None:
    await desk.shard.submit(SaveSamples([sample(1)]))

    await desk.reopen()

    if desk.shard.capabilities.durable:
        assert list(await all_of(desk.shard)) == [sample(1)]


async def test_another_server_reads_what_one_has_saved_and_sees_no_change(desk: Desk) -> None:
    """Servers look again at a shard that has changed; samples are no reason to."""
    if not desk.shard.capabilities.shared:
        pytest.skip("one server has this store")
    before = desk.shared.changes
    await desk.shard.submit(SaveSamples([sample(1)]))
    await desk.shard.submit(TrimSamples(STEP_S, 1, 10))

    assert desk.shared.changes == before
