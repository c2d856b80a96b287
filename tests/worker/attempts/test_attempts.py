"""Attempts against a real server: typed tasks, where they run, what stops them, and how their jobs end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pinlater.client import AsyncClient, Job, JobInfo, JobState
from pinlater.client.batching import Placed
from pinlater.client.errors import QueueNotFound
from pinlater.worker import (
    Ending,
    JobContext,
    Kind,
    Middleware,
    Reject,
    Worker,
    WorkerCounts,
    WorkerSettings,
    constant,
    current_job,
)
from tests.worker import process_tasks
from tests.worker.conftest import child_processes, eventually, idle_worker
from tests.worker.test_worker import running, state_of

FAST = WorkerSettings(
    retry_delay_ms=10, backoff_first_ms=10, backoff_max_ms=50, grace_ms=5_000, unknown_task_delay_ms=60_000
)


class MailStruct(msgspec.Struct):
    to: str
    subject: str = "hello"


async def ended(client: AsyncClient, descriptor: str, state: JobState) -> JobInfo:
    # Three processes in a row take long to start on a busy machine.
    info: JobInfo = await eventually(lambda: state_of(client, descriptor, state), timeout_s=40)
    return info


# --- tasks ----------------------------------------------------------------------------------------------------------------


async def test_plain_code_enqueues_and_blocking_an_event_loop_is_an_error(client: AsyncClient) -> None:
    worker = Worker(client, settings=FAST)
    seen: list[int] = []

    @worker.task("q")
    async def count(number: int) -> None:
        seen.append(number)

    with pytest.raises(RuntimeError, match="ends in _async"):
        count.enqueue(1)
    await asyncio.to_thread(count.enqueue, 2)
    await asyncio.to_thread(count.enqueue_many, [count.job(3)])
    async with running(worker):
        await eventually(lambda: sorted(seen) == [2, 3])


@pytest.mark.parametrize("plain", [True, False])
async def test_many_jobs_are_enqueued_in_order_while_they_are_made(
    client: AsyncClient, server: str, plain: bool
) -> None:
    """After an error the jobs of earlier requests are stored."""
    worker = Worker(server if plain else client)

    @worker.task("q")
    async def count(number: int) -> None: ...

    class Enough(Exception): ...

    def jobs() -> Iterator[Job]:
        yield from [count.job(number) for number in range(1_100)]
        raise Enough

    async def enqueue(jobs: Iterable[Job]) -> list[Placed]:
        return await (asyncio.to_thread(count.enqueue_many, jobs) if plain else count.enqueue_many_async(jobs))

    placed = await enqueue([count.job(number) for number in range(1_200)])
    found = await client.lookup([one.descriptor for one in placed], bodies=True)
    assert [msgspec.json.decode(job.body or b"")["number"] for job in found.values()] == [*range(1_200)]
    with pytest.raises(Enough):
        await enqueue(jobs())
    assert await client.count("q") == 2_200


async def test_a_worker_creates_the_queues_of_its_tasks_when_asked(client: AsyncClient) -> None:
    worker = idle_worker(client, settings=WorkerSettings(auto_create=False))

    @worker.task("new")
    async def new() -> None: ...

    with pytest.raises(QueueNotFound) as missing:
        await new.enqueue_async()
    assert "create_queues()" in missing.value.__notes__[0]
    await worker.create_queues_async()
    await asyncio.to_thread(worker.create_queues)
    assert await client.queue_names() == ["new", "q"]
    with pytest.raises(RuntimeError, match="ends in _async"):
        worker.create_queues()


async def test_options_of_a_job(client: AsyncClient) -> None:
    worker = Worker(client)

    @worker.task("q", attempts=7, priority=2)
    async def send(to: str) -> None: ...

    first = await send.using(unique="once", headers={"tenant": "a"}, delay=timedelta(hours=1)).enqueue_async("x")
    second = await send.using(unique="once").enqueue_async("y")
    assert (first.existing, second) == (False, (first.descriptor, True))
    info = (await client.lookup([first.descriptor], bodies=True))[first.descriptor]
    assert info.body == b'{"to":"x"}'
    assert info.headers == {"tenant": "a", "pinlater-task": "send", "content-type": "application/json"}
    assert info.attempts_allowed == 7
    assert (info.run_after_ms or 0) - (info.created_at_ms or 0) == pytest.approx(3_600_000, abs=5_000)
    later = datetime.now(UTC).replace(microsecond=0) + timedelta(days=100)
    at = await send.using(at=later, priority=3).enqueue_async("at")
    assert (await client.lookup([at.descriptor]))[at.descriptor].run_after_ms == later.timestamp() * 1000
    assert [placed.descriptor.split(":")[2] for placed in (first, at)] == ["p2", "p3"]
    expired = await send.using(expires_in=0.001, claim_timeout=5).enqueue_async("z")
    await eventually(lambda: _claimed_nothing(client))
    assert (await client.lookup([expired.descriptor]))[expired.descriptor].custom_status == "expired"
    with pytest.raises(ValueError, match="either delay or at"):
        send.using(delay=1, at=5)


@dataclass
class Point:
    x: int
    y: int


class Semicolons:
    """A codec that a user might write."""

    content_type = "text/x-semicolons"

    def encode(self, value: Any) -> bytes:
        return f"{value.x};{value.y}".encode()

    def decode(self, body: bytes, into: Any) -> Any:
        return into(*map(int, body.split(b";")))


async def test_a_task_may_have_a_custom_codec(client: AsyncClient) -> None:
    """A body in another known encoding is read too."""
    seen: list[Point] = []
    worker = Worker(client, settings=FAST, codec=Semicolons())

    @worker.task("q")
    async def draw(at: Point) -> None:
        seen.append(at)

    placed = await draw.enqueue_async(Point(1, 2))
    info = (await client.lookup([placed.descriptor], bodies=True))[placed.descriptor]
    assert (info.body, info.headers["content-type"]) == (b"1;2", "text/x-semicolons")
    await client.enqueue(
        "q", [b"3;4", Job(b'{"x":5,"y":6}', headers={"pinlater-task": "draw", "content-type": "application/json"})]
    )
    async with running(worker):
        await eventually(lambda: len(seen) == 3)
    assert sorted((point.x, point.y) for point in seen) == [(1, 2), (3, 4), (5, 6)]


async def test_the_context_is_available_on_the_loop_in_threads_and_in_processes(
    client: AsyncClient, tmp_path: Path
) -> None:
    """Attempt, headers and deadline; the attempt counts up."""
    seen: dict[str, list[Any]] = {"on_loop": [], "in_thread": []}
    async with running_processes(client):
        worker = Worker(client, settings=FAST, retry=constant(0))

        @worker.task("q", attempts=3, time_limit=60)
        async def on_loop() -> None:
            seen["on_loop"].append(process_tasks.told())
            process_tasks.fail_once()

        @worker.task("q", attempts=3, time_limit=60)
        def in_thread() -> None:
            seen["in_thread"].append(process_tasks.told())
            process_tasks.fail_once()

        placed = [await task.using(headers={"tenant": "a"}).enqueue_async() for task in (on_loop, in_thread)]
        in_process = await process_tasks.tell.using(headers={"tenant": "a"}).enqueue_async(str(tmp_path))
        async with running(worker):
            for one in (*placed, in_process):
                await ended(client, one.descriptor, JobState.SUCCEEDED)
    seen["in_process"] = [tuple(line.split(",")) for line in (tmp_path / "told").read_text().splitlines()]
    assert seen == {place: [("1", "a", "True"), ("2", "a", "True")] for place in seen}


async def _claimed_nothing(client: AsyncClient) -> bool:
    await client.dequeue("q")
    return bool(await client.count("q", JobState.FAILED))


async def test_a_job_of_an_unknown_task_is_given_back_with_a_delay(
    client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    """During a rolling deployment another worker knows the task."""
    worker = idle_worker(client, settings=FAST)
    jobs = [Job(b"", headers={"pinlater-task": "newer"}, attempts_allowed=1)] * 3
    descriptors = (await client.enqueue("q", jobs)).descriptors
    async with running(worker):
        await eventually(lambda: worker.counts.released == 3)
    assert worker.counts.unknown_tasks == 3
    assert len([record for record in caplog.records if "no task 'newer' here" in record.message]) == 1
    for info in (await client.lookup(descriptors)).values():
        assert (info.state, info.attempts_remaining) == (JobState.PENDING, 1)


@pytest.mark.parametrize(
    ("body", "headers", "reason"),
    [
        (b'{"too": "x"}', {}, "the body does not fit task send"),
        (b"\xff", {}, "the body does not fit task send"),
        (b"<to/>", {"content-type": "text/xml"}, "task send can't decode content-type 'text/xml'"),
    ],
)
async def test_a_body_that_cant_be_decoded_fails_at_once_with_the_reason(
    client: AsyncClient, body: bytes, headers: dict[str, str], reason: str
) -> None:
    worker = Worker(client, settings=FAST)

    @worker.task("q")
    async def send(to: str) -> None: ...

    (descriptor,) = (await client.enqueue("q", [Job(body, headers=headers, attempts_allowed=9)])).descriptors
    async with running(worker):
        info = await ended(client, descriptor, JobState.FAILED)
    assert reason in info.error_text
    assert info.error_type == "pinlater.worker.CantDecode"
    assert len(info.attempts) == 1


# --- the job in hand --------------------------------------------------------------------------------------------------------
async def test_the_next_attempt_starts_from_the_checkpoint(client: AsyncClient) -> None:
    worker = Worker(client, settings=FAST)
    seen: list[tuple[int, int, int]] = []

    @worker.task("q", attempts=3)
    async def on_loop(done: int) -> None:
        job = current_job()
        seen.append((done, job.attempt, job.attempts_remaining))
        await job.checkpoint_async({"done": done + 1})
        await job.progress_async(done / 2, "so far")
        if done < 2:
            raise ValueError

    @worker.task("q", attempts=3)
    def in_thread(done: int) -> None:
        job = current_job()
        seen.append((done, job.attempt, job.attempts_remaining))
        job.checkpoint({"done": done + 1})
        if done < 2:
            raise ValueError

    first, second = await on_loop.enqueue_async(0), await in_thread.enqueue_async(0)
    async with running(worker):
        info = await ended(client, first.descriptor, JobState.SUCCEEDED)
        await ended(client, second.descriptor, JobState.SUCCEEDED)
    assert sorted(seen) == [(0, 1, 3), (0, 1, 3), (1, 2, 2), (1, 2, 2), (2, 3, 1), (2, 3, 1)]
    assert (info.custom_status, info.progress) == ("[progress] 100 % so far\n", "100 % so far")


async def test_middleware_sees_every_job_in_order(client: AsyncClient) -> None:
    told: list[str] = []

    class Telling(Middleware):
        def __init__(self, name: str) -> None:
            self.name = name

        async def before(self, job: JobContext) -> None:
            told.append(f"{self.name} before {job.task}")
            if job.headers.get("refused"):
                raise Reject("by middleware")

        def after(self, job: JobContext, ending: Ending) -> None:
            told.append(f"{self.name} after {ending.kind.value}")

        async def on_failure(self, job: JobContext, ending: Ending, error: BaseException | None) -> None:
            told.append(f"{self.name} failure {error}")
            raise RuntimeError("a hook that fails harms nothing")

    worker = Worker(client, settings=FAST, middleware=[Telling("outer"), Telling("inner")])

    @worker.task("q", attempts=1)
    async def run(fail: bool) -> None:
        if fail:
            raise ValueError("v")

    for fail, headers in ((False, {}), (True, {}), (False, {"refused": "yes"})):
        told.clear()
        placed = await run.using(headers=headers).enqueue_async(fail)
        async with running(worker):
            await ended(client, placed.descriptor, JobState.FAILED if fail or headers else JobState.SUCCEEDED)
        if headers:
            assert told[0] == "outer before run"
            assert "outer failure by middleware" in told
        elif fail:
            assert told == ["outer before run", "inner before run", "inner failure v", "outer failure v"]
        else:
            assert told == ["outer before run", "inner before run", "inner after succeeded", "outer after succeeded"]


# --- what stops a job -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("deaf", [False, True])
async def test_a_coroutine_that_swallows_its_cancellation_still_fails_at_its_time_limit(
    client: AsyncClient, deaf: bool
) -> None:
    worker = Worker(client, settings=FAST)
    may_end = asyncio.Event()

    @worker.task("q", time_limit=0.05, attempts=1, concurrency=1)
    async def hang(deaf: bool) -> None:
        with contextlib.suppress(asyncio.CancelledError if deaf else ZeroDivisionError):
            await asyncio.Event().wait()
        await may_end.wait()

    @worker.task("q")
    async def other() -> None: ...

    slow, quick = await hang.enqueue_async(deaf), await other.enqueue_async()
    async with running(worker):
        info = await ended(client, slow.descriptor, JobState.FAILED)
        if not deaf:
            await ended(client, quick.descriptor, JobState.SUCCEEDED)
        else:
            assert worker.abandoned_functions == 1
        may_end.set()
        await ended(client, quick.descriptor, JobState.SUCCEEDED)
        await eventually(lambda: worker.abandoned_functions == 0)
    assert (info.error_type, info.error_text) == (
        "pinlater.worker.TimeLimitExceeded",
        "ran longer than its time limit of 0.05 s",
    )


async def test_the_slot_of_a_task_that_does_not_end_goes_to_the_next_job(client: AsyncClient) -> None:
    """At once, and not only when another job ends."""
    worker = Worker(client, settings=FAST)
    may_end = asyncio.Event()

    @worker.task("q", time_limit=0.05, attempts=1, concurrency=2)
    async def deaf() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await may_end.wait()

    @worker.task("q")
    async def long() -> None:
        await may_end.wait()

    @worker.task("q")
    async def other() -> None: ...

    await deaf.enqueue_async()
    await long.enqueue_async()
    waiting = await other.enqueue_async()
    async with running(worker):
        await ended(client, waiting.descriptor, JobState.SUCCEEDED)
        assert not may_end.is_set()
        may_end.set()


# --- processes --------------------------------------------------------------------------------------------------------------
@contextlib.asynccontextmanager
async def running_processes(
    client: AsyncClient, settings: WorkerSettings = FAST, worker: Worker = process_tasks.worker
) -> AsyncIterator[Worker]:
    await client.create_queue("p")
    worker.counts = WorkerCounts()
    task = asyncio.create_task(worker.run_async(client=client, settings=settings))

    async def asks_for_jobs() -> bool:
        return (await client.queue_stats("p"))[0].waiting_dequeues > 0

    try:
        await eventually(asks_for_jobs)  # from then on, its tasks enqueue on these servers too
        yield worker
    finally:
        worker.request_stop()
        await asyncio.wait_for(task, 20)


async def test_a_child_process_is_replaced_after_its_number_of_jobs(client: AsyncClient, tmp_path: Path) -> None:
    limited = WorkerSettings(concurrency=1, child_jobs_max=2, backoff_first_ms=10, backoff_max_ms=50)
    async with running_processes(client, limited) as worker:
        await process_tasks.note.enqueue_many_async([process_tasks.note.job(str(tmp_path)) for _ in range(5)])
        await eventually(lambda: worker.counts.succeeded == 5, timeout_s=40)
    pids = [line.split()[0] for line in (tmp_path / "pids").read_text().splitlines()]
    assert str(os.getpid()) not in pids
    assert sorted(pids.count(pid) for pid in set(pids)) == [1, 2, 2]


@pytest.mark.parametrize(
    ("how", "said"),
    [("kill", "SIGKILL (out of memory?)"), ("exit", "exit code 3"), ("fork", "exit code"), ("close", "")],
)
async def test_a_job_is_given_up_after_it_killed_three_processes(
    client: AsyncClient, how: str, said: str, tmp_path: Path
) -> None:
    """The last crash counts as given up and not also as failed; the queue has one failed job."""
    async with running_processes(client) as worker:
        placed = await process_tasks.die.enqueue_async(how)
        info = await ended(client, placed.descriptor, JobState.FAILED)
        [counts] = worker.counts.by_task.values()
        assert counts.ended == {Kind.FAILED: 2, Kind.GIVEN_UP: 1}
        assert sum(counts.durations) == worker.counts.failed == worker.counts.claimed == 3
        [stats] = await client.queue_stats("p")
        assert [stats.total(name) for name in ("failed", "failed_total", "retried_total", "pending")] == [1, 1, 2, 0]
        await process_tasks.note.enqueue_async(str(tmp_path))
        await eventually(lambda: worker.counts.succeeded == 1, timeout_s=40)
    assert [attempt.error_type for attempt in info.attempts] == ["pinlater.worker.ProcessDied"] * 3
    assert said in info.error_text
    assert "given up" in info.error_text


async def test_a_child_process_saves_progress_and_reports_its_ending(client: AsyncClient) -> None:
    async with running_processes(client):
        stepped, refused = await process_tasks.step.enqueue_async(0), await process_tasks.refuse.enqueue_async()
        info = await ended(client, stepped.descriptor, JobState.SUCCEEDED)
        other = await ended(client, refused.descriptor, JobState.FAILED)
    assert [attempt.error_text.partition("\n")[0] for attempt in info.attempts if attempt.error_text] == [
        "after 0",
        "after 1",
    ]
    assert info.progress == "100 % all done"
    assert other.error_text == "not this one"


async def test_a_stop_gives_back_jobs_in_processes_and_ends_the_processes(client: AsyncClient) -> None:
    hasty = WorkerSettings(grace_ms=0, backoff_first_ms=10, backoff_max_ms=50)
    async with running_processes(client, hasty) as worker:
        placed = await process_tasks.sleep.enqueue_async(60)
        await eventually(lambda: worker.counts.running == 1)
        children = await eventually(child_processes)
    info = (await client.lookup([placed.descriptor]))[placed.descriptor]
    assert (info.state, info.attempts_remaining) == (JobState.PENDING, info.attempts_allowed)
    for child in children:
        with pytest.raises(ProcessLookupError):
            os.kill(child, signal.SIGCONT)


# --- several queues -----------------------------------------------------------------------------------------------------------
