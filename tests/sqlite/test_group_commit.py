"""Calls share transactions; each gets its own result, after the commit, and a faulty one harms no other."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path

import pytest

from pinlater.domain.errors import ShardConnectionFailed, TooManyWaiting
from pinlater.domain.job import HandedOutJob
from pinlater.domain.queue import NO_HOME, Home
from pinlater.server.storage.commands import InsertJobs, LookupJobs, MoveHome
from pinlater.server.storage.options import Options
from pinlater.server.storage.sqlite.settings import SqliteSettings
from pinlater.server.storage.values import InsertRequest, JobKey
from tests.sqlite.conftest import NOW, QUEUE, Bench, insert_by_a_bug

# However slow the machine is at this moment, no transaction is cut short.
UNCUT_MS = 60_000
IN_THREAD = SqliteSettings(inline_commit_us=0, transaction_ms_max=UNCUT_MS)
INLINE = SqliteSettings(inline_commit_us=10_000_000, transaction_ms_max=UNCUT_MS)


@pytest.fixture(params=[INLINE, IN_THREAD], ids=["inline", "thread"])
async def either(request: pytest.FixtureRequest, bench: Bench) -> Bench:
    """The same with commits on the loop and in the thread."""
    await bench.shard.close()
    await bench.open(request.param)
    return bench


async def test_calls_of_one_turn_share_one_commit(either: Bench) -> None:
    before = either.shard.commits
    await asyncio.gather(*(either.insert() for _ in range(50)))
    assert either.shard.commits == before + 1
    assert await either.pending() == 50


async def test_calls_that_arrive_during_a_commit_share_the_next(bench: Bench) -> None:
    await bench.shard.close()
    await bench.open(IN_THREAD)
    before, may_end = bench.shard.commits, threading.Event()
    bench.disk.committing.clear()
    first = asyncio.ensure_future(bench.insert())

    def waits(text: str) -> None:
        if text == "COMMIT":
            may_end.wait(30)

    bench.disk.fails = waits
    assert await asyncio.to_thread(bench.disk.committing.wait, 30)
    others = [asyncio.ensure_future(bench.insert()) for _ in range(20)]
    await asyncio.sleep(0)
    may_end.set()
    await asyncio.gather(first, *others)
    assert bench.shard.commits == before + 2


async def test_an_ack_and_the_claim_that_it_wakes_are_stored_together_or_not_at_all(either: Bench) -> None:
    await either.shard.submit(MoveHome(QUEUE, NO_HOME, Home(either.shard.name, 1)))
    jobs = [job._replace(options=Options(ordering_key="k")) for job in either.jobs(2)]
    await either.shard.submit(InsertJobs([InsertRequest(QUEUE, jobs)], NOW))
    [first] = await either.claim()
    claims: list[asyncio.Task[list[HandedOutJob]]] = []

    def waits(queue: str, due_ms: int) -> bool:
        claims.append(asyncio.create_task(either.claim()))
        return (queue, due_ms) == (QUEUE, NOW)

    either.shard.on_came_first(waits)
    either.disk.fails = lambda text: sqlite3.OperationalError("disk I/O error") if text == "COMMIT" else None
    ack = asyncio.ensure_future(either.succeed(JobKey(QUEUE, 1, first.id)))
    with pytest.raises(ShardConnectionFailed):
        await ack
    with pytest.raises(ShardConnectionFailed):
        await claims[0]
    either.disk.works()
    assert await either.claim() == []  # the first is in hand as before
    before = either.shard.commits
    await either.succeed(JobKey(QUEUE, 1, first.id))
    assert [job.id for job in await claims[1]] == [jobs[1].id]
    assert either.shard.commits == before + 1


async def test_a_call_that_changes_nothing_commits_nothing(either: Bench) -> None:
    before = either.shard.commits
    assert await either.claim() == []
    assert (await either.succeed(JobKey(QUEUE, 1, 99)))[0].state is None
    assert either.shard.commits == before


async def test_an_inserted_job_can_be_read_at_once(either: Bench) -> None:
    for _ in range(20):
        [key] = await either.insert()
        [job] = await either.shard.submit(LookupJobs([key], bodies=True))
        assert job is not None
        assert job.body == b"hello"


async def test_a_faulty_call_fails_alone(either: Bench) -> None:
    """The others of its transaction are run again, and their results are as if it had never been there."""
    results = await asyncio.gather(either.insert(3), insert_by_a_bug(either), either.insert(4), return_exceptions=True)
    assert isinstance(results[1], ZeroDivisionError)
    assert await either.pending() == 7
    assert len(await either.claim(100)) == 7


async def test_too_many_waiting_calls_are_refused(bench: Bench) -> None:
    await bench.shard.close()
    await bench.open(SqliteSettings(waiting_calls_max=10))
    results = await asyncio.gather(*(bench.insert() for _ in range(15)), return_exceptions=True)
    refused = [result for result in results if isinstance(result, TooManyWaiting)]
    assert len(refused) == 5
    assert await bench.pending() == 10


async def test_a_call_whose_caller_has_gone_is_not_carried_out(bench: Bench) -> None:
    call = asyncio.ensure_future(bench.insert())
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await bench.insert()
    assert await bench.pending() == 1


async def test_a_long_transaction_ends_and_the_next_one_does_the_rest(tmp_path: Path) -> None:
    ticks = iter(range(1_000_000))
    bench = Bench(tmp_path / "jobs.db")
    await bench.open()
    await bench.shard.close()
    settings = SqliteSettings(inline_commit_us=10_000_000, transaction_ms_max=5_000)
    bench.shard = type(bench.shard)(bench.path, settings, monotonic=lambda: float(next(ticks)))
    await bench.shard.open(NOW)
    before = bench.shard.commits
    await asyncio.gather(*(bench.insert() for _ in range(30)))
    assert bench.shard.commits - before > 3
    assert await bench.pending() == 30
    await bench.shard.close()


async def test_closing_finishes_what_waits(either: Bench) -> None:
    inserts = [asyncio.ensure_future(either.insert()) for _ in range(5)]
    await asyncio.sleep(0)
    await either.shard.close()
    assert all(len(keys) == 1 for keys in await asyncio.gather(*inserts))
    await either.open()
    assert await either.pending() == 5
