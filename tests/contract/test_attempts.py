"""The attempts' history and the last error."""

from __future__ import annotations

import pytest

from pinlater.domain.job import Attempt
from pinlater.domain.transitions import ATTEMPT_ERROR_TEXT_BYTES_MAX, ATTEMPTS_KEPT_MAX, ERROR_TEXT_CHARS_MAX
from pinlater.server.storage.commands import TimeOutClaims
from tests.contract.desk import ALL, TIMEOUT_MS, Desk


async def test_a_clean_first_success_leaves_no_record(desk: Desk) -> None:
    """It would say nothing that the job doesn't, and this most frequent case must be cheap."""
    held = await desk.put_and_take()
    await desk.succeed(held.key)

    assert list((await desk.look(held.key)).attempts) == []


async def test_each_failure_is_recorded(desk: Desk) -> None:
    held = await desk.put_and_take(attempts=3)
    claimed_at = desk.now
    desk.clock.advance(seconds=4)
    await desk.fail(held.key, error=("ValueError", "no such address"))

    job = await desk.look(held.key)
    assert list(job.attempts) == [
        Attempt(1, held.holder.descriptor, claimed_at, desk.now, "failed", "ValueError", "no such address")
    ]
    assert (job.error_type, job.error_text) == ("ValueError", "no such address")


async def test_a_success_after_a_failure_is_recorded_too(desk: Desk) -> None:
    first = await desk.put_and_take()
    await desk.fail(first.key)
    second = await desk.take()
    desk.clock.advance(seconds=1)
    await desk.succeed(first.key)

    attempts = (await desk.look(first.key)).attempts
    assert [(one.number, one.outcome, one.claimed_by) for one in attempts] == [
        (1, "failed", first.holder.descriptor),
        (2, "succeeded", second.holder.descriptor),
    ]


async def test_time_outs_and_cancels_are_recorded(desk: Desk) -> None:
    first = await desk.put_and_take()
    claimed_at = desk.now
    desk.clock.advance(ms=TIMEOUT_MS + 1)
    await desk.shard.submit(TimeOutClaims(desk.now, ALL))
    timed_out_at = desk.now
    second = await desk.take()
    await desk.cancel(first.key)

    assert list((await desk.look(first.key)).attempts) == [
        Attempt(1, first.holder.descriptor, claimed_at, timed_out_at, "timed_out"),
        Attempt(2, second.holder.descriptor, desk.now, desk.now, "cancelled"),
    ]


async def test_releases_and_checkpoints_leave_no_record(desk: Desk) -> None:
    held = await desk.put_and_take()
    await desk.release(held.ref)
    again = await desk.take()

    assert again.job.attempt == 1
    assert list((await desk.look(held.key)).attempts) == []


@pytest.mark.differs("cmsgpack in a script")
async def test_only_the_newest_attempts_are_kept(desk: Desk) -> None:
    key = await desk.put(attempts=100)
    for _ in range(ATTEMPTS_KEPT_MAX + 5):
        await desk.take()
        await desk.fail(key)

    attempts = (await desk.look(key)).attempts
    assert [one.number for one in attempts] == list(range(6, ATTEMPTS_KEPT_MAX + 6))
    assert (await desk.take()).job.attempt == ATTEMPTS_KEPT_MAX + 6


async def test_the_newest_error_text_is_kept_long_and_the_historys_short(desk: Desk) -> None:
    held = await desk.put_and_take()
    text = "é" * (ERROR_TEXT_CHARS_MAX + 100)
    await desk.fail(held.key, error=("E", text))

    job = await desk.look(held.key)
    assert job.error_text == text[:ERROR_TEXT_CHARS_MAX]
    kept = job.attempts[0].error_text
    assert text.startswith(kept)
    assert len(kept.encode()) == ATTEMPT_ERROR_TEXT_BYTES_MAX


async def test_a_text_is_never_cut_within_a_character(desk: Desk) -> None:
    held = await desk.put_and_take()
    await desk.fail(held.key, error=("E", "€" * 1000))

    assert (await desk.look(held.key)).attempts[0].error_text == "€" * (ATTEMPT_ERROR_TEXT_BYTES_MAX // 3)


async def test_the_newest_error_replaces_the_one_before(desk: Desk) -> None:
    key = await desk.put(attempts=5)
    for text in ("first", "second"):
        await desk.take()
        await desk.fail(key, error=("E", text))

    job = await desk.look(key)
    assert job.error_text == "second"
    assert [one.error_text for one in job.attempts] == ["first", "second"]


async def test_a_failure_without_an_error_leaves_the_one_before(desk: Desk) -> None:
    """Clients of the original report only that it failed."""
    key = await desk.put(attempts=5)
    await desk.take()
    await desk.fail(key, error=("E", "text"))
    await desk.take()
    await desk.fail(key)

    job = await desk.look(key)
    assert (job.error_type, job.error_text) == ("E", "text")
    assert [(one.error_type, one.error_text) for one in job.attempts] == [("E", "text"), ("", "")]


async def test_the_last_error_stays_after_a_success(desk: Desk) -> None:
    held = await desk.put_and_take()
    await desk.fail(held.key, error=("E", "trouble"))
    await desk.take()
    await desk.succeed(held.key)

    assert (await desk.look(held.key)).error_text == "trouble"


async def test_the_history_survives_a_retry_of_the_failed_job(desk: Desk) -> None:
    held = await desk.put_and_take(attempts=1)
    await desk.fail(held.key, error=("E", "first"))
    await desk.retry_failed(attempts=1)

    again = await desk.take()
    assert again.job.attempt == 2
    await desk.fail(held.key, error=("E", "second"))
    assert [one.number for one in (await desk.look(held.key)).attempts] == [1, 2]
