"""How far a bulk run is, and when it ends: totals from counters, shares in per cent, and the time left."""

from __future__ import annotations

import asyncio

import pytest

from pinlater.client.bulk import BulkRun, progress_in_words, unreachable
from pinlater.domain.bulk import BulkAction, BulkOrder, BulkState
from pinlater.domain.job import JobState
from pinlater.domain.job_filter import JobFilter
from pinlater.domain.wording import about
from pinlater.server.features.bulk.estimate import left_ms, percent_of
from pinlater.server.features.bulk.steps import STALE_MS
from tests.service.conftest import ServiceUnderTest
from tests.service.shown_runs import ShownRuns
from tests.service.test_bulk_runs import (
    DELETE,
    PauseGate,
    Servers,
    bulk,
    ended,
    failed,
    kill_servers,
    pauses,
    servers,
    turns,
)

__all__ = ["bulk", "pauses", "servers"]  # fixtures


async def shown(world: ServiceUnderTest, bulk: ShownRuns, run: BulkRun) -> list[tuple[int, BulkRun]]:
    """What the list shows of the run until it has ended, and when."""
    found = [(world.clock.now_ms(), run)]
    async with asyncio.timeout(30):
        while found[-1][1].ended_ms is None:
            [now] = [each for each in await bulk.runs() if each.id == run.id]
            found.append((world.clock.now_ms(), now))
            await asyncio.sleep(0)
    return found


async def test_a_run_without_filters_tells_its_total_its_share_and_when_it_ends(
    world: ServiceUnderTest, bulk: ShownRuns
) -> None:
    await failed(world, 20)
    run = await bulk.start(DELETE._replace(jobs_per_second=2.0), "ops")
    *before, (end_ms, last) = await shown(world, bulk, run)
    assert (last.state, last.to_look_at, last.expected, last.percent, last.left_ms) == (
        BulkState.DONE,
        20,
        20,
        100,
        None,
    )
    shares = [each.percent for _, each in before if each.percent is not None]
    assert shares == sorted(shares)
    assert (min(shares), max(shares)) == (10, 99)
    ends = [now_ms + each.left_ms for now_ms, each in before if each.left_ms is not None]
    assert ends
    assert all(abs(each - end_ms) <= 1_000 for each in ends)


async def test_a_run_with_a_filter_tells_the_share_of_jobs_that_it_has_looked_at(
    world: ServiceUnderTest, bulk: ShownRuns
) -> None:
    await failed(world, 30, error="boom")
    await failed(world, 10, error="no disk")
    order = DELETE._replace(filter=JobFilter(JobState.FAILED, error_text="no disk"), jobs_per_second=2.0)
    *before, (_, last) = await shown(world, bulk, await bulk.start(order, "ops"))
    assert (last.to_look_at, last.expected, last.changed, last.percent) == (40, None, 10, 100)
    assert {each.percent for _, each in before} > {25}


async def test_what_the_caller_has_counted_is_the_expected_number(world: ServiceUnderTest, bulk: ShownRuns) -> None:
    await failed(world, 3, error="no disk")
    order = DELETE._replace(filter=JobFilter(JobState.FAILED, error_text="no disk"), expected=2)
    run = await bulk.start(order, "ops")
    assert (run.expected, run.order.expected) == (2, 2)
    assert (await ended(bulk, run)).expected == 3, "more were changed"


async def test_jobs_whose_bodies_do_not_match_are_looked_at_too(world: ServiceUnderTest, bulk: ShownRuns) -> None:
    await world.enqueue(b"apple", b"pear")
    await world.enqueue(b"plum", run_after_ms=world.clock.now_ms() + 60_000)
    order = BulkOrder("q", BulkAction.CANCEL, JobFilter(JobState.PENDING, regex="app.e"))
    run = await ended(bulk, await bulk.start(order, "ops"))
    assert (run.to_look_at, run.looked, run.changed, run.expected) == (3, 3, 1, None)


async def test_only_jobs_of_the_priority_are_counted(world: ServiceUnderTest, bulk: ShownRuns) -> None:
    await world.enqueue(b"x", b"y", priority=1)
    await world.enqueue(b"z", priority=2)
    order = BulkOrder("q", BulkAction.DELETE, JobFilter(JobState.PENDING, priority=2))
    run = await ended(bulk, await bulk.start(order, "ops"))
    assert (run.to_look_at, run.expected, run.changed) == (1, 1, 1)


async def test_a_run_that_stops_has_no_end_time_and_keeps_its_share(world: ServiceUnderTest, bulk: ShownRuns) -> None:
    await failed(world, 10)
    run = await bulk.start(DELETE._replace(jobs_per_second=1.0), "ops")
    async with asyncio.timeout(30):
        while (await bulk.runs())[0].left_ms is None:
            await asyncio.sleep(0)
    stopping = await bulk.stop("q", run.id)
    assert (stopping.state, stopping.left_ms) == (BulkState.STOPPED, None)
    run = await ended(bulk, run)
    assert run.percent is not None
    assert (run.state, run.left_ms, 20 <= run.percent < 100) == (BulkState.STOPPED, None, True)


async def test_another_server_keeps_the_progress_and_a_silent_run_has_no_end_time(servers: Servers) -> None:
    first, second = PauseGate(), PauseGate()
    one = await servers.start("a", go=first)
    await failed(servers.world(), 60)
    run = await one.start(DELETE._replace(jobs_per_second=10.0), "ops")
    await servers.until_changed(run, 30)
    first.is_open = False
    before = await servers.stored(run)
    assert (before.to_look_at, before.expected, before.left_ms is not None) == (60, 60, True)
    await kill_servers()
    servers.clock.advance(ms=STALE_MS + 1)
    silent = await servers.stored(run)
    assert (silent.percent, silent.left_ms) == (before.percent, None)
    second.is_open = False
    other = await servers.start("b", go=second)
    await other.look()
    await turns(lambda: "b" in servers.paused)
    second.is_open = True
    await servers.until_changed(run, 40)
    second.is_open = False
    now = await servers.stored(run)
    assert before.percent is not None
    assert now.percent is not None
    assert (now.to_look_at, before.percent < now.percent <= 99, now.left_ms is not None) == (60, True, True)
    second.is_open = True
    found = await ended(other, run)
    assert (found.state, found.to_look_at, found.percent) == (BulkState.DONE, 60, 100)


async def test_an_undo_knows_how_many_jobs_it_brings_back(world: ServiceUnderTest, bulk: ShownRuns) -> None:
    await failed(world, 4)
    run = await ended(bulk, await bulk.start(DELETE._replace(expected=9), "ops"))
    order = DELETE._replace(action=BulkAction.RESTORE, undoes=run.id)
    first = await bulk.start(order._replace(jobs_per_second=1.0), "ops")
    assert (first.to_look_at, first.expected) == (4, 4)
    await bulk.stop("q", first.id)
    left = 4 - (await ended(bulk, first)).changed
    second = await bulk.start(order, "ops")
    assert (second.to_look_at, second.expected) == (left, left)
    assert (await ended(bulk, second)).percent == 100


def test_a_share_is_below_100_until_the_run_is_done() -> None:
    assert percent_of(BulkState.RUNNING, 500, 400) == 99
    assert percent_of(BulkState.STOPPED, 1, 3) == 33
    assert percent_of(BulkState.FAILED, 0, None) is None
    assert percent_of(BulkState.RUNNING, 0, 0) is None
    assert percent_of(BulkState.DONE, 1, 2**40) == 100


@pytest.mark.parametrize(
    ("passed", "to_look_at", "busy_ms", "silent_ms", "left"),
    [
        (25, 100, 10_000, 0, 30_000),
        (25, 100, 10_000, 4_000, 26_000),
        (25, 100, 10_000, 10_001, None),
        (25, 100, 1_999, 0, None),
        (0, 100, 10_000, 0, None),
        (100, 100, 10_000, 0, None),
        (25, None, 10_000, 0, None),
        (99, 100, 10_000, 9_000, 0),
    ],
)
def test_the_rest_takes_as_long_for_each_job_as_those_so_far(
    passed: int, to_look_at: int | None, busy_ms: int, silent_ms: int, left: int | None
) -> None:
    assert left_ms(passed, to_look_at, busy_ms, silent_ms) == left


def test_progress_in_words() -> None:
    assert progress_in_words(BulkState.RUNNING, 42, 179_999) == "42 %, done in about 3 min"
    assert progress_in_words(BulkState.RUNNING, 99, 100) == "99 %, done in less than a minute"
    assert progress_in_words(BulkState.RUNNING, 42, None) == "42 %"
    assert progress_in_words(BulkState.STOPPED, 42, 5) == "42 %"
    assert progress_in_words(BulkState.RUNNING, None, None) == ""
    assert [about(hours * 3_600_000) for hours in (1, 2, 47, 48)] == [
        "about 60 min",
        "about 2 h",
        "about 47 h",
        "about 2 days",
    ]


def test_a_list_that_lacks_shards_names_at_most_ten() -> None:
    assert unreachable(["2"]) == "shard 2 is unreachable, and runs that it keeps may be missing"
    many = unreachable([str(number) for number in range(12)])
    assert (
        many == "shards 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more are unreachable, and runs that they keep may be missing"
    )
