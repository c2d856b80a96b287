"""Faulty tasks and policies, on the loop and in threads, harm only their own jobs."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from pinlater.client import AsyncClient, Job, JobState
from pinlater.worker import Worker, WorkerSettings
from tests.worker.conftest import eventually
from tests.worker.test_worker import FAST, running, state_of

ONE = WorkerSettings(concurrency=1, retry_delay_ms=10, backoff_first_ms=10, backoff_max_ms=50, prefetch_max=0)


class Broken:
    """A retry policy that raises."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def delay_ms(self, attempt: int, error: BaseException, spread: float) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


# --- policies ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("answer", [ValueError("no"), 12.7, -5, "soon", 10**30])
@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_broken_retry_policy_costs_neither_the_report_nor_the_slot(
    client: AsyncClient, answer: Any, in_thread: bool
) -> None:
    worker = Worker(client, settings=ONE, retry=Broken(answer))

    async def fail(body: bytes) -> None:
        if body == b"bad":
            raise KeyError("the job's own")

    def fail_in_thread(body: bytes) -> None:
        if body == b"bad":
            raise KeyError("the job's own")

    worker.task("q", default=True)(fail_in_thread if in_thread else fail)
    (bad, good) = (await client.enqueue("q", [Job(b"bad", attempts_allowed=2), b"good"])).descriptors
    async with running(worker):
        await eventually(lambda: state_of(client, good, JobState.SUCCEEDED))
        await eventually(lambda: worker.counts.failed >= 1)
        await eventually(lambda: worker.counts.running == 0)
    info = (await client.lookup([bad]))[bad]
    assert "the job's own" in info.error_text


@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_failed_attempt_leaves_nothing_of_its_job_for_the_garbage_collector(
    client: AsyncClient, caplog: pytest.LogCaptureFixture, in_thread: bool
) -> None:
    """It counts objects, not bytes: some large jobs that fail could stay for long."""
    caplog.set_level(logging.CRITICAL, "pinlater.worker")  # pytest keeps every line, with its error
    worker = Worker(client, settings=ONE)
    held: list[weakref.ref[Broken]] = []

    def fail(body: bytes) -> None:
        large = Broken(body)
        held.append(weakref.ref(large))
        raise KeyError("the job's own")

    async def fail_on_loop(body: bytes) -> None:
        fail(body)

    worker.task("q", default=True)(fail if in_thread else fail_on_loop)
    await client.enqueue("q", [Job(b"x", attempts_allowed=1)])
    gc.disable()
    try:
        async with running(worker):
            await eventually(lambda: worker.counts.failed == 1 and worker.counts.running == 0)
            await eventually(lambda: held[0]() is None, timeout_s=5)
    finally:
        gc.enable()


# --- slots ------------------------------------------------------------------------------------------------------------------
async def test_an_abandoned_thread_that_ends_frees_its_slot(client: AsyncClient) -> None:
    """The worker claims nothing while abandoned threads hold all slots, and claims again when they end."""
    worker = Worker(client, settings=ONE)
    may_end = threading.Event()

    @worker.task("q", time_limit=0.05, attempts=1)
    def hang() -> None:
        may_end.wait(30)

    @worker.task("q")
    async def other() -> None: ...

    slow = await hang.enqueue_async()
    async with running(worker):
        info = await eventually(lambda: state_of(client, slow.descriptor, JobState.FAILED))
        assert (worker.abandoned_functions, "time limit" in info.error_text) == (1, True)
        later = await other.enqueue_async()
        may_end.set()
        await eventually(lambda: state_of(client, later.descriptor, JobState.SUCCEEDED))


# --- forks ------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("how", ["on the loop", "on the loop, then awaiting", "in a thread", "raising"])
async def test_a_forked_child_that_returns_from_the_task_exits(client: AsyncClient, how: str) -> None:
    """Otherwise it would run the worker's loop a second time, with the same connections and jobs."""
    worker = Worker(client, settings=FAST)
    children: list[int] = []

    def fork() -> int:
        child = os.fork()
        if child:
            children.append(child)
        else:
            signal.alarm(10)  # the test's process must not go on twice whatever the worker does
        return child

    async def on_loop(body: bytes) -> None:
        child = fork()
        if how.endswith("awaiting"):
            await asyncio.sleep(0)
        elif how == "raising" and not child:
            raise SystemExit(0)

    def in_thread(body: bytes) -> None:
        fork()

    worker.task("q")(in_thread if how == "in a thread" else on_loop)
    await client.enqueue("q", [b"first", b"second"])
    async with running(worker):
        await eventually(lambda: worker.counts.succeeded == 2)
    for child in children:
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
    assert len(children) == 2


# --- what has not run -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("on_loop", "made", "told"),
    [
        (False, "coroutine", "write the task as `async def`"),
        (False, "generator", "call it in a loop"),
        (True, "coroutine", "which no worker awaits: await it there"),
        (True, "generator", "call it in a loop"),
    ],
)
async def test_a_job_whose_task_returns_what_has_not_run_has_not_succeeded(
    client: AsyncClient, on_loop: bool, made: str, told: str
) -> None:
    async def work() -> None: ...

    def steps() -> Iterator[int]:
        yield 1

    worker = Worker(client, settings=ONE)

    def start() -> object:
        return work() if made == "coroutine" else steps()

    async def start_on_loop() -> object:
        return start()

    task = worker.task("q", name="start", attempts=1)(start_on_loop if on_loop else start)
    placed = await task.enqueue_async()
    async with running(worker):
        await eventually(lambda: state_of(client, placed.descriptor, JobState.FAILED))
    info = (await client.lookup([placed.descriptor]))[placed.descriptor]
    assert info.error_type == "TypeError"
    assert f"task start returned a {made}" in info.error_text
    assert told in info.error_text
