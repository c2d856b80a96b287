"""No page costs the store ten statements, with three priorities in the queue and two thousand queues in the store. (A paused queue costs
one more, and a chart of more than an hour up to four.)"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from pinlater.client import Ack, AsyncClient, Job, JobState
from pinlater.console.app import Console
from pinlater.console.pages.shared_answers import SHARED_MS
from pinlater.domain.clock import ManualClock
from pinlater.server.storage.sqlite.shard import SqliteShard
from tests.assembly import listen, open_core
from tests.console.pages.visitor import PageVisitor

STATEMENTS_MAX = 9
QUEUES, PRIORITIES = 2_000, 3


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What all connections of stores that are opened from now on are sent."""
    sent: list[str] = []
    connect = sqlite3.connect

    def traced(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **kwargs)
        connection.set_trace_callback(sent.append)
        return connection

    monkeypatch.setattr(sqlite3, "connect", traced)
    return sent


@pytest_asyncio.fixture
async def client(statements: list[str], tmp_path: Path, clock: ManualClock) -> AsyncIterator[AsyncClient]:
    """Of a server on SQLite, with jobs of each state and priority in `mail`."""
    del statements  # it must be there before the store
    shard = SqliteShard(tmp_path / "jobs.db")
    core = await open_core(shard, clock=clock)
    await shard.create_queues(["mail", *(f"queue_{number}" for number in range(QUEUES))], clock.now_ms())
    await core.catch_up()
    server = await listen(core)
    async with AsyncClient(f"127.0.0.1:{server.port}", source="console", wait_for_servers=False) as client:
        for priority in range(1, PRIORITIES + 1):
            await _jobs_of_each_state(client, priority, clock)
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


QUEUE_PAGES = [f"/queues/mail?tab={tab}" for tab in ("due", "scheduled", "running", "failed", "succeeded")]
PAGES = ["/", "/queues/mail", *QUEUE_PAGES, "/queues/mail?priority=2", "JOB"]


async def test_no_page_costs_ten_statements(
    console: Console, client: AsyncClient, clock: ManualClock, statements: list[str]
) -> None:
    visitor = PageVisitor(console.app)
    [job] = (await client.scan("mail", JobState.PENDING, limit=1)).jobs
    cost: dict[str, int] = {}
    for page in PAGES:
        path = f"/jobs/{job.descriptor}" if page == "JOB" else page
        await visitor.page(path)
        clock.advance(ms=SHARED_MS)
        statements.clear()
        await visitor.page(path)
        cost[page] = len(statements)
    assert {page: found for page, found in cost.items() if found > STATEMENTS_MAX} == {}
    assert all(cost.values())
