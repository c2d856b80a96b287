"""A running worker and servers that are killed, networks that hang, claims that are lost, and invalid bodies."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pinlater.client import AsyncClient, Job, JobState
from pinlater.domain.clock import WallClock
from pinlater.testing import RealServer
from pinlater.worker import JobContext, Snooze, Worker, WorkerSettings, current_job
from tests import open_files
from tests import structs as t
from tests.client.fake_server import FakeServer
from tests.databases.proxy import Proxy
from tests.worker import process_tasks
from tests.worker.attempts.test_attempts import ended, running_processes
from tests.worker.conftest import claimed, eventually
from tests.worker.consumer.test_server_trouble import OneJob, Waits, acked, outcomes, worker_on
from tests.worker.report_shards import info
from tests.worker.test_worker import FAST, running, state_of

SHORT_POLLS = WorkerSettings(backoff_first_ms=10, backoff_max_ms=100, wait_ms=200, retry_delay_ms=10)


# --- servers and networks ---------------------------------------------------------------------------------------------------
async def test_a_server_that_is_killed_and_comes_back_costs_no_job_and_runs_none_twice(tmp_path: Path) -> None:
    runs: Counter[str] = Counter()
    go_on = asyncio.Event()
    with RealServer(tmp_path) as server:
        async with AsyncClient(server.address, timeout_ms=2_000) as client:
            worker = Worker(client, settings=SHORT_POLLS)

            @worker.task("q")
            async def run(name: str) -> None:
                runs[name] += 1
                if name == "long":
                    await go_on.wait()

            await worker.create_queues_async()
            placed = await run.enqueue_many_async([run.job(f"{n}") for n in range(300)])
            long = await run.using(priority=1, claim_timeout=15).enqueue_async("long")
            async with running(worker):
                await eventually(lambda: len(runs) > 50)
                await asyncio.to_thread(server.kill)
                await eventually(lambda: worker.counts.claim_errors > 0)
                await asyncio.to_thread(server.start)
                await eventually(lambda: worker.counts.succeeded == 300)
                go_on.set()
                await ended(client, long.descriptor, JobState.SUCCEEDED)
            states = (await client.queue_stats("q"))[0]
            assert (states.total("succeeded"), states.total("pending"), states.total("in_progress")) == (301, 0, 0)
            assert len(placed) == 300
    assert set(runs.values()) == {1}


async def test_a_worker_recovers_from_a_connection_that_hangs_and_keeps_its_claims(
    tmp_path: Path,
) -> None:
    """Half open: no answer comes and no side closes the connection. Claims last two seconds, calls may take three."""
    runs: Counter[str] = Counter()
    go_on = asyncio.Event()
    with RealServer(tmp_path) as server:
        async with (
            Proxy(server.address) as proxy,
            AsyncClient(server.address) as direct,
            AsyncClient(proxy.address, timeout_ms=3_000, connections=1) as client,
        ):
            worker = Worker(client, settings=SHORT_POLLS)

            @worker.task("q")
            async def run(name: str) -> None:
                runs[name] += 1
                if name == "long":
                    await go_on.wait()

            await worker.create_queues_async()
            long = await run.using(claim_timeout=2).enqueue_async("long")
            async with running(worker):
                await eventually(lambda: runs["long"])
                first = (await direct.lookup([long.descriptor]))[long.descriptor].claim_deadline_ms or 0

                async def renewed() -> bool:
                    found = (await direct.lookup([long.descriptor]))[long.descriptor]
                    return (found.claim_deadline_ms or 0) > first

                await eventually(renewed)
                proxy.swallow_open()
                # Its first claim may go into the hanging connection, and comes back with that claim's end.
                after = Job(
                    b'{"name":"after"}', headers={"pinlater-task": "run"}, claim_timeout_ms=1_000, attempts_allowed=3
                )
                await direct.enqueue("q", [after])
                await eventually(lambda: runs["after"], timeout_s=60)
                go_on.set()
                await ended(direct, long.descriptor, JobState.SUCCEEDED)
    assert (runs, worker.counts.lost) == (Counter({"long": 1, "after": 1}), 0)


@pytest.mark.timeout(300)
async def test_a_thousand_pollers_come_back_at_once_after_a_restart(tmp_path: Path) -> None:
    """Each of these queues has its own claims, acks and backoff, like a thousand workers."""
    open_files.need(3_000)
    count = 1_000
    done: set[str] = set()
    with RealServer(tmp_path) as server:
        async with AsyncClient(server.address) as client:
            names = [f"q{n}" for n in range(count)]
            for start in range(0, count, 50):
                await asyncio.gather(*[client.create_queue(name) for name in names[start : start + 50]])
            settings = WorkerSettings(concurrency=count, backoff_first_ms=100, backoff_max_ms=1_000, wait_ms=30_000)
            worker = Worker(client, settings=settings)

            async def note(job: JobContext) -> None:
                done.add(job.queue)

            for name in names:
                worker.task(name, default=True)(note)
            async with running(worker):
                await eventually(lambda: _pollers(client, count), timeout_s=90)
                loop = asyncio.get_running_loop()
                went = loop.time()
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
                for start in range(0, count, 50):
                    await asyncio.gather(*[client.enqueue(name, [b"x"]) for name in names[start : start + 50]])
                await eventually(lambda: len(done) == count, timeout_s=90)
            away_s = loop.time() - went
            assert worker.counts.lost == 0
            assert worker.counts.claim_errors <= count * (6 + 2 * away_s)  # ever fewer tries, two a second in the end
            stats = await client.queue_stats()
    assert sum(queue.total("succeeded") for queue in stats) == count


async def _pollers(client: AsyncClient, count: int) -> bool:
    return sum(queue.waiting_dequeues for queue in await client.queue_stats()) >= count


# --- claims -----------------------------------------------------------------------------------------------------------------
async def test_a_task_that_returns_after_its_claim_was_lost_changes_nothing(client: AsyncClient) -> None:
    """The job's second attempt, which runs by then, is not affected."""
    worker = Worker(client, settings=FAST)
    may_end = [threading.Event(), threading.Event()]
    attempts: list[int] = []

    @worker.task("q")
    def run() -> None:
        attempts.append(1)
        may_end[len(attempts) - 1].wait(30)

    placed = await run.using(attempts=1, claim_timeout=0.4).enqueue_async()
    async with running(worker):
        await eventually(lambda: attempts)
        await client.cancel("q", [placed.descriptor])
        await eventually(lambda: worker.counts.lost == 1)
        await client.retry_failed("q", cancelled=True)
        await eventually(lambda: len(attempts) == 2)
        may_end[0].set()
        await eventually(lambda: worker.abandoned_functions == 0)
        assert await state_of(client, placed.descriptor, JobState.IN_PROGRESS)
        may_end[1].set()
        await ended(client, placed.descriptor, JobState.SUCCEEDED)
    assert (worker.counts.succeeded, worker.counts.acks_refused) == (1, 0)


async def test_blocked_threads_and_processes_keep_their_claims(client: AsyncClient) -> None:
    await client.create_queue("p")
    worker = Worker(client, settings=FAST)
    runs: list[int] = []

    @worker.task("q")
    def block() -> None:
        runs.append(1)
        time.sleep(1.2)

    async with running_processes(client) as processes, running(worker):
        first = await block.using(claim_timeout=0.4).enqueue_async()
        second = await process_tasks.sleep.using(claim_timeout=0.4).enqueue_async(1.2)
        for placed in (first, second):
            found = await ended(client, placed.descriptor, JobState.SUCCEEDED)
            assert found.attempts_remaining == found.attempts_allowed
    assert (runs, worker.counts.lost, processes.counts.lost) == ([1], 0, 0)


async def test_a_job_that_blocks_its_loop_beyond_its_time_limit_goes_to_another_worker(
    client: AsyncClient, server: str
) -> None:
    """Nothing in that worker can stop the job; its heartbeats must end."""
    worker = Worker(server, settings=FAST)
    stuck = threading.Event()

    @worker.task("q", time_limit=0.1)
    async def hang() -> None:
        stuck.wait(60)  # never awaits

    await hang.using(claim_timeout=0.3, attempts=3).enqueue_async()
    thread = threading.Thread(target=lambda: asyncio.run(worker.run_async()))
    thread.start()
    try:
        await eventually(lambda: worker.counts.running == 1)
        again = await eventually(lambda: claimed(client, 500), timeout_s=60)
    finally:
        worker.request_stop()
        stuck.set()
        await asyncio.to_thread(thread.join, 20)
    assert again.attempt >= 2  # its long poll may have caught the second one


class Stepping(WallClock):
    """A clock that an operator sets."""

    step_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.step_ms


async def test_setting_the_clock_back_loses_no_claim(server: str, client: AsyncClient) -> None:
    """A claim of half a second must not look like one of an hour."""
    clock = Stepping()
    worker = Worker(server, settings=FAST, clock=clock)
    go_on = asyncio.Event()

    begun: list[bytes] = []

    @worker.task("q", default=True)
    async def wait(body: bytes) -> None:
        begun.append(body)
        await go_on.wait()

    async with running(worker):
        await client.enqueue("q", [b"first"])
        await eventually(lambda: worker.counts.running == 1)
        clock.step_ms = -3_600_000
        (second,) = (await client.enqueue("q", [Job(b"second", claim_timeout_ms=500)])).descriptors
        claimed = await eventually(lambda: state_of(client, second, JobState.IN_PROGRESS))

        async def renewed_twice() -> bool:
            found = await state_of(client, second, JobState.IN_PROGRESS)
            return found is not None and (found.claim_deadline_ms or 0) > claimed.claim_deadline_ms + 300

        await eventually(renewed_twice)
        go_on.set()
        await ended(client, second, JobState.SUCCEEDED)
    assert (begun, worker.counts.lost) == ([b"first", b"second"], 0)


async def test_a_delay_counts_from_the_current_time() -> None:
    """After the machine was suspended, the process still knows the time."""
    wall = [1_000.0]
    worker = Worker("127.0.0.1:1", clock=WallClock(lambda: wall[0], lambda: 5.0))

    @worker.task("q")
    async def run() -> None: ...

    wall[0] += 28_800
    assert run.using(delay=60).job().run_after_ms == 29_860_000
    assert run.using(expires_in=60).job().expires_at_ms == 29_860_000


# --- reports ----------------------------------------------------------------------------------------------------------------
async def test_an_ack_whose_answer_is_lost_during_a_stop_is_sent_again() -> None:
    """Otherwise a job that has succeeded runs again after the drain."""
    under_way, hang_up = asyncio.Event(), asyncio.Event()

    async def ack(arguments: Any) -> Any:
        if not under_way.is_set():
            under_way.set()
            await hang_up.wait()
            return FakeServer.HANG_UP
        return outcomes(arguments)

    waits = Waits()
    async with FakeServer(getServerInfo=info, dequeueJobs=waits, ackJobs=ack) as server:
        worker, _ = worker_on(server, waits.asked_again)
        task = asyncio.create_task(worker.run_async())
        await asyncio.wait_for(under_way.wait(), 10)
        worker.request_stop()
        asyncio.get_running_loop().call_later(0.5, hang_up.set)
        await asyncio.wait_for(task, 20)
        assert len(server.called("ackJobs")) >= 2
    assert set(acked(server)) == {("q:s1:p1:1", "tok")}


async def test_a_time_limit_that_passes_while_the_ending_is_reported_changes_nothing() -> None:
    gate = asyncio.Event()

    async def release(arguments: Any) -> Any:
        await gate.wait()
        return [t.AckResult(claim.descriptor, 0) for claim in arguments.request.claims]

    async with FakeServer(getServerInfo=info, dequeueJobs=OneJob(), ackJobs=outcomes, releaseJobs=release) as server:
        worker = Worker(server.address, settings=SHORT_POLLS)

        @worker.task("q", time_limit=0.1, default=True)
        async def later(body: bytes) -> None:
            raise Snooze(60)

        async with running(worker):
            await eventually(lambda: server.called("releaseJobs"))
            asyncio.get_running_loop().call_later(0.4, gate.set)
            await eventually(lambda: worker.counts.running == 0)
        assert (worker.counts.released, worker.counts.failed) == (1, 0)
        assert len(server.called("releaseJobs")) == 1


async def test_a_stop_gives_jobs_back_when_its_first_request_is_lost() -> None:
    lost = 2

    def release(arguments: Any) -> Any:
        nonlocal lost
        lost -= 1
        return FakeServer.HANG_UP if lost >= 0 else [t.AckResult("q:s1:p1:1", 0)]

    async with FakeServer(getServerInfo=info, dequeueJobs=OneJob(), releaseJobs=release) as server:
        settings = WorkerSettings(grace_ms=0, wait_ms=50, backoff_first_ms=5, backoff_max_ms=20)
        worker = Worker(server.address, settings=settings)

        @worker.task("q", default=True)
        async def hang(body: bytes) -> None:
            await asyncio.Event().wait()

        async with running(worker):
            await eventually(lambda: worker.counts.running == 1)
        assert (len(server.called("releaseJobs")), worker.counts.released) == (3, 1)


# --- poison -----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "body",
    [
        b'{"pinlater-task":"run","payload":' + b"[" * 100_000,
        b'{"pinlater-task":"run","payload":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        b'{"pinlater-task":"run","payload-base64":"?"}',
        b'{"pinlater-task":"run","payload":{"deep":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_001 + b"}",
        b"\x00\xff" * 1000,
    ],
    ids=["unclosed", "deep list", "no base64", "deep object", "bytes"],
)
@pytest.mark.parametrize("headers", [{}, {"pinlater-task": "run", "content-type": "application/json"}])
async def test_a_poison_body_fails_with_its_reason_and_harms_no_other(
    client: AsyncClient, body: bytes, headers: dict[str, str]
) -> None:
    worker = Worker(client, settings=FAST)
    seen: list[Any] = []

    @worker.task("q", default=True)
    async def run(deep: dict[str, Any]) -> None:
        seen.append(deep)

    (bad,) = (await client.enqueue("q", [Job(body, headers=headers, attempts_allowed=2)])).descriptors
    good = await run.enqueue_async({"a": 1})
    async with running(worker):
        await ended(client, good.descriptor, JobState.SUCCEEDED)
        found = await ended(client, bad, JobState.FAILED)
    assert found.error_text
    assert (found.error_type, [attempt.number for attempt in found.attempts]) == (
        "pinlater.worker.CantDecode", [1],
    )  # fmt: skip
    assert (seen, worker.counts.running) == ([{"a": 1}], 0)


# --- an original server -----------------------------------------------------------------------------------------------------
async def test_on_an_original_server_bare_checkpoints_renew_and_its_status_carries_the_error() -> None:
    """The server has no tokens, headers or error types; the worker sends none."""
    stored: list[bytes] = []
    renewed, reported = asyncio.Event(), asyncio.Event()

    def enqueue(arguments: Any) -> Any:
        (job,) = arguments.request.jobs
        assert not job.headers
        stored.append(job.body)
        return t.Enqueued(descriptors=["q:s1:p1:1"])

    def check(request: Any) -> None:
        (failed,) = request.failed
        assert (failed.token, failed.error_type, failed.error_text, failed.final) == (None,) * 4
        assert failed.append_status == "ValueError: broken for x\n"
        reported.set()

    def dequeue(arguments: Any) -> Any:
        if arguments.request.acks is not None:  # the ack may ride
            check(arguments.request.acks)
        if not stored:
            return t.DequeueResponse()
        meta = t.DequeueMetadata(attempts_allowed=3, attempts_remaining=2)
        return t.DequeueResponse(jobs={"q:s1:p1:1": stored.pop()}, metadata={"q:s1:p1:1": meta})

    def checkpoint(arguments: Any) -> None:
        (item,) = arguments.request.requests
        assert (item.new_body, item.move_to_pending, item.token) == (None, False, None)
        renewed.set()

    async with FakeServer(
        enqueueJobs=enqueue,
        dequeueJobs=dequeue,
        checkpointJobs=checkpoint,
        ackDequeuedJobs=lambda arguments: check(arguments.request),
    ) as server:
        worker = Worker(server.address, settings=SHORT_POLLS)

        @worker.task("q", claim_timeout=0.3)
        async def run(to: str) -> None:
            assert current_job().headers["tenant"] == "a"
            await renewed.wait()
            raise ValueError(f"broken for {to}")

        async with running(worker):
            await run.using(headers={"tenant": "a"}).enqueue_async("x")
            await asyncio.wait_for(reported.wait(), 10)
            polls = len(server.called("dequeueJobs"))
        assert polls < 60
        assert {name for name, _ in server.calls} - {"ackDequeuedJobs"} == {
            "getServerInfo", "enqueueJobs", "dequeueJobs", "checkpointJobs", "heartbeatClaims",
        }  # fmt: skip
