"""Child processes that crash, are killed, fork, or can't start."""

from __future__ import annotations

import asyncio
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pinlater.client import AckResult, AsyncClient, Checkpoint, ClaimedJob, JobState
from pinlater.worker import Kind, WorkerSettings, never
from pinlater.worker._attempts.calling import AttemptInput
from pinlater.worker._children import child as child_module
from pinlater.worker._children import child_main
from pinlater.worker._children.child import Child
from pinlater.worker._children.pool import ChildPool
from tests.worker import process_tasks
from tests.worker.attempts.test_attempts import ended, running_processes
from tests.worker.conftest import eventually, has_ended

ONE = WorkerSettings(concurrency=1, retry_delay_ms=10, backoff_first_ms=10, backoff_max_ms=50)


def processes_of(worker: Any) -> ChildPool:
    assert worker._run is not None
    found: ChildPool = worker._run.consumers[0].runner.children
    return found


async def test_a_killed_child_costs_an_attempt_whose_error_names_the_signal(client: AsyncClient) -> None:
    """As the kernel does when memory runs out."""
    async with running_processes(client) as worker:
        placed = await process_tasks.sleep.using(attempts=2).enqueue_async(30)
        await eventually(lambda: worker.counts.running == 1)
        (first,) = await eventually(lambda: processes_of(worker).process_ids)
        os.kill(first, signal.SIGKILL)
        info = await eventually(lambda: _failed_once(client, placed.descriptor))
        assert info.attempts[0].error_type == "pinlater.worker.ProcessDied"
        assert "SIGKILL (out of memory?)" in info.attempts[0].error_text
        (second,) = await eventually(lambda: [pid for pid in processes_of(worker).process_ids if pid != first])
        os.kill(second, signal.SIGSEGV)
        info = await ended(client, placed.descriptor, JobState.FAILED)
    assert "SIGSEGV" in info.error_text
    assert info.custom_status == "" or "SIGSEGV" in info.custom_status


async def test_a_child_process_ignores_stop_signals_from_its_start(tmp_path: Path) -> None:
    """A terminal and an init system signal all processes of a service."""
    with ThreadPoolExecutor(1) as threads:
        child = Child((), threads)
        try:
            task = process_tasks.note
            for _ in range(2):
                for number in (signal.SIGINT, signal.SIGTERM):
                    os.kill(child.process_id, number)
                job = ClaimedJob("d", "p", b'{"folder":"%s"}' % str(tmp_path).encode())
                order = child_main.ToRun(*task.reference(), AttemptInput(job, "", None, never()))
                finished = await asyncio.wait_for(child.run(order, _no_checkpoint, lambda: None), 20)
                assert finished.ending.kind is Kind.SUCCEEDED
        finally:
            child.end(kill=True)
            child.wait()


async def _no_checkpoint(item: Checkpoint) -> AckResult:
    raise AssertionError(item)


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
        (living,) = processes_of(worker).process_ids
        pids = {int(pid) for pid in (tmp_path / "pids").read_text().split()}
        assert len(pids) == 2
        assert [pid for pid in pids if not _gone(pid)] == [living]


async def test_a_process_that_dies_is_noticed_while_its_fork_holds_its_pipes_and_the_fork_ends_too(
    client: AsyncClient, tmp_path: Path
) -> None:
    async with running_processes(client) as worker:
        placed = await process_tasks.leave_a_daemon_and_die.enqueue_async(str(tmp_path))
        info = await ended(client, placed.descriptor, JobState.FAILED)
        await eventually(lambda: not processes_of(worker).process_ids)
        await eventually(lambda: has_ended(int((tmp_path / "daemon").read_text())))
    assert "SIGKILL" in info.error_text


@pytest.mark.timeout(60)
async def test_a_process_that_dies_in_the_middle_of_a_message_does_not_freeze_the_worker(
    client: AsyncClient, tmp_path: Path
) -> None:
    """Its fork holds the pipe open, with half a message in it."""
    async with running_processes(client) as worker:
        placed = await process_tasks.die_in_the_middle_of_a_message.enqueue_async(str(tmp_path))
        info = await ended(client, placed.descriptor, JobState.FAILED)
        await eventually(lambda: not processes_of(worker).process_ids)
        await eventually(lambda: has_ended(int((tmp_path / "daemon").read_text())))
    assert "SIGKILL" in info.error_text


@pytest.mark.parametrize("kind", ["exit", "interrupt", "base"])
async def test_system_exit_fails_the_job_and_not_the_process(client: AsyncClient, kind: str) -> None:
    async with running_processes(client, ONE) as worker:
        placed = await process_tasks.raise_what_is_no_exception.using(attempts=1).enqueue_async(kind)
        info = await ended(client, placed.descriptor, JobState.FAILED)
        assert len(processes_of(worker).process_ids) == 1
    assert info.error_type in ("SystemExit", "KeyboardInterrupt", "BaseException")


async def test_a_task_that_a_child_cant_find_fails_with_the_reason(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not with ProcessDied."""
    monkeypatch.setattr(process_tasks.refuse, "reference", lambda: ("tests.worker.no_such_module", "refuse"))
    async with running_processes(client, ONE) as worker:
        placed = await process_tasks.refuse.using(attempts=1).enqueue_async()
        info = await ended(client, placed.descriptor, JobState.FAILED)
        assert len(processes_of(worker).process_ids) == 1
    assert info.error_type == "ModuleNotFoundError"
    assert "no_such_module" in info.error_text


def test_a_message_that_a_child_cant_read_fails_the_job_with_the_reason() -> None:
    channel: Any = None
    ending = child_main._run(b"no pickle", channel, channel)
    assert (ending.kind.value, ending.error_type) == ("failed", "_pickle.UnpicklingError")


async def test_a_large_body_gets_into_a_process(client: AsyncClient) -> None:
    async with running_processes(client, ONE) as worker:
        await process_tasks.large.enqueue_async("x" * 900_000)
        await eventually(lambda: worker.counts.succeeded == 1)


async def test_starting_a_process_and_killing_it_leave_the_loop_free(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both take milliseconds to seconds, in which no other task could run."""
    on_loop: list[str] = []
    loop = asyncio.get_running_loop()

    def watch(name: str) -> None:
        original = getattr(child_module._SPAWN.Process, name)

        def watched(*args: Any, **options: Any) -> Any:
            try:
                if asyncio.get_running_loop() is loop:
                    on_loop.append(name)
            except RuntimeError:
                pass
            return original(*args, **options)

        monkeypatch.setattr(child_module._SPAWN.Process, name, watched)

    async with running_processes(client, ONE) as worker:
        watch("start")
        watch("join")
        placed = await process_tasks.spin.enqueue_async()
        await ended(client, placed.descriptor, JobState.FAILED)
        await eventually(lambda: not processes_of(worker).process_ids)
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
