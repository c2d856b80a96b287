"""The asynchronous client against a server that does what the test says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pinlater.client import (
    AckBatch,
    AsyncClient,
    JobFilter,
    JobState,
    Outcome,
    errors,
    values,
)
from pinlater.domain.clock import ManualClock
from pinlater.domain.errors import ErrorCode
from tests import structs as t
from tests.client.fake_server import FakeServer


def refusal(code: int, message: str, **more: Any) -> t.PinLaterException:
    return t.PinLaterException(code, message, **more)


async def test_a_dequeue_gives_jobs_in_the_servers_order_with_their_claims() -> None:
    meta = t.DequeueMetadata(
        attempts_allowed=3, attempts_remaining=2, token="tok", headers={"h": "1"}, claim_deadline_ms=9, attempt=2
    )
    answer = t.DequeueResponse(
        jobs={"q:s1:p1:2": b"two", "q:s1:p1:1": b"one"},
        metadata={"q:s1:p1:1": meta},
        order=["q:s1:p1:2", "q:s1:p1:1"],
    )
    async with FakeServer(dequeueJobs=lambda _: answer) as server, AsyncClient(server.address) as client:
        two, one = (await client.dequeue("q", 5)).jobs
    assert (two.body, two.token, two.queue) == (b"two", "", "q")
    assert (one.token, one.attempt, one.attempts_remaining, one.headers) == ("tok", 2, 2, {"h": "1"})
    assert one.claim_deadline_ms == 9


async def test_jobs_of_an_original_server_come_by_priority_and_age() -> None:
    """Its answer is a map, which has no order."""
    names = ["q:s1:p2:1", "q:s1:p1:9", "q:s1:p1:3"]
    answer = t.DequeueResponse(jobs=dict.fromkeys(names, b""))
    async with FakeServer(dequeueJobs=lambda _: answer) as server, AsyncClient(server.address) as client:
        jobs = (await client.dequeue("q", 5)).jobs
    assert [job.descriptor for job in jobs] == ["q:s1:p1:3", "q:s1:p1:9", "q:s1:p2:1"]


async def test_ack_results_come_in_the_order_of_the_acks() -> None:
    """The wire answers succeeded ones first, then failed ones."""
    acks = [values.Ack("f1", succeeded=False), values.Ack("s1", token="x"), values.Ack("f2", succeeded=False)]

    def outcomes(_: Any) -> list[Any]:
        return [t.AckResult("s1", 0), t.AckResult("f1", 2, "holder", 7), t.AckResult("f2", 3)]

    def dequeued(arguments: Any) -> Any:
        return t.DequeueResponse(ack_outcomes=outcomes(arguments))

    async with (
        FakeServer(ackJobs=outcomes, dequeueJobs=dequeued) as server,
        AsyncClient(server.address) as client,
    ):
        alone = await client.ack("q", acks)
        riding = (await client.dequeue("q", acks=AckBatch("q", acks))).ack_results
    assert alone == riding
    assert [result.outcome for result in alone] == [Outcome.STALE_CLAIM, Outcome.APPLIED, Outcome.NOT_FOUND]
    assert (alone[0].holder, alone[0].held_since_ms, alone[1].applied) == ("holder", 7, True)


@pytest.mark.parametrize(
    ("code", "kind", "side"),
    [
        (413, errors.QueueNotFound, errors.CallerError),
        (410, errors.QueueNameInvalid, errors.CallerError),
        (411, errors.QueueNameTooLong, errors.CallerError),
        (403, errors.PasswordInvalid, errors.CallerError),
        (416, errors.PriorityNotSupported, errors.CallerError),
        (400, errors.ContinuationInvalid, errors.CallerError),
        (429, errors.DequeueRateLimited, errors.WorldError),
        (430, errors.EnqueueRejected, errors.WorldError),
        (501, errors.NoHealthyShards, errors.WorldError),
        (502, errors.ShardConnectionFailed, errors.WorldError),
    ],
)
async def test_a_refusal_is_an_exception_by_code_and_by_fault(
    code: int, kind: type[errors.PinLaterError], side: type[errors.PinLaterError]
) -> None:
    def refuse(_: Any) -> None:
        raise refusal(code, "because")

    async with FakeServer(createQueue=refuse) as server, AsyncClient(server.address, timeout_ms=300) as client:
        with pytest.raises(kind) as caught:
            await client.create_queue("q")
    assert isinstance(caught.value, side)
    assert caught.value.code == ErrorCode(code)
    assert str(caught.value).startswith("because")


@pytest.mark.parametrize(("retryable", "side"), [(False, errors.CallerError), (True, errors.WorldError)])
async def test_code_500_goes_by_what_the_server_says(retryable: bool, side: type[errors.PinLaterError]) -> None:
    def refuse(_: Any) -> None:
        raise refusal(500, "no", detail="BODY_TOO_LARGE", retryable=retryable, retry_after_ms=12)

    async with FakeServer(enqueueJobs=refuse) as server, AsyncClient(server.address) as client:
        with pytest.raises(side) as caught:
            await client.enqueue("q", [b""])
    assert (caught.value.detail, caught.value.retry_after_ms) == ("BODY_TOO_LARGE", 12)


async def test_a_refusal_leaves_the_connection_in_use() -> None:
    def refuse(_: Any) -> None:
        raise refusal(413, "Queue not found: q")

    async with (
        FakeServer(pauseQueue=refuse, dequeueJobs=refuse) as server,
        AsyncClient(server.address, connections=1) as client,
    ):
        for _ in range(3):
            with pytest.raises(errors.QueueNotFound):
                await client.pause_queue("q")
            with pytest.raises(errors.QueueNotFound):
                await client.dequeue("q", wait_ms=5)
    assert server.connections == 2


async def test_an_unknown_method_is_said_so() -> None:
    async with FakeServer() as server, AsyncClient(server.address) as client:
        with pytest.raises(errors.UnknownMethod):
            await client.server_info()


async def test_a_call_without_an_answer_ends_at_its_deadline_and_later_calls_work() -> None:
    never = asyncio.Event()
    async with (
        FakeServer(pauseQueue=lambda _: never.wait(), createQueue=lambda _: None) as server,
        AsyncClient(server.address, timeout_ms=50, connections=1) as client,
    ):
        with pytest.raises(errors.DeadlineExceeded):
            await client.pause_queue("q")
        await client.create_queue("q")
        assert server.connections == 2


async def test_a_long_poll_given_up_hangs_up_so_that_the_server_takes_its_jobs_back() -> None:
    async with (
        FakeServer(dequeueJobs=lambda _: asyncio.Event().wait()) as server,
        AsyncClient(server.address) as client,
    ):
        task = asyncio.create_task(client.dequeue("q", wait_ms=60_000))
        while not server.calls:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await client.close()  # nothing is left to wait for


async def test_closing_ends_calls_on_retired_connections_too() -> None:
    """The pool replaces a connection after ten minutes. If it stayed open, the socket would outlive the client's event loop."""
    async with FakeServer(getQueueNames=lambda _: asyncio.Event().wait(), createQueue=lambda _: None) as server:
        clock = ManualClock()
        client = AsyncClient(server.address, connections=1, timeout_ms=60_000, clock=clock)
        await client.open()
        call = asyncio.create_task(client.queue_names())
        while not server.calls:
            await asyncio.sleep(0)
        clock.advance(seconds=601)
        await client.create_queue("q")
        assert server.connections == 2
        await client.close()
        async with asyncio.timeout(10):
            with pytest.raises((errors.ConnectionLost, errors.ClientClosed)):
                await call


async def test_a_long_poll_does_not_hold_up_other_calls() -> None:
    async with (
        FakeServer(dequeueJobs=lambda _: asyncio.Event().wait(), createQueue=lambda _: None) as server,
        AsyncClient(server.address, connections=1) as client,
    ):
        task = asyncio.create_task(client.dequeue("q", wait_ms=60_000))
        while not server.calls:
            await asyncio.sleep(0)
        await client.create_queue("q")
        task.cancel()
        await asyncio.wait([task])


async def test_a_lost_connection_is_an_error_and_the_next_call_reconnects() -> None:
    async with (
        FakeServer(deleteJobs=lambda _: FakeServer.HANG_UP, createQueue=lambda _: None) as server,
        AsyncClient(server.address, connections=1) as client,
    ):
        with pytest.raises(errors.ConnectionLost):
            await client.delete_jobs("q", JobState.FAILED, priority=1)
        assert len(server.called("deleteJobs")) == 1
        await client.create_queue("q")


async def test_a_server_that_is_not_there_is_unreachable_and_the_next_is_tried() -> None:
    async with FakeServer(createQueue=lambda _: None) as server:
        async with AsyncClient("127.0.0.1:1", wait_for_servers=False) as client:
            with pytest.raises(errors.ServerUnreachable, match=r"127\.0\.0\.1:1"):
                await client.create_queue("q")
        async with AsyncClient(["127.0.0.1:1", server.address]) as client:
            await client.create_queue("q")


async def test_a_client_that_is_not_open_says_so() -> None:
    with pytest.raises(errors.ClientClosed):
        await AsyncClient("127.0.0.1:1").create_queue("q")


async def test_many_calls_at_once_each_get_their_own_answer() -> None:
    async with (
        FakeServer(getJobCount=lambda arguments: arguments.request.priority) as server,
        AsyncClient(server.address) as client,
    ):
        counts = await asyncio.gather(*(client.count("q", priority=n) for n in range(1, 100)))
    assert counts == list(range(1, 100))


async def test_a_value_out_of_range_is_the_callers_fault_and_harms_nothing() -> None:
    async with FakeServer(getJobCount=lambda _: 1) as server, AsyncClient(server.address) as client:
        with pytest.raises(errors.CallerError):
            await client.count("q", priority=10**30)
        assert await client.count("q") == 1


async def test_clients_that_share_a_connection_see_only_their_own_unread_answers() -> None:
    """A worker gives back the jobs that arrived while its loop was blocked, and must not give back another caller's."""
    answer_now = asyncio.Event()

    async def dequeue(_: Any) -> t.DequeueResponse:
        await answer_now.wait()
        return t.DequeueResponse(jobs={"q:s1:p1:1": b"x"})

    async with FakeServer(dequeueJobs=dequeue) as server, AsyncClient(server.address) as client:
        other = client.sharing()
        polling = asyncio.create_task(client.dequeue("q", wait_ms=30_000))
        while not server.calls:
            await asyncio.sleep(0.001)
        answer_now.set()
        unread: list[Any] = []
        while not unread and not polling.done():
            await asyncio.sleep(0)
            unread = client.unread()
            assert other.unread() == []
        assert (await polling).jobs[0].body == b"x"
        assert [job.body for dequeued in unread for job in dequeued.jobs] == [b"x"]


async def test_a_scan_of_one_shard_is_refused_if_the_server_answers_the_jobs_of_others() -> None:
    """A server that is too old for it does not read which shard was asked for."""
    info = t.JobInfo("q:s1:p1:7", 0, attempts_allowed=1, attempts_remaining=1, custom_status="", created_at_ms=1)
    page = t.Scanned([info])
    async with FakeServer(scanJobs=lambda _: page) as server, AsyncClient(server.address) as client:
        for name in ("1", "s1"):
            assert len((await client.scan("q", shard=name)).jobs) == 1
        with pytest.raises(errors.UnknownMethod, match="older than scans of one shard"):
            await client.scan("q", shard="2")
    assert [call.request.shard for call in server.called("scanJobs")] == ["1", "s1", "2"]


async def test_a_filter_is_refused_if_the_server_answers_jobs_that_it_has_not_compared() -> None:
    """A server that is too old for filters reads state, priority and body only, which are enough for some filters."""
    info = t.JobInfo("q:s1:p1:7", 3, attempts_allowed=1, attempts_remaining=1, custom_status="", created_at_ms=1)
    task, body = JobFilter(JobState.FAILED, tasks=frozenset({"send"})), JobFilter(JobState.FAILED, 2, "a.*b")
    async with (
        FakeServer(scanJobs=lambda _: t.Scanned([info]), countJobs=lambda _: t.JobCount(1)) as server,
        AsyncClient(server.address) as client,
    ):
        with pytest.raises(errors.UnknownMethod, match="older than filters"):
            await client.scan("q", filter=task)
        with pytest.raises(errors.UnknownMethod, match="older than filters"):
            await client.count_jobs("q", filter=task)
        assert len((await client.scan("q", filter=body)).jobs) == 1
        assert (await client.count_jobs("q", filter=body)).jobs == 1
    [_, scan] = [call.request for call in server.called("scanJobs")]
    assert (scan.state, scan.priority, scan.regex) == (3, 2, "a.*b")
