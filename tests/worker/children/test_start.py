"""The start of a child process, which has a limit of its own."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

from pinlater.client import AsyncClient, ClaimedJob, JobState
from pinlater.domain.clock import ManualClock
from pinlater.worker import WorkerSettings
from pinlater.worker._consumer.held_jobs import HeldJob
from pinlater.worker._consumer.job_stopper import JobStopper
from pinlater.worker._leases.leases import Lease, Leases
from tests.worker import slow_import_tasks
from tests.worker.attempts.test_attempts import ended, running_processes
from tests.worker.children.test_failures import ONE, processes_of
from tests.worker.conftest import eventually


async def test_the_time_limit_of_a_process_task_begins_with_its_function(client: AsyncClient, tmp_path: Path) -> None:
    """The import alone takes longer than the limit; the process serves the next job too."""
    async with running_processes(client, ONE, slow_import_tasks.worker):
        for _ in range(2):
            placed = await slow_import_tasks.quick.enqueue_async(str(tmp_path))
            await ended(client, placed.descriptor, JobState.SUCCEEDED)
        placed = await slow_import_tasks.endless.enqueue_async()
        info = await ended(client, placed.descriptor, JobState.FAILED)
    first, second = (tmp_path / "quick").read_text().splitlines()
    assert first == second
    assert first.endswith(" whole")
    assert info.error_text == "ran longer than its time limit of 1 s"


async def test_a_process_that_does_not_start_in_time_is_killed_and_its_job_says_so(client: AsyncClient) -> None:
    hasty = WorkerSettings(concurrency=1, child_start_ms=300, backoff_first_ms=10, backoff_max_ms=50)
    async with running_processes(client, hasty, slow_import_tasks.worker) as worker:
        placed = await slow_import_tasks.endless.enqueue_async()
        info = await ended(client, placed.descriptor, JobState.FAILED)
        await eventually(lambda: not processes_of(worker).process_ids)
    assert info.error_type == "pinlater.worker.TimeLimitExceeded"
    assert info.error_text == "its process did not start within 0.3 s"


async def test_a_claim_is_renewed_while_the_process_of_its_job_starts() -> None:
    """A time limit of one second, then a start of up to a minute."""
    clock = ManualClock()
    leases = Leases(clock)
    held = HeldJob(ClaimedJob("q:s1:p1:1", "t", b""))
    held.lease, _ = leases.add(Lease(held.job, lambda result: None, lambda: None), 10_000)
    run = cast("Any", SimpleNamespace(clock=clock, leases=leases))
    stopper = JobStopper(run, cast("Any", None), ended=Mock(), abandon=Mock(), report_time_limit=Mock())
    assert stopper.begin_limit(held, 1_000)
    stopper.suspend_limit(held, 1_000, 60_000)
    assert held.timer is not None
    assert held.timer.cancelled()
    clock.advance(seconds=55)
    due, _ = leases.take_due()
    assert [number for number, _ in due] == [held.lease]
    assert stopper.begin_limit(held, 1_000)
    assert not held.timer.cancelled()
    held.timer.cancel()
    clock.advance(seconds=30)
    due, _ = leases.take_due()
    assert due == []
