"""`return Snooze(30)`: a task that returns what it could raise ends as if it had raised it, wherever it runs."""

from __future__ import annotations

from typing import Any

import pytest

from pinlater import JobInfo, JobState, Reject, Retry, Snooze, Worker
from pinlater.testing import InProcessService
from pinlater.worker import Kind, Task
from tests.worker import process_tasks

Ended = list[tuple[Kind, int]]


def tasks_that_return(*answers: object) -> tuple[Worker, list[Task[[], Any]]]:
    """A worker, and its tasks on the event loop and in a thread, whose attempts return these answers in turn."""
    worker, on_loop_left, in_thread_left = Worker("nowhere.invalid:1"), [*answers], [*answers]

    @worker.task("loop", attempts=3)
    async def on_loop() -> object:
        return on_loop_left.pop(0)

    @worker.task("thread", attempts=3)
    def in_thread() -> object:
        return in_thread_left.pop(0)

    return worker, [on_loop, in_thread]


async def ends_of(service: InProcessService, *answers: object) -> list[tuple[Ended, JobInfo]]:
    """The attempts of each of two jobs within a minute, with the seconds at which they ended, and the job then."""
    worker, tasks = tasks_that_return(*answers)
    found = []
    for task in tasks:
        with service.serving(worker):
            began, placed = service.clock.now, await task.enqueue_async()
            ended: Ended = []
            while (service.clock.now - began).total_seconds() < 60:
                ran = await service.run_until_idle(raise_errors=False)
                ended += [(one.kind, round((service.clock.now - began).total_seconds())) for one in ran]
                service.clock.advance(seconds=10)
            found.append((ended, service.job(placed.descriptor)))
    return found


async def test_a_returned_snooze_runs_the_job_again_without_spending_an_attempt(
    pinlater_service: InProcessService,
) -> None:
    for ended, job in await ends_of(pinlater_service, Snooze(30), None):
        assert ended == [(Kind.SNOOZED, 0), (Kind.SUCCEEDED, 30)]
        assert (job.state, job.attempts_remaining) == (JobState.SUCCEEDED, 3)


async def test_a_returned_retry_spends_an_attempt_and_chooses_the_delay(pinlater_service: InProcessService) -> None:
    for ended, job in await ends_of(pinlater_service, Retry(after=20, reason="429 from them"), None):
        assert ended == [(Kind.FAILED, 0), (Kind.SUCCEEDED, 20)]
        assert job.attempts[0].error_text == "429 from them; again in 20 s"


@pytest.mark.parametrize(("answer", "text"), [(Reject("no such address"), "no such address"), (Reject, "")])
async def test_a_returned_reject_gives_up_at_once(
    pinlater_service: InProcessService, answer: object, text: str
) -> None:
    for ended, job in await ends_of(pinlater_service, answer):
        assert ended == [(Kind.GIVEN_UP, 0)]
        assert (job.state, job.attempts[0].error_type, job.attempts[0].error_text) == (
            JobState.FAILED,
            "pinlater.Reject",
            text,
        )


@pytest.mark.parametrize("answer", ["done", ValueError("a value like any other"), Exception])
async def test_other_values_are_results_of_a_success(pinlater_service: InProcessService, answer: object) -> None:
    for ended, _ in await ends_of(pinlater_service, answer):
        assert ended == [(Kind.SUCCEEDED, 0)]


async def test_one_value_that_all_jobs_return_keeps_nothing_of_them(pinlater_service: InProcessService) -> None:
    """Each raise of an exception adds its frames to it: a constant would keep the body of every job."""
    gone = Reject("gone")
    for ended, _ in await ends_of(pinlater_service, gone):
        assert ended == [(Kind.GIVEN_UP, 0)]
    assert gone.__traceback__ is None


async def test_a_task_in_a_process_returns_a_snooze_too(pinlater_service: InProcessService) -> None:
    with pinlater_service.serving(process_tasks.worker):
        await process_tasks.put_off.enqueue_async(30)
        [ran] = await pinlater_service.run_until_idle(processes=True)
        assert ran.kind is Kind.SNOOZED


def test_a_direct_call_returns_what_the_function_returns() -> None:
    assert process_tasks.put_off(30).delay_ms == 30_000
