"""Child processes that crash, are killed, fork, or can't start."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pinlater.client import AsyncClient, JobState
from pinlater.worker import Task, Worker, WorkerSettings
from tests.worker import process_tasks
from tests.worker.attempts.test_attempts import ended, running_processes
from tests.worker.conftest import child_processes, eventually, has_ended
from tests.worker.test_worker import running, state_of

ONE = WorkerSettings(concurrency=1, retry_delay_ms=10, backoff_first_ms=10, backoff_max_ms=50)


async def test_a_killed_child_costs_an_attempt_whose_error_names_the_signal(client: AsyncClient) -> None:
    """As the kernel does when memory runs out."""
    async with running_processes(client) as worker:
        placed = await process_tasks.sleep.using(attempts=2).enqueue_async(30)
        await eventually(lambda: worker.counts.running == 1)
        (first,) = await eventually(child_processes)
        os.kill(first, signal.SIGKILL)
        info = await eventually(lambda: _failed_once(client, placed.descriptor))
        assert info.attempts[0].error_type == "pinlater.worker.ProcessDied"
        assert "SIGKILL (out of memory?)" in info.attempts[0].error_text
        (second,) = await eventually(lambda: [pid for pid in child_processes() if pid != first])
        os.kill(second, signal.SIGSEGV)
        info = await ended(client, placed.descriptor, JobState.FAILED)
    assert "SIGSEGV" in info.error_text
    assert info.custom_status == "" or "SIGSEGV" in info.custom_status


async def test_a_child_process_ignores_stop_signals_from_its_start(client: AsyncClient, tmp_path: Path) -> None:
    """A terminal and an init system signal all processes of a service."""
    async with running_processes(client, ONE) as worker:
        for count in (1, 2):
            await process_tasks.note.enqueue_async(str(tmp_path))
            [child] = await eventually(child_processes)
            for number in (signal.SIGINT, signal.SIGTERM):
                os.kill(child, number)
            await eventually(lambda: worker.counts.succeeded == count)  # noqa: B023 - called in this turn
    assert (tmp_path / "pids").read_text() == f"{child} 1\n" * 2


async def _failed_once(client: AsyncClient, descriptor: str) -> Any:
    info = (await client.lookup([descriptor]))[descriptor]
    return info if info.attempts and info.attempts[0].error_text else None


async def test_a_forked_child_that_returns_reports_nothing(client: AsyncClient, tmp_path: Path) -> None:
    """Its answer would be taken for the next job's."""
    async with running_processes(client, ONE) as worker:
        await process_tasks.fork_and_return.enqueue_async(str(tmp_path))
        await eventually(lambda: worker.counts.succeeded == 1)
        last = await process_tasks.sleep.enqueue_async(0.5)
        await eventually(lambda: worker.counts.running == 1)
        pending = (await client.lookup([last.descriptor]))[last.descriptor]
        assert pending.state is JobState.IN_PROGRESS
        await ended(client, last.descriptor, JobState.SUCCEEDED)
        (living,) = child_processes()
        pids = {int(pid) for pid in (tmp_path / "pids").read_text().split()}
        assert len(pids) == 2
        assert [pid for pid in pids if not _gone(pid)] == [living]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "task", [process_tasks.leave_a_daemon_and_die, process_tasks.die_in_the_middle_of_a_message], ids=repr
)
async def test_a_process_that_dies_is_noticed_while_its_fork_holds_its_pipes_and_the_fork_ends_too(
    client: AsyncClient, tmp_path: Path, task: Task[[str], None]
) -> None:
    """Also with half a message in the pipe, which must not freeze the worker."""
    async with running_processes(client):
        placed = await task.enqueue_async(str(tmp_path))
        info = await ended(client, placed.descriptor, JobState.FAILED)
        await eventually(lambda: not child_processes())
        await eventually(lambda: has_ended(int((tmp_path / "daemon").read_text())))
    assert "SIGKILL" in info.error_text


@pytest.mark.parametrize("kind", ["exit", "interrupt", "base"])
async def test_system_exit_fails_the_job_and_not_the_process(client: AsyncClient, kind: str) -> None:
    async with running_processes(client, ONE):
        placed = await process_tasks.raise_what_is_no_exception.using(attempts=1).enqueue_async(kind)
        info = await ended(client, placed.descriptor, JobState.FAILED)
        assert len(child_processes()) == 1
    assert info.error_type in ("SystemExit", "KeyboardInterrupt", "BaseException")


async def test_a_task_that_a_child_cant_find_fails_with_the_reason(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not with ProcessDied."""
    monkeypatch.setattr(process_tasks.refuse, "reference", lambda: ("tests.worker.no_such_module", "refuse"))
    async with running_processes(client, ONE):
        placed = await process_tasks.refuse.using(attempts=1).enqueue_async()
        info = await ended(client, placed.descriptor, JobState.FAILED)
        assert len(child_processes()) == 1
    assert info.error_type == "ModuleNotFoundError"
    assert "no_such_module" in info.error_text


async def test_a_message_that_a_child_cant_read_fails_the_job_with_the_reason(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a retry policy of a module that only the worker's own process has."""
    only_here = ModuleType("only_here")
    monkeypatch.setitem(sys.modules, "only_here", only_here)
    only_here.Own = type("Own", (), {"__module__": "only_here", "delay_ms": lambda *_: None})  # type: ignore[attr-defined]
    await client.create_queue("p")
    worker = Worker(client, settings=ONE, retry=only_here.Own())
    refuse = worker.task("p", process=True, attempts=1, name="refuse")(process_tasks.refuse.function)
    placed = await refuse.enqueue_async()
    async with running(worker):
        info = await ended(client, placed.descriptor, JobState.FAILED)
    assert (info.error_type, "only_here" in info.error_text) == ("ModuleNotFoundError", True)


async def test_a_large_body_gets_into_a_process(client: AsyncClient) -> None:
    async with running_processes(client, ONE) as worker:
        await process_tasks.large.enqueue_async("x" * 900_000)
        await eventually(lambda: worker.counts.succeeded == 1)


async def test_a_process_that_dies_before_it_has_read_its_job_is_noticed(client: AsyncClient, tmp_path: Path) -> None:
    """The job is larger than what the pipe holds."""
    async with running_processes(client, ONE) as worker:
        await process_tasks.note.enqueue_async(str(tmp_path))
        await eventually(lambda: worker.counts.succeeded == 1)
        [child] = child_processes()
        os.kill(child, signal.SIGSTOP)
        placed = await process_tasks.large.using(attempts=1).enqueue_async("x" * 900_000)
        await eventually(lambda: worker.counts.running == 1)
        os.kill(child, signal.SIGKILL)
        info = await ended(client, placed.descriptor, JobState.FAILED)
    assert "SIGKILL" in info.error_text


async def test_what_a_process_sent_before_it_died_counts(client: AsyncClient) -> None:
    async with running_processes(client, ONE):
        placed = await process_tasks.checkpoint_and_die.enqueue_async(0)
        info = await ended(client, placed.descriptor, JobState.SUCCEEDED)
    assert next(attempt.error_type for attempt in info.attempts) == "pinlater.worker.ProcessDied"


@pytest.mark.thorough  # a minute
async def test_a_process_that_stops_in_the_middle_of_a_message_is_given_up(client: AsyncClient) -> None:
    async with running_processes(client, ONE):
        placed = await process_tasks.stop_in_the_middle_of_a_message.enqueue_async()
        info = await eventually(lambda: state_of(client, placed.descriptor, JobState.FAILED), timeout_s=120)
    assert "the process stopped in the middle of a message, 60 s ago" in info.error_text


@pytest.mark.parametrize("head", ["ff" * 3 + "fe", "7f" + "ff" * 3, "ff" * 4 + "7f" * 8])
async def test_a_message_of_an_invalid_length_costs_the_job_an_attempt(client: AsyncClient, head: str) -> None:
    """No memory is taken for it."""
    async with running_processes(client, ONE):
        placed = await process_tasks.write_into_the_pipe.enqueue_async(head)
        info = await ended(client, placed.descriptor, JobState.FAILED)
    assert info.error_type == "pinlater.worker.ProcessDied"
    assert "the process sent something that is not a message" in info.error_text


async def test_starting_a_process_and_killing_it_leave_the_loop_free(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both take milliseconds to seconds, in which no other task could run."""
    on_loop: list[str] = []
    loop = asyncio.get_running_loop()

    def watch(name: str) -> None:
        original = getattr(SpawnProcess, name)

        def watched(*args: Any, **options: Any) -> Any:
            try:
                if asyncio.get_running_loop() is loop:
                    on_loop.append(name)
            except RuntimeError:
                pass
            return original(*args, **options)

        monkeypatch.setattr(SpawnProcess, name, watched)

    async with running_processes(client, ONE):
        watch("start")
        watch("join")
        placed = await process_tasks.spin.enqueue_async()
        await ended(client, placed.descriptor, JobState.FAILED)
        await eventually(lambda: not child_processes())
        assert on_loop == []


async def test_processes_and_their_pipes_are_gone_when_the_worker_is(client: AsyncClient, tmp_path: Path) -> None:
    recycling = WorkerSettings(concurrency=2, child_jobs_max=1, backoff_first_ms=10, backoff_max_ms=50)
    async with running_processes(client, recycling) as worker:
        await process_tasks.note.enqueue_async(str(tmp_path))
        await eventually(lambda: worker.counts.succeeded == 1)
    before = _descriptors()
    async with running_processes(client, recycling) as worker:
        jobs = [process_tasks.note.job(str(tmp_path)) for _ in range(4)]
        await process_tasks.note.enqueue_many_async(
            [*jobs, process_tasks.spin.job(), process_tasks.large.job("x" * 200_000)]
        )
        await eventually(lambda: worker.counts.succeeded == 5 and worker.counts.failed == 1, timeout_s=30)
    await eventually(lambda: _descriptors() <= before)
    pids = {int(line.split()[0]) for line in (tmp_path / "pids").read_text().splitlines()}
    await eventually(lambda: all(map(_gone, pids)))


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False
