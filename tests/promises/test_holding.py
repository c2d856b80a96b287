"""Jobs in hand: claim timeouts, checkpoints, tokens, heartbeats, releases, cancels, final failures, the attempts' history."""

from __future__ import annotations

import pytest

from tests.promises.running_server import RunningServer
from tests.promises.test_queues import refused
from tests.promises.wire import (
    APPLIED,
    IN_PROGRESS,
    PENDING,
    STALE_CLAIM,
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


# --- tokens -------------------------------------------------------------------------------------------------------------
async def test_a_token_longer_than_sixty_four_bytes_is_refused(here: Wire) -> None:
    descriptor, _ = await in_hand(here)
    assert (await refused(here.ack("q", descriptor, claimToken="t" * 65))).detail == "INVALID_ARGUMENT"


# --- heartbeat, release, cancel -----------------------------------------------------------------------------------------
async def test_a_release_without_a_delay_keeps_the_jobs_place_and_leaves_the_rate_limit_as_it_was(here: Wire) -> None:
    await here.configure("q", maxJobsPerSecond=1.0)
    await here.enqueue("q", b"first")
    await here.enqueue("q", b"second")
    for _ in range(3):
        [mine] = await here.claim("q", 1)
        assert await claims(here, "releaseJobs", mine) == [APPLIED]
    assert await here.bodies("q", 1) == [b"first"]


# --- final failures, history, expiry ------------------------------------------------------------------------------------
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
