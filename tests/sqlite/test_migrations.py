"""The schema goes forward, never back; every file ever released opens with its jobs intact."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pinlater.domain.errors import WorldError
from pinlater.domain.job import JobState
from pinlater.server.storage.commands import LookupJobs
from pinlater.server.storage.sqlite import migration
from pinlater.server.storage.sqlite.offline import migrate_file
from pinlater.server.storage.sqlite.shard import SqliteShard
from pinlater.server.storage.values import JobKey
from tests.sqlite.conftest import NOW, Bench
from tests.sqlite.released.make import KEYS, QUEUE_CONFIG, expect

RELEASED = sorted((Path(__file__).parent / "released").glob("*.sql"))


def set_version(path: Path, version: int) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")


def restore(dump: Path, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(dump.read_text(encoding="utf-8"))


def test_there_is_a_file_of_every_schema() -> None:
    """`python -m tests.sqlite.released.make` makes the dump of the version before a new migration."""
    versions = {int(dump.name[:4]) for dump in RELEASED}
    assert versions == set(range(1, migration.newest_version() + 1))


@pytest.mark.parametrize("dump", RELEASED, ids=lambda dump: dump.stem)
async def test_a_released_file_is_taken_forward_with_its_jobs(dump: Path, tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    restore(dump, path)
    shard = SqliteShard(path)
    await shard.open(NOW)
    try:
        await expect(shard)
    finally:
        await shard.close()


async def test_the_program_runs_on_the_next_schema(bench: Bench) -> None:
    """While servers are upgraded one by one, the old program meets the new one's file."""
    [key] = await bench.insert()
    await bench.shard.close()
    set_version(bench.path, migration.newest_version() + 1)
    await bench.open()
    [job] = await bench.shard.submit(LookupJobs([key], bodies=True))
    assert job is not None
    assert job.state is JobState.PENDING


async def test_a_newer_schema_is_refused_with_both_numbers(bench: Bench) -> None:
    await bench.shard.close()
    newest = migration.newest_version()
    set_version(bench.path, newest + 2)
    with pytest.raises(
        WorldError, match=rf"schema {newest + 2}.*schema {newest} and runs on {newest} and {newest + 1}"
    ):
        await SqliteShard(bench.path).open(NOW)
    set_version(bench.path, newest)
    await bench.open()  # and the refusal has left no lock behind


async def test_a_file_of_another_program_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (id)")
        connection.commit()
    before = path.read_bytes()
    with pytest.raises(WorldError, match="another program"):
        await SqliteShard(path).open(NOW)
    with closing(sqlite3.connect(path)) as connection:
        assert [row[0] for row in connection.execute("SELECT name FROM sqlite_master")] == ["theirs"]
    assert before[:16] == path.read_bytes()[:16]


async def test_a_file_that_is_no_database_is_said_so(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("these are my notes\n" * 500)
    with pytest.raises(WorldError, match="not a database"):
        await SqliteShard(path).open(NOW)
    assert path.read_text().startswith("these are my notes")


def test_a_migration_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = migration.scripts()
    bad = "CREATE TABLE extra (id); INSERT INTO nowhere VALUES (1);"
    monkeypatch.setattr(migration, "scripts", lambda: [*real, (len(real) + 1, "9999_bad.sql", bad)])
    path = tmp_path / "jobs.db"
    with pytest.raises(WorldError):
        migrate_file(path)
    with closing(sqlite3.connect(path)) as connection:
        assert migration.version_of(connection) == len(real)
        assert connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'extra'").fetchone() == (0,)


def test_migrating_by_hand_says_what_it_did(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    newest = migration.newest_version()
    before, after, done = migrate_file(path)
    assert (before, after, len(done)) == (0, newest, newest)
    assert migrate_file(path) == (newest, newest, [])


async def test_migrating_by_hand_keeps_off_a_running_server(bench: Bench) -> None:
    with pytest.raises(WorldError, match="in use"):
        migrate_file(bench.path)


def test_the_fixtures_name_every_state() -> None:
    assert {state for _, state in KEYS.values()} == set(JobState)
    assert QUEUE_CONFIG.claim_timeout_ms
    assert all(isinstance(key, JobKey) for key, _ in KEYS.values())
