"""A real server in this process, on the memory store."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from pinlater.client import AsyncClient
from pinlater.server.config.load import load
from pinlater.server.main.app import App
from pinlater.worker import Worker
from tests.worker.report_shards import ReportShards


@pytest.fixture(params=[True, False], ids=["per item errors", "whole refusals"])
def shards(request: pytest.FixtureRequest) -> ReportShards:
    """The server of a test, in both ways."""
    return ReportShards(per_item=bool(request.param))


@contextlib.asynccontextmanager
async def serving(**more: Any) -> AsyncIterator[str]:
    """The address of a server that runs meanwhile, with these settings."""
    app = App(load(None, {}, {"store": "memory:", "thrift.port": 0, "http.port": 0, **more}).settings)
    await app.start()
    yield f"127.0.0.1:{app.thrift.port}"
    await app.stop(1)


@pytest.fixture
async def server() -> AsyncIterator[str]:
    """The address of a running server."""
    async with serving() as address:
        yield address


@pytest.fixture
async def client(server: str) -> AsyncIterator[AsyncClient]:
    """A client with a queue `q`."""
    async with AsyncClient(server, source="test") as client:
        await client.create_queue("q")
        yield client


def idle_worker(*servers: Any, **options: Any) -> Worker:
    """A worker with one task, on the queue `q`, which does nothing."""
    worker = Worker(*servers, **options)
    worker.task("q", name="run")(lambda: None)
    return worker


async def eventually(ask: Callable[[], Any], timeout_s: float = 30) -> Any:
    """Polls `ask` (plain or async) until its answer is true, and returns that."""
    async with asyncio.timeout(timeout_s):
        while True:
            answer = ask()
            if asyncio.iscoroutine(answer):
                answer = await answer
            if answer:
                return answer
            await asyncio.sleep(0.01)


async def claimed(client: AsyncClient, wait_ms: int = 1_000) -> Any:
    """A job of the queue `q`, if there is one soon."""
    jobs = (await client.dequeue("q", wait_ms=wait_ms)).jobs
    return jobs[0] if jobs else None


def child_processes() -> list[int]:
    """The living child processes of this one in which workers run tasks."""
    found = []
    for children in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread has ended
            found += [int(child) for child in children.read_text().split()]
    return [child for child in found if not has_ended(child) and _runs_tasks(child)]


def _runs_tasks(process_id: int) -> bool:
    try:
        return b"spawn_main" in Path(f"/proc/{process_id}/cmdline").read_bytes()
    except OSError:
        return False


def has_ended(process_id: int) -> bool:
    """Whether there is no such process, or one that only waits for its parent to notice its end."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True
