"""What pages cost a store with one shard: the statements, of which none grows with the priorities, a pause or the range of a chart."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from pinlater.client import Ack, AsyncClient, Job, JobState
from pinlater.console.app import Console
from pinlater.console.pages.shared_answers import SHARED_MS
from pinlater.domain.clock import ManualClock
from pinlater.domain.ids import SLOTS, IdMaker
from pinlater.server.storage.commands import InsertJobs, create_queues
from pinlater.server.storage.values import InsertRequest, NewJob
from tests.assembly import listen, open_core
from tests.console.pages.visitor import PageVisitor
from tests.contract.stores import make_store, needs_server
from tests.statements import noted_statements

# On MySQL one of them is the look at what has become due, which all calls share for a while.
STATEMENTS_MAX, QUEUE_PAGE_MAX = 9, 7
QUEUES, PRIORITIES = [f"queue_{number}" for number in range(2_000)], 3


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    return noted_statements(monkeypatch)


@pytest_asyncio.fixture(params=["sqlite", "mariadb", "redis"])
async def client(
    statements: list[object], tmp_path: Path, clock: ManualClock, request: pytest.FixtureRequest
) -> AsyncIterator[AsyncClient]:
    """Of a server with jobs of each state and priority in `mail`, which is paused, and a job in each of the other queues."""
    del statements  # it must be there before the store
    needs_server(request.param, request)
    shard = make_store(request.param, tmp_path)
    core = await open_core(shard, clock=clock)
    await shard.submit(create_queues(["mail", *QUEUES], clock.now_ms()))
    ids = IdMaker(clock, slot=SLOTS - 1).make(len(QUEUES))
    jobs = [NewJob(job_id, b"x", 1, clock.now_ms(), attempts_allowed=1) for job_id in ids]
    for start in range(0, len(QUEUES), 100):
        requests = [InsertRequest(QUEUES[at], [jobs[at]]) for at in range(start, start + 100)]
        await shard.submit(InsertJobs(requests, clock.now_ms()))
    await core.catch_up()
    server = await listen(core)
    async with AsyncClient(f"127.0.0.1:{server.port}", source="console", wait_for_servers=False) as client:
        for priority in range(1, PRIORITIES + 1):
            await _jobs_of_each_state(client, priority, clock)
        await client.pause_queue("mail")
        yield client
    await server.drain(0)
    await core.close()


async def _jobs_of_each_state(client: AsyncClient, priority: int, clock: ManualClock) -> None:
    await client.enqueue("mail", [Job(b"x", priority=priority)] * 3)
    failed, succeeded, _ = (await client.dequeue("mail", 3)).jobs
    await client.ack(
        "mail",
        [
            Ack(failed.descriptor, succeeded=False, token=failed.token, final=True, error_type="ValueError"),
            Ack(succeeded.descriptor, succeeded=True, token=succeeded.token),
        ],
    )
    later_ms = clock.now_ms() + 3_600_000
    await client.enqueue("mail", [Job(b"x", priority=priority), Job(b"x", priority=priority, run_after_ms=later_ms)])


TABS = [f"/queues/mail?range=30d&tab={tab}" for tab in ("due", "scheduled", "running", "failed", "succeeded")]
QUEUE_PAGES = ["/queues/mail", *TABS, f"{TABS[0]}&priority=2", f"{TABS[0]}&table=true", "NEXT"]
PAGES = ["/", *QUEUE_PAGES, "JOB"]


async def test_no_page_costs_ten_statements_and_that_of_a_queue_costs_seven(
    console: Console, client: AsyncClient, clock: ManualClock, statements: list[object]
) -> None:
    """Of a paused queue with three priorities, with a chart of thirty days, beside two thousand other queues."""
    visitor = PageVisitor(console.app)
    found = await client.scan("mail", JobState.PENDING, limit=2, paged=True)
    named = {"JOB": f"/jobs/{found.jobs[0].descriptor}", "NEXT": f"{TABS[0]}&after={found.continuation}"}
    cost: dict[str, int] = {}
    for page in PAGES:
        path = named.get(page, page)
        await visitor.page(path)
        clock.advance(ms=SHARED_MS)
        statements.clear()
        await visitor.page(path)
        cost[page] = len(statements)
    assert max(cost.values()) <= STATEMENTS_MAX, cost
    assert max(cost[page] for page in QUEUE_PAGES) <= QUEUE_PAGE_MAX, cost
    assert all(cost.values())
