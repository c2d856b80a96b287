"""What a type checker says about users' code. It reports an ignored error in this file that isn't one."""

from __future__ import annotations

from typing import assert_type

import pytest

from pinlater.client import ClaimedJob, Job, Placed
from pinlater.worker import JobContext, Snooze, Task, Worker

worker = Worker("127.0.0.1:1")


@worker.task("q")
async def with_context(job: JobContext, to: str, copies: int = 1) -> str:
    return f"{copies} to {to} in attempt {job.attempt}"


@worker.task("q")
def with_job(job: ClaimedJob, to: str) -> int:
    return len(to) + len(job.body)


@worker.task("q")
def without(to: str, *, urgent: bool = False) -> None: ...


@worker.cron("* * * * *")
def at_times(job: JobContext) -> None: ...


@worker.cron("* * * * *", name="later")
@worker.task("q")
def may_be_put_off() -> Snooze | None:
    return Snooze(30)


def test_enqueue_takes_the_arguments_without_the_job() -> None:
    assert_type(with_context.job("ada", copies=2), Job)
    assert with_context.job("ada", copies=2).body == b'{"to":"ada","copies":2}'
    assert with_job.using(delay=1).job("ada").body == b'{"to":"ada"}'
    assert without.job("ada", urgent=True).body == b'{"to":"ada","urgent":true}'
    assert at_times.job().body == b""


def test_wrong_arguments_are_an_error_for_the_type_checker_and_python() -> None:
    with pytest.raises(TypeError):
        with_context.job()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        with_job.job("ada", "eve")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        without.using(priority=1).job("ada", urgently=True)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        without()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        with_context.job(to=7)  # type: ignore[arg-type]


def test_a_task_may_return_when_it_runs_again() -> None:
    assert_type(may_be_put_off(), Snooze | None)
    assert may_be_put_off().delay_ms == 30_000  # type: ignore[union-attr]


def test_calling_a_task_calls_its_function() -> None:
    job = ClaimedJob("d", "q", b"four")
    assert_type(with_job(job, "ada"), int)
    assert with_job(job, "ada") == 7
    with pytest.raises(TypeError):
        with_job("ada")  # type: ignore[call-arg, arg-type]


def types_that_users_write(task: Task[[str], None]) -> Placed:
    """For the type checker only: a task can be passed as a callable of its types."""
    return task.enqueue("ada")
