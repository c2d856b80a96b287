"""Jobs that are no use after a time."""

from __future__ import annotations

import pytest

from pinlater.domain.job import JobState, Outcome
from pinlater.server.storage.commands import ExpireJobs
from pinlater.server.storage.values import ClaimCall, ClaimOrder, Swept
from tests.contract.desk import ALL, QUEUE, TIMEOUT_MS, Desk


async def test_an_expired_job_fails_instead_of_being_handed_out(desk: Desk) -> None:
    expiring = await desk.put(expires_in_ms=1000, status="s ")
    good = await desk.put()
    desk.clock.advance(ms=1001)

    claimed = await desk.order(ClaimOrder(QUEUE, [ClaimCall(1, desk.holder())], TIMEOUT_MS))

    assert [job.id for job in claimed.jobs[0]] == [good.id]
    assert claimed.expired == 1
    job = await desk.look(expiring)
    assert (job.state, job.custom_status, job.finished_at_ms) == (JobState.FAILED, "s expired", desk.now)
    assert (job.attempts_remaining, job.claim_descriptor, list(job.attempts)) == (0, None, [])
    await desk.assert_counters_exact()


async def test_a_claim_that_meets_only_expired_jobs_is_empty(desk: Desk) -> None:
    await desk.insert(*[desk.job(expires_in_ms=5) for _ in range(3)])
    desk.clock.advance(ms=6)

    claimed = await desk.order(ClaimOrder(QUEUE, [ClaimCall(5, desk.holder())], TIMEOUT_MS))

    assert [list(jobs) for jobs in claimed.jobs] == [[]]
    assert claimed.expired == 3
    assert claimed.next_due_ms is None
    assert (await desk.counts()).failed == 3


async def test_a_job_before_its_expiry_is_handed_out(desk: Desk) -> None:
    key = await desk.put(expires_in_ms=1000)
    desk.clock.advance(ms=999)

    assert (await desk.take()).key == key


@pytest.mark.differs("JSON_TABLE")
async def test_the_sweep_expires_waiting_jobs(desk: Desk) -> None:
    """Also those of queues without claims, and those that are not due yet."""
    keys = [await desk.put(expires_in_ms=10), await desk.put(expires_in_ms=10, delay_ms=5000, priority=2)]
    await desk.put(expires_in_ms=500)
    await desk.put()
    desk.clock.advance(ms=11)

    swept = await desk.shard.submit(ExpireJobs(desk.now, ALL))

    assert sorted(swept) == [Swept(QUEUE, 1, failed=1), Swept(QUEUE, 2, failed=1)]
    for key in keys:
        job = await desk.look(key)
        assert (job.state, job.custom_status) == (JobState.FAILED, "expired")
    assert (await desk.counts()).pending == 2
    await desk.assert_counters_exact()


async def test_the_sweep_is_bounded(desk: Desk) -> None:
    await desk.insert(*[desk.job(expires_in_ms=1) for _ in range(5)])
    desk.clock.advance(ms=2)

    failed = [sum(one.failed for one in await desk.shard.submit(ExpireJobs(desk.now, 2))) for _ in range(4)]

    assert failed == [2, 2, 1, 0]


async def test_a_job_in_hand_does_not_expire(desk: Desk) -> None:
    held = await desk.put_and_take(expires_in_ms=10)
    desk.clock.advance(ms=1000)

    assert list(await desk.shard.submit(ExpireJobs(desk.now, ALL))) == []
    assert (await desk.succeed(held.key)).outcome is Outcome.APPLIED


async def test_a_job_that_comes_back_after_its_expiry_expires_then(desk: Desk) -> None:
    held = await desk.put_and_take(expires_in_ms=10)
    desk.clock.advance(ms=1000)
    await desk.fail(held.key)

    assert await desk.claim() == []
    assert (await desk.look(held.key)).custom_status == "expired"


async def test_finished_jobs_do_not_expire(desk: Desk) -> None:
    key = await desk.put_in(JobState.SUCCEEDED, expires_in_ms=10)
    desk.clock.advance(ms=1000)

    assert list(await desk.shard.submit(ExpireJobs(desk.now, ALL))) == []
    assert (await desk.look(key)).state is JobState.SUCCEEDED
