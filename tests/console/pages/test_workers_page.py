"""The page of workers, without a browser."""

from __future__ import annotations

import pytest

from pinlater.client import AsyncClient, Job, WorkerInfo, WorkingProcess
from pinlater.console.pages import workers
from pinlater.domain.clock import ManualClock
from pinlater.domain.failures import PROCESS_DIED
from pinlater.domain.job import TASK_HEADER
from pinlater.server.main.core import Core
from pinlater.worker import ProcessDied
from pinlater.worker._attempts.endings import type_name
from tests.console.pages.conftest import failed_job, stored
from tests.console.pages.visitor import PageVisitor

PROCESS = WorkingProcess(7, WorkerInfo("python", "1.0", "host-7", 17, 16, 3, 1))


async def test_workers_are_shown_with_what_they_hold(
    visitor: PageVisitor, client: AsyncClient, clock: ManualClock
) -> None:
    assert "No worker" in (await visitor.page("/workers")).text
    name = await stored(client)
    await client.dequeue("mail", 1, process=PROCESS)
    clock.advance(seconds=1)
    page = await visitor.page("/workers")
    for words in ("console", "host-7, 17", "python 1.0", "3 of 16 slots in use"):
        assert words in page.text
    assert {"/queues/mail?tab=running", f"/jobs/{name}"} <= set(page.links)
    assert "Incomplete" not in page.text


async def test_a_client_that_says_nothing_has_no_known_version(visitor: PageVisitor, client: AsyncClient) -> None:
    await client.dequeue("mail", 1)
    assert "version unknown" in (await visitor.page("/workers")).text


async def test_a_silent_worker_says_why(
    visitor: PageVisitor, client: AsyncClient, clock: ManualClock, core: Core
) -> None:
    await client.enqueue("mail", [Job(b"x", claim_timeout_ms=5_000)])
    await client.dequeue("mail", 1, process=PROCESS)
    clock.advance(seconds=6)
    await core.sweeps.time_out_claims()
    text = (await visitor.page("/workers")).text
    assert "Silent" in text
    assert "Not heard for 6s." in text
    assert "1 claim timed out in the last 10 minutes." in text


async def test_processes_that_share_a_name_are_told(
    visitor: PageVisitor, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "PROCESSES", 2)
    for number in range(1, 5):
        await client.dequeue("mail", 1, process=PROCESS._replace(number=number))
    text = (await visitor.page("/workers")).text
    assert "Several processes share this name" in text
    assert "and 2 more" in text


async def test_jobs_that_lose_their_workers_are_told_and_lead_to_the_quarantined_ones(
    visitor: PageVisitor, client: AsyncClient, clock: ManualClock, core: Core
) -> None:
    """Three claims in a row time out; then the job is quarantined."""
    job = Job(b"x", claim_timeout_ms=5_000, attempts_allowed=9, headers={TASK_HEADER: "resize"})
    [name] = (await client.enqueue("mail", [job])).descriptors
    assert "lose their workers" not in (await visitor.page("/workers")).text
    for _ in range(3):
        await client.dequeue("mail", 1, process=PROCESS)
        clock.advance(seconds=6)
        await core.sweeps.time_out_claims()
    page = await visitor.page("/workers")
    assert "Jobs that lose their workers" in page.text
    assert "resize" in page.text
    assert f"/jobs/{name}" in page.links
    [group] = [link for link in page.links if "group=" in link]
    [quarantined] = [link for link in page.links if "error=Quarantined" in link]
    for link in (group, quarantined):
        assert f"/jobs/{name}" in (await visitor.page(link)).links
    job_page = await visitor.page(f"/jobs/{name}")
    assert "Its last workers: console." in job_page.text
    assert "Attempt 3 timed out: console neither ended it nor renewed the claim" in job_page.text


async def test_what_is_not_known_is_said(visitor: PageVisitor, lost_shard: str) -> None:
    text = (await visitor.page("/workers")).text
    assert "Incomplete." in text
    assert "a shard is unreachable, and its jobs are not counted." in text


async def test_a_process_that_died_in_a_worker_makes_its_group_a_suspect(
    visitor: PageVisitor, client: AsyncClient
) -> None:
    await failed_job(client, "killed by SIGSEGV", PROCESS_DIED)
    await failed_job(client, "no number")
    text = (await visitor.page("/workers")).text
    assert "killed by SIGSEGV" in text
    assert "no number" not in text
    assert type_name(ProcessDied) == PROCESS_DIED
