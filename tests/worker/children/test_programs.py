"""What process tasks start: programs and processes. It ends with the attempt, however that ends, unless it ends by itself."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from pinlater.client import AsyncClient, JobState
from pinlater.worker import Task, WorkerSettings
from tests.worker import process_tasks
from tests.worker.attempts.test_attempts import ended, running_processes
from tests.worker.children.test_failures import ONE
from tests.worker.conftest import eventually, has_ended

FOUR = WorkerSettings(concurrency=4, grace_ms=0, backoff_first_ms=10, backoff_max_ms=50)
MIB = 2**20


async def begun(task: Task[[str], None], notes: Path) -> tuple[str, list[int]]:
    """The job, and the processes of its attempt. The job's own claim is long."""
    placed = await task.using(claim_timeout=None).enqueue_async(str(notes))
    await eventually(notes.exists, timeout_s=40)
    return placed.descriptor, numbers_in(notes)


def numbers_in(notes: Path) -> list[int]:
    return [int(number) for number in notes.read_text().split()]


async def all_ended(processes: list[int]) -> None:
    await eventually(lambda: all(map(has_ended, processes)))


async def test_what_a_process_task_has_started_ends_with_its_attempt(client: AsyncClient, tmp_path: Path) -> None:
    """At its time limit, after a cancel, with its process, and at a stop of the worker."""
    for_ever = process_tasks.start_programs_for_ever
    async with running_processes(client, FOUR):
        limited, programs = await begun(process_tasks.start_programs_for_a_while, tmp_path / "limited")
        await ended(client, limited, JobState.FAILED)
        await all_ended(programs)

        cancelled, programs = await begun(for_ever, tmp_path / "cancelled")
        await client.cancel("p", [cancelled])
        await all_ended(programs)

        killed, programs = await begun(for_ever, tmp_path / "killed")
        os.kill(programs[0], signal.SIGKILL)
        await ended(client, killed, JobState.FAILED)
        await all_ended(programs)

        _, programs = await begun(for_ever, tmp_path / "stopped")
    await all_ended(programs)


async def test_a_process_task_may_use_processes(client: AsyncClient) -> None:
    """`multiprocessing.Pool` ends its processes by SIGTERM, which the task's own process ignores."""
    async with running_processes(client, ONE):
        placed = await process_tasks.use_processes.enqueue_async()
        await ended(client, placed.descriptor, JobState.SUCCEEDED)


async def test_the_memory_limit_of_children_is_about_their_own_memory(client: AsyncClient, tmp_path: Path) -> None:
    """The system says of a process that its peak was at least that of the process which started it."""
    large = b"x" * (400 * MIB)
    del large
    limited = WorkerSettings(concurrency=1, child_memory_bytes_max=300 * MIB, backoff_first_ms=10, backoff_max_ms=50)
    async with running_processes(client, limited) as worker:
        await process_tasks.note.enqueue_many_async([process_tasks.note.job(str(tmp_path)) for _ in range(2)])
        await eventually(lambda: worker.counts.succeeded == 2, timeout_s=40)
    assert len({line.split()[0] for line in (tmp_path / "pids").read_text().splitlines()}) == 1
