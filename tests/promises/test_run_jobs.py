"""runJobs: named jobs become due."""

from __future__ import annotations

import asyncio

from pinlater.domain.clock import ManualClock
from pinlater.domain.durations import YEAR_MS
from tests.promises.running_server import RunningServer
from tests.promises.wire import APPLIED, PENDING, Wire, ttypes

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


async def test_a_named_job_that_failed_gets_the_attempts_and_the_time_that_the_call_says(here: Wire) -> None:
    [failed] = await here.enqueue("q", b"f", numAttemptsAllowed=1)
    await here.claim("q")
    await here.ack("q", failed=[failed])
    assert await run(here, failed, runAfterTimestampMillis=FAR_MS, attemptsToAllow=3) == [APPLIED]
    info = await here.job(failed)
    assert (info.jobState, info.attemptsRemaining, info.runAfterTimestampMillis) == (PENDING, 3, FAR_MS)
