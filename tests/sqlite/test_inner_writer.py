"""What the writer of a shard does with calls that no command makes: to roll back, it must know of all that a call may have changed."""

from __future__ import annotations

import asyncio
from typing import NoReturn

import pytest

from pinlater.domain.errors import ShardConnectionFailed
from pinlater.domain.queue import Queue, QueueConfig, Versions
from pinlater.server.storage.commands import DeleteQueues, create_queues
from pinlater.server.storage.relational import in_hand, queues
from pinlater.server.storage.sqlite.dialect import SqliteDialect, at_once
from pinlater.server.storage.sqlite.queue_cache import SqliteQueueCache, row_of
from pinlater.server.storage.sqlite.transaction import Transaction
from pinlater.server.storage.sqlite.writer import Work, Writer
from pinlater.server.storage.values import JobKey
from tests.sqlite.conftest import NOW, QUEUE, Bench
from tests.sqlite.test_group_commit import IN_THREAD, either

__all__ = ["either"]  # a fixture


def writer_of(bench: Bench) -> Writer:
    return bench.shard._open.writer


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
        entry.name: (entry.queue_id, entry.settings, [row_of(counter) for counter in entry.counters.values()])
        for entry in queue_cache.queues.values()
    }
    dropped = {
        queue_id: [row_of(counter) for counter in counters] for queue_id, counters in queue_cache.dropped.items()
    }
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


async def test_after_closing_calls_are_refused(bench: Bench) -> None:
    writer = writer_of(bench)
    await bench.shard.close()
    with pytest.raises(ShardConnectionFailed):
        await writer.carry_out(Work(lambda transaction: None))


async def test_a_bug_in_what_memory_is_asked_fails_its_own_call_only(bench: Bench) -> None:
    await bench.shard.close()
    await bench.open(IN_THREAD)
    assert await bench.claim() == []
    writer = writer_of(bench)

    def broken(_: SqliteQueueCache) -> NoReturn:
        raise ZeroDivisionError("a bug")

    bench.disk.committing.clear()
    storing = asyncio.ensure_future(bench.insert())
    assert await asyncio.to_thread(bench.disk.committing.wait, 30)
    first, second, claimed = await asyncio.gather(
        writer.carry_out(Work(lambda _: 1, recall=broken)), bench.claim(), bench.claim(), return_exceptions=True
    )
    await storing
    assert isinstance(first, ZeroDivisionError)
    assert not isinstance(second, BaseException)
    assert len(second) == 1
    assert claimed == []
