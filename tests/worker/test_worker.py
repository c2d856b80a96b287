"""The worker against a real server: jobs whose task returns, raises, hangs or is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator

import pytest

from pinlater.client import AsyncClient, ClaimedJob, Job, JobInfo, JobState
from pinlater.worker import Worker, WorkerSettings
from tests.worker.conftest import eventually, idle_worker

FAST = WorkerSettings(retry_delay_ms=10, backoff_first_ms=10, backoff_max_ms=50, grace_ms=5_000)


@contextlib.asynccontextmanager
async def running(worker: Worker) -> AsyncIterator[None]:
    """Runs the worker during the block."""
    task = asyncio.create_task(worker.run_async())
    try:
        yield
    finally:
        worker.request_stop()
        await asyncio.wait_for(task, 30)


async def state_of(client: AsyncClient, descriptor: str, state: JobState) -> JobInfo | None:
    info = (await client.lookup([descriptor])).get(descriptor)
    return info if info is not None and info.state is state else None


async def test_jobs_run_and_succeed_on_the_loop_and_in_threads(client: AsyncClient) -> None:
    await client.create_queue("threads")
    seen: list[bytes] = []
    worker = Worker(client, settings=FAST)

    @worker.task("q")
    async def on_loop(job: ClaimedJob) -> None:
        assert threading.current_thread() is threading.main_thread()
        seen.append(job.body)

    @worker.task("threads", concurrency=2)
    def in_thread(job: ClaimedJob) -> None:
        assert threading.current_thread() is not threading.main_thread()
        seen.append(job.body)

    await client.enqueue("q", [b"%d" % n for n in range(300)])
    await client.enqueue("threads", [b"t%d" % n for n in range(50)])
    async with running(worker):
        await eventually(lambda: worker.counts.succeeded == 350)
    stats = await client.queue_stats()
    assert [(queue.total("succeeded"), queue.total("in_progress")) for queue in stats] == [(300, 0), (50, 0)]
    assert len(set(seen)) == 350


async def test_a_failure_is_retried_with_a_delay_that_grows_and_its_error_is_kept(client: AsyncClient) -> None:
    attempts: list[int] = []
    worker = Worker(client, settings=FAST)

    @worker.task("q")
    async def fail_twice(job: ClaimedJob) -> None:
        attempts.append(job.attempt)
        if len(attempts) < 3:
            raise ValueError(f"number {len(attempts)}")

    (descriptor,) = (await client.enqueue("q", [Job(b"x", attempts_allowed=3)])).descriptors
    async with running(worker):
        info = await eventually(lambda: state_of(client, descriptor, JobState.SUCCEEDED))
    assert attempts == [1, 2, 3]
    texts = [attempt.error_text.partition("\n")[0] for attempt in info.attempts if attempt.outcome == "failed"]
    assert texts == ["number 1", "number 2"]
    assert info.attempts[0].error_type == "ValueError"


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), StopIteration(), asyncio.CancelledError()])
async def test_any_exception_of_a_task_fails_only_its_job(client: AsyncClient, error: BaseException) -> None:
    await client.create_queue("threads")
    worker = Worker(client, settings=FAST)

    @worker.task("q")
    async def on_loop(job: ClaimedJob) -> None:
        if job.body == b"bad":
            raise error

    @worker.task("threads")
    def in_thread(job: ClaimedJob) -> None:
        if job.body == b"bad":
            raise error

    for queue in ("q", "threads"):
        await client.enqueue(queue, [Job(b"bad", attempts_allowed=1), b"good"])
    async with running(worker):
        await eventually(lambda: (worker.counts.succeeded, worker.counts.failed) == (2, 2))
    for stats in await client.queue_stats():
        assert (stats.total("succeeded"), stats.total("failed")) == (1, 1)


@pytest.mark.parametrize("bounds", ["the worker", "the queue"])
async def test_no_more_jobs_run_at_once_than_allowed(client: AsyncClient, bounds: str) -> None:
    running_now, most = 0, 0
    worker = Worker(client, settings=FAST, concurrency=3 if bounds == "the worker" else None)

    @worker.task("q", concurrency=3 if bounds == "the queue" else None)
    async def count(job: ClaimedJob) -> None:
        nonlocal running_now, most
        running_now += 1
        most = max(most, running_now)
        await asyncio.sleep(0.005)
        running_now -= 1

    await client.enqueue("q", [b""] * 60)
    async with running(worker):
        await eventually(lambda: worker.counts.succeeded == 60)
    assert most == 3


@pytest.mark.parametrize("in_thread", [False, True])
async def test_jobs_that_outlast_the_grace_time_are_given_back_unspent(client: AsyncClient, in_thread: bool) -> None:
    started, end = threading.Event(), threading.Event()
    worker = Worker(client, settings=WorkerSettings(grace_ms=20))

    async def hang(job: ClaimedJob) -> None:
        started.set()
        await asyncio.Event().wait()

    def block(job: ClaimedJob) -> None:
        started.set()
        end.wait(30)

    worker.task("q")(block if in_thread else hang)
    (descriptor,) = (await client.enqueue("q", [Job(b"x", attempts_allowed=1)])).descriptors
    async with running(worker):
        await eventually(started.is_set)
    info = await state_of(client, descriptor, JobState.PENDING)
    assert info is not None
    assert info.attempts_remaining == 1
    assert worker.abandoned_functions == int(in_thread)
    end.set()
    await eventually(lambda: not worker.abandoned_functions)
    assert (worker.counts.succeeded, worker.counts.released) == (0, 1)


@pytest.mark.parametrize("freed_by", ["the stop", "a time limit", "its end"])
async def test_waiting_jobs_never_start_in_a_stopping_worker(client: AsyncClient, freed_by: str) -> None:
    """Also when abandoned threads free their slots."""
    hold = threading.Event()
    began: list[bytes] = []
    worker = Worker(client, settings=WorkerSettings(concurrency=2, grace_ms=0 if freed_by == "the stop" else 5_000))

    @worker.task("q", time_limit=2 if freed_by == "a time limit" else None, attempts=3)
    def block(job: ClaimedJob) -> None:
        began.append(job.body)
        if job.body == b"slow":
            hold.wait()

    jobs = [Job(body, attempts_allowed=3) for body in [b"quick"] * 60 + [b"slow"] * 60]
    placed = (await client.enqueue("q", jobs)).descriptors
    task = asyncio.create_task(worker.run_async())
    await eventually(lambda: worker.counts.succeeded == 60 and worker.counts.running == 2)
    assert worker.counts.claimed > 62  # some wait for slots
    worker.request_stop()
    if freed_by == "its end":
        await asyncio.sleep(0)
        hold.set()
    await asyncio.wait_for(task, 20)
    hold.set()
    await eventually(lambda: not worker.abandoned_functions)
    assert (len(began), began.count(b"slow")) == (62, 2)
    left = [info for info in (await client.lookup(placed)).values() if info.state is not JobState.SUCCEEDED]
    assert len(left) == (58 if freed_by == "its end" else 60)
    spent = 2 if freed_by == "a time limit" else 0
    assert sum(3 - info.attempts_remaining for info in left) == spent
    assert {info.state for info in left} == {JobState.PENDING}


def test_invalid_tasks_are_refused_at_registration() -> None:
    worker = Worker("127.0.0.1:1")
    with pytest.raises(ValueError, match="no task"):
        worker.check()
    worker.task("q")(eventually)
    with pytest.raises(ValueError, match="has a task called 'eventually' already"):
        worker.task("q")(eventually)
    with pytest.raises(ValueError, match="no task for queue 'other'; there are: q"):
        worker.check(["other"])
    with pytest.raises(ValueError, match="concurrency"):
        WorkerSettings(concurrency=0)
    with pytest.raises(TypeError, match="concurrency"):
        WorkerSettings(concurrency=False)


def test_handler_is_another_name_of_the_decorator_task() -> None:
    worker = Worker("127.0.0.1:1")

    @worker.handler("q")
    def run() -> None: ...

    assert (run.queue, run.name, worker.queues) == ("q", "run", ("q",))


async def test_a_stop_of_an_idle_worker_logs_no_warning(client: AsyncClient, caplog: pytest.LogCaptureFixture) -> None:
    """The worker hangs up its long poll; that is no error."""
    worker = idle_worker(client, settings=WorkerSettings(wait_ms=60_000))
    async with running(worker):
        await eventually(client.waiting_dequeues)
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == []
    assert worker.counts.claim_errors == 0


async def test_a_stopped_run_logs_its_own_abandoned_functions(
    client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    """And not those of a run that began meanwhile."""
    caplog.set_level("INFO", "pinlater.worker")
    may_end = threading.Event()
    worker = Worker(client, settings=WorkerSettings(grace_ms=0))
    worker.task("other", name="run")(lambda: None)

    @worker.task("q")
    def hang() -> None:
        may_end.wait(30)

    await hang.enqueue_async()
    first = asyncio.create_task(worker.run_async(queues=["q"]))
    await eventually(lambda: worker.counts.running)
    worker.request_stop()
    second = asyncio.create_task(worker.run_async(queues=["other"]))
    await asyncio.wait_for(first, 30)
    [stopped] = [record for record in caplog.records if record.getMessage() == "worker stopped"]
    may_end.set()
    worker.request_stop()
    await asyncio.wait_for(second, 30)
    assert vars(stopped)["abandoned_functions"] == 1
