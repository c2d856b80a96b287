"""How many jobs a claim hands out before it comes to a place in the queue."""

from __future__ import annotations

import random

import pytest

from pinlater.domain.errors import QueueNotFound
from pinlater.server.storage.commands import CountAhead
from pinlater.server.storage.values import NewJob, Place
from tests.contract.desk import ALL, QUEUE, Desk


async def ahead_of(desk: Desk, job: NewJob, limit: int = ALL) -> int:
    due_by_ms = max(desk.now, job.run_after_ms)
    return await ahead(desk, Place(QUEUE, job.priority, job.run_after_ms, job.id, due_by_ms, limit))


async def ahead(desk: Desk, place: Place) -> int:
    found = await desk.shard.submit(CountAhead(place))
    assert isinstance(found, int), found
    return found


async def test_jobs_of_one_priority_come_by_run_after_then_by_id(desk: Desk) -> None:
    second, third = desk.job(), desk.job()
    first, last = desk.job(delay_ms=-1), desk.job(delay_ms=1)
    await desk.insert(second, third, first, last)

    assert [await ahead_of(desk, job) for job in (first, second, third, last)] == [0, 1, 2, 3]


async def test_jobs_of_higher_priorities_come_before_if_they_are_due(desk: Desk) -> None:
    mine = desk.job(priority=2)
    await desk.insert(desk.job(priority=1, delay_ms=500), mine, desk.job(priority=3, delay_ms=-9))

    assert await ahead_of(desk, mine) == 0
    later = Place(QUEUE, 2, mine.run_after_ms, mine.id, desk.now + 500, ALL)
    assert await ahead(desk, later) == 1


async def test_claimed_and_finished_jobs_do_not_come_before(desk: Desk) -> None:
    held, done, mine = desk.job(), desk.job(), desk.job()
    await desk.insert(held, done, mine)
    [_, second] = await desk.claim(2)
    await desk.succeed(second.key)

    assert await ahead_of(desk, mine) == 0


async def test_the_count_ends_at_its_limit(desk: Desk) -> None:
    jobs = [desk.job(priority=1 + index % 2) for index in range(20)]
    await desk.insert(*jobs)

    assert [await ahead_of(desk, jobs[-1], limit) for limit in (1, 10, 11, 19, 20)] == [1, 10, 11, 19, 19]


async def test_a_missing_queue_is_refused(desk: Desk) -> None:
    assert isinstance(await desk.shard.submit(CountAhead(Place("missing", 1, 0, 1, 0, 1))), QueueNotFound)


async def test_a_priority_without_jobs_counts_the_higher_ones(desk: Desk) -> None:
    await desk.put()

    assert await ahead(desk, Place(QUEUE, 7, desk.now, 1, desk.now, ALL)) == 1
    assert await ahead(desk, Place(QUEUE, 1, desk.now - 1, 1, desk.now, ALL)) == 0


@pytest.mark.parametrize("seed", range(2))
async def test_claims_hand_out_what_was_counted(desk: Desk, seed: int) -> None:
    """The order of the count is that of claims."""
    chance = random.Random(seed)
    jobs = [desk.job(priority=chance.randint(1, 3), delay_ms=-chance.randint(0, 4)) for _ in range(40)]
    await desk.insert(*jobs)
    counted = {job.id: await ahead_of(desk, job) for job in jobs}

    claimed = [held.key.id for held in await desk.claim(len(jobs))]

    assert [counted[job_id] for job_id in claimed] == list(range(len(jobs)))
