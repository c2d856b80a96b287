"""The worker and a server that is unreachable, refuses requests, or is an original one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from pinlater.client import AsyncClient, ClaimedJob
from pinlater.domain.clock import WallClock
from pinlater.worker import Worker, WorkerSettings
from tests import structs as t
from tests.client.fake_server import FakeServer
from tests.worker.conftest import eventually, idle_worker
from tests.worker.report_shards import info
from tests.worker.test_worker import running

FAST = WorkerSettings(backoff_first_ms=5, backoff_max_ms=20, wait_ms=50)


class OneJob:
    """Hands out one job, or that many `jobs`, once; later dequeues wait."""

    def __init__(self, headers: dict[str, str] | None = None, jobs: int = 1) -> None:
        self.given = False
        self.descriptors = [f"q:s1:p1:{number}" for number in range(1, jobs + 1)]
        self.headers = headers or {}

    async def __call__(self, arguments: Any) -> Any:
        if self.given:
            await asyncio.sleep((arguments.request.wait_ms or 0) / 1000)
            return t.DequeueResponse()
        self.given = True
        meta = t.DequeueMetadata(attempts_allowed=1, attempts_remaining=1, token="tok", headers=self.headers)
        return t.DequeueResponse(
            jobs=dict.fromkeys(self.descriptors, b"x"), metadata=dict.fromkeys(self.descriptors, meta)
        )


class Waits(OneJob):
    """Dequeues never return; counts those that wait."""

    def __init__(self, jobs: int = 1) -> None:
        super().__init__(jobs=jobs)
        self.asked_again = asyncio.Event()

    async def __call__(self, arguments: Any) -> Any:
        if not self.given:
            return await super().__call__(arguments)
        self.asked_again.set()
        return await asyncio.Event().wait()


def acked(server: FakeServer) -> list[tuple[str, str | None]]:
    """All successful acks that arrived, with claims or separately."""
    requests = [call.request for call in server.called("ackJobs")]
    requests += [call.request.acks for call in server.called("dequeueJobs") if call.request.acks]
    return [(ack.descriptor, ack.token) for request in requests for ack in request.succeeded]


def outcomes(arguments: Any) -> list[Any]:
    return [t.AckResult(ack.descriptor, 0) for ack in arguments.request.succeeded]


def worker_on(server: FakeServer, until: asyncio.Event | None = None) -> tuple[Worker, list[ClaimedJob]]:
    """`until`: the event for which the task waits. Without one the task ends before the next claim, which carries its ack."""
    worker, seen = Worker(server.address, settings=FAST), []

    @worker.task("q")
    async def note(job: ClaimedJob) -> None:
        seen.append(job)
        if until is not None:
            await until.wait()

    return worker, seen


async def test_a_server_that_comes_back_is_used_again() -> None:
    async with FakeServer(getServerInfo=info, dequeueJobs=OneJob(), ackJobs=outcomes) as server:
        await server.stop()
        worker, seen = worker_on(server)
        async with running(worker):
            await eventually(lambda: worker.counts.claim_errors >= 3)
            await server.start()
            await eventually(lambda: acked(server))
    assert [job.body for job in seen] == [b"x"]


async def test_the_log_says_that_a_server_answers_again_although_it_has_no_job(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The next claim that waits for a job, 20 s by default, would say it late."""
    caplog.set_level(logging.INFO, "pinlater.worker")
    asked = 0

    async def dequeue(arguments: Any) -> Any:
        nonlocal asked
        asked += 1
        if arguments.request.wait_ms == 20_000 and asked > 1:
            await asyncio.Event().wait()
        return FakeServer.HANG_UP if asked == 1 else t.DequeueResponse()

    async with FakeServer(getServerInfo=info, dequeueJobs=dequeue) as server:
        worker = idle_worker(server.address, settings=WorkerSettings(backoff_first_ms=5, backoff_max_ms=20))
        async with running(worker):
            await eventually(lambda: "queue q: the server answers again" in caplog.messages)
            await eventually(lambda: server.called("dequeueJobs")[-1].request.wait_ms == 20_000)


async def test_jobs_that_end_at_once_are_all_acked_by_the_next_claim() -> None:
    """Their tasks start before that claim."""
    waits = Waits(jobs=3)
    async with FakeServer(getServerInfo=info, dequeueJobs=waits, ackJobs=outcomes) as server:
        worker, seen = worker_on(server)
        async with running(worker):
            await asyncio.wait_for(waits.asked_again.wait(), 10)
            riding = server.called("dequeueJobs")[1].request.acks.succeeded
            assert (len(seen), sorted(ack.descriptor for ack in riding)) == (3, waits.descriptors)
            assert len(acked(server)) == 3


async def test_an_ack_that_did_not_arrive_is_sent_again() -> None:
    broken = 2

    def ack(arguments: Any) -> Any:
        nonlocal broken
        broken -= 1
        return FakeServer.HANG_UP if broken >= 0 else [t.AckResult("q:s1:p1:1", 1)]

    waits = Waits()
    async with FakeServer(getServerInfo=info, dequeueJobs=waits, ackJobs=ack) as server:
        worker, _ = worker_on(server, waits.asked_again)
        async with running(worker):
            await eventually(lambda: len(server.called("ackJobs")) == 3)
    assert worker.counts.acks_refused == 0  # one of those before may have arrived
    assert set(acked(server)) == {("q:s1:p1:1", "tok")}


async def test_a_refused_ack_is_not_sent_again() -> None:
    def refuse(_: Any) -> None:
        raise t.PinLaterException(413, "Queue not found: q")

    async with FakeServer(getServerInfo=info, dequeueJobs=OneJob(), ackJobs=refuse) as server:
        server.methods["dequeueJobs"] = _refusing_acks(OneJob())
        worker, _ = worker_on(server)
        async with running(worker):
            await eventually(lambda: worker.counts.acks_refused == 1)
    assert len(acked(server)) == 1


def _refusing_acks(jobs: OneJob) -> Any:
    async def dequeue(arguments: Any) -> Any:
        if arguments.request.acks is not None:
            raise t.PinLaterException(413, "Queue not found: q")
        return await jobs(arguments)

    return dequeue


async def test_a_job_claimed_again_while_its_lost_claim_runs_has_its_own_outcome() -> None:
    """A plain function can't be stopped; its outcome must not count for the second claim."""
    first_may_end = threading.Event()
    tokens: list[str] = []

    class Twice(OneJob):
        async def __call__(self, arguments: Any) -> Any:
            answer = await super().__call__(arguments)
            if answer.jobs is None and len(tokens) == 1:
                meta = t.DequeueMetadata(attempts_allowed=2, attempts_remaining=1, token="second")
                return t.DequeueResponse(jobs={"q:s1:p1:1": b"x"}, metadata={"q:s1:p1:1": meta})
            return answer

    async with FakeServer(getServerInfo=info, dequeueJobs=Twice(), ackJobs=outcomes) as server:
        worker = Worker(server.address, settings=FAST)

        @worker.task("q")
        def run(job: ClaimedJob) -> None:
            tokens.append(job.token)
            if job.token == "tok":
                first_may_end.wait(30)

        async with running(worker):
            await eventually(lambda: ("q:s1:p1:1", "second") in acked(server))
            assert worker.counts.running == 1
            first_may_end.set()
            await eventually(lambda: ("q:s1:p1:1", "tok") in acked(server))
    assert worker.counts.running == 0


async def test_cancelling_a_worker_cancels_its_tasks() -> None:
    ended = asyncio.Event()
    async with FakeServer(getServerInfo=info, dequeueJobs=OneJob(), ackJobs=outcomes) as server:
        worker = Worker(server.address, settings=FAST)

        @worker.task("q")
        async def hang(job: ClaimedJob) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        task = asyncio.create_task(worker.run_async())
        await eventually(lambda: worker.counts.running == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(ended.wait(), 10)
        await eventually(lambda: worker.counts.running == 0)
    assert acked(server) == []


async def test_an_original_server_gets_plain_acks_and_claims_with_pauses() -> None:
    """The server has no ackJobs, and answers an empty dequeue at once."""
    jobs = OneJob()

    async def dequeue(arguments: Any) -> Any:
        if jobs.given:
            assert arguments.request.acks is None
            return t.DequeueResponse()
        return await jobs(arguments)

    plain = asyncio.Event()

    def ack(arguments: Any) -> None:
        assert [info.descriptor for info in arguments.request.succeeded] == ["q:s1:p1:1"]
        plain.set()

    async with FakeServer(dequeueJobs=dequeue, ackDequeuedJobs=ack) as server:
        worker = Worker(server.address, settings=WorkerSettings(backoff_first_ms=60_000, backoff_max_ms=60_000))
        may_end = asyncio.Event()

        @worker.task("q")
        async def run(job: ClaimedJob) -> None:
            await may_end.wait()

        async with running(worker):
            await eventually(lambda: len(server.called("dequeueJobs")) == 2)
            may_end.set()
            await asyncio.wait_for(plain.wait(), 10)
            assert len(server.called("dequeueJobs")) == 2


async def test_a_claim_answered_during_a_stop_is_given_back_unspent() -> None:
    """The server had claimed the job before the worker stopped; the worker waits for the answer."""
    answer_now = asyncio.Event()

    async def one_job_at_the_last_moment(_: Any) -> t.DequeueResponse:
        await answer_now.wait()
        meta = t.DequeueMetadata(attempts_allowed=1, attempts_remaining=1, token="tok")
        return t.DequeueResponse(jobs={"q:s1:p1:1": b"x"}, metadata={"q:s1:p1:1": meta})

    def release(arguments: Any) -> list[t.AckResult]:
        return [t.AckResult(claim.descriptor, 0) for claim in arguments.request.claims]

    async with FakeServer(getServerInfo=info, dequeueJobs=one_job_at_the_last_moment, releaseJobs=release) as server:
        worker, seen = worker_on(server)
        running = asyncio.create_task(worker.run_async())
        await eventually(lambda: server.called("dequeueJobs"))
        worker.request_stop()
        await eventually(lambda: server.caller_has_hung_up)
        answer_now.set()
        await asyncio.wait_for(running, 20)

        [released] = server.called("releaseJobs")
        assert [claim.token for claim in released.request.claims] == ["tok"]
        assert seen == []
        assert len(server.called("dequeueJobs")) == 1


async def test_a_stop_ends_only_the_workers_own_long_polls() -> None:
    """The caller uses the same client for a long poll of another queue."""
    answer_now = asyncio.Event()

    async def dequeue(arguments: Any) -> t.DequeueResponse:
        if arguments.request.queue == "q":
            await asyncio.Event().wait()
        await answer_now.wait()
        return t.DequeueResponse(jobs={"others:s1:p1:1": b"x"})

    async with FakeServer(getServerInfo=info, dequeueJobs=dequeue) as server, AsyncClient(server.address) as client:
        worker = Worker(client, settings=FAST)

        @worker.task("q")
        async def never(job: ClaimedJob) -> None:
            raise AssertionError

        polling = asyncio.create_task(client.dequeue("others", wait_ms=30_000))
        await eventually(lambda: server.called("dequeueJobs"))
        async with running(worker):
            await eventually(lambda: [call for call in server.called("dequeueJobs") if call.request.queue == "q"])
        assert not polling.done()
        answer_now.set()
        assert [job.body for job in (await polling).jobs] == [b"x"]


async def test_a_worker_that_reaches_no_server_says_so_again_and_again_in_one_line_for_all_queues(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "pinlater.worker")
    server = FakeServer(getServerInfo=info, dequeueJobs=lambda _: t.DequeueResponse())
    quick_clock = WallClock(time.time, lambda: time.monotonic() * 300)  # its minutes last 0.2 seconds
    async with server:
        await server.stop()
        worker = idle_worker([server.address, "127.0.0.1:1"], settings=FAST, clock=quick_clock)

        @worker.task("r")
        async def second() -> None: ...

        async with running(worker):
            await eventually(lambda: len([line for line in caplog.messages if "no server reached for " in line]) > 1)
            await server.start()
            await eventually(lambda: any("a server answers again, after " in line for line in caplog.messages))
    lines = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    tried = f"No server could be reached; tried {server.address}, 127.0.0.1:1; last: Server "
    assert lines[0].startswith(f"can't claim, retrying: {tried}")
    assert all(
        re.match(rf"no server reached for \d+[hms]+[\w ]*, retrying: {re.escape(tried)}", line) for line in lines[1:]
    )
    assert [line for line in caplog.messages if "queue q: " in line or "queue r: " in line] == []


async def test_a_queue_that_is_missing_after_an_outage_is_named(caplog: pytest.LogCaptureFixture) -> None:
    def missing(_: Any) -> None:
        raise t.PinLaterException(413, "Queue not found: q", retryable=False)

    server = FakeServer(getServerInfo=info, dequeueJobs=missing)
    async with server:
        await server.stop()
        worker = idle_worker(server.address, settings=FAST)
        async with running(worker):
            await eventually(lambda: worker.counts.claim_errors)
            await server.start()
            await eventually(
                lambda: any("queue q: can't claim, retrying: Queue not found: q" in line for line in caplog.messages)
            )


async def test_a_job_of_an_unknown_task_that_goes_back_while_the_worker_stops_keeps_its_delay() -> None:
    released: list[tuple[int, int]] = []
    again = asyncio.Event()

    async def release(arguments: Any) -> list[t.AckResult]:
        claims = arguments.request.claims
        released.append((len(claims), arguments.request.delay_ms))
        if len(released) > 1:
            again.set()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(again.wait(), 1)
        return [t.AckResult(claim.descriptor, 0) for claim in claims]

    async with FakeServer(
        getServerInfo=info, dequeueJobs=OneJob({"pinlater-task": "newer"}), releaseJobs=release
    ) as server:
        worker = Worker(server.address, settings=replace(FAST, unknown_task_delay_ms=60_000, grace_ms=50))
        worker.task("q", name="older")(lambda: None)
        async with running(worker):
            await eventually(lambda: released)
    assert released == [(1, 60_000)]
    assert worker.counts.released == 1
