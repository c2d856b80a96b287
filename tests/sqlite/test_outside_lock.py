"""Another program has the file locked: calls wait, and the event loop turns meanwhile."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pinlater import AsyncClient, JobState
from pinlater.domain.errors import ShardConnectionFailed
from pinlater.server.storage.sqlite.settings import SqliteSettings
from pinlater.testing.real_server import RealServer
from tests.sqlite.conftest import Bench

HOUR_MS = 3_600_000
_LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.read()
connection.execute("ROLLBACK")
print("free", flush=True)
"""


@contextmanager
def outside_lock(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process like `sqlite3 FILE 'BEGIN EXCLUSIVE'`; it holds the lock until `free` or the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", _LOCK, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield process
    finally:
        free(process)


def free(process: subprocess.Popen[str]) -> None:
    if process.stdin is not None and not process.stdin.closed:
        process.stdin.close()
        process.wait(30)
        assert process.stdout is not None
        process.stdout.close()


async def test_calls_wait_for_an_outside_lock_and_the_loop_turns_meanwhile(bench: Bench) -> None:
    """A call that blocked the loop would never let us free the lock."""
    await bench.shard.close()
    await bench.open(SqliteSettings(busy_timeout_ms=HOUR_MS))
    with outside_lock(bench.path) as process:
        inserts = [asyncio.create_task(bench.insert()) for _ in range(10)]
        for _ in range(200):
            await asyncio.sleep(0)
        assert await bench.pending() == 0, "reading goes on"
        done, _ = await asyncio.wait(inserts, timeout=0.1)
        assert not done
        await asyncio.to_thread(free, process)
        await asyncio.gather(*inserts)
    assert await bench.pending() == 10


async def test_an_outside_lock_that_lasts_too_long_refuses_all_that_waited_and_no_later_call(bench: Bench) -> None:
    await bench.shard.close()
    await bench.open(SqliteSettings(busy_timeout_ms=50))
    with outside_lock(bench.path) as process:
        results = await asyncio.gather(*(bench.insert() for _ in range(5)), return_exceptions=True)
        assert [type(result) for result in results] == [ShardConnectionFailed] * 5
        assert "another program has it locked" in str(results[0])
        with pytest.raises(ShardConnectionFailed, match="locked"):
            await bench.shard.ping()
        await asyncio.to_thread(free, process)
    await bench.insert()
    await bench.shard.ping()
    assert await bench.pending() == 1


async def test_a_shard_closes_while_its_file_is_locked(bench: Bench) -> None:
    await bench.shard.close()
    await bench.open(SqliteSettings(busy_timeout_ms=50))
    with outside_lock(bench.path):
        insert = asyncio.create_task(bench.insert())
        await asyncio.sleep(0)
        async with asyncio.timeout(30):
            await bench.shard.close()
        with pytest.raises(ShardConnectionFailed):
            await insert


async def test_a_real_server_answers_health_and_looks_while_its_file_is_locked(tmp_path: Path) -> None:
    with RealServer(tmp_path, "--set", "sqlite.busy_timeout_ms=1h") as server:
        url = f"http://127.0.0.1:{server.http_port}/healthz"
        async with AsyncClient(server.address, timeout_ms=60_000, connections=10) as client:
            await client.create_queue("q")
            with outside_lock(tmp_path / "jobs.db") as process:
                enqueue = asyncio.create_task(client.enqueue("q", [b"x"]))
                async with AsyncClient(server.address) as other:
                    for _ in range(20):
                        with await asyncio.to_thread(urllib.request.urlopen, url, timeout=30) as answer:
                            assert answer.status == 200
                        assert await other.queue_names() == ["q"]
                assert not enqueue.done()
                await asyncio.to_thread(free, process)
                await enqueue
            assert await client.count("q", JobState.PENDING) == 1
