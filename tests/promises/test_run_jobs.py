"""runJobs: named jobs become due."""

from __future__ import annotations

import asyncio

import pytest

from pinlater.domain.clock import ManualClock
from pinlater.domain.durations import YEAR_MS
from tests.promises.running_server import RunningServer
from tests.promises.test_queues import refused
from tests.promises.wire import ALREADY_FINAL, APPLIED, NOT_FOUND, PENDING, STALE_CLAIM, Wire, ttypes

FAR_MS = ManualClock().now_ms() + YEAR_MS


async def run(wire: Wire, *descriptors: str, **more: object) -> list[int]:
    """The outcomes."""
    request = ttypes.RunJobsRequest("q", list(descriptors), **more)
    return [each.outcome for each in await wire.call("runJobs", request=request)]


async def test_a_named_job_that_waits_becomes_due_and_goes_to_a_waiting_dequeue(
    running: RunningServer, here: Wire
) -> None:
    [descriptor] = await here.enqueue("q", b"x", runAfterTimestampMillis=FAR_MS)
    request = ttypes.PinLaterDequeueRequest("q", 1, waitMillis=30_000)
    polling = asyncio.create_task((await running.connect()).call("dequeueJobs", request=request))
    await running.until(lambda: running.core.dispatcher.waiting("q") == 1)
    assert await run(here, descriptor) == [APPLIED]
    assert list((await polling).jobs) == [descriptor]


async def test_a_named_job_that_failed_goes_back_and_one_in_hand_or_done_stays(here: Wire) -> None:
    failed, held, done = await here.enqueue("q", b"f", b"h", b"d")
    await here.claim("q", 3)
    await here.ack("q", done)
    request = ttypes.PinLaterJobAckRequest("q", None, [ttypes.PinLaterJobAckInfo(failed, finalFailure=True)])
    await here.call("ackJobs", request=request)
    outcomes = await run(here, failed, held, done, "q:s1:p1:1", runAfterTimestampMillis=FAR_MS, attemptsToAllow=3)
    assert outcomes == [APPLIED, STALE_CLAIM, ALREADY_FINAL, NOT_FOUND]
    info = await here.job(failed)
    assert (info.jobState, info.attemptsRemaining, info.runAfterTimestampMillis) == (PENDING, 3, FAR_MS)


@pytest.mark.parametrize("attempts", [0, -1])
async def test_a_named_job_is_not_run_without_an_attempt(here: Wire, attempts: int) -> None:
    error = await refused(here.call("runJobs", request=ttypes.RunJobsRequest("q", [], attemptsToAllow=attempts)))
    assert (error.code, error.detail) == (500, "INVALID_ARGUMENT")
