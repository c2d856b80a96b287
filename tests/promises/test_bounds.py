"""Errors and their details, bounds, queue settings, statistics, defaults and the clock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from pinlater.domain.clock import SystemClock
from pinlater.server.config.load import load
from pinlater.server.operations.job_settings import JobSettings
from tests.promises.running_server import RunningServer
from tests.promises.test_queues import refused
from tests.promises.wire import ALREADY_FINAL, APPLIED, NOT_FOUND, SUCCEEDED, Wire, ack_request, ttypes

Start = Callable[..., Awaitable[RunningServer]]


# --- errors and bounds --------------------------------------------------------------------------------------------------
async def test_every_refusal_says_a_detail_and_whether_to_try_again(wire: Wire, queue: str) -> None:
    for call, code, detail in (
        (wire.enqueue("missing", b"x"), 413, "QUEUE_NOT_FOUND"),
        (wire.enqueue(queue, b"x", priority=9), 416, "PRIORITY_NOT_SUPPORTED"),
        (wire.enqueue(queue, b"x" * (2**20 + 1)), 500, "BODY_TOO_LARGE"),
        (wire.dequeue(queue, -1), 500, "INVALID_ARGUMENT"),
        (wire.create(""), 410, "QUEUE_NAME_INVALID"),
    ):
        error = await refused(call)
        assert (error.code, error.detail, error.retryable) == (code, detail, False)


async def test_a_full_queue_is_enqueue_rejected_whole_with_its_detail(here: Wire, running: RunningServer) -> None:
    await here.configure("q", maxBacklog=3)
    await here.enqueue("q", b"a", b"b")
    error = await refused(here.enqueue("q", b"c", b"d"))
    assert (error.code, error.detail, error.retryable) == (430, "QUEUE_FULL", True)
    assert "add workers, or raise max_backlog" in error.message
    assert running.core.metrics.queue("q").enqueue_rejected == 2
    assert await here.count("q") == 2
    await here.enqueue("q", b"c")


async def test_ten_thousand_jobs_fifty_thousand_descriptors_and_a_mebibyte_pass_and_one_more_does_not(
    here: Wire,
) -> None:
    names = await here.enqueue("q", *[b"x"] * 10_000)
    assert len(set(names)) == 10_000
    assert (await refused(here.enqueue("q", *[b"x"] * 10_001))).detail == "TOO_MANY"
    await here.enqueue("q", b"x" * 2**20)
    assert len(await here.lookup(*names * 5)) == 10_000
    too_many = [names[0]] * 50_001
    for call in (here.lookup(*too_many), here.call("ackJobs", request=ack_request("q", *too_many))):
        assert (await refused(call)).detail == "TOO_MANY"
    await here.claim("q", 1)
    error = await refused(here.checkpoint("q", names[0], newBody=b"x" * (2**20 + 1)))
    assert error.detail == "BODY_TOO_LARGE"


async def test_a_request_about_very_many_jobs_takes_effect_for_each(here: Wire) -> None:
    """A store is asked for 500 at a time; positions of answers, and the first of two acks of one job, are as in a small request."""
    names = await here.enqueue("q", *[b"%d" % number for number in range(2_500)])
    claimed = [pair for _ in range(3) for pair in await here.claim("q", 1_000)]
    assert sorted(name for name, _ in claimed) == sorted(names)
    others = [f"q:s1:p1:{number}" for number in range(1_500)]
    named = [*others, *names, *names]
    request = ttypes.ClaimsRequest("q", [ttypes.ClaimRef(*pair) for pair in claimed])
    assert {each.outcome for each in await here.call("heartbeatClaims", request=request)} == {APPLIED}
    assert await here.ack("q", *named) == [NOT_FOUND] * 1_500 + [APPLIED] * 2_500 + [ALREADY_FINAL] * 2_500
    assert await here.count("q", SUCCEEDED) == 2_500
    assert {job.outcome for job in await here.call("cancelJobs", queueName="q", jobDescriptors=names)} == {
        ALREADY_FINAL
    }
    assert await here.call("deleteJobsByDescriptor", queueName="q", jobDescriptors=named) == 2_500
    assert await here.lookup(*named) == {}


async def test_too_large_a_limit_is_cut_and_not_refused(here: Wire) -> None:
    for _ in range(2):
        await here.enqueue("q", *[b"x"] * 600)
    assert len((await here.scan("q", limit=2**31 - 1)).scannedJobs) == 1_200
    assert len((await here.dequeue("q", 2**31 - 1, dryRun=True)).jobs) == 1_000
    assert len(await here.claim("q", 2**31 - 1)) == 1_000
    request = ttypes.PinLaterDeleteJobsRequest("q", 1, limit=2**31 - 1)
    assert await here.call("deleteJobs", request=request) == 1_000


async def test_an_answer_stops_at_the_frame_and_the_rest_comes_next(here: Wire) -> None:
    for _ in range(4):
        await here.enqueue("q", *[b"x" * 2**20] * 6)
    scanned = await here.scan("q", limit=24, includeBody=True)
    assert 0 < len(scanned.scannedJobs) < 24
    assert scanned.incomplete
    shown = await here.dequeue("q", 24, dryRun=True)
    assert 0 < len(shown.jobs) < 24
    sizes = []
    while claimed := await here.claim("q", 24):
        sizes.append(len(claimed))
    assert sum(sizes) == 24
    assert max(sizes) < 24
    assert (await here.dequeue("q", 24)).jobs in ({}, None)


@pytest.mark.parametrize(
    "more",
    [
        {"headers": {"k": "v" * 16_384}},
        {"uniqueKey": "k" * 257},
        {"uniqueKey": "k", "uniqueScope": 3},
        {"uniqueKey": "k", "uniqueScope": 2},
        {"claimTimeoutMillis": 0},
        {"claimTimeoutMillis": 2**63 - 1},
    ],
)
async def test_additions_over_their_bounds_refuse_the_whole_enqueue(here: Wire, more: dict[str, object]) -> None:
    jobs = [ttypes.PinLaterJob(body=b"good"), ttypes.PinLaterJob(body=b"bad", **more)]
    assert (await refused(here.enqueue_jobs("q", jobs))).detail == "INVALID_ARGUMENT"
    assert await here.count("q") == 0


async def test_a_regex_stops_at_its_time_budget_with_an_error_that_says_so(start: Start) -> None:
    running = await start(jobs=JobSettings(regex_time_budget_ms=0))
    wire = await running.connect()
    await wire.create("q")
    await wire.enqueue("q", b"x", b"y")
    for call in (wire.count("q", bodyRegexToMatch="z"), wire.scan("q", bodyRegexToMatch="z")):
        error = await refused(call)
        assert error.detail == "REGEX_TOO_COSTLY"
        assert "budget" in error.message or "0 ms" in error.message
    page = await wire.scan("q", bodyRegexToMatch="z", paged=True)
    assert page.incomplete
    assert page.continuation != "-1"


# --- settings, statistics -----------------------------------------------------------------------------------------------
async def test_configure_queue_covers_all_settings_and_replaces_them_whole(wire: Wire, queue: str) -> None:
    everything = {
        "maxJobsPerSecond": 0.1,
        "claimTimeoutMillis": 1,
        "succeededTtlMillis": 2,
        "failedTtlMillis": 3,
        "maxBacklog": 4,
        "defaultAttempts": 5,
        "defaultExpiryMillis": 6,
        "burst": 7,
        "maxInHandPerKey": 8,
        "retryPlace": "to_back",
        "afterFailure": "stop",
    }
    await wire.configure(queue, **everything)
    config = await wire.call("getQueueConfig", queueName=queue)
    assert {name: getattr(config, name) for name in everything} == everything
    assert config.paused is False
    await wire.configure(queue, defaultAttempts=9)
    config = await wire.call("getQueueConfig", queueName=queue)
    assert (config.defaultAttempts, config.maxJobsPerSecond, config.maxBacklog) == (9, None, None)


async def test_the_queues_default_attempts_and_expiry_hold_where_a_job_says_nothing(
    here: Wire, running: RunningServer
) -> None:
    await here.configure("q", defaultAttempts=7, defaultExpiryMillis=50)
    [descriptor] = await here.enqueue("q", b"x", numAttemptsAllowed=None)
    [said] = await here.enqueue("q", b"y", numAttemptsAllowed=2)
    assert ((await here.job(descriptor)).attemptsAllowed, (await here.job(said)).attemptsAllowed) == (7, 2)
    running.clock.advance(ms=51)
    assert await here.bodies("q") == []


async def test_statistics_count_by_state_and_priority_and_tell_the_oldest_waiting_age(
    here: Wire, running: RunningServer
) -> None:
    await here.enqueue("q", b"a", b"b", priority=2)
    running.clock.advance(ms=40)
    await here.enqueue("q", b"f", priority=2, runAfterTimestampMillis=running.clock.now_ms() + 1_000)
    [stats] = await here.call("getQueueStats", queueNames=["q"])
    [counts] = [each for each in stats.counts if each.pending]
    assert (counts.priority, counts.pending, counts.future, counts.enqueuedTotal) == (2, 3, 1, 3)
    assert (stats.oldestWaitingMillis, stats.paused, stats.waitingDequeues) == (40, False, 0)
    assert [each.queueName for each in await here.call("getQueueStats", queueNames=[])] == ["q"]


async def test_server_info_tells_the_bounds_and_features(wire: Wire) -> None:
    info = await wire.call("getServerInfo")
    assert (info.priorityLevels, info.maxBodyBytes, info.maxFrameBytes) == (3, 2**20, 2**24)
    assert (info.maxJobsPerRequest, info.maxDescriptorsPerRequest, info.maxWaitMillis) == (10_000, 50_000, 60_000)
    assert {"long-poll", "claim-tokens", "unique-keys", "request-keys"} <= set(info.features)


# --- defaults -----------------------------------------------------------------------------------------------------------
def test_where_nothing_is_said_the_contracts_defaults_hold() -> None:
    settings = load(None, {}, {}).settings
    jobs, hour_ms = settings.jobs, 3_600_000
    assert (settings.thrift.port, settings.http.port, jobs.priority_levels) == (9010, 9999, 3)
    assert (jobs.claim_timeout_ms, jobs.failed_ttl_ms, jobs.succeeded_ttl_ms) == (600_000, 168 * hour_ms, 24 * hour_ms)
    assert (jobs.max_jobs_per_request, jobs.max_descriptors_per_request) == (10_000, 50_000)
    assert (settings.thrift.max_frame_bytes, jobs.max_wait_ms, jobs.regex_rows_max) == (16 * 2**20, 60_000, 100_000)
    every = settings.maintenance
    assert (every.file_interval_ms, every.refresh_interval_ms) == (10_000, 5_000)


# --- the clock ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("jump_s", [3_600, -3_600, 10**9, -(10**9)])
def test_a_jump_of_the_wall_clock_moves_no_time_of_ours(jump_s: int) -> None:
    wall, monotonic = [1_800_000_000.0], [50.0]
    clock = SystemClock(lambda: wall[0], lambda: monotonic[0])
    before = clock.now_ms()
    wall[0] += jump_s
    assert clock.now_ms() == before
    assert clock.drift_ms() == jump_s * 1_000
    monotonic[0] += 1
    assert clock.now_ms() == before + 1_000
