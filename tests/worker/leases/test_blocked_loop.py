"""Claimed jobs that a worker can't start because a task blocks its event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from pinlater.client import Ack, AsyncClient, ClaimedJob, Client, Job, JobState
from pinlater.testing import RealServer
from pinlater.worker import Worker, WorkerSettings
from tests.worker.conftest import eventually

T = TypeVar("T")
DEADLINE_S = 50.0
SETTINGS = WorkerSettings(concurrency=4, prefetch_max=0, backoff_first_ms=10, backoff_max_ms=50)


class OtherLoop:
    """Another client and worker, in a thread beside the blocked loop."""

    def __init__(self, address: str) -> None:
        self.client = Client(address, source="other")
        self.blocked = threading.Event()
        self.unblock = threading.Event()

    def until(self, ask: Callable[[], T]) -> T:
        end = time.monotonic() + DEADLINE_S
        while not (answer := ask()):
            assert time.monotonic() < end
            time.sleep(0.01)
        return answer

    def block(self) -> None:
        """Called by a task, on the loop."""
        self.blocked.set()
        assert self.unblock.wait(2 * DEADLINE_S)

    def run(self, count: int) -> list[ClaimedJob]:
        """Another worker claims and completes this many jobs."""
        jobs: list[ClaimedJob] = []

        def claim() -> bool:
            jobs.extend(self.client.dequeue("q", count - len(jobs)).jobs)
            return len(jobs) == count

        self.until(claim)
        self.client.ack("q", [Ack(job.descriptor, token=job.token) for job in jobs])
        return jobs


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RealServer]:
    """A process, since the test's loop is blocked."""
    with RealServer(tmp_path) as server:
        yield server


@pytest.fixture
def beside(server: RealServer) -> Iterator[OtherLoop]:
    made = OtherLoop(server.address)
    made.client.create_queue("q")
    yield made
    made.unblock.set()
    made.client.close()


async def run_while(worker: Worker, plain: Callable[[], None]) -> None:
    """Runs the worker until the code, in a thread, has ended. The loop may be blocked meanwhile."""
    with ThreadPoolExecutor(1) as threads:
        running = asyncio.create_task(worker.run_async())
        await asyncio.get_running_loop().run_in_executor(threads, plain)
        worker.request_stop()
        await asyncio.wait_for(running, DEADLINE_S)


async def test_jobs_that_arrive_while_the_loop_is_blocked_go_to_other_workers_unspent(
    server: RealServer, beside: OtherLoop
) -> None:
    """They are the answer to the long poll, which the loop does not read."""
    async with AsyncClient(server.address) as client:
        worker = Worker(client, settings=SETTINGS)
        began: list[bytes] = []

        @worker.task("q")
        async def handle(job: ClaimedJob) -> None:
            began.append(job.body)
            if job.body == b"block":
                await eventually(polled)
                beside.block()

        async def polled() -> bool:
            return (await client.queue_stats("q"))[0].waiting_dequeues == 1

        def others() -> None:
            beside.client.enqueue("q", [b"block"])
            assert beside.blocked.wait(DEADLINE_S)
            placed = beside.client.enqueue("q", [b"1", b"2", b"3"]).descriptors
            states = {info.state for info in beside.client.lookup(placed).values()}
            assert states & {JobState.IN_PROGRESS, JobState.PENDING}
            jobs = beside.run(3)
            assert sorted(job.descriptor for job in jobs) == sorted(placed)
            assert {job.attempts_remaining for job in jobs} == {2}
            beside.unblock.set()
            beside.until(lambda: worker.counts.succeeded == 1)
            beside.client.enqueue("q", [b"again"])
            beside.until(lambda: worker.counts.succeeded == 2)

        await run_while(worker, others)
    assert began == [b"block", b"again"]
    assert (worker.counts.released, worker.counts.lost, worker.counts.acks_refused) == (3, 0, 0)


@pytest.mark.parametrize("prefetch_max", [0, 8], ids=["in slots", "claimed ahead"])
async def test_jobs_that_a_blocked_loop_has_not_started_go_to_other_workers_unspent(
    server: RealServer, beside: OtherLoop, prefetch_max: int
) -> None:
    async with AsyncClient(server.address) as client:
        settings = WorkerSettings(concurrency=3, prefetch_max=prefetch_max, backoff_first_ms=10, backoff_max_ms=50)
        worker = Worker(client, settings=settings)
        began: list[bytes] = []

        @worker.task("q", time_limit=None)
        async def handle(job: ClaimedJob) -> None:
            began.append(job.body)
            if job.body == b"block":
                beside.block()

        def others() -> None:
            beside.client.enqueue("q", [b"quick"] * 20)  # short work, so that it claims ahead where it may
            beside.until(lambda: worker.counts.succeeded == 20)
            beside.client.enqueue("q", [Job(b"block", priority=1), *([Job(b"x", priority=2)] * 5)])
            assert beside.blocked.wait(DEADLINE_S)
            jobs = beside.run(5)
            assert {job.body for job in jobs} == {b"x"}
            assert {job.attempts_remaining for job in jobs} == {2}
            beside.unblock.set()
            beside.until(lambda: worker.counts.succeeded == 21)
            beside.until(lambda: worker.counts.claimed == worker.counts.succeeded + worker.counts.released)

        await run_while(worker, others)
    assert (began.count(b"block"), b"x" in began) == (1, False)
    assert worker.counts.released > 0
    assert (worker.counts.lost, worker.counts.acks_refused) == (0, 0)


async def test_a_running_loop_is_not_taken_for_blocked(server: RealServer, beside: OtherLoop) -> None:
    """It is late all the time, for longer than a blocked one may be; the jobs that wait for its slot stay."""
    async with AsyncClient(server.address) as client:
        worker = Worker(client, settings=WorkerSettings(concurrency=1, prefetch_max=8))

        @worker.task("q")
        async def handle(job: ClaimedJob) -> None:
            time.sleep(0.01)  # noqa: ASYNC251 - that is the point

        def others() -> None:
            beside.client.enqueue("q", [b"x"] * 200)
            beside.until(lambda: worker.counts.succeeded == 200)

        await run_while(worker, others)
    assert (worker.counts.claimed, worker.counts.released, worker.counts.lost) == (200, 0, 0)


async def test_a_claim_that_is_lost_as_its_job_is_about_to_start_frees_its_slot(
    server: RealServer, beside: OtherLoop
) -> None:
    """The loop, which was blocked, hears of the loss between the slot and the first line of the job."""
    async with AsyncClient(server.address) as client:
        worker = Worker(client, settings=replace(SETTINGS, concurrency=1, prefetch_max=8))
        began: list[bytes] = []

        @worker.task("q", claim_timeout="1s", time_limit=None)
        async def handle(job: ClaimedJob) -> None:
            began.append(job.body)
            if job.body == b"block":
                beside.block()

        def others() -> None:
            beside.client.enqueue("q", [b"quick"] * 20)  # short work, so that it claims ahead
            beside.until(lambda: worker.counts.succeeded == 20)
            blocks, gone = beside.client.enqueue("q", [Job(b"block"), Job(b"gone")]).descriptors
            assert beside.blocked.wait(DEADLINE_S)
            beside.client.cancel("q", [gone])

            def deadline_ms() -> int:
                return beside.client.lookup([blocks])[blocks].claim_deadline_ms or 0

            for _ in range(
                2
            ):  # the second heartbeat comes after the answer to the first one, which tells of the other job
                before_ms = deadline_ms()
                beside.until(lambda: deadline_ms() > before_ms)  # noqa: B023 - called in this turn
            beside.unblock.set()
            beside.until(lambda: worker.counts.succeeded == 21)
            beside.client.enqueue("q", [b"again"])
            beside.until(lambda: worker.counts.succeeded == 22)

        await run_while(worker, others)
    assert began[20:] == [b"block", b"again"]
    assert worker.abandoned_functions == 0
