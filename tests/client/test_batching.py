"""Enqueues that ride together: few requests, each job's own answer, and no job harmed by another."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from pinlater.client import AsyncClient, AsyncEnqueueBatcher, Job, Placed, errors
from tests import structs as t
from tests.client.fake_server import FakeServer

INFO = t.ServerInfo("9", [], "memory", 1, 1, 3, 1, 1, 1, 1, 1)


def storing(*, poison: bytes = b"", gate: asyncio.Event | None = None) -> Callable[[Any], Any]:
    """Stores what comes under descriptors that name the body; refuses a request that has `poison` in it."""
    numbers = count(1)

    async def enqueue(arguments: Any) -> t.Enqueued:
        if gate is not None:
            await gate.wait()
        bodies = [job.body for job in arguments.request.jobs]
        if poison in bodies and poison:
            raise t.PinLaterException(500, "too long", detail="BODY_TOO_LARGE", retryable=False)
        names = [f"{body.decode()}:{next(numbers)}" for body in bodies]
        return t.Enqueued(descriptors=names, existing=[i for i, b in enumerate(bodies) if b == b"twin"])

    return enqueue


def sizes(server: FakeServer) -> list[int]:
    return [len(call.request.jobs) for call in server.called("enqueueJobs")]


def senders() -> list[asyncio.Task[Any]]:
    """The tasks that send the jobs of queue q: code that cancels all tasks of a loop finds them, too."""
    return [task for task in asyncio.all_tasks() if task.get_name() == "enqueue q"]


async def test_jobs_enqueued_during_a_request_are_sent_in_the_next_one() -> None:
    async with (
        FakeServer(enqueueJobs=storing(), getServerInfo=lambda _: INFO) as server,
        AsyncClient(server.address) as client,
        AsyncEnqueueBatcher(client, in_flight_max=1) as batcher,
    ):
        placed = await asyncio.gather(*[batcher.enqueue("q", b"%d" % n) for n in range(700)])
    assert [one.descriptor.partition(":")[0] for one in placed] == [str(n) for n in range(700)]
    assert sizes(server) == [500, 200]


async def test_each_queue_has_requests_of_its_own_and_bytes_bound_them() -> None:
    async with (
        FakeServer(enqueueJobs=storing(), getServerInfo=lambda _: INFO) as server,
        AsyncClient(server.address) as client,
        AsyncEnqueueBatcher(client, bytes_max=1_000, in_flight_max=1) as batcher,
    ):
        await asyncio.gather(*[batcher.enqueue(queue, b"x" * 400) for queue in ("a", "b") for _ in range(3)])
    assert sorted(sizes(server)) == [1, 1, 2, 2]


async def test_a_job_that_is_refused_harms_no_other() -> None:
    async with (
        FakeServer(enqueueJobs=storing(poison=b"bad"), getServerInfo=lambda _: INFO) as server,
        AsyncClient(server.address) as client,
        AsyncEnqueueBatcher(client) as batcher,
    ):
        bodies = [b"%d" % n for n in range(20)] + [b"bad"] + [b"twin"]
        answers = await asyncio.gather(*[batcher.enqueue("q", Job(body)) for body in bodies], return_exceptions=True)
    refused = [answer for answer in answers if not isinstance(answer, Placed)]
    assert [type(error) for error in refused] == [errors.BodyTooLarge]
    assert refused == [answers[20]]
    assert isinstance(answers[21], Placed)
    assert answers[21].existing
    assert len(sizes(server)) < 15


async def test_a_queue_that_is_missing_is_told_to_all_at_once() -> None:
    def missing(_: Any) -> None:
        raise t.PinLaterException(413, "no such queue")

    async with (
        FakeServer(enqueueJobs=missing) as server,
        AsyncClient(server.address) as client,
        AsyncEnqueueBatcher(client) as batcher,
    ):
        answers = await asyncio.gather(*[batcher.enqueue("q", b"x") for _ in range(9)], return_exceptions=True)
    assert {type(answer) for answer in answers} == {errors.QueueNotFound}
    assert len(sizes(server)) == 1


async def test_the_number_of_waiting_jobs_is_bounded_and_a_cancelled_job_is_not_sent() -> None:
    gate = asyncio.Event()
    async with (
        FakeServer(enqueueJobs=storing(gate=gate), getServerInfo=lambda _: INFO) as server,
        AsyncClient(server.address) as client,
        AsyncEnqueueBatcher(client, waiting_max=2, in_flight_max=1) as batcher,
    ):
        first = asyncio.create_task(batcher.enqueue("q", b"first"))
        while not server.calls:
            await asyncio.sleep(0)
        waiting = [asyncio.create_task(batcher.enqueue("q", b"w%d" % n)) for n in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(errors.TooManyWaiting):
            await batcher.enqueue("q", b"more")
        waiting[0].cancel()
        gate.set()
        await first
        await waiting[1]
    assert sizes(server) == [1, 1]


async def test_one_job_after_another_is_sent_each_by_itself() -> None:
    """An enqueue in the step in which the sender before ends must not wait for it."""
    async with (
        FakeServer(enqueueJobs=storing(), getServerInfo=lambda _: INFO) as server,
        AsyncClient(server.address) as client,
        AsyncEnqueueBatcher(client) as batcher,
        asyncio.timeout(30),
    ):
        for n in range(20):
            placed = await batcher.enqueue("q", b"%d" % n)
            assert placed.descriptor.startswith(f"{n}:")
    assert sizes(server) == [1] * 20


async def test_cancelled_callers_neither_keep_others_from_being_stored_nor_leave_anything_behind() -> None:
    gate = asyncio.Event()
    async with (
        FakeServer(enqueueJobs=storing(gate=gate), getServerInfo=lambda _: INFO) as server,
        AsyncClient(server.address) as client,
        asyncio.timeout(30),
    ):
        batcher = AsyncEnqueueBatcher(client, jobs_max=10)
        callers = [asyncio.create_task(batcher.enqueue("q", b"%d" % n)) for n in range(100)]
        while not server.calls:
            await asyncio.sleep(0)
        for caller in callers[::2]:
            caller.cancel()
        gate.set()
        answers = await asyncio.gather(*callers, return_exceptions=True)
        await batcher.flush()
        assert all(isinstance(answer, Placed) for answer in answers[1::2])
        assert {type(answer) for answer in answers[::2]} == {asyncio.CancelledError}
        assert senders() == []
    assert sum(sizes(server)) < 100


async def test_a_cancelled_sender_fails_its_request_and_the_next_job_is_stored() -> None:
    gate = asyncio.Event()
    async with (
        FakeServer(enqueueJobs=storing(gate=gate), getServerInfo=lambda _: INFO) as server,
        AsyncClient(server.address) as client,
        asyncio.timeout(30),
    ):
        batcher = AsyncEnqueueBatcher(client, in_flight_max=1)
        first = asyncio.create_task(batcher.enqueue("q", b"first"))
        while not server.calls:
            await asyncio.sleep(0)
        second = asyncio.create_task(batcher.enqueue("q", b"second"))
        await asyncio.sleep(0)
        [sender] = senders()
        sender.cancel()
        await asyncio.wait([first])
        assert isinstance(
            first.exception(), errors.ConnectionLost
        )  # and not cancelled, which a TaskGroup would not tell
        gate.set()
        assert (await second).descriptor.startswith("second")


class Name(str):
    """A string that can be watched."""

    __slots__ = ("__weakref__",)


async def test_a_batcher_keeps_nothing_of_a_queue_whose_jobs_are_stored_or_given_up() -> None:
    gate = asyncio.Event()
    async with (
        FakeServer(enqueueJobs=storing(gate=gate), getServerInfo=lambda _: INFO) as server,
        AsyncClient(server.address) as client,
    ):
        batcher = AsyncEnqueueBatcher(client, jobs_max=2, in_flight_max=1)
        queue = Name("q")
        held = weakref.ref(queue)
        callers = [asyncio.create_task(batcher.enqueue(queue, b"x")) for _ in range(6)]
        await asyncio.sleep(0)
        callers[5].cancel()
        gate.set()
        await asyncio.wait(callers)
        await batcher.flush()
        del queue, callers
        server.calls.clear()
        gc.collect()
        assert held() is None


# What no request can carry: of the wrong type, or out of its field's range.
BAD_JOBS: list[Any] = [
    5,
    None,
    "text",
    [5],
    Job(None),  # type: ignore[arg-type]
    Job("text"),  # type: ignore[arg-type]
    Job(b"", priority="high"),  # type: ignore[arg-type]
    Job(b"", priority=1_000),
    Job(b"", run_after_ms=2**63),
    Job(b"", attempts_allowed=2**31),
    Job(b"", custom_status=5),  # type: ignore[arg-type]
    Job(b"", custom_status="\ud800"),
    Job(b"", headers={"a": 5}),  # type: ignore[dict-item]
    Job(b"", headers=5),  # type: ignore[arg-type]
    Job(b"", unique=5),  # type: ignore[arg-type]
    Job(b"", claim_timeout_ms="long"),  # type: ignore[arg-type]
    Job(b"", expires_at_ms=2**63),
]


@pytest.mark.parametrize("bad", BAD_JOBS, ids=repr)
async def test_a_job_that_cant_be_sent_is_refused_as_it_is_handed_in(bad: Any) -> None:
    async with (
        FakeServer(enqueueJobs=storing(), getServerInfo=lambda _: INFO) as server,
        AsyncClient(server.address) as client,
        AsyncEnqueueBatcher(client) as batcher,
    ):
        others = [asyncio.create_task(batcher.enqueue("q", b"%d" % n)) for n in range(50)]
        with pytest.raises((TypeError, errors.CallerError)):
            await batcher.enqueue("q", bad)
        placed = await asyncio.gather(*others)
    assert len(placed) == sum(sizes(server)) == 50


@pytest.mark.parametrize("bad", BAD_JOBS, ids=repr)
async def test_an_enqueue_stores_no_job_that_is_none(bad: Any) -> None:
    """`bytes(5)` would be five zero bytes."""
    async with FakeServer(enqueueJobs=storing()) as server, AsyncClient(server.address) as client:
        with pytest.raises((TypeError, errors.CallerError)):
            await client.enqueue("q", [bad])
    assert sizes(server) == []


class Spoilt(dict[str, str]):
    """Headers that are good when they are handed in and can't be sent later."""

    def spoil(self) -> None:
        self["bad"] = 5  # type: ignore[assignment]


async def test_a_job_that_turns_bad_while_it_waits_harms_no_other() -> None:
    headers, gate = Spoilt(good="good"), asyncio.Event()
    async with (
        FakeServer(enqueueJobs=storing(gate=gate), getServerInfo=lambda _: INFO) as server,
        AsyncClient(server.address) as client,
        AsyncEnqueueBatcher(client, in_flight_max=1) as batcher,
    ):
        jobs = [Job(b"%d" % n, headers=headers if n == 10 else None) for n in range(20)]
        first = asyncio.create_task(batcher.enqueue("q", b"first"))
        while not server.called("enqueueJobs"):
            await asyncio.sleep(0.001)
        tasks = [asyncio.create_task(batcher.enqueue("q", job)) for job in jobs]
        await asyncio.sleep(0)
        headers.spoil()
        gate.set()
        await first
        answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert [n for n, answer in enumerate(answers) if not isinstance(answer, Placed)] == [10]
    assert isinstance(answers[10], errors.CallerError)


async def test_a_group_of_tasks_learns_that_its_requests_were_given_up() -> None:
    """Ended by a mere cancellation, tasks would leave their group without an error."""
    gate = asyncio.Event()

    async def enqueue_and_give_up(batcher: AsyncEnqueueBatcher, server: FakeServer) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(batcher.enqueue("q", b"%d" % number))
            while not server.called("enqueueJobs"):
                await asyncio.sleep(0.001)
            for sender in senders():
                sender.cancel()

    async with (
        FakeServer(enqueueJobs=storing(gate=gate), getServerInfo=lambda _: INFO) as server,
        AsyncClient(server.address) as client,
    ):
        batcher = AsyncEnqueueBatcher(client)
        with pytest.raises(ExceptionGroup) as raised:
            await enqueue_and_give_up(batcher, server)
        gate.set()
        await batcher.flush()
    assert {type(error) for error in raised.value.exceptions} == {errors.ConnectionLost}


async def test_a_sender_cancelled_while_it_splits_a_request_fails_all_its_jobs() -> None:
    refused = 0

    async def enqueue(arguments: Any) -> t.Enqueued:
        nonlocal refused
        refused += 1
        if refused > 1:
            await asyncio.Event().wait()
        raise t.PinLaterException(500, "bad", detail="INVALID_ARGUMENT", retryable=False)

    async with (
        FakeServer(enqueueJobs=enqueue, getServerInfo=lambda _: INFO) as server,
        AsyncClient(server.address) as client,
        asyncio.timeout(30),
    ):
        batcher = AsyncEnqueueBatcher(client)
        tasks = [asyncio.create_task(batcher.enqueue("q", b"%d" % n)) for n in range(2)]
        while refused < 2:
            await asyncio.sleep(0.001)
        [sender] = senders()
        sender.cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(answer) for answer in answers} == {errors.ConnectionLost}
