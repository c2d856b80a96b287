"""lookupJobs, getJobCount, scanJobs, retryFailedJobs and deleteJobs: what they show, how much, and in which order."""

from __future__ import annotations

import pytest

from tests.promises.running_server import RunningServer
from tests.promises.test_queues import refused
from tests.promises.wire import FAILED, IN_PROGRESS, PENDING, SUCCEEDED, Wire, ttypes


async def failed_jobs(wire: Wire, *bodies: bytes, **more: object) -> list[str]:
    """Jobs that have failed for good."""
    descriptors = await wire.enqueue("q", *bodies, numAttemptsAllowed=1, **more)
    await wire.claim("q", len(bodies))
    await wire.ack("q", failed=descriptors)
    return descriptors


async def retry(wire: Wire, **more: object) -> int:
    return int(await wire.call("retryFailedJobs", request=ttypes.PinLaterRetryFailedJobsRequest("q", **more)))


async def delete(wire: Wire, state: int, **more: object) -> int:
    return int(await wire.call("deleteJobs", request=ttypes.PinLaterDeleteJobsRequest("q", state, **more)))


# --- lookup -------------------------------------------------------------------------------------------------------------
async def test_a_lookup_leaves_out_what_is_not_there_and_shows_bodies_only_when_asked(here: Wire) -> None:
    [descriptor] = await here.enqueue("q", b"x")
    missing = descriptor.replace(":p1:", ":p2:")
    assert set(await here.lookup(descriptor, missing, "other:s9:p1:1")) == {descriptor}
    assert (await here.lookup(descriptor))[descriptor].body is None
    assert (await here.lookup(descriptor, body=True))[descriptor].body == b"x"
    assert await here.lookup() == {}


# --- counts -------------------------------------------------------------------------------------------------------------
async def test_future_jobs_count_only_with_the_flag_and_only_they_then(here: Wire, running: RunningServer) -> None:
    now = running.clock.now_ms()
    await here.enqueue("q", b"due", b"due")
    await here.enqueue("q", b"later", runAfterTimestampMillis=now + 1, priority=2)
    assert (await here.count("q"), await here.count("q", countFutureJobs=True)) == (2, 1)
    assert await here.count("q", bodyRegexToMatch="later") == 0
    assert await here.count("q", bodyRegexToMatch="later", countFutureJobs=True) == 1
    running.clock.advance(ms=1)
    assert (await here.count("q"), await here.count("q", countFutureJobs=True)) == (3, 0)


@pytest.mark.parametrize("state", [IN_PROGRESS, SUCCEEDED, FAILED])
async def test_with_the_future_flag_other_states_than_pending_count_and_list_nothing(
    here: Wire, running: RunningServer, state: int
) -> None:
    """As the original answers. A checkpoint may give a job in hand a run-after that is still ahead; that counts for nothing."""
    [descriptor] = await here.enqueue("q", b"x")
    await here.claim("q")
    await here.checkpoint("q", descriptor, runAfterTimestampMillis=running.clock.now_ms() + 10_000)
    if state == SUCCEEDED:
        await here.ack("q", descriptor)
    elif state == FAILED:
        await here.ack("q", failed=[descriptor], finalFailure=True)
    for regex in (None, "x"):
        for future, found in ((False, 1), (True, 0)):
            assert await here.count("q", state, countFutureJobs=future, bodyRegexToMatch=regex) == found
            for paged in (None, True):
                scan = await here.scan("q", state, scanFutureJobs=future, bodyRegexToMatch=regex, paged=paged)
                assert (len(scan.scannedJobs), scan.continuation) == (found, "-1")


async def test_with_the_future_flag_a_bad_request_is_refused_in_every_state(here: Wire) -> None:
    for state in (IN_PROGRESS, SUCCEEDED, FAILED):
        assert (await refused(here.count("nowhere", state, countFutureJobs=True))).code == 413
        for answer in (
            await refused(here.count("q", state, countFutureJobs=True, bodyRegexToMatch="(")),
            await refused(here.scan("q", state, scanFutureJobs=True, bodyRegexToMatch="(")),
        ):
            assert answer.detail == "REGEX_INVALID"


@pytest.mark.parametrize("priority", [-128, 0, 4, 127])
async def test_a_bad_priority_is_said_so_wherever_one_is_named(here: Wire, priority: int) -> None:
    calls = (
        here.count("q", priority=priority),
        here.scan("q", priority=priority),
        retry(here, priority=priority),
        delete(here, PENDING, priority=priority),
    )
    for call in calls:
        assert (await refused(call)).code == 416


# --- scans --------------------------------------------------------------------------------------------------------------
async def test_a_scan_shows_no_bodies_unless_asked_and_at_most_its_limit(here: Wire) -> None:
    await here.enqueue("q", *[b"x"] * 150)
    scanned = await here.scan("q")
    assert (len(scanned.scannedJobs), scanned.continuation) == (100, "-1")
    assert scanned.scannedJobs[0].body is None
    shown = (await here.scan("q", limit=2, includeBody=True)).scannedJobs
    assert [job.body for job in shown] == [b"x", b"x"]
    assert (await here.scan("q", limit=0)).scannedJobs == []


@pytest.mark.parametrize("continuation", ["", "1", "-1", "00", " 0", "1.1", "\0", "x" * 2**20])
async def test_a_continuation_other_than_the_start_is_invalid(here: Wire, continuation: str) -> None:
    assert (await refused(here.scan("q", continuation=continuation))).code == 400


async def test_a_scan_of_one_shard_is_refused_for_a_name_that_is_no_shards(here: Wire) -> None:
    """Named with or without the `s` of descriptors; an empty name stands for none."""
    made = await here.enqueue("q", b"x")
    for name in ("1", "s1", "", None):
        assert [job.jobDescriptor for job in (await here.scan("q", shard=name)).scannedJobs] == made
    for name in ("2", "s", "S1", "ss1", "\0", "1" * 100_000):
        error = await refused(here.scan("q", shard=name))
        assert (error.code, error.detail) == (500, "SHARD_NOT_FOUND")


# --- regexes ------------------------------------------------------------------------------------------------------------
async def test_a_regex_searches_case_sensitively_in_utf8_and_passes_over_what_is_none(here: Wire) -> None:
    await here.enqueue("q", "Käse".encode(), b"kaese", b"\xff\xfeK", b"")
    for pattern, found in (("K", 2), ("k", 1), ("K.se", 1), ("^s", 0), ("", 4), ("(?i)k", 3), ("^$", 1), ("ä", 1)):
        assert await here.count("q", bodyRegexToMatch=pattern) == found, pattern
        assert len((await here.scan("q", bodyRegexToMatch=pattern)).scannedJobs) == found, pattern


async def test_quotes_in_a_regex_are_only_quotes(here: Wire) -> None:
    """The original pasted them into SQL."""
    await here.enqueue("q", b"it's", b"x")
    assert await here.count("q", bodyRegexToMatch="'") == 1
    assert await here.count("q", bodyRegexToMatch="' OR 1=1 --") == 0
    assert await delete(here, PENDING, bodyRegexToMatch="'") == 1


# --- retry and delete ---------------------------------------------------------------------------------------------------
async def test_a_retry_gives_the_attempts_and_the_time_that_it_says_or_one_attempt_now(
    here: Wire, running: RunningServer
) -> None:
    [one] = await failed_jobs(here, b"a")
    [two] = await failed_jobs(here, b"b", priority=2)
    assert await retry(here) == 1
    assert (await here.job(one)).attemptsRemaining == 1
    assert await here.state(two) == FAILED
    when = running.clock.now_ms() + 5
    assert await retry(here, priority=2, runAfterTimestampMillis=when, attemptsToAllow=5) == 1
    info = await here.job(two)
    assert (info.runAfterTimestampMillis, info.attemptsRemaining) == (when, 5)


async def test_a_limit_of_nothing_does_nothing_with_and_without_a_regex(here: Wire) -> None:
    await failed_jobs(here, b"a")
    assert await retry(here, limit=0) == 0
    assert await delete(here, FAILED, limit=0) == 0
    assert await delete(here, FAILED, limit=0, bodyRegexToMatch=".") == 0
    assert await here.count("q", FAILED) == 1


@pytest.mark.parametrize("limit", [-1, -(2**31)])
async def test_a_negative_limit_is_refused_everywhere(here: Wire, limit: int) -> None:
    await failed_jobs(here, b"a")
    for call in (
        retry(here, limit=limit),
        delete(here, FAILED, limit=limit),
        delete(here, FAILED, limit=limit, bodyRegexToMatch="."),
        here.scan("q", FAILED, limit=limit),
        here.dequeue("q", limit),
        here.dequeue("q", limit, dryRun=True),
    ):
        assert (await refused(call)).detail == "INVALID_ARGUMENT"
    assert await here.count("q", FAILED) == 1


async def test_attempts_to_allow_below_one_are_refused(here: Wire) -> None:
    await failed_jobs(here, b"a")
    for attempts in (0, -1):
        assert (await refused(retry(here, attemptsToAllow=attempts))).detail == "INVALID_ARGUMENT"


async def test_delete_takes_up_to_limit_of_one_state_and_priority_that_match(here: Wire) -> None:
    await here.enqueue("q", b"keep", *[b"go"] * 5)
    await here.enqueue("q", b"go", priority=2)
    assert await delete(here, PENDING, limit=3, bodyRegexToMatch="^go$") == 3
    assert await delete(here, PENDING, bodyRegexToMatch="^go$") == 2
    assert (await here.count("q", priority=1), await here.count("q", priority=2)) == (1, 1)
    assert await delete(here, PENDING) == 1
    assert await delete(here, PENDING, priority=2) == 1


async def test_delete_by_regex_takes_waiting_jobs_due_or_not(here: Wire, running: RunningServer) -> None:
    await here.enqueue("q", b"due", b"kept")
    await here.enqueue("q", b"future", runAfterTimestampMillis=running.clock.now_ms() + 10_000)
    assert await delete(here, PENDING, bodyRegexToMatch="^(due|future)$") == 2
    assert (await here.count("q"), await here.count("q", countFutureJobs=True)) == (1, 0)
