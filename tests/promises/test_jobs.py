"""enqueueJobs, dequeueJobs and ackDequeuedJobs as the original's clients know them; times are turned by hand."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path

import pytest

from pinlater.domain.durations import YEAR_MS
from pinlater.server.operations.job_settings import JobSettings
from tests.promises.running_server import RunningServer, start_server
from tests.promises.test_queues import refused
from tests.promises.wire import FAILED, IN_PROGRESS, PENDING, SUCCEEDED, Wire, ack_request, ttypes

Start = Callable[..., Awaitable[RunningServer]]


# --- enqueue ------------------------------------------------------------------------------------------------------------
async def test_a_descriptor_has_queue_shard_priority_and_a_local_id(wire: Wire, queue: str) -> None:
    [descriptor] = await wire.enqueue(queue, b"x", priority=2)
    match = re.fullmatch(rf"{queue}:s1:p2:(\d+)", descriptor)
    assert match is not None
    assert 0 <= int(match[1]) < 2**63


async def test_ids_ascend_and_tell_their_time(here: Wire, running: RunningServer) -> None:
    """Milliseconds since 2025 in 41 bits, the server's slot in 10, a counter in 12."""
    descriptors = await here.enqueue("q", *[b"x"] * 300)
    ids = [int(descriptor.rsplit(":", 1)[1]) for descriptor in descriptors]
    assert all(one < two for one, two in pairwise(ids))
    assert ids[0] >> 22 == running.clock.now_ms() - 1_735_689_600_000


async def test_ids_go_on_above_the_highest_in_the_store_though_the_clock_was_put_back(store: Path) -> None:
    """A server that starts an hour earlier than the last one ended makes no id twice, and keeps the order."""
    made: list[str] = []
    for hours in (1, 0):
        running = await start_server(file=store)
        try:
            running.clock.advance(hours=hours)
            wire = await running.connect()
            await wire.create("q")
            made += await wire.enqueue("q", b"a", b"b")
        finally:
            await running.close()
    ids = [int(descriptor.rsplit(":", 1)[1]) for descriptor in made]
    assert ids == sorted(set(ids))


async def test_descriptors_come_back_in_the_order_of_the_jobs(wire: Wire, queue: str) -> None:
    jobs = [ttypes.PinLaterJob(body=str(n).encode(), priority=n % 3 + 1) for n in range(100)]
    descriptors = (await wire.enqueue_jobs(queue, jobs)).jobDescriptors
    found = await wire.lookup(*descriptors, body=True)
    assert [found[each].body for each in descriptors] == [job.body for job in jobs]


@pytest.mark.parametrize("priority", [-128, -1, 0, 4, 127])
async def test_a_bad_priority_refuses_the_whole_enqueue(wire: Wire, queue: str, priority: int) -> None:
    jobs = [ttypes.PinLaterJob(body=b"good"), ttypes.PinLaterJob(body=b"bad", priority=priority)]
    assert (await refused(wire.enqueue_jobs(queue, jobs))).code == 416
    assert await wire.count(queue) == 0


async def test_priorities_run_to_the_configured_number_of_levels(start: Start) -> None:
    wire = await (await start(jobs=JobSettings(priority_levels=5))).connect()
    await wire.create("q")
    await wire.enqueue("q", b"lowest", priority=5)
    await wire.enqueue("q", b"higher", priority=4)
    assert (await refused(wire.enqueue("q", b"x", priority=6))).code == 416
    assert await wire.bodies("q") == [b"higher", b"lowest"]


@pytest.mark.parametrize("attempts", [0, -1, -(2**31)])
async def test_attempts_below_one_refuse_the_whole_enqueue(wire: Wire, queue: str, attempts: int) -> None:
    jobs = [ttypes.PinLaterJob(body=b"good"), ttypes.PinLaterJob(body=b"bad", numAttemptsAllowed=attempts)]
    assert (await refused(wire.enqueue_jobs(queue, jobs))).detail == "INVALID_ARGUMENT"
    assert await wire.count(queue) == 0


async def test_a_custom_status_is_cut_at_five_thousand_characters_everywhere(here: Wire) -> None:
    """At enqueue, at an append, at a prepend; in characters, not in bytes."""
    [descriptor] = await here.enqueue("q", b"x", customStatus="é" * 5_001, numAttemptsAllowed=9)
    assert (await here.job(descriptor)).customStatus == "é" * 5_000
    await here.claim("q")
    await here.ack("q", failed=[descriptor], appendCustomStatus="y")
    assert (await here.job(descriptor)).customStatus == "é" * 5_000
    await here.claim("q")
    await here.checkpoint("q", descriptor, prependCustomStatus="z" * 10)
    assert (await here.job(descriptor)).customStatus == "z" * 10 + "é" * 4_990


# --- dequeue ------------------------------------------------------------------------------------------------------------
async def test_higher_priorities_come_first_then_run_after_then_the_order_of_enqueue(
    here: Wire, running: RunningServer
) -> None:
    now = running.clock.now_ms()
    jobs = [
        ttypes.PinLaterJob(body=b"low", priority=3, runAfterTimestampMillis=0),
        ttypes.PinLaterJob(body=b"high 2", priority=1),
        ttypes.PinLaterJob(body=b"high 3", priority=1),
        ttypes.PinLaterJob(body=b"middle", priority=2, runAfterTimestampMillis=now - 9),
        ttypes.PinLaterJob(body=b"high 1", priority=1, runAfterTimestampMillis=now - 1),
        ttypes.PinLaterJob(body=b"later", priority=1, runAfterTimestampMillis=now + 1),
    ]
    await here.enqueue_jobs("q", jobs)
    assert await here.bodies("q") == [b"high 1", b"high 2", b"high 3", b"middle", b"low"]
    running.clock.advance(ms=1)
    assert await here.bodies("q") == [b"later"]


async def test_run_after_is_kept_to_the_millisecond_and_far_beyond_2038(here: Wire, running: RunningServer) -> None:
    when = 2_840_140_800_123
    running.clock.advance(ms=when - YEAR_MS - running.clock.now_ms())
    [descriptor] = await here.enqueue("q", b"x", runAfterTimestampMillis=when)
    assert (await here.job(descriptor)).runAfterTimestampMillis == when
    running.clock.advance(ms=when - running.clock.now_ms() - 1)
    assert await here.bodies("q") == []
    running.clock.advance(ms=1)
    assert await here.bodies("q") == [b"x"]


async def test_a_claim_descriptor_is_host_port_start_source_counter_and_shared_by_the_call(
    here: Wire, running: RunningServer
) -> None:
    started = running.clock.now_ms()
    first = await here.enqueue("q", b"a", b"b")
    second = await here.enqueue("q", b"c")
    await here.claim("q", 2, source="wo:rker")
    await here.claim("q", 2)
    claims = [(await here.job(each)).claimDescriptor for each in first + second]
    assert claims == [f"host:{running.server.port}:{started}:wo:rker:1"] * 2 + [
        f"host:{running.server.port}:{started}:tests:2"
    ]
    assert (await here.job(first[0])).jobState == IN_PROGRESS


async def test_a_dry_run_shows_jobs_and_changes_nothing(here: Wire) -> None:
    await here.enqueue("q", b"a", b"b", b"c")
    for _ in range(2):
        shown = await here.dequeue("q", 2, dryRun=True)
        assert [shown.jobs[each] for each in shown.jobOrder] == [b"a", b"b"]
        assert all(each.claimToken is None for each in shown.jobMetadata.values())
    assert (await here.count("q"), await here.count("q", IN_PROGRESS)) == (3, 0)


async def test_nothing_found_is_no_error_and_empty(wire: Wire, queue: str) -> None:
    for more in ({}, {"dryRun": True}, {"limit": 0}):
        answer = await wire.dequeue(queue, **more)
        assert not answer.jobs
        assert not answer.jobMetadata


async def test_the_metadata_says_what_is_allowed_and_what_remains(here: Wire, running: RunningServer) -> None:
    [descriptor] = await here.enqueue("q", b"x", numAttemptsAllowed=3, headers={"k": "v"})
    created = running.clock.now_ms()
    await here.claim("q")
    await here.ack("q", failed=[descriptor])
    running.clock.advance(ms=5)
    metadata = (await here.dequeue("q")).jobMetadata[descriptor]
    assert (metadata.attemptsAllowed, metadata.attemptsRemaining, metadata.attempt) == (3, 2, 2)
    assert metadata.claimDeadlineMillis == running.clock.now_ms() + 600_000
    assert metadata.createdAtTimestampMillis == created
    assert metadata.headers == {"k": "v"}
    assert 0 < len(metadata.claimToken.encode()) <= 64


@pytest.mark.parametrize("coverage", [-1.0, 0.0, 0.4, 1.0, 7.5, float("inf"), float("-inf")])
async def test_with_one_shard_any_coverage_looks_at_it(wire: Wire, queue: str, coverage: float) -> None:
    await wire.enqueue(queue, b"x")
    assert await wire.bodies(queue, coverage=coverage) == [b"x"]


# --- acks ---------------------------------------------------------------------------------------------------------------
async def test_a_success_makes_it_succeeded_and_appends_the_status(here: Wire) -> None:
    [descriptor] = await here.enqueue("q", b"x", customStatus="a")
    await here.claim("q")
    await here.call("ackDequeuedJobs", request=ack_request("q", descriptor, appendCustomStatus="b"))
    info = await here.job(descriptor)
    assert (info.jobState, info.customStatus) == (SUCCEEDED, "ab")


async def test_a_failure_with_attempts_left_is_pending_one_fewer_due_after_its_delay(
    here: Wire, running: RunningServer
) -> None:
    [descriptor] = await here.enqueue("q", b"x")
    await here.claim("q")
    await here.ack("q", failed=[descriptor], retryDelayMillis=1_500, appendCustomStatus="oops")
    info = await here.job(descriptor)
    assert (info.jobState, info.attemptsRemaining, info.attemptsAllowed) == (PENDING, 1, 2)
    assert info.runAfterTimestampMillis == running.clock.now_ms() + 1_500
    assert info.claimDescriptor is None
    assert info.customStatus == "oops"


async def test_a_failure_with_none_left_is_failed_with_nothing_remaining(here: Wire) -> None:
    [descriptor] = await here.enqueue("q", b"x", numAttemptsAllowed=1)
    await here.claim("q", source="last")
    await here.ack("q", failed=[descriptor])
    info = await here.job(descriptor)
    assert (info.jobState, info.attemptsRemaining) == (FAILED, 0)
    assert ":last:" in info.claimDescriptor  # kept for operators


async def test_an_ack_never_changes_a_job_that_no_worker_holds(here: Wire) -> None:
    """Waiting, succeeded, failed: a late or early ack of either kind is without effect, and no error."""
    waiting, done, failed = await here.enqueue("q", b"w", b"d", b"f", numAttemptsAllowed=1)
    await here.claim("q", 3)
    await here.ack("q", done, failed=[failed])
    released = await here.claim("q")
    assert released == []
    tokens = await here.dequeue("q", dryRun=True)
    assert not tokens.jobs
    before = {}
    await here.ack("q", waiting)  # now all three are finished
    [pending] = await here.enqueue("q", b"p")
    for descriptor in (done, failed, waiting, pending):
        before[descriptor] = await here.job(descriptor)
    for kind in ("ok", "no"):
        names = list(before)
        request = ack_request("q", *names) if kind == "ok" else ack_request("q", failed=names)
        await here.call("ackDequeuedJobs", request=request)
    for descriptor, info in before.items():
        assert await here.job(descriptor) == info


async def test_an_ack_never_reaches_outside_its_requests_queue(here: Wire) -> None:
    await here.create("other")
    [descriptor] = await here.enqueue("q", b"x")
    await here.claim("q")
    assert await here.ack("other", descriptor) == [3]
    assert await here.state(descriptor) == IN_PROGRESS


async def test_all_four_parts_of_a_descriptor_must_match(here: Wire) -> None:
    [descriptor] = await here.enqueue("q", b"x")
    await here.claim("q")
    local = descriptor.rsplit(":", 1)[1]
    for wrong in (
        f"q:s2:p1:{local}",
        f"q:s1:p2:{local}",
        f"q:s1:p1:{int(local) + 1}",
        f"Q:s1:p1:{local}",
        f"q:s1d1:p1:{local}",
    ):
        assert await here.ack("q", wrong) == [3]
        assert await here.lookup(wrong) == {}
    assert await here.state(descriptor) == IN_PROGRESS


MALFORMED = (
    "",
    "q",
    "q:s1:p1",
    "q:s1:p1:x",
    "q:s1:p1:-1",
    "q:1:p1:1",
    f"q:s1:p1:{2**63}",
    "q:s1:p1:1:1",
    "q:s1:p1:1 ",
    "q:s1:p1:١",
    "\0",
)


@pytest.mark.parametrize("text", MALFORMED)
async def test_a_descriptor_that_cannot_be_parsed_refuses_its_whole_request(here: Wire, text: str) -> None:
    [descriptor] = await here.enqueue("q", b"x")
    [(_, token)] = await here.claim("q")
    claims = [ttypes.ClaimRef(descriptor, token), ttypes.ClaimRef(text, token)]
    checkpoints = [ttypes.PinLaterCheckpointJobRequest(each, b"new") for each in (descriptor, text)]
    calls = [
        here.call("ackDequeuedJobs", request=ack_request("q", descriptor, text)),
        here.call("ackJobs", request=ack_request("q", descriptor, failed=[text])),
        here.call("checkpointJobs", request=ttypes.PinLaterCheckpointJobsRequest("q", checkpoints)),
        here.call("releaseJobs", request=ttypes.ReleaseRequest("q", claims)),
        here.call("heartbeatClaims", request=ttypes.ClaimsRequest("q", claims)),
        here.call("cancelJobs", queueName="q", jobDescriptors=[descriptor, text]),
        here.call("deleteJobsByDescriptor", queueName="q", jobDescriptors=[descriptor, text]),
        here.lookup(descriptor, text),
        here.dequeue("q", jobAckRequest=ack_request("q", descriptor, text)),
    ]
    for call in calls:
        error = await refused(call)
        assert (error.code, error.detail) == (500, "DESCRIPTOR_INVALID")
    info = await here.job(descriptor)
    assert (info.jobState, info.body) == (IN_PROGRESS, b"x")
