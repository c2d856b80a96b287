"""enqueueJobs, dequeueJobs and ackDequeuedJobs as the original's clients know them; times are turned by hand."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

import pytest

from pinlater.server.operations.job_settings import JobSettings
from tests.promises.running_server import RunningServer
from tests.promises.test_queues import refused
from tests.promises.wire import IN_PROGRESS, Wire, ack_request, ttypes

Start = Callable[..., Awaitable[RunningServer]]


# --- enqueue ------------------------------------------------------------------------------------------------------------
async def test_a_descriptor_has_queue_shard_priority_and_a_local_id(wire: Wire, queue: str) -> None:
    [descriptor] = await wire.enqueue(queue, b"x", priority=2)
    match = re.fullmatch(rf"{queue}:s1:p2:(\d+)", descriptor)
    assert match is not None
    assert 0 <= int(match[1]) < 2**63


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
    error = await refused(wire.enqueue_jobs(queue, jobs))
    assert error.detail == "INVALID_ARGUMENT"
    assert f"must be from 1 to {2**31 - 1}, not {attempts}" in error.message
    assert await wire.count(queue) == 0


# --- dequeue ------------------------------------------------------------------------------------------------------------
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
    assert await wire.enqueue(queue) == []


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


async def test_the_order_of_an_answer_is_that_of_priority_due_time_and_enqueue(
    here: Wire, running: RunningServer
) -> None:
    now = running.clock.now_ms()
    await here.enqueue("q", b"low", priority=3, runAfterTimestampMillis=0)
    await here.enqueue("q", b"second", b"third")
    await here.enqueue("q", b"first", runAfterTimestampMillis=now - 1)
    assert await here.bodies("q") == [b"first", b"second", b"third", b"low"]


@pytest.mark.parametrize("coverage", [-1.0, 0.0, 0.4, 1.0, 7.5, float("inf"), float("-inf")])
async def test_with_one_shard_any_coverage_looks_at_it(wire: Wire, queue: str, coverage: float) -> None:
    await wire.enqueue(queue, b"x")
    assert await wire.bodies(queue, coverage=coverage) == [b"x"]


# --- acks ---------------------------------------------------------------------------------------------------------------
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
