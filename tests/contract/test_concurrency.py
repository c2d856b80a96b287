"""Many callers at once: every method is one transaction."""

from __future__ import annotations

import asyncio

import pytest

from pinlater.domain.job import JobState, Outcome
from pinlater.server.storage.commands import AdvanceDue, TimeOutClaims
from pinlater.server.storage.values import Inserted, InsertRequest
from tests.contract.desk import QUEUE, Desk, DeskJob, unique

pytestmark = pytest.mark.differs("row locks, SKIP LOCKED, and the errors of deadlocks")


async def test_no_job_is_handed_out_twice_to_callers_at_the_same_moment(desk: Desk) -> None:
    inserted = await desk.insert(*[desk.job() for _ in range(100)])

    hands = await asyncio.gather(*[desk.claim(7) for _ in range(20)])

    held = [one.key.id for hand in hands for one in hand]
    assert sorted(held) == sorted(inserted.ids)
    await desk.assert_counters_exact()


async def test_inserts_at_the_same_moment_are_all_there(desk: Desk) -> None:
    bodies = [b"%d" % number for number in range(60)]

    keys = await asyncio.gather(*[desk.put(body, priority=1 + i % 3) for i, body in enumerate(bodies)])

    assert [(await desk.look(key)).body for key in keys] == bodies
    await desk.assert_counters_exact()


async def test_of_many_acks_of_one_job_at_the_same_moment_one_counts(desk: Desk) -> None:
    held = await desk.put_and_take()

    acked = await asyncio.gather(*[desk.succeed(held.key) for _ in range(10)])

    outcomes = sorted(one.outcome for one in acked)
    assert outcomes == [Outcome.APPLIED] + [Outcome.ALREADY_FINAL] * 9
    assert (await desk.counts()).succeeded_total == 1


async def test_of_many_inserts_of_one_unique_key_at_the_same_moment_one_is_stored(desk: Desk) -> None:
    results = await asyncio.gather(*[desk.insert(desk.job(unique=unique("k"))) for _ in range(10)])

    assert len({one.ids[0] for one in results}) == 1
    assert sum(not one.existing for one in results) == 1
    assert (await desk.counts()).pending == 1


async def test_a_request_and_its_resend_at_the_same_moment_store_once(desk: Desk) -> None:
    """The client gave up waiting and asked again while the first was still under way."""
    requests = [InsertRequest(QUEUE, [desk.job()], request_key="r", fingerprint=b"f") for _ in range(5)]

    results = await asyncio.gather(*[desk.request(request) for request in requests])

    answers = [one for one in results if isinstance(one, Inserted)]
    assert len(answers) == 5
    assert len({one.ids[0] for one in answers}) == 1
    assert sum(not one.repeated for one in answers) == 1


async def test_everything_at_once_leaves_exact_counters(desk: Desk) -> None:
    """Producers, workers, an operator and the sweeps at the same time."""

    async def worker() -> int:
        done = 0
        for turn in range(10):
            held: list[DeskJob] = await desk.claim(3)
            for one in held:
                await (desk.fail(one.key) if turn % 3 == 0 else desk.succeed(one.key))
                done += 1
        return done

    async def producer(priority: int) -> None:
        for _ in range(15):
            await desk.insert(desk.job(priority=priority), desk.job(priority=priority, delay_ms=5))

    async def sweeper() -> None:
        for _ in range(10):
            desk.clock.advance(ms=1)
            await desk.shard.submit(TimeOutClaims(desk.now, 10))
            await desk.shard.submit(AdvanceDue(desk.now, 10))
            await desk.retry_failed(limit=1)

    await asyncio.gather(*[worker() for _ in range(4)], *[producer(one) for one in (1, 2, 3)], sweeper())

    await desk.assert_counters_exact()
    counts = [await desk.counts(priority=one) for one in (1, 2, 3)]
    assert sum(one.pending + one.in_progress + one.succeeded + one.failed for one in counts) == 90
    assert sum(one.enqueued_total for one in counts) == 90


async def test_readers_see_what_was_answered(desk: Desk) -> None:
    """A store may read through other connections than it writes through."""
    for _ in range(20):
        held = await desk.put_and_take()
        assert (await desk.look(held.key)).state is JobState.IN_PROGRESS
        await desk.succeed(held.key)
        assert (await desk.look(held.key)).state is JobState.SUCCEEDED
        assert (await desk.scan(JobState.SUCCEEDED))[0].key.id == held.key.id
        desk.clock.advance(ms=1)
