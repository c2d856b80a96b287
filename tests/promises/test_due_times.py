"""A job waits for a year at most: what asks for more is refused, and a time in the past is a time like any other."""

from __future__ import annotations

import pytest

from pinlater.domain.durations import YEAR_MS
from tests.promises.running_server import RunningServer
from tests.promises.test_looking import failed_jobs, retry
from tests.promises.test_queues import refused
from tests.promises.test_run_jobs import run
from tests.promises.wire import (
    APPLIED,
    FAILED,
    IN_PROGRESS,
    PENDING,
    SUCCEEDED,
    RefusedOnWire,
    Wire,
    ack_request,
    ttypes,
)

TOO_LONG_MS = {"by a millisecond": YEAR_MS + 1, "by ten years": 11 * YEAR_MS, "to the end of time": 2**63 - 1}


@pytest.fixture(params=list(TOO_LONG_MS.values()), ids=list(TOO_LONG_MS))
def delay_ms(request: pytest.FixtureRequest) -> int:
    """A delay of more than a year."""
    return int(request.param)


@pytest.fixture
def at_ms(delay_ms: int, running: RunningServer) -> int:
    """A time that is more than a year ahead."""
    return min(2**63 - 1, running.clock.now_ms() + delay_ms)


def says_the_bound(error: RefusedOnWire, given: str) -> bool:
    """Whether it is the caller's fault, and the text names the value and the bound."""
    assert (error.code, error.detail, error.retryable) == (500, "INVALID_ARGUMENT", False)
    assert given in error.message
    return "a job waits for a year (366 days) at most" in error.message


async def test_an_enqueue_with_a_job_that_is_due_in_more_than_a_year_is_refused_whole(here: Wire, at_ms: int) -> None:
    jobs = [ttypes.PinLaterJob(body=b"a"), ttypes.PinLaterJob(body=b"b", runAfterTimestampMillis=at_ms)]
    error = await refused(here.enqueue_jobs("q", jobs))
    assert says_the_bound(error, f"Job 1: runAfterTimestampMillis {at_ms} ")
    assert await here.count("q") + await here.count("q", countFutureJobs=True) == 0


@pytest.mark.parametrize("method", ["ackJobs", "ackDequeuedJobs"])
async def test_an_ack_with_a_delay_of_more_than_a_year_is_refused_with_all_of_its_call(
    here: Wire, delay_ms: int, method: str
) -> None:
    one, other = await here.enqueue("q", b"a", b"b")
    await here.claim("q")
    request = ack_request("q", one, failed=[other], retryDelayMillis=delay_ms)
    assert says_the_bound(await refused(here.call(method, request=request)), f"{other}: retryDelayMillis {delay_ms} ")
    assert [await here.state(each) for each in (one, other)] == [IN_PROGRESS, IN_PROGRESS]
    assert await here.ack("q", one, retryDelayMillis=delay_ms) == [APPLIED]  # a success has no use for it
    assert await here.ack("q", failed=[other], retryDelayMillis=YEAR_MS) == [APPLIED]


async def test_an_ack_with_such_a_delay_that_rides_on_a_dequeue_refuses_it_before_anything_is_done(
    here: Wire, delay_ms: int
) -> None:
    held, waiting = await here.enqueue("q", b"a", b"b")
    await here.claim("q", 1)
    riding = ack_request("q", failed=[held], retryDelayMillis=delay_ms)
    assert says_the_bound(await refused(here.dequeue("q", jobAckRequest=riding)), str(delay_ms))
    assert (await here.state(held), await here.state(waiting)) == (IN_PROGRESS, PENDING)


async def test_a_checkpoint_a_release_and_a_retry_to_a_time_of_more_than_a_year_ahead_are_refused(
    here: Wire, at_ms: int, delay_ms: int
) -> None:
    [failed] = await failed_jobs(here, b"f")
    [held] = await here.enqueue("q", b"a")
    [(_, token)] = await here.claim("q")
    release = ttypes.ReleaseRequest("q", [ttypes.ClaimRef(held, token)], delayMillis=delay_ms)
    for call, given in (
        (here.checkpoint("q", held, moveToPending=True, runAfterTimestampMillis=at_ms), at_ms),
        (here.call("releaseJobs", request=release), delay_ms),
        (retry(here, runAfterTimestampMillis=at_ms), at_ms),
        (run(here, failed, runAfterTimestampMillis=at_ms), at_ms),
    ):
        assert says_the_bound(await refused(call), str(given))
    assert (await here.state(held), await here.state(failed)) == (IN_PROGRESS, FAILED)


async def test_each_of_these_takes_a_year(here: Wire, running: RunningServer) -> None:
    year_ms = running.clock.now_ms() + YEAR_MS
    [failed] = await failed_jobs(here, b"f")
    names = await here.enqueue("q", b"a", b"b", b"c")
    tokens = dict(await here.claim("q"))
    release = ttypes.ReleaseRequest("q", [ttypes.ClaimRef(names[0], tokens[names[0]])], delayMillis=YEAR_MS)
    assert (await here.call("releaseJobs", request=release))[0].outcome == APPLIED
    await here.checkpoint("q", names[1], moveToPending=True, runAfterTimestampMillis=year_ms)
    await here.ack("q", failed=[names[2]], retryDelayMillis=YEAR_MS)
    assert await retry(here, runAfterTimestampMillis=year_ms) == 1
    names += [failed, *await here.enqueue("q", b"d", runAfterTimestampMillis=year_ms)]
    assert {(await here.job(each)).runAfterTimestampMillis for each in names} == {year_ms}


async def test_a_time_in_microseconds_or_nanoseconds_is_told(here: Wire, running: RunningServer) -> None:
    at_ms = running.clock.now_ms() + 60_000
    for given, hint in (
        (at_ms * 10**3, "is it in microseconds? Divide it by 1,000"),
        (at_ms * 10**6, "is it in nanoseconds? Divide it by 1,000,000"),
    ):
        assert hint in (await refused(here.enqueue("q", b"x", runAfterTimestampMillis=given))).message
    [descriptor] = await here.enqueue("q", b"x")
    await here.claim("q")
    ack = ack_request("q", failed=[descriptor], retryDelayMillis=at_ms)
    assert "is it a time? A delay counts from now" in (await refused(here.call("ackJobs", request=ack))).message


async def test_a_job_that_was_stored_with_a_later_time_waits_for_it_and_can_be_changed(
    here: Wire, running: RunningServer
) -> None:
    """As by a version without the bound."""
    running.clock.advance(ms=20 * YEAR_MS)
    at_ms = running.clock.now_ms() + YEAR_MS
    one, other = await here.enqueue("q", b"a", b"b", runAfterTimestampMillis=at_ms)
    running.clock.advance(ms=-20 * YEAR_MS)
    assert (await here.job(one)).runAfterTimestampMillis == at_ms
    assert await here.bodies("q") == []
    assert await run(here, other) == [APPLIED]
    assert await here.bodies("q") == [b"b"]
    moved = ttypes.ChangePriorityRequest("q", [one], 2)
    [answer] = await here.call("changePriority", request=moved)
    assert (await here.job(answer.movedTo)).runAfterTimestampMillis == at_ms
    running.clock.advance(ms=21 * YEAR_MS)
    assert [each for each, _ in await here.claim("q", 1)] == [answer.movedTo]
    assert await here.ack("q", answer.movedTo) == [APPLIED]
    assert await here.state(answer.movedTo) == SUCCEEDED
