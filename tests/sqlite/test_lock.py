"""One server, one file."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pinlater.domain.errors import ShardConnectionFailed
from pinlater.storage.sqlite import SqliteShard
from tests.sqlite.conftest import NOW, Bench


async def test_a_second_server_on_the_same_file_is_refused_by_name_and_pid(bench: Bench) -> None:
    second = SqliteShard(bench.path)
    with pytest.raises(
        ShardConnectionFailed, match=rf"jobs\.db is in use by another process \(pid {os.getpid()}"
    ) as refused:
        await second.open(NOW)
    assert not refused.value.retryable
    await second.close()
    assert await bench.insert()  # and the first one never noticed


async def test_the_lock_goes_with_the_shard(bench: Bench) -> None:
    await bench.shard.close()
    second = SqliteShard(bench.path)
    await second.open(NOW)
    await second.close()


async def test_a_killed_server_leaves_no_lock(tmp_path: Path) -> None:
    """The kernel drops it, however the process ends; the file may stay."""
    path = tmp_path / "jobs.db"
    code = (
        "import asyncio, os, pathlib, sys\n"
        "from pinlater.storage.sqlite import SqliteShard\n"
        "async def main():\n"
        f"    await SqliteShard(pathlib.Path({str(path)!r})).open(0)\n"
        "    os.kill(os.getpid(), 9)\n"
        "asyncio.run(main())\n"
    )
    killed = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code], check=False, timeout=30)
    assert killed.returncode == -9
    assert path.with_name("jobs.db-lock").exists()
    shard = SqliteShard(path)
    await shard.open(NOW)
    await shard.close()


async def test_a_missing_folder_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(ShardConnectionFailed, match="folder"):
        await SqliteShard(tmp_path / "nowhere" / "jobs.db").open(NOW)


async def test_a_shard_that_is_not_open_says_so(tmp_path: Path) -> None:
    with pytest.raises(ShardConnectionFailed, match="not open"):
        await SqliteShard(tmp_path / "jobs.db").list_queues()


async def test_closing_twice_is_once(bench: Bench) -> None:
    await bench.shard.close()
    await bench.shard.close()
