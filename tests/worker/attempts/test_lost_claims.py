"""Attempts that learn from their own calls that their claim has ended."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Callable

import pytest

from pinlater.client import Ack, AsyncClient, JobState
from pinlater.testing import InProcessService
from pinlater.worker import (
    ClaimLost,
    Ending,
    JobContext,
    Kind,
    Middleware,
    Worker,
    current_job,
)
from pinlater.worker.counts import TaskCounts
from tests.worker import process_tasks
from tests.worker.attempts.test_attempts import FAST, ended, running_processes
from tests.worker.conftest import eventually
from tests.worker.test_worker import running, state_of

CANCELLED = "the job has ended: it was cancelled, its claim timed out in its last attempt, or another worker ended it"


class ImportStopped(Exception): ...


def raise_it(progress: Callable[[], object]) -> None:
    progress()


def return_early(progress: Callable[[], object]) -> None:
    try:
        progress()
    except ClaimLost:
        return


def raise_from_it(progress: Callable[[], object]) -> None:
    try:
        progress()
    except ClaimLost as error:
        raise ImportStopped("the import was stopped") from error


def fail_to_clean_up(progress: Callable[[], object]) -> None:
    try:
        progress()
    finally:
        raise ImportStopped("no such file")


@pytest.mark.parametrize(
    ("how", "own_error"),
    [
        (raise_it, ""),
        (return_early, ""),
        (raise_from_it, "ImportStopped: the import was stopped"),
        (fail_to_clean_up, "ImportStopped: no such file"),
    ],
)
@pytest.mark.parametrize("in_thread", [True, False], ids=["thread", "loop"])
async def test_a_task_that_learns_of_its_lost_claim_has_not_failed(
    client: AsyncClient, caplog: pytest.LogCaptureFixture, how: Callable[..., None], own_error: str, in_thread: bool
) -> None:
    endings: list[tuple[str, Ending]] = []

    class Noting(Middleware):
        def after(self, job: JobContext, ending: Ending) -> None:
            endings.append(("after", ending))

        def on_failure(self, job: JobContext, ending: Ending, error: BaseException | None) -> None:
            endings.append(("failure", ending))

    worker, cancelled = Worker(client, settings=FAST, middleware=[Noting()]), threading.Event()

    def in_a_thread() -> None:
        assert cancelled.wait(20)
        how(lambda: current_job().progress(0.5))

    async def on_the_loop() -> None:
        await eventually(cancelled.is_set)
        lost: list[ClaimLost] = []
        try:
            await current_job().progress_async(0.5)
        except ClaimLost as error:
            lost.append(error)

        def again() -> None:
            raise lost[0]

        how(again)

    function: Callable[[], object] = in_a_thread if in_thread else on_the_loop
    task = worker.task("q", name="load")(function)
    placed = await task.enqueue_async()
    async with running(worker):
        await eventually(lambda: state_of(client, placed.descriptor, JobState.IN_PROGRESS))
        await client.cancel("q", [placed.descriptor])
        cancelled.set()
        await eventually(lambda: worker.counts.claimed == 1 and worker.counts.running == 0)
    counts = worker.counts
    assert (counts.lost, counts.failed, counts.succeeded, counts.acks_refused) == (1, 0, 0, 0)
    assert counts.by_task["q", "load"].ended == {Kind.LOST: 1}
    assert [(hook, ending.kind) for hook, ending in endings] == [("after", Kind.LOST)]
    [record] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert record.levelname == "WARNING"
    before, _, after = record.getMessage().partition(CANCELLED)
    assert before.startswith("load: claim lost after ")
    assert after == (own_error and f"; its error does not count: {__name__}.{own_error}")
    assert bool(record.exc_info) == bool(own_error)
    assert (vars(record)["job"], vars(record)["task"]) == (placed.descriptor, "load")
    info = (await client.lookup([placed.descriptor]))[placed.descriptor]
    assert (info.state, info.custom_status, info.error_text) == (JobState.FAILED, "cancelled", "")


def test_the_next_attempt_makes_up_for_one_that_was_counted_and_then_lost() -> None:
    counts = TaskCounts()
    for kind in (Kind.SUCCEEDED, Kind.FAILED):
        counts.note(kind, 1.0)
    counts.was_lost(Kind.SUCCEEDED)
    counts.note(Kind.FAILED, 1.0)
    counts.note(Kind.SUCCEEDED, 1.0)
    assert counts.ended == {Kind.SUCCEEDED: 1, Kind.FAILED: 2, Kind.LOST: 1}
    counts.note(Kind.SUCCEEDED, 1.0)
    assert counts.ended[Kind.SUCCEEDED] == 2


@pytest.mark.parametrize("fails", [False, True], ids=["succeeds", "fails"])
async def test_an_attempt_that_ends_after_its_claim_counts_as_lost(
    client: AsyncClient, caplog: pytest.LogCaptureFixture, *, fails: bool
) -> None:
    worker, cancelled = Worker(client, settings=FAST), asyncio.Event()

    @worker.task("q", name="load")
    async def load() -> None:
        await cancelled.wait()
        if fails:
            raise ImportStopped("no such file")

    placed = await load.enqueue_async()
    async with running(worker):
        await eventually(lambda: state_of(client, placed.descriptor, JobState.IN_PROGRESS))
        await client.cancel("q", [placed.descriptor])
        cancelled.set()
        await eventually(lambda: worker.counts.lost == 1)
    counts = worker.counts
    assert (counts.lost, counts.failed, counts.succeeded, counts.acks_refused) == (1, 0, 0, 1)
    counted_first = Kind.FAILED if fails else Kind.SUCCEEDED  # a counter must not go down
    assert counts.by_task["q", "load"].ended == {counted_first: 1, Kind.LOST: 1}
    record = caplog.records[-1]
    assert CANCELLED in record.getMessage()
    assert (record.levelname, vars(record)["job"]) == ("WARNING", placed.descriptor)


async def test_a_process_that_learns_of_its_lost_claim_has_not_failed(
    client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_processes(client) as worker:
        placed = await process_tasks.report_until_lost.enqueue_async()
        await eventually(lambda: state_of(client, placed.descriptor, JobState.IN_PROGRESS))
        await client.cancel("p", [placed.descriptor])
        info = await ended(client, placed.descriptor, JobState.FAILED)
        await eventually(lambda: worker.counts.running == 0)
    assert (info.custom_status, worker.counts.failed, worker.counts.lost) == ("cancelled", 0, 1)
    [record] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert record.getMessage().startswith("report_until_lost: claim lost after ")
    assert record.getMessage().endswith(f": {CANCELLED}")


def ends(service: InProcessService) -> str:
    """As if it had timed out, but without a turn of the clock, at which the next heartbeat would be due."""
    service.client.ack("q", [Ack(current_job().descriptor, succeeded=False, retry_delay_ms=0)])
    return "it timed out"


def is_claimed_by_another(service: InProcessService) -> str:
    ends(service)
    with service.new_client(source="other") as client:
        assert client.dequeue("q").jobs
    return r"\S+:other:\d+ holds the job now"


def is_deleted(service: InProcessService) -> str:
    service.client.cancel("q", [current_job().descriptor])
    service.client.delete_jobs("q", JobState.FAILED)
    return "the server knows no such job: it was deleted, or its shard is gone"


@pytest.mark.parametrize("happens", [ends, is_claimed_by_another, is_deleted])
@pytest.mark.parametrize("raised", ["as it is", "in a group", "among others"])
async def test_the_ending_says_why_the_claim_was_lost(happens: Callable[[InProcessService], str], raised: str) -> None:
    told: list[str] = []
    endings: list[Ending] = []

    class Noting(Middleware):
        def after(self, job: JobContext, ending: Ending) -> None:
            endings.append(ending)

    worker = Worker(middleware=[Noting()])

    @worker.task("q", attempts=3)
    async def load() -> None:
        if current_job().attempt > 1:
            return
        told.append(happens(service))
        with pytest.raises(ClaimLost) as lost:
            await current_job().progress_async(0.5)
        told.append(str(lost.value))
        if raised == "as it is":
            raise lost.value
        raise ExceptionGroup("both", [lost.value, *([OSError("stop")] if raised == "among others" else [])])

    with InProcessService() as service, service.serving(worker):
        await load.enqueue_async()
        await service.run_until_idle(raise_errors=False)
    assert (endings[0].kind, endings[0].delay_ms) == (Kind.LOST, 0)
    assert re.fullmatch(told[0], endings[0].why_lost)
    assert told[1].endswith(f": {endings[0].why_lost}")
    assert endings[0].error_type == ("ExceptionGroup" if raised == "among others" else "")


async def test_a_lost_claim_of_another_job_is_a_failure() -> None:
    """A task may hold a context that is not its own."""
    worker, earlier = Worker(), list[JobContext]()

    @worker.task("q", attempts=1)
    async def load() -> None:
        if earlier:
            await earlier[0].progress_async(0.5)
        earlier.append(current_job())

    with InProcessService() as service, service.serving(worker):
        await load.enqueue_async()
        await load.enqueue_async()
        ran = await service.run_until_idle(raise_errors=False)
    assert [(each.kind, each.error_type) for each in ran] == [
        (Kind.SUCCEEDED, ""),
        (Kind.FAILED, "pinlater.worker.ClaimLost"),
    ]
