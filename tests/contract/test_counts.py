"""Counters: exact, never from a scan of jobs."""

from __future__ import annotations

import random

import pytest

from pinlater.domain.job import JobState, UniqueScope
from pinlater.server.storage.commands import AdvanceDue, CountJobs, DeleteJobs, ExpireJobs, TimeOutClaims, create_queues
from tests.contract.desk import ALL, HOUR_MS, QUEUE, TIMEOUT_MS, Desk, unique


async def test_a_new_queue_counts_nothing(desk: Desk) -> None:
    for _, counts in await desk.shard.submit(CountJobs([QUEUE])):
        assert (counts.pending, counts.in_progress, counts.succeeded, counts.failed) == (0, 0, 0, 0)


async def test_counts_follow_a_job_through_its_life(desk: Desk) -> None:
    await desk.insert(desk.job(attempts=2), desk.job())
    counts = await desk.counts()
    assert (counts.pending, counts.future, counts.enqueued_total) == (2, 0, 2)

    first, second = await desk.claim(2)
    counts = await desk.counts()
    assert (counts.pending, counts.in_progress, counts.claimed_total) == (0, 2, 2)

    await desk.succeed(first.key)
    await desk.fail(second.key)
    counts = await desk.counts()
    assert (counts.pending, counts.in_progress, counts.succeeded, counts.failed) == (1, 0, 1, 0)
    assert (counts.succeeded_total, counts.retried_total, counts.failed_total) == (1, 1, 0)

    await desk.take()
    await desk.fail(second.key)
    counts = await desk.counts()
    assert (counts.pending, counts.succeeded, counts.failed) == (0, 1, 1)
    assert (counts.claimed_total, counts.failed_total, counts.retried_total) == (3, 1, 1)


async def test_future_jobs_are_counted_apart_until_they_are_due(desk: Desk) -> None:
    """The number of pending jobs is exact at once; how many of them are due follows `AdvanceDue`."""
    await desk.insert(desk.job(), desk.job(delay_ms=1000), desk.job(delay_ms=2000))

    assert ((await desk.counts()).pending, (await desk.counts()).future) == (3, 2)
    desk.clock.advance(ms=1000)
    assert ((await desk.counts()).pending, (await desk.counts()).future) == (3, 1)
    desk.clock.advance(ms=5000)
    assert ((await desk.counts()).pending, (await desk.counts()).future) == (3, 0)


@pytest.mark.differs("JSON_TABLE")
async def test_advancing_is_bounded_and_gets_there_step_by_step(desk: Desk) -> None:
    await desk.counts()
    await desk.insert(*[desk.job(delay_ms=1000) for _ in range(25)])
    desk.clock.advance(ms=1000)

    steps = []
    while moved := await desk.shard.submit(AdvanceDue(desk.now, 10)):
        steps.append(moved)
        assert len(steps) < 100, "it never ends"

    assert max(steps, default=0) <= 10  # a store that counts by time has nothing to move
    [counts] = [row.counts for row in await desk.shard.submit(CountJobs([QUEUE])) if row.counts.priority == 1]
    assert (counts.pending, counts.future) == (25, 0)


async def test_the_job_that_waits_longest_is_known(desk: Desk) -> None:
    assert (await desk.counts()).oldest_due_at_ms is None
    await desk.put(delay_ms=5000)
    assert (await desk.counts()).oldest_due_at_ms is None

    await desk.put(delay_ms=-700)
    await desk.put()
    assert (await desk.counts()).oldest_due_at_ms == desk.now - 700

    await desk.take()
    assert (await desk.counts()).oldest_due_at_ms == desk.now


async def test_priorities_and_queues_are_counted_apart(desk: Desk) -> None:
    await desk.shard.submit(create_queues(["other"], desk.now))
    await desk.put(priority=1)
    await desk.put(priority=3)
    await desk.put(queue="other", priority=3)

    counted = await desk.shard.submit(CountJobs())
    rows = {(queue, counts.priority): counts.pending for queue, counts in counted if counts.pending}
    assert rows == {(QUEUE, 1): 1, (QUEUE, 3): 1, ("other", 3): 1}
    named = await desk.shard.submit(CountJobs(["other", "missing"]))
    assert {one.queue for one in named} == {"other"}
    assert list(await desk.shard.submit(CountJobs([]))) == []


async def test_jobs_found_under_their_unique_key_are_not_counted_again(desk: Desk) -> None:
    await desk.put(unique=unique("k"))
    await desk.insert(desk.job(unique=unique("k")), desk.job())

    counts = await desk.counts()
    assert (counts.pending, counts.enqueued_total) == (2, 2)


@pytest.mark.parametrize("seed", range(4))
async def test_counters_say_what_scanning_says_after_any_sequence(desk: Desk, seed: int) -> None:
    chance = random.Random(seed)
    keys = []
    for _ in range(120):
        desk.clock.advance(ms=chance.choice([0, 1, 500, 20_000]))
        word = chance.choice(["put", "put", "put", "claim", "claim", "ack", "ack", "cancel", "sweep", "bulk", "delete"])
        if word == "put":
            key = unique(chance.choice("abc"), chance.choice(list(UniqueScope)), 500) if chance.random() < 0.3 else None
            expiry = chance.choice([None, None, 300])
            job = desk.job(
                priority=chance.randint(1, 3), delay_ms=chance.choice([-5, 0, 700]), unique=key, expires_in_ms=expiry
            )
            await desk.insert(job)
        elif word == "claim":
            keys += [held.key for held in await desk.claim(chance.randint(1, 4))]
        elif word == "ack" and keys:
            key_ = keys.pop(chance.randrange(len(keys)))
            await (desk.succeed(key_) if chance.random() < 0.5 else desk.fail(key_, delay_ms=chance.choice([0, 900])))
        elif word == "cancel" and keys:
            await desk.cancel(chance.choice(keys))
        elif word == "sweep":
            await desk.shard.submit(TimeOutClaims(desk.now, chance.choice([1, ALL])))
            await desk.shard.submit(ExpireJobs(desk.now, chance.choice([1, ALL])))
            await desk.collect(succeeded_ms=TIMEOUT_MS, failed_ms=TIMEOUT_MS, limit=chance.choice([1, ALL]))
        elif word == "bulk":
            await desk.retry_failed(priority=chance.randint(1, 3), limit=2)
            await desk.purge(chance.choice(list(JobState)), priority=chance.randint(1, 3), limit=1)
        elif word == "delete" and keys:
            await desk.shard.submit(DeleteJobs(chance.sample(keys, min(2, len(keys)))))
        if chance.random() < 0.2:
            await desk.assert_counters_exact()
    desk.clock.advance(ms=HOUR_MS)
    await desk.assert_counters_exact()
