"""One test for each known fault of the original that ours must not have; on both stores where the store could be to blame."""

from __future__ import annotations

from pinlater.domain.durations import YEAR_MS
from tests.promises.running_server import RunningServer
from tests.promises.test_looking import delete, failed_jobs, retry
from tests.promises.test_queues import refused
from tests.promises.wire import (
    ALREADY_FINAL,
    APPLIED,
    FAILED,
    IN_PROGRESS,
    PENDING,
    STALE_CLAIM,
    SUCCEEDED,
    Wire,
    ack_request,
    ttypes,
)


async def test_a_late_success_does_not_overwrite_what_the_job_has_become_since(
    here: Wire, running: RunningServer
) -> None:
    [descriptor] = await here.enqueue("q", b"x")
    [(_, late)] = await here.claim("q")
    running.clock.advance(ms=600_001)
    await running.core.sweeps.time_out_claims()
    await here.call("ackDequeuedJobs", request=ack_request("q", descriptor))  # bare: no worker holds it
    assert await here.state(descriptor) == PENDING
    await here.claim("q")
    assert await here.ack("q", descriptor, claimToken=late) == [STALE_CLAIM]
    await here.ack("q", failed=[descriptor])
    assert await here.state(descriptor) == FAILED
    await here.call("ackDequeuedJobs", request=ack_request("q", descriptor))
    assert await here.state(descriptor) == FAILED


async def test_a_failed_ack_never_leaves_a_job_in_progress_for_ever(here: Wire) -> None:
    """Whatever its attempts: a checkpoint can't set them below one either."""
    [descriptor] = await here.enqueue("q", b"x", numAttemptsAllowed=1)
    await here.claim("q")
    for attempts in (0, -1, -(2**31)):
        assert (
            await refused(here.checkpoint("q", descriptor, numOfAttemptsAllowed=attempts))
        ).detail == "INVALID_ARGUMENT"
    await here.ack("q", failed=[descriptor])
    info = await here.job(descriptor)
    assert (info.jobState, info.attemptsRemaining) == (FAILED, 0)


async def test_an_empty_or_clever_source_takes_over_no_claim(here: Wire) -> None:
    [descriptor] = await here.enqueue("q", b"x")
    await here.claim("q", source="worker")
    holder = (await here.job(descriptor)).claimDescriptor
    for source in ("", ":", "worker:1", "9010", holder, "work", "%", "_orker", "WORKER"):
        outcome = await here.checkpoint("q", descriptor, source=source, newBody=b"stolen")
        assert outcome.outcome == STALE_CLAIM, source
    assert (await here.job(descriptor)).body == b"x"


async def test_a_checkpoint_does_not_revive_a_finished_job(here: Wire) -> None:
    good, bad = await here.enqueue("q", b"x", b"y", numAttemptsAllowed=1)
    await here.claim("q", 2)
    await here.ack("q", good, failed=[bad])
    for descriptor, state in ((good, SUCCEEDED), (bad, FAILED)):
        assert (await here.checkpoint("q", descriptor, moveToPending=True)).outcome == ALREADY_FINAL
        assert await here.state(descriptor) == state


async def test_a_limit_of_zero_retries_and_deletes_nothing_and_ends(here: Wire) -> None:
    await failed_jobs(here, b"a", b"b")
    assert [await retry(here, limit=0), await delete(here, FAILED, limit=0)] == [0, 0]
    assert await delete(here, FAILED, limit=0, bodyRegexToMatch="a|b") == 0
    assert await here.count("q", FAILED) == 2


async def test_bodies_that_are_not_utf8_are_not_damaged(here: Wire) -> None:
    body = bytes(range(256)) * 3
    [descriptor] = await here.enqueue("q", body)
    assert await here.bodies("q") == [body]
    await here.checkpoint("q", descriptor, newBody=body[::-1])
    assert (await here.job(descriptor)).body == body[::-1]
    shown = (await here.scan("q", IN_PROGRESS, includeBody=True)).scannedJobs
    assert shown[0].body == body[::-1]


async def test_bodies_over_sixty_four_kib_are_taken(here: Wire) -> None:
    await here.enqueue("q", b"x" * 65_537)
    assert await here.bodies("q") == [b"x" * 65_537]


async def test_times_are_cut_neither_to_seconds_nor_to_2038(here: Wire, running: RunningServer) -> None:
    running.clock.advance(ms=2_147_483_648_000 - YEAR_MS - running.clock.now_ms())
    for when in (2_147_483_647_999, 2_147_483_648_000, 1, 0, -1, -(2**63)):
        [descriptor] = await here.enqueue("q", b"x", runAfterTimestampMillis=when)
        assert (await here.job(descriptor)).runAfterTimestampMillis == when


async def test_a_regex_never_reaches_the_database(here: Wire) -> None:
    await here.enqueue("q", b"x")
    for pattern in ("x' OR '1'='1", "'; DELETE FROM jobs; --", '"', "\\\\'", "%", "_"):
        assert await here.count("q", bodyRegexToMatch=pattern) == 0, pattern
        assert await delete(here, PENDING, bodyRegexToMatch=pattern) == 0, pattern
    assert await here.count("q") == 1


async def test_acks_that_ride_on_a_rate_limited_dequeue_are_not_lost(here: Wire) -> None:
    [descriptor] = await here.enqueue("q", b"x")
    await here.claim("q")
    await here.configure("q", maxJobsPerSecond=0.0)
    assert (await refused(here.dequeue("q", jobAckRequest=ack_request("q", descriptor)))).code == 429
    assert await here.state(descriptor) == SUCCEEDED


async def test_finished_jobs_are_kept_by_their_finish_and_not_by_their_due_time(
    here: Wire, running: RunningServer
) -> None:
    [descriptor] = await here.enqueue("q", b"x", runAfterTimestampMillis=1)
    await here.claim("q")
    await here.ack("q", descriptor)
    running.clock.advance(hours=23)
    await running.core.sweeps.collect_garbage()
    assert await here.state(descriptor) == SUCCEEDED


async def test_an_enqueue_with_one_bad_priority_stores_nothing(here: Wire) -> None:
    jobs = [ttypes.PinLaterJob(body=b"x", priority=priority) for priority in (1, 2, 9)]
    assert (await refused(here.enqueue_jobs("q", jobs))).code == 416
    assert await here.count("q") == 0


async def test_a_malformed_descriptor_in_a_lookup_is_told_as_what_it_is(here: Wire) -> None:
    """The original fails the whole lookup as UNKNOWN without a reason; ours names the fault, and an unknown job is no fault."""
    [descriptor] = await here.enqueue("q", b"x")
    error = await refused(here.lookup(descriptor, "nonsense"))
    assert error.detail == "DESCRIPTOR_INVALID"
    assert "nonsense" in error.message
    assert set(await here.lookup(descriptor, "q:s1:p1:1", "nowhere:s7:p3:9")) == {descriptor}


async def test_a_checkpoint_of_the_last_attempt_can_still_be_failed(here: Wire) -> None:
    [descriptor] = await here.enqueue("q", b"x", numAttemptsAllowed=1)
    [(_, token)] = await here.claim("q")
    await here.checkpoint("q", descriptor, claimToken=token)
    assert await here.ack("q", failed=[descriptor], claimToken=token) == [APPLIED]
    assert await here.state(descriptor) == FAILED
