"""The start of a child process, which has a limit of its own."""

from __future__ import annotations

from pathlib import Path

from pinlater.client import AsyncClient, JobState
from pinlater.worker import WorkerSettings
from tests.worker import slow_import_tasks
from tests.worker.attempts.test_attempts import ended, running_processes
from tests.worker.children.test_failures import ONE
from tests.worker.conftest import child_processes, eventually


async def test_the_time_limit_of_a_process_task_begins_with_its_function(client: AsyncClient, tmp_path: Path) -> None:
    """The import alone takes longer than the limit and the claim, which is renewed meanwhile; the process serves the next job too."""
    async with running_processes(client, ONE, slow_import_tasks.worker) as worker:
        for _ in range(2):
            placed = await slow_import_tasks.quick.using(claim_timeout=0.4).enqueue_async(str(tmp_path))
            await ended(client, placed.descriptor, JobState.SUCCEEDED)
            assert worker.counts.lost == 0
        placed = await slow_import_tasks.endless.enqueue_async()
        info = await ended(client, placed.descriptor, JobState.FAILED)
    first, second = (tmp_path / "quick").read_text().splitlines()
    assert first == second
    assert first.endswith(" whole")
    assert info.error_text == "ran longer than its time limit of 1 s"


async def test_a_process_that_does_not_start_in_time_is_killed_and_its_job_says_so(client: AsyncClient) -> None:
    hasty = WorkerSettings(concurrency=1, child_start_ms=300, backoff_first_ms=10, backoff_max_ms=50)
    async with running_processes(client, hasty, slow_import_tasks.worker):
        placed = await slow_import_tasks.endless.enqueue_async()
        info = await ended(client, placed.descriptor, JobState.FAILED)
        await eventually(lambda: not child_processes())
    assert info.error_type == "pinlater.worker.TimeLimitExceeded"
    assert info.error_text == "its process did not start within 0.3 s"
