"""A backup is the store as it was at one moment, complete, and made while the server goes on."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pinlater.cli.main import app
from pinlater.server.storage.commands import CountJobs
from pinlater.server.storage.sqlite.backup import BackupRefused, backup
from pinlater.server.storage.sqlite.shard import SqliteShard
from tests.sqlite.conftest import NOW, Bench


async def jobs_in(path: Path) -> int:
    shard = SqliteShard(path)
    await shard.open(NOW)
    rows = await shard.submit(CountJobs())
    await shard.close()
    return sum(row.counts.pending for row in rows)


def files_called(start: str, folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir() if entry.name.startswith(start)]


async def test_a_backup_during_writes_of_a_server_is_a_copy_of_one_moment(bench: Bench, tmp_path: Path) -> None:
    """Each insert stores ten jobs at once, so a copy of one moment holds a multiple of ten."""
    await bench.insert(2_000, body=b"x" * 4_000)
    target = tmp_path / "copy.db"
    steps: list[int] = []
    copying = asyncio.ensure_future(
        asyncio.to_thread(backup, bench.path, target, lambda done, total: steps.append(done))
    )
    during = 0
    while not copying.done():
        await bench.insert(10)
        during += 10
    size = await copying
    assert size == target.stat().st_size
    assert len(steps) > 1
    found = await jobs_in(target)
    assert 2_000 <= found <= 2_000 + during
    assert found % 10 == 0
    assert await bench.pending() == 2_000 + during


async def test_a_backup_is_sound_and_one_file(bench: Bench, tmp_path: Path) -> None:
    await bench.insert(10)
    target = tmp_path / "copy.db"
    await asyncio.to_thread(backup, bench.path, target)
    assert files_called("copy", tmp_path) == ["copy.db"]
    with closing(sqlite3.connect(target)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert await jobs_in(target) == 10


async def test_a_backup_never_overwrites(bench: Bench, tmp_path: Path) -> None:
    target = tmp_path / "precious.db"
    target.write_bytes(b"precious")
    with pytest.raises(BackupRefused, match="not overwritten"):
        backup(bench.path, target)
    assert target.read_bytes() == b"precious"


def test_a_missing_store_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(BackupRefused, match="no store"):
        backup(tmp_path / "nothing.db", tmp_path / "copy.db")
    assert not (tmp_path / "copy.db").exists()


async def test_the_commands_backup_and_migrate(bench: Bench, tmp_path: Path) -> None:
    await bench.insert(3)
    target = tmp_path / "copy.db"
    runner = CliRunner()
    store = ["--store", f"sqlite:{bench.path}"]
    done = runner.invoke(app, ["server", "backup", str(target), *store, "--json"])
    assert (done.exit_code, target.exists()) == (0, True), done.output
    assert runner.invoke(app, ["server", "backup", str(target), *store]).exit_code == 1
    assert runner.invoke(app, ["server", "backup", str(tmp_path / "no" / "folder.db"), *store]).exit_code == 1
    busy = runner.invoke(app, ["server", "migrate", *store])
    assert (busy.exit_code, "in use" in busy.output) == (1, True)
    idle = runner.invoke(app, ["server", "migrate", "--store", f"sqlite:{target}"])
    assert (idle.exit_code, "nothing to do" in idle.output) == (0, True)
    assert runner.invoke(app, ["server", "migrate", "--store", "memory:"]).exit_code == 1
    assert runner.invoke(app, ["server", "migrate", "--store", "sqlight:x"]).exit_code == 78
