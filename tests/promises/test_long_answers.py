"""An answer is no longer than what clients of Apache Thrift take by default: it stops there, or its caller is told to ask for less."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pinlater.domain.queue import QUEUE_NAME_CHARS_MAX
from pinlater.server.operations.job_settings import JobSettings
from pinlater.server.thrift.settings import ThriftSettings
from pinlater.wire.limits import ANSWER_BYTES_MAX
from tests.promises.running_server import RunningServer
from tests.promises.test_queues import refused
from tests.promises.wire import IN_PROGRESS, PENDING, PinLater, Wire, ack_request, ttypes

Start = Callable[..., Awaitable[RunningServer]]
LIBRARIES_TAKE = 16_384_000
BYTES_MAX = 200_000  # of an answer, in most of these tests
STATUS = "é" * 3_000
LONG_QUEUE = "q" * QUEUE_NAME_CHARS_MAX


async def small_answers(start: Start, shards: int = 1, **jobs: Any) -> Wire:
    """A connection to a server whose answers have up to `BYTES_MAX` bytes, with the queues `q` and `LONG_QUEUE`."""
    running = await start(
        shards,
        thrift=ThriftSettings(port=0, max_answer_bytes=BYTES_MAX),
        jobs=JobSettings(max_answer_bytes=BYTES_MAX, **jobs),
    )
    wire = await running.connect()
    await wire.create("q")
    await wire.create(LONG_QUEUE)
    return wire


async def measured(wire: Wire, method: str, request: Any) -> tuple[Any, int]:
    """The answer, and the bytes of its frame."""
    wire.send(method, request=request)
    message = await wire.receive()
    result = getattr(PinLater, f"{method}_result")()
    result.read(message.protocol)
    assert result.e is None, result.e
    return result.success, len(message.frame)


async def drained(wire: Wire, queue: str, jobs: int, **more: Any) -> list[int]:
    """How many jobs each dequeue hands out, until there is none; each within the bound."""
    numbers: list[int] = []
    while sum(numbers) < jobs:
        request = ttypes.PinLaterDequeueRequest(queue, jobs, waitMillis=10_000, **more)
        answer, size = await measured(wire, "dequeueJobs", request)
        assert size <= BYTES_MAX
        assert len(answer.jobs) == len(answer.jobMetadata) == len(answer.jobOrder)
        assert {each.attempt for each in answer.jobMetadata.values()} == {1}
        numbers.append(len(answer.jobs))
    return numbers


async def test_by_default_a_dequeue_stops_where_libraries_of_thrift_would_refuse_its_answer(here: Wire) -> None:
    assert ANSWER_BYTES_MAX < LIBRARIES_TAKE
    jobs = [ttypes.PinLaterJob(body=b"x" * 16_000, headers={"h": "y" * 16_000}) for _ in range(100)]
    for _ in range(6):
        await here.enqueue_jobs("q", jobs)
    numbers = []
    for _ in range(2):
        answer, size = await measured(here, "dequeueJobs", ttypes.PinLaterDequeueRequest("q", 600))
        assert size <= LIBRARIES_TAKE
        numbers.append(len(answer.jobs))
    assert sum(numbers) == 600
    assert numbers[0] > 450  # nearly all that fits


async def test_many_tiny_jobs_with_long_names_are_handed_out_in_several_answers(start: Start) -> None:
    wire = await small_answers(start, max_dequeue_limit=100_000)
    await wire.enqueue(LONG_QUEUE, *[b"x"] * 1_000)
    assert len(await drained(wire, LONG_QUEUE, 1_000)) > 1


async def test_headers_however_short_count_with_all_that_surrounds_them(start: Start) -> None:
    wire = await small_answers(start)
    headers = {f"{number:03x}": "" for number in range(1_000)}
    await wire.enqueue("q", *[b"x"] * 60, headers=headers)
    assert len(await drained(wire, "q", 60)) > 1


async def test_jobs_of_several_shards_share_the_bytes_of_an_answer(start: Start) -> None:
    """One job of a shard always fits, but not beside that of another shard. It goes back unspent."""
    wire = await small_answers(start, shards=3)
    await wire.enqueue("q", *[b"x" * 150_000] * 6)
    await wire.enqueue("q", *[b"y" * 30_000] * 6)
    await drained(wire, "q", 12)


async def test_outcomes_of_acks_that_ride_on_a_dequeue_leave_less_space_for_jobs(start: Start) -> None:
    wire = await small_answers(start)
    done = await wire.enqueue(LONG_QUEUE, *[b"x"] * 500)
    while await wire.claim(LONG_QUEUE, 1_000):
        pass
    await wire.enqueue("q", *[b"x" * 1_000] * 100)
    riding = ack_request(LONG_QUEUE, *done)
    answer, size = await measured(wire, "dequeueJobs", ttypes.PinLaterDequeueRequest("q", 100, jobAckRequest=riding))
    assert size <= BYTES_MAX
    assert len(answer.ackOutcomes) == 500
    assert 0 < len(answer.jobs) < 100


@pytest.mark.parametrize("chosen", [None, ttypes.JobFilter(PENDING, enqueuedFromMillis=1)])
@pytest.mark.parametrize("limit", [1_000, 10_000])
async def test_a_dry_run_and_a_scan_stop_at_the_bound_whatever_jobs_have(start: Start, limit: int, chosen: Any) -> None:
    wire = await small_answers(start)
    names = await wire.enqueue(
        "q", *[b"x" * 500] * 60, headers={"h": "y" * 4_000, "": ""}, customStatus=STATUS, numAttemptsAllowed=3
    )
    dry, size = await measured(wire, "dequeueJobs", ttypes.PinLaterDequeueRequest("q", limit, dryRun=True))
    assert size <= BYTES_MAX
    assert 0 < len(dry.jobs) < 60
    for _ in range(2):
        held = await wire.claim("q", 1_000)
        while len(held) < 60:
            held += await wire.claim("q", 1_000)
        await wire.ack("q", failed=names, errorType="Error", errorText="é" * 4_000)
    seen: list[str] = []
    continuation = "0"
    while continuation != "-1":
        request = ttypes.PinLaterScanJobsRequest(
            "q", PENDING, limit=limit, paged=True, includeBody=True, continuation=continuation, filter=chosen
        )
        page, size = await measured(wire, "scanJobs", request)
        assert size <= BYTES_MAX
        assert page.scannedJobs
        seen += [job.jobDescriptor for job in page.scannedJobs]
        continuation = page.continuation
    assert sorted(seen) == sorted(names)


async def test_a_lookup_beyond_the_bound_is_refused_with_a_warning_of_queue_and_size(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    wire = await small_answers(start)
    names = await wire.enqueue("q", *[b"x"] * 60, headers={"h": "y" * 4_000})
    error = await refused(wire.lookup(*names))
    assert (error.detail, error.retryable) == ("ANSWER_TOO_LARGE", False)
    assert "thrift.max_answer_bytes" in error.message
    [line] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert (line.queue, line.method) == ("q", "lookupJobs")  # type: ignore[attr-defined]
    assert line.answer_bytes > line.max_answer_bytes  # type: ignore[attr-defined]
    assert len(await wire.lookup(*names[:40])) == 40


async def test_the_holders_of_a_unique_key_are_as_many_as_an_answer_holds(start: Start) -> None:
    wire = await small_answers(start)
    queues = [await wire.create(f"queue_{number}") for number in range(30)]
    for queue in queues:
        await wire.enqueue(queue, b"x", uniqueKey="key", headers={"h": "y" * 10_000})
    found, size = await measured(wire, "findUniqueKey", ttypes.UniqueKeyRequest(queues, "key"))
    assert size <= BYTES_MAX
    assert 0 < len(found.jobs) < 30
    assert found.incomplete


async def test_a_single_job_that_is_longer_than_answers_may_be_is_handed_out_with_a_warning(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """It would block its queue otherwise."""
    wire = await small_answers(start)
    [name] = await wire.enqueue("q", b"x" * 300_000)
    await wire.enqueue("q", b"y")
    assert list((await wire.dequeue("q")).jobs) == [name]
    [line] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert (line.queue, line.method) == ("q", "dequeueJobs")  # type: ignore[attr-defined]
    assert line.answer_bytes > 300_000  # type: ignore[attr-defined]
    assert await wire.bodies("q") == [b"y"]
    assert (await wire.job(name)).jobState == IN_PROGRESS
    page = await wire.scan("q", IN_PROGRESS, includeBody=True, limit=10)
    assert sum(len(each.body) for each in page.scannedJobs) <= 300_001
    page = await wire.scan("q", IN_PROGRESS, includeBody=True, limit=1, paged=True)
    assert [each.jobDescriptor for each in page.scannedJobs] != []


async def test_a_job_whose_body_and_headers_no_frame_could_bring_back_is_refused(start: Start) -> None:
    frame = 300_000
    thrift, bounds = ThriftSettings(port=0, max_frame_bytes=frame), JobSettings(max_frame_bytes=frame)
    wire = await (await start(thrift=thrift, jobs=bounds)).connect()
    await wire.create("q")
    error = await refused(wire.enqueue("q", b"x" * (frame - 16_300), headers={"h": "y" * 16_000}))
    assert error.detail == "INVALID_ARGUMENT"
    await wire.enqueue("q", b"x" * (frame - 17_000), headers={"h": "y" * 16_000})
    assert len((await wire.dequeue("q")).jobs) == 1
