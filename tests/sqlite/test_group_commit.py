"""Calls share transactions; each gets its own result, after the commit, and a faulty one harms no other."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NoReturn

import pytest

from pinlater.domain.errors import ShardConnectionFailed, TooManyWaiting
from pinlater.domain.queue import Queue, QueueConfig, Versions
from pinlater.server.storage.commands import DeleteQueues, LookupJobs, create_queues
from pinlater.server.storage.relational import in_hand, queues
from pinlater.server.storage.sqlite.dialect import SqliteDialect, at_once
from pinlater.server.storage.sqlite.queue_cache import SqliteQueueCache
from pinlater.server.storage.sqlite.settings import SqliteSettings
from pinlater.server.storage.sqlite.transaction import Transaction
from pinlater.server.storage.sqlite.writer import Work, Writer
from pinlater.server.storage.values import JobKey
from tests.sqlite.conftest import NOW, QUEUE, Bench

# However slow the machine is at this moment, no transaction is cut short.
UNCUT_MS = 60_000
IN_THREAD = SqliteSettings(inline_commit_us=0, transaction_ms_max=UNCUT_MS)
INLINE = SqliteSettings(inline_commit_us=10_000_000, transaction_ms_max=UNCUT_MS)


def writer_of(bench: Bench) -> Writer:
    return bench.shard._open.writer


def broken(_: Transaction) -> NoReturn:
    raise ZeroDivisionError("a bug")


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
    before = bench.shard.commits
    first = asyncio.ensure_future(bench.insert())
    while not writer_of(bench)._connection_in_use:
        await asyncio.sleep(0)
    await asyncio.gather(first, *(bench.insert() for _ in range(20)))
    assert bench.shard.commits == before + 2


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
    results = await asyncio.gather(
        either.insert(3), writer_of(either).carry_out(Work(broken)), either.insert(4), return_exceptions=True
    )
    assert isinstance(results[1], ZeroDivisionError)
    assert await either.pending() == 7
    assert len(await either.claim(100)) == 7


async def test_a_rollback_leaves_memory_as_the_file_is(either: Bench) -> None:
    await either.insert(5)

    def halfway(transaction: Transaction) -> None:
        queue = transaction.queue_cache.queues[QUEUE]
        transaction.queue_cache.counter(queue, 1).pending += 100
        transaction.queue_cache.counter(queue, 2).pending += 1
        transaction.queue_cache.add(77, Queue("ghost"))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await writer_of(either).carry_out(Work(halfway))
    queue = writer_of(either)._queue_cache.queues[QUEUE]
    assert "ghost" not in writer_of(either)._queue_cache.queues
    assert {priority: counter.pending for priority, counter in queue.counters.items()} == {1: 5}
    assert len(await either.claim(100)) == 5


def _memory_of(queue_cache: SqliteQueueCache) -> object:
    """The queues and counters in memory."""
    queues = {
        entry.name: (entry.queue_id, entry.settings, [counter.row() for counter in entry.counters.values()])
        for entry in queue_cache.queues.values()
    }
    dropped = {queue_id: [counter.row() for counter in counters] for queue_id, counters in queue_cache.dropped.items()}
    return queues, sorted(queue_cache.by_id), dropped, queue_cache.first_expiry_ms


async def test_a_rollback_reads_only_the_queues_that_changed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand queues would keep the loop busy for a tenth of a second."""
    others = [f"other {number}" for number in range(10)]
    await bench.shard.submit(create_queues(others, NOW))
    await bench.insert(5)
    await bench.claim(2)
    await bench.shard.submit(DeleteQueues(["other 9"]))
    queue_cache = writer_of(bench)._queue_cache
    before = _memory_of(queue_cache)

    def halfway(transaction: Transaction) -> None:
        dialect = SqliteDialect(transaction)
        paused = Queue("other 4", paused=True, versions=Versions("", Versions().following(NOW, 1)))
        at_once(queues.merge(dialect, [Queue("new"), paused], NOW))
        at_once(queues.delete(dialect, ["other 1", "other 2"], 0, NOW))
        at_once(queues.merge(dialect, [Queue("other 1")], NOW))
        at_once(queues.configure(dialect, "other 3", QueueConfig(max_backlog=7), True, "v", ""))
        ids = [job_id for (job_id,) in transaction.execute("SELECT id FROM jobs")]
        keys = [JobKey(QUEUE, 1, job_id) for job_id in ids]
        at_once(in_hand.cancel(dialect, keys, NOW, None))
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(SqliteQueueCache, "reload", None)
        with pytest.raises(ZeroDivisionError):
            await writer_of(bench).carry_out(Work(halfway))
    assert _memory_of(queue_cache) == before
    queue_cache.reload(bench.shard._open.connection.execute)
    assert _memory_of(queue_cache) == before


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


async def test_after_closing_calls_are_refused(bench: Bench) -> None:
    writer = writer_of(bench)
    await bench.shard.close()
    with pytest.raises(ShardConnectionFailed):
        await writer.carry_out(Work(lambda transaction: None))
