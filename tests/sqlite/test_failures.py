"""A full disk and a failing one: every call concerned is told, nothing accepted is lost, and the shard goes on when it can."""

from __future__ import annotations

import asyncio
import sqlite3

import pytest

from pinlater.domain.errors import ErrorCode, ShardConnectionFailed, StoreFull
from pinlater.domain.job import Outcome
from pinlater.server.storage.commands import ConfigureQueue, CountJobs, FinishJobs, ListFailures, create_queues
from pinlater.server.storage.sqlite.settings import SqliteSettings
from pinlater.server.storage.sqlite.statements import sql
from pinlater.server.storage.values import JobAck, JobKey
from tests.sqlite.conftest import HOLDER, NOW, QUEUE, Bench

EITHER = [SqliteSettings(inline_commit_us=10_000_000), SqliteSettings(inline_commit_us=0)]


def disk_error() -> sqlite3.Error:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR
    error.sqlite_errorname = "SQLITE_IOERR"
    return error


def allow_pages(bench: Bench, pages: int) -> None:
    bench.disk.connection.execute(f"PRAGMA max_page_count = {pages}")


@pytest.mark.parametrize("settings", EITHER, ids=["inline", "thread"])
async def test_a_full_store_refuses_loses_nothing_and_recovers(bench: Bench, settings: SqliteSettings) -> None:
    await bench.shard.close()
    await bench.open(settings)
    kept = await bench.insert(10)
    [pages] = bench.disk.connection.execute("PRAGMA page_count").fetchone()
    allow_pages(bench, pages + 3)
    with pytest.raises(StoreFull) as full:
        await bench.insert(200, body=b"x" * 4_000)
    assert full.value.code is ErrorCode.ENQUEUE_REJECTED
    assert full.value.retryable
    assert await bench.pending() == 10
    allow_pages(bench, 1_000_000)
    await bench.shard.ping()
    await bench.insert(200, body=b"x" * 4_000)
    assert {job.id for job in await bench.claim(10)} == {key.id for key in kept}
    assert await bench.pending() == 200


@pytest.mark.parametrize("settings", EITHER, ids=["inline", "thread"])
async def test_a_failed_commit_is_told_to_every_call_in_it(bench: Bench, settings: SqliteSettings) -> None:
    await bench.shard.close()
    await bench.open(settings)
    await bench.insert(2)
    bench.disk.fails = lambda text: disk_error() if text == "COMMIT" else None
    results = await asyncio.gather(bench.insert(3), bench.insert(4), bench.claim(), return_exceptions=True)
    assert [type(result) for result in results] == [ShardConnectionFailed] * 3
    assert isinstance(results[0], ShardConnectionFailed)
    assert results[0].__cause__ is not None
    bench.disk.works()
    assert await bench.pending() == 2
    assert len(await bench.claim(10)) == 2


@pytest.mark.parametrize("settings", EITHER, ids=["inline", "thread"])
async def test_a_failure_that_is_rolled_back_is_in_no_group_and_its_repeat_once(
    bench: Bench, settings: SqliteSettings
) -> None:
    """The group is counted in the transaction of the ack."""
    await bench.shard.close()
    await bench.open(settings)
    [key] = await bench.insert()
    await bench.claim()
    ack = JobAck(key, False, HOLDER.token, error_type="E", error_text="text", final=True)
    bench.disk.fails = lambda text: disk_error() if text == "COMMIT" else None
    with pytest.raises(ShardConnectionFailed):
        await bench.shard.submit(FinishJobs([ack], NOW))
    bench.disk.works()
    assert await bench.shard.submit(ListFailures([QUEUE], 0)) == []
    outcomes = [(await bench.shard.submit(FinishJobs([ack], NOW)))[0].outcome for _ in range(2)]
    assert outcomes == [Outcome.APPLIED, Outcome.ALREADY_FINAL]
    assert [group.failures for group in await bench.shard.submit(ListFailures([QUEUE], 0))] == [1]


async def test_ping_tries_a_write_after_a_failed_transaction(bench: Bench) -> None:
    """So that the shard is unhealthy for as long as nothing can be stored, and healthy right after."""
    bench.disk.fails = lambda text: disk_error() if text.startswith("BEGIN") else None
    with pytest.raises(ShardConnectionFailed):
        await bench.insert()
    with pytest.raises(ShardConnectionFailed):
        await bench.shard.ping()
    bench.disk.works()
    await bench.shard.ping()
    before = bench.shard.commits
    await bench.shard.ping()
    assert bench.shard.commits == before


async def test_a_read_does_not_make_a_full_shard_healthy(bench: Bench) -> None:
    """A poll of an empty queue succeeds on a full disk; the next look at the shard must try a write all the same."""
    full = sqlite3.OperationalError("database or disk is full")
    full.sqlite_errorcode = sqlite3.SQLITE_FULL
    bench.disk.fails = lambda text: full if text.startswith("COMMIT") else None
    with pytest.raises(StoreFull):
        await bench.insert()
    bench.disk.works()
    assert await bench.claim() == []
    bench.disk.fails = lambda text: full if text.startswith("COMMIT") else None
    with pytest.raises(StoreFull):
        await bench.shard.ping()
    bench.disk.works()
    await bench.shard.ping()


async def test_counters_are_exact_after_failures(bench: Bench) -> None:
    """Memory is read again from the file, so that claims still find every priority."""
    failing = {"on": False}
    bench.disk.fails = lambda text: disk_error() if failing["on"] and text == "COMMIT" else None
    keys: list[JobKey] = []
    for turn in range(20):
        failing["on"] = turn % 3 == 0
        try:
            keys += await bench.insert(2)
        except ShardConnectionFailed:
            assert failing["on"]
    failing["on"] = False
    assert await bench.pending() == len(keys)
    assert len(await bench.claim(100)) == len(keys)
    [(_, counts)] = await bench.shard.submit(CountJobs([QUEUE]))
    assert (counts.pending, counts.in_progress) == (0, len(keys))


async def test_a_store_that_could_not_even_be_read_goes_on_when_it_can(bench: Bench) -> None:
    """After a rollback memory is read from the file again; until that works nothing is answered from what may be wrong."""
    await bench.insert(4)
    broken = {"on": True}
    bench.disk.fails = lambda text: disk_error() if broken["on"] and text != "ROLLBACK" else None
    for _ in range(3):
        with pytest.raises(ShardConnectionFailed):
            await bench.insert()
    broken["on"] = False
    await bench.insert(2)
    assert await bench.pending() == 6
    assert len(await bench.claim(10)) == 6


async def test_reads_that_fail_one_after_the_other_leave_no_counter_out(bench: Bench) -> None:
    """A look at the whole file that ends halfway loses queues which the transaction did not change."""
    await bench.insert(5)
    failing = ["COMMIT", sql("load_queue"), sql("load_counters")]

    def fails(text: str) -> sqlite3.Error | None:
        if not failing or text != failing[0]:
            return None
        del failing[0]
        return disk_error()

    await bench.shard.submit(create_queues(["other"], NOW))
    bench.disk.fails = fails
    for queue in ("other", QUEUE):
        with pytest.raises(ShardConnectionFailed):
            await bench.shard.submit(ConfigureQueue(queue, paused=True))
    assert not failing
    await bench.insert()
    assert len(await bench.claim(10)) == 6
    assert await bench.pending() == 0


async def test_damage_is_the_worlds_fault(bench: Bench) -> None:
    """A malformed file is no bug of ours: the caller gets a refusal that says so."""
    damage = sqlite3.DatabaseError("database disk image is malformed")
    damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    [key] = await bench.insert()
    bench.disk.fails = lambda text: damage if text.startswith("SELECT") else None
    with pytest.raises(ShardConnectionFailed, match="malformed"):
        await bench.succeed(key)
    bench.disk.works()
    await bench.insert()


@pytest.mark.parametrize("file", ["jobs.db", "jobs.db-wal"])
@pytest.mark.parametrize("replaced", [False, True], ids=["moved", "replaced"])
async def test_nothing_is_stored_while_the_file_is_away(bench: Bench, file: str, replaced: bool) -> None:
    """A write to a deleted file would be acknowledged and lost."""
    [kept] = await bench.insert()
    path = bench.path.with_name(file)
    away = path.rename(path.with_suffix(".away"))
    if replaced:
        path.write_bytes(b"")
    for _ in range(2):
        with pytest.raises(ShardConnectionFailed, match="Nothing is stored until it is back"):
            await bench.insert()
        with pytest.raises(ShardConnectionFailed):
            await bench.shard.ping()
    away.rename(path)
    await bench.shard.ping()
    await bench.insert()
    assert await bench.pending() == 2
    assert kept.id in {job.id for job in await bench.claim(2)}


async def test_a_store_that_fails_says_so_now_and_then_and_when_it_works_again(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.path.rename(bench.path.with_suffix(".away"))
    for _ in range(100):
        with pytest.raises(ShardConnectionFailed):
            await bench.insert()
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1
    bench.path.with_suffix(".away").rename(bench.path)
    await bench.insert()
    assert "work again" in caplog.text
