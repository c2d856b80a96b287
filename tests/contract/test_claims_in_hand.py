"""Heartbeats, releases, cancels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from pinlater.domain.job import JobState, Outcome
from pinlater.server.storage.commands import CancelJobs, CheckpointJobs, ExtendClaims, ReleaseJobs, TimeOutClaims
from pinlater.server.storage.values import Acked, ClaimRef, JobCheckpoint, JobKey
from tests.contract.desk import ALL, TIMEOUT_MS, Desk


async def test_a_heartbeat_moves_the_deadline_to_now_plus_the_timeout(desk: Desk) -> None:
    held = await desk.put_and_take()
    desk.clock.advance(seconds=45)

    renewed = await desk.heartbeat(held.ref)

    assert (renewed.outcome, renewed.state, renewed.deadline_ms) == (
        Outcome.APPLIED,
        JobState.IN_PROGRESS,
        desk.now + TIMEOUT_MS,
    )
    assert (await desk.look(held.key)).claim_deadline_ms == desk.now + TIMEOUT_MS


async def test_a_heartbeat_uses_the_jobs_own_timeout(desk: Desk) -> None:
    held = await desk.put_and_take(claim_timeout_ms=7_000)
    desk.clock.advance(seconds=1)

    assert (await desk.heartbeat(held.ref)).deadline_ms == desk.now + 7_000


async def test_a_job_with_heartbeats_does_not_time_out(desk: Desk) -> None:
    held = await desk.put_and_take()
    for _ in range(5):
        desk.clock.advance(ms=TIMEOUT_MS - 1)
        await desk.heartbeat(held.ref)
        assert list(await desk.shard.submit(TimeOutClaims(desk.now, ALL))) == []


@pytest.mark.parametrize("word", ["heartbeat", "checkpoint"])
async def test_a_word_that_was_held_up_shortens_no_claim(desk: Desk, word: str) -> None:
    """It comes from a server that stood still, or from a connection that hung, after a later heartbeat has counted."""
    held = await desk.put_and_take()
    sent_ms = desk.now + TIMEOUT_MS // 4
    desk.clock.advance(ms=TIMEOUT_MS // 2)
    renewed = await desk.heartbeat(held.ref)

    if word == "heartbeat":
        [late] = await desk.shard.submit(ExtendClaims([held.ref], sent_ms))
    else:
        progress = JobCheckpoint(held.key, held.holder.source, held.holder.token)
        [late] = cast("Sequence[Acked]", await desk.shard.submit(CheckpointJobs([progress], sent_ms)))

    assert (late.outcome, late.deadline_ms) == (Outcome.APPLIED, renewed.deadline_ms)
    assert renewed.deadline_ms is not None
    assert list(await desk.shard.submit(TimeOutClaims(renewed.deadline_ms, ALL))) == []
    assert list(await desk.shard.submit(TimeOutClaims(renewed.deadline_ms + 1, ALL))) != []


async def test_a_heartbeat_never_revives_a_claim(desk: Desk) -> None:
    held = await desk.put_and_take()
    desk.clock.advance(ms=TIMEOUT_MS + 1)
    await desk.shard.submit(TimeOutClaims(desk.now, ALL))

    renewed = await desk.heartbeat(held.ref)

    assert (renewed.outcome, renewed.state, renewed.holder, renewed.deadline_ms) == (
        Outcome.STALE_CLAIM,
        JobState.PENDING,
        "",
        None,
    )
    assert (await desk.take()).key == held.key


@pytest.mark.parametrize("word", ["heartbeat", "release"])
async def test_only_the_current_holders_token_counts(desk: Desk, word: str) -> None:
    first = await desk.put_and_take()
    await desk.release(first.ref)
    desk.clock.advance(seconds=1)
    second = await desk.take()
    since = desk.now
    desk.clock.advance(seconds=1)

    refused = await getattr(desk, word)(first.ref)

    assert (refused.outcome, refused.holder, refused.held_since_ms) == (
        Outcome.STALE_CLAIM,
        second.holder.descriptor,
        since,
    )
    assert (await desk.look(first.key)).claim_deadline_ms == since + TIMEOUT_MS


@pytest.mark.parametrize("word", ["heartbeat", "release"])
@pytest.mark.parametrize("state", [JobState.SUCCEEDED, JobState.FAILED])
async def test_a_finished_job_is_already_final(desk: Desk, word: str, state: JobState) -> None:
    """This is how a holder learns of a cancel."""
    key = await desk.put_in(state)
    before = await desk.look(key)

    refused = await getattr(desk, word)(ClaimRef(key, "token1"))

    assert (refused.outcome, refused.state) == (Outcome.ALREADY_FINAL, state)
    assert await desk.look(key) == before


@pytest.mark.differs("JSON_TABLE")
async def test_heartbeats_and_releases_of_a_call_are_answered_in_order(desk: Desk) -> None:
    held = await desk.put_and_take()
    unknown = ClaimRef(held.key._replace(id=1), "token")
    missing = ClaimRef(held.key._replace(queue="missing"), held.holder.token)
    wrong = ClaimRef(held.key._replace(priority=2), held.holder.token)
    refs = [unknown, held.ref, missing, wrong]

    renewed = await desk.shard.submit(ExtendClaims(refs, desk.now))
    releases = await desk.shard.submit(ReleaseJobs(refs, desk.now))

    expected = [Outcome.NOT_FOUND, Outcome.APPLIED, Outcome.NOT_FOUND, Outcome.NOT_FOUND]
    assert [one.outcome for one in renewed] == expected
    assert [one.outcome for one in releases] == expected
    assert list(await desk.shard.submit(ExtendClaims([], desk.now))) == []
    assert list(await desk.shard.submit(ReleaseJobs([], desk.now))) == []


async def test_a_released_job_waits_again_with_its_attempts_as_they_were(desk: Desk) -> None:
    held = await desk.put_and_take(attempts=3)
    desk.clock.advance(seconds=2)

    released = await desk.release(held.ref, delay_ms=500)

    assert (released.outcome, released.state, released.due_at_ms) == (
        Outcome.APPLIED,
        JobState.PENDING,
        desk.now + 500,
    )
    job = await desk.look(held.key)
    assert (job.state, job.attempts_remaining, job.run_after_ms) == (JobState.PENDING, 3, desk.now + 500)
    assert (job.claim_descriptor, job.claim_deadline_ms) == (None, None)
    await desk.assert_counters_exact()


async def test_a_job_released_without_a_delay_keeps_its_place(desk: Desk) -> None:
    first = await desk.put_and_take()
    desk.clock.advance(seconds=2)
    await desk.put()

    released = await desk.release(first.ref)

    assert released.due_at_ms == first.job.run_after_ms
    assert (await desk.take()).key == first.key
    await desk.assert_counters_exact()


async def test_a_job_released_twice_in_a_call_is_released_once(desk: Desk) -> None:
    held = await desk.put_and_take()

    one, two = await desk.shard.submit(ReleaseJobs([held.ref, held.ref], desk.now))

    assert (one.outcome, two.outcome) == (Outcome.APPLIED, Outcome.STALE_CLAIM)
    await desk.assert_counters_exact()


async def test_a_waiting_job_can_be_cancelled(desk: Desk) -> None:
    key = await desk.put(status="so far ", attempts=5)
    desk.clock.advance(seconds=1)

    cancelled = await desk.cancel(key)

    assert (cancelled.outcome, cancelled.state) == (Outcome.APPLIED, JobState.FAILED)
    job = await desk.look(key)
    assert (job.state, job.attempts_remaining) == (JobState.FAILED, 0)
    assert job.custom_status == "so far cancelled"
    assert (job.finished_at_ms, job.claim_descriptor) == (desk.now, None)
    assert list(job.attempts) == []
    assert await desk.claim() == []
    await desk.assert_counters_exact()


async def test_a_future_job_can_be_cancelled(desk: Desk) -> None:
    key = await desk.put(delay_ms=10_000)
    assert (await desk.counts()).future == 1

    assert (await desk.cancel(key)).outcome is Outcome.APPLIED
    await desk.assert_counters_exact()


async def test_a_job_in_hand_can_be_cancelled_and_its_holder_learns_of_it(desk: Desk) -> None:
    held = await desk.put_and_take()

    assert (await desk.cancel(held.key)).outcome is Outcome.APPLIED

    job = await desk.look(held.key)
    assert (job.state, job.attempts_remaining, job.claim_deadline_ms) == (JobState.FAILED, 0, None)
    assert job.claim_descriptor == held.holder.descriptor
    assert [one.outcome for one in job.attempts] == ["cancelled"]
    assert (await desk.heartbeat(held.ref)).outcome is Outcome.ALREADY_FINAL
    assert (await desk.succeed(held.key, token=held.holder.token)).outcome is Outcome.ALREADY_FINAL
    assert (await desk.look(held.key)) == job
    await desk.assert_counters_exact()


@pytest.mark.parametrize("state", [JobState.SUCCEEDED, JobState.FAILED])
async def test_a_finished_job_can_not_be_cancelled(desk: Desk, state: JobState) -> None:
    key = await desk.put_in(state)
    before = await desk.look(key)

    cancelled = await desk.cancel(key)

    assert (cancelled.outcome, cancelled.state) == (Outcome.ALREADY_FINAL, state)
    assert await desk.look(key) == before


async def test_cancels_of_one_call_are_answered_in_order(desk: Desk) -> None:
    waiting, running = await desk.put_in(JobState.IN_PROGRESS), await desk.put()
    keys: list[JobKey] = [waiting, running, waiting, running._replace(id=1), running._replace(priority=9)]

    results = await desk.shard.submit(CancelJobs(keys, desk.now))

    assert [one.outcome for one in results] == [
        Outcome.APPLIED,
        Outcome.APPLIED,
        Outcome.ALREADY_FINAL,
        Outcome.NOT_FOUND,
        Outcome.NOT_FOUND,
    ]
    assert list(await desk.shard.submit(CancelJobs([], desk.now))) == []
    assert (await desk.counts()).failed == 2
