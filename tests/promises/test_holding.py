"""Jobs in hand: claim timeouts, checkpoints, tokens, heartbeats, releases, cancels, final failures, the attempts' history."""

from __future__ import annotations

import pytest

from tests.promises.running_server import RunningServer
from tests.promises.test_queues import refused
from tests.promises.wire import (
    ALREADY_FINAL,
    APPLIED,
    FAILED,
    IN_PROGRESS,
    NOT_FOUND,
    PENDING,
    STALE_CLAIM,
    SUCCEEDED,
    Wire,
    ttypes,
)

TIMEOUT_MS = 600_000


async def in_hand(wire: Wire, **more: object) -> tuple[str, str]:
    """A job that was just claimed: descriptor and token."""
    await wire.enqueue("q", b"x", **more)
    return (await wire.claim("q", 1))[0]


async def claims(wire: Wire, method: str, *pairs: tuple[str, str], **more: object) -> list[int]:
    """Outcomes of a heartbeat or a release."""
    refs = [ttypes.ClaimRef(descriptor, token) for descriptor, token in pairs]
    kind = ttypes.ClaimsRequest if method == "heartbeatClaims" else ttypes.ReleaseRequest
    return [each.outcome for each in await wire.call(method, request=kind("q", refs, **more))]


# --- claim timeouts -----------------------------------------------------------------------------------------------------
async def test_a_claim_times_out_after_ten_minutes_unless_configured(here: Wire, running: RunningServer) -> None:
    due = running.clock.now_ms() - 5
    descriptor, _ = await in_hand(here, runAfterTimestampMillis=due)
    running.clock.advance(ms=TIMEOUT_MS - 1)
    await running.core.sweeps.time_out_claims()
    assert await here.state(descriptor) == IN_PROGRESS
    running.clock.advance(ms=2)
    await running.core.sweeps.time_out_claims()
    info = await here.job(descriptor)
    assert (info.jobState, info.attemptsRemaining, info.claimDescriptor) == (PENDING, 1, None)
    assert info.runAfterTimestampMillis == due  # kept, so it is due at once
    assert await here.bodies("q") == [b"x"]


async def test_a_time_out_on_the_last_attempt_fails_the_job_and_keeps_its_last_claim(
    here: Wire, running: RunningServer
) -> None:
    descriptor, _ = await in_hand(here, numAttemptsAllowed=1)
    running.clock.advance(ms=TIMEOUT_MS + 1)
    await running.core.sweeps.time_out_claims()
    info = await here.job(descriptor)
    assert (info.jobState, info.attemptsRemaining) == (FAILED, 0)
    assert info.claimDescriptor is not None


async def test_the_jobs_own_claim_timeout_goes_before_the_queues_and_that_before_the_servers(
    here: Wire, running: RunningServer
) -> None:
    await here.configure("q", claimTimeoutMillis=2_000)
    by_queue, _ = await in_hand(here)
    by_job, _ = await in_hand(here, claimTimeoutMillis=500)
    running.clock.advance(ms=501)
    await running.core.sweeps.time_out_claims()
    assert (await here.state(by_queue), await here.state(by_job)) == (IN_PROGRESS, PENDING)
    running.clock.advance(ms=1_500)
    await running.core.sweeps.time_out_claims()
    assert await here.state(by_queue) == PENDING


async def test_a_dead_workers_thousand_jobs_come_back_in_small_batches(here: Wire, running: RunningServer) -> None:
    await here.enqueue("q", *[b"x"] * 1_000)
    await here.claim("q", 1_000)
    running.clock.advance(ms=TIMEOUT_MS + 1)
    pause = await running.core.sweeps.time_out_claims()
    back = await here.count("q")
    assert 0 < back <= 100
    assert pause is not None  # comes again soon
    while await running.core.sweeps.time_out_claims() is not None:
        pass
    assert await here.count("q") == 1_000


# --- checkpoints --------------------------------------------------------------------------------------------------------
async def test_a_checkpoint_replaces_prepends_resets_and_renews(here: Wire, running: RunningServer) -> None:
    descriptor, _ = await in_hand(here, customStatus="old", numAttemptsAllowed=3)
    running.clock.advance(ms=TIMEOUT_MS - 1)
    more = {"newBody": b"\xff\x00new", "numOfAttemptsAllowed": 7, "prependCustomStatus": "new "}
    assert (await here.checkpoint("q", descriptor, **more)).outcome == APPLIED
    info = await here.job(descriptor)
    assert (info.jobState, info.body, info.customStatus) == (IN_PROGRESS, b"\xff\x00new", "new old")
    assert (info.attemptsAllowed, info.attemptsRemaining) == (7, 7)
    assert info.runAfterTimestampMillis == running.clock.now_ms()
    running.clock.advance(ms=TIMEOUT_MS - 1)
    await running.core.sweeps.time_out_claims()
    assert await here.state(descriptor) == IN_PROGRESS


async def test_a_checkpoint_keeps_the_fields_that_it_does_not_name(here: Wire) -> None:
    descriptor, _ = await in_hand(here, customStatus="old", numAttemptsAllowed=3)
    await here.ack("q", failed=[descriptor])
    await here.claim("q")
    await here.checkpoint("q", descriptor)
    info = await here.job(descriptor)
    assert (info.body, info.customStatus) == (b"x", "old")
    assert (info.attemptsAllowed, info.attemptsRemaining) == (3, 2)


async def test_move_to_pending_puts_it_back_when_it_is_told_to_and_clears_the_claim(
    here: Wire, running: RunningServer
) -> None:
    descriptor, _ = await in_hand(here)
    when = running.clock.now_ms() + 50
    await here.checkpoint("q", descriptor, newBody=b"half", moveToPending=True, runAfterTimestampMillis=when)
    info = await here.job(descriptor)
    assert (info.jobState, info.attemptsRemaining, info.claimDescriptor) == (PENDING, 2, None)
    assert info.runAfterTimestampMillis == when
    assert await here.bodies("q") == []
    running.clock.advance(ms=50)
    assert await here.bodies("q") == [b"half"]


@pytest.mark.parametrize("other", ["", "test", "ests", ":tests:", "tests:1", "TESTS", "tests\0", "%", "tests "])
async def test_sources_are_compared_by_equality_not_by_substring(here: Wire, other: str) -> None:
    descriptor, _ = await in_hand(here)
    assert (await here.checkpoint("q", descriptor, source=other, newBody=b"stolen")).outcome == STALE_CLAIM
    assert (await here.job(descriptor)).body == b"x"


@pytest.mark.parametrize("source", ["", "a:b:c", "x" * 199 + "é", "y" * 201, "z" * 100_000, "\0"])
async def test_any_source_may_checkpoint_its_own_claim_and_no_longer_one(here: Wire, source: str) -> None:
    [descriptor] = await here.enqueue("q", b"x")
    await here.claim("q", source=source)
    assert (await here.checkpoint("q", descriptor, source=source + "!")).outcome == STALE_CLAIM
    assert (await here.checkpoint("q", descriptor, source=source)).outcome == APPLIED


async def test_a_foreign_checkpoint_is_a_logged_and_counted_no_op_and_no_error(
    here: Wire, running: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    descriptor, _ = await in_hand(here)
    one = ttypes.PinLaterCheckpointJobRequest(jobDescriptor=descriptor, newBody=b"stolen")
    request = ttypes.PinLaterCheckpointJobsRequest("q", [one])
    assert await here.call("checkpointJobs", source="other", request=request) is None
    assert (await here.job(descriptor)).body == b"x"
    assert running.core.metrics.queue("q").checkpoint_noop == 1
    assert "checkpoint without effect" in caplog.text


async def test_a_checkpoint_never_revives_a_job_that_is_not_in_hand(here: Wire) -> None:
    descriptor, token = await in_hand(here)
    await here.ack("q", descriptor)
    for fence in (None, token):
        outcome = await here.checkpoint("q", descriptor, claimToken=fence, moveToPending=True, newBody=b"again")
        assert outcome.outcome == ALREADY_FINAL
    assert (await here.job(descriptor)).body == b"x"
    [waiting] = await here.enqueue("q", b"w")
    assert (await here.checkpoint("q", waiting, newBody=b"n")).outcome == STALE_CLAIM


# --- tokens -------------------------------------------------------------------------------------------------------------
async def test_with_a_token_only_the_present_holder_counts_and_others_learn_its_name(
    here: Wire, running: RunningServer
) -> None:
    descriptor, old = await in_hand(here, numAttemptsAllowed=9)
    await here.ack("q", failed=[descriptor])
    running.clock.advance(ms=7)
    [(_, new)] = await here.claim("q", source="second")
    info = ttypes.PinLaterJobAckInfo(jobDescriptor=descriptor, claimToken=old)
    [outcome] = await here.call("ackJobs", request=ttypes.PinLaterJobAckRequest("q", [info]))
    assert outcome.outcome == STALE_CLAIM
    assert ":second:" in outcome.holder
    assert outcome.heldSinceMillis == running.clock.now_ms()
    assert (await here.checkpoint("q", descriptor, claimToken=old, source="second")).outcome == STALE_CLAIM
    assert await claims(here, "heartbeatClaims", (descriptor, old)) == [STALE_CLAIM]
    assert await claims(here, "releaseJobs", (descriptor, old)) == [STALE_CLAIM]
    assert await here.state(descriptor) == IN_PROGRESS
    assert await here.ack("q", descriptor, claimToken=new) == [APPLIED]


async def test_without_a_token_any_caller_may_ack_a_job_in_progress(here: Wire, running: RunningServer) -> None:
    descriptor, _ = await in_hand(here)
    other = await running.connect("other")
    assert await other.ack("q", descriptor) == [APPLIED]
    assert await here.state(descriptor) == SUCCEEDED


async def test_a_success_is_never_turned_back(here: Wire) -> None:
    descriptor, token = await in_hand(here)
    await here.ack("q", descriptor)
    assert await here.ack("q", failed=[descriptor]) == [ALREADY_FINAL]
    assert await here.ack("q", failed=[descriptor], claimToken=token) == [ALREADY_FINAL]
    assert await here.state(descriptor) == SUCCEEDED


async def test_a_token_longer_than_sixty_four_bytes_is_refused(here: Wire) -> None:
    descriptor, _ = await in_hand(here)
    assert (await refused(here.ack("q", descriptor, claimToken="t" * 65))).detail == "INVALID_ARGUMENT"


# --- heartbeat, release, cancel -----------------------------------------------------------------------------------------
async def test_a_heartbeat_renews_by_the_jobs_own_timeout_and_is_answered_for_each(
    here: Wire, running: RunningServer
) -> None:
    mine = await in_hand(here, claimTimeoutMillis=1_000)
    running.clock.advance(ms=900)
    request = ttypes.ClaimsRequest("q", [ttypes.ClaimRef(*mine), ttypes.ClaimRef("q:s1:p1:1", mine[1])])
    one, two = await here.call("heartbeatClaims", request=request)
    assert (one.outcome, one.claimDeadlineMillis) == (APPLIED, running.clock.now_ms() + 1_000)
    assert two.outcome == NOT_FOUND
    running.clock.advance(ms=900)
    await running.core.sweeps.time_out_claims()
    assert await here.state(mine[0]) == IN_PROGRESS


async def test_a_heartbeat_never_revives_a_claim(here: Wire, running: RunningServer) -> None:
    mine = await in_hand(here)
    running.clock.advance(ms=TIMEOUT_MS + 1)
    await running.core.sweeps.time_out_claims()
    assert await claims(here, "heartbeatClaims", mine) == [STALE_CLAIM]
    assert await here.state(mine[0]) == PENDING


async def test_a_release_is_pending_due_after_its_delay_with_attempts_as_they_were(
    here: Wire, running: RunningServer
) -> None:
    mine = await in_hand(here)
    assert await claims(here, "releaseJobs", mine, delayMillis=300) == [APPLIED]
    info = await here.job(mine[0])
    assert (info.jobState, info.attemptsRemaining) == (PENDING, 2)
    assert info.runAfterTimestampMillis == running.clock.now_ms() + 300
    assert await claims(here, "releaseJobs", mine) == [STALE_CLAIM]


async def test_a_release_without_a_delay_keeps_the_jobs_place_and_leaves_the_rate_limit_as_it_was(here: Wire) -> None:
    await here.configure("q", maxJobsPerSecond=1.0)
    await here.enqueue("q", b"first")
    await here.enqueue("q", b"second")
    for _ in range(3):
        [mine] = await here.claim("q", 1)
        assert await claims(here, "releaseJobs", mine) == [APPLIED]
    assert await here.bodies("q", 1) == [b"first"]


async def test_a_claim_spends_nothing_and_a_failure_and_a_time_out_one_each(here: Wire, running: RunningServer) -> None:
    mine = await in_hand(here, numAttemptsAllowed=5)
    assert (await here.job(mine[0])).attemptsRemaining == 5
    await here.ack("q", failed=[mine[0]])
    assert (await here.job(mine[0])).attemptsRemaining == 4
    [mine] = await here.claim("q")
    running.clock.advance(ms=TIMEOUT_MS + 1)
    await running.core.sweeps.time_out_claims()
    assert (await here.job(mine[0])).attemptsRemaining == 3
    [mine] = await here.claim("q")
    await claims(here, "releaseJobs", mine)
    assert (await here.job(mine[0])).attemptsRemaining == 3


async def test_a_cancel_fails_waiting_jobs_and_jobs_in_hand_and_leaves_finished_ones(here: Wire) -> None:
    done, _ = await in_hand(here)
    await here.ack("q", done)
    held, token = await in_hand(here)
    [waiting] = await here.enqueue("q", b"w")
    names = [held, waiting, done, "q:s1:p1:1"]
    outcomes = [each.outcome for each in await here.call("cancelJobs", queueName="q", jobDescriptors=names)]
    assert outcomes == [APPLIED, APPLIED, ALREADY_FINAL, NOT_FOUND]
    for descriptor in (held, waiting):
        info = await here.job(descriptor)
        assert (info.jobState, info.attemptsRemaining, info.customStatus) == (FAILED, 0, "cancelled")
    assert await claims(here, "heartbeatClaims", (held, token)) == [ALREADY_FINAL]
    assert await here.ack("q", held, claimToken=token) == [ALREADY_FINAL]
    assert await here.state(done) == SUCCEEDED


# --- final failures, history, expiry ------------------------------------------------------------------------------------
async def test_a_final_failure_fails_whatever_is_left_and_keeps_the_error(here: Wire) -> None:
    descriptor, _ = await in_hand(here, numAttemptsAllowed=9)
    await here.ack("q", failed=[descriptor], finalFailure=True, errorType="ValueError", errorText="e" * 5_000)
    info = await here.job(descriptor)
    assert (info.jobState, info.attemptsRemaining) == (FAILED, 0)
    assert (info.lastErrorType, info.lastErrorText) == ("ValueError", "e" * 4_000)


async def test_the_history_keeps_the_newest_twenty_attempts_with_a_kilobyte_of_text(
    here: Wire, running: RunningServer
) -> None:
    descriptor, _ = await in_hand(here, numAttemptsAllowed=100)
    for number in range(1, 26):
        running.clock.advance(ms=10)
        await here.ack("q", failed=[descriptor], errorType=f"E{number}", errorText="é" * 2_000)
        await here.claim("q", source=f"w{number}")
    attempts = (await here.job(descriptor)).attempts
    assert [each.number for each in attempts] == list(range(6, 26))
    last = attempts[-1]
    assert (last.outcome, last.errorType, last.endedAtMillis - last.claimedAtMillis) == ("failed", "E25", 10)
    assert ":w24:" in last.claimedBy
    assert last.errorText == "é" * 512


async def test_a_clean_first_success_writes_no_history(here: Wire) -> None:
    descriptor, _ = await in_hand(here)
    await here.ack("q", descriptor)
    assert not (await here.job(descriptor)).attempts


async def test_a_job_past_its_expiry_fails_instead_of_being_handed_out(here: Wire, running: RunningServer) -> None:
    """Whether the sweep or a claim meets it first; up to that very millisecond it may be handed out."""
    now = running.clock.now_ms()
    [by_sweep] = await here.enqueue("q", b"a", expiresAtMillis=now + 100)
    [by_claim] = await here.enqueue("q", b"b", expiresAtMillis=now + 101)
    await here.enqueue("q", b"c", expiresAtMillis=now + 102)
    running.clock.advance(ms=101)
    await running.core.sweeps.expire_jobs()
    assert (await here.state(by_sweep), await here.state(by_claim)) == (FAILED, PENDING)
    running.clock.advance(ms=1)
    assert await here.bodies("q") == [b"c"]
    for descriptor in (by_sweep, by_claim):
        info = await here.job(descriptor)
        assert (info.jobState, info.attemptsRemaining, info.customStatus) == (FAILED, 0, "expired")


# --- the clock and garbage ----------------------------------------------------------------------------------------------
async def test_finished_jobs_are_deleted_after_their_own_times_counted_from_the_finish(
    here: Wire, running: RunningServer
) -> None:
    await here.configure("q", succeededTtlMillis=1_000, failedTtlMillis=5_000)
    good, _ = await in_hand(here, runAfterTimestampMillis=1)  # due long ago: that must not count
    bad, _ = await in_hand(here, numAttemptsAllowed=1, runAfterTimestampMillis=1)
    running.clock.advance(hours=24)
    await here.ack("q", good, failed=[bad])
    for advance, left in ((1_000, {good, bad}), (1, {bad}), (3_999, {bad}), (1, set())):
        running.clock.advance(ms=advance)
        while await running.core.sweeps.collect_garbage() is not None:
            pass
        assert set(await here.lookup(good, bad)) == left, advance


async def test_by_default_succeeded_are_kept_a_day_and_failed_a_week(here: Wire, running: RunningServer) -> None:
    good, _ = await in_hand(here)
    bad, _ = await in_hand(here, numAttemptsAllowed=1)
    await here.ack("q", good, failed=[bad])
    for hours, left in ((23.9, {good, bad}), (0.2, {bad}), (143.8, {bad}), (0.2, set())):
        running.clock.advance(hours=hours)
        await running.core.sweeps.collect_garbage()
        assert set(await here.lookup(good, bad)) == left, hours
