"""After a transaction that failed memory is what the file has, whatever the transaction had changed before it failed."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pinlater.domain.errors import PinLaterError
from pinlater.domain.job import JobState, UniqueKey, UniqueScope
from pinlater.domain.queue import Life, Queue, QueueConfig, Versions
from pinlater.server.storage.commands import (
    AdvanceDue,
    CancelJobs,
    CheckpointJobs,
    CollectGarbage,
    ConfigureQueue,
    DeleteQueues,
    ExpireJobs,
    FinishJobs,
    MergeQueues,
    ReleaseJobs,
    TimeOutClaims,
    create_queues,
)
from pinlater.server.storage.sqlite.queue_cache import NEVER_MS, SqliteQueueCache, row_of
from pinlater.server.storage.sqlite.shard import SqliteShard
from pinlater.server.storage.values import JobAck, JobCheckpoint, JobKey, TimeToLive
from tests.contract.desk import Desk, DeskJob
from tests.contract.stores import make_store

QUEUES = ("a", "b", "c")
STEPS = 400


class FailingCommits:
    """The writer's cursor, of which some commits fail."""

    def __init__(self, within: sqlite3.Cursor, random: Random) -> None:
        self._within = within
        self._random = random
        self.failed = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._within, name)

    def execute(self, text: str, *values: Sequence[Any]) -> sqlite3.Cursor:
        if text == "COMMIT" and self._random.random() < 0.4:
            self.failed += 1
            raise sqlite3.OperationalError("disk I/O error")
        return self._within.execute(text, *values)


def picture(queue_cache: SqliteQueueCache) -> dict[str, object]:
    """What the queue cache knows; bounds that may be lower than what they bound are left out."""
    return {
        "queues": {
            name: (entry.queue_id, entry.settings, {key: row_of(counter) for key, counter in entry.counters.items()})
            for name, entry in queue_cache.queues.items()
        },
        "orders": {name: list(entry.counters) for name, entry in queue_cache.queues.items()},
        "by_id": {queue_id: entry.name for queue_id, entry in queue_cache.by_id.items()},
        "same": all(queue_cache.queues[entry.name] is entry for entry in queue_cache.by_id.values()),
        "dropped": {key: [row_of(counter) for counter in counters] for key, counters in queue_cache.dropped.items()},
        "bounds": (queue_cache.first_expiry_ms, queue_cache.first_request_key_ms, queue_cache.first_key_until_ms),
        "kept": queue_cache._highest_id_kept,
    }


def assert_due_times(queue_cache: SqliteQueueCache, connection: sqlite3.Connection, now_ms: int) -> None:
    """What memory says of when jobs are due, if it says so, is what the file has."""
    for entry in queue_cache.queues.values():
        said_ms = entry.next_due_ms(now_ms)
        if said_ms is not None:
            query = "SELECT MIN(run_after_ms) FROM ready WHERE queue_id = ?"
            [first_ms] = connection.execute(query, (entry.queue_id,)).fetchone()
            assert said_ms == (NEVER_MS if first_ms is None else first_ms)


class RandomCalls:
    """Calls of every kind, at random."""

    def __init__(self, desk: Desk, random: Random) -> None:
        self._desk = desk
        self._random = random
        self._keys: list[JobKey] = []
        self._held: list[DeskJob] = []

    async def step(self) -> None:
        calls = [self._put, self._put, self._take, self._take, self._tell, self._tell, self._queues, self._sweep]
        with contextlib.suppress(PinLaterError, IndexError, AssertionError):
            await self._random.choice([*calls, self._bulk])()

    async def _put(self) -> None:
        random, desk = self._random, self._desk
        scope = random.choice([None, None, UniqueScope.UNFINISHED, UniqueScope.TIME])
        jobs = [
            desk.job(
                priority=random.randrange(1, 4),
                delay_ms=random.choice([0, 0, 5_000, 7_000]),
                unique=None if scope is None else UniqueKey(str(random.randrange(5)), scope, 3_000),
                expires_in_ms=random.choice([None, 8_000]),
            )
            for _ in range(random.randrange(1, 4))
        ]
        queue = random.choice(QUEUES)
        await desk.insert(*jobs, queue=queue)
        self._keys += [JobKey(queue, job.priority, job.id) for job in jobs]

    async def _take(self) -> None:
        self._held += await self._desk.claim(2, queue=self._random.choice(QUEUES), timeout_ms=4_000)

    async def _tell(self) -> None:
        random, shard, now = self._random, self._desk.shard, self._desk.now
        key = random.choice([held.key for held in self._held] + self._keys[-3:])
        match random.randrange(5):
            case 0:
                await shard.submit(FinishJobs([JobAck(key, True)], now))
            case 1:
                await shard.submit(FinishJobs([JobAck(key, False, retry_delay_ms=random.choice([0, 3_000]))], now))
            case 2:
                await shard.submit(CancelJobs([key], now))
            case 3:
                await shard.submit(
                    CheckpointJobs(
                        [JobCheckpoint(key, "worker", new_body=b"x", move_to_pending=random.random() < 0.5)], now
                    )
                )
            case _:
                await shard.submit(ReleaseJobs([random.choice(self._held).ref], now))

    async def _queues(self) -> None:
        random, shard, now = self._random, self._desk.shard, self._desk.now
        name, version = random.choice(QUEUES), f"{now:013d}.{random.randrange(9)}"
        match random.randrange(5):
            case 0:
                await shard.submit(DeleteQueues([name, random.choice(QUEUES)], now))
            case 1:
                await shard.submit(ConfigureQueue(name, paused=random.random() < 0.5, version=version))
            case 2:
                await shard.submit(ConfigureQueue(name, config=QueueConfig(max_backlog=random.randrange(1, 99))))
            case 3:
                queue = Queue(name, QueueConfig(max_backlog=5), True, Versions(version, version), Life(now))
                await shard.submit(MergeQueues([queue], now))
            case _:
                await shard.submit(create_queues(list(QUEUES), now, life=Life(now)))

    async def _sweep(self) -> None:
        shard = self._desk.shard
        self._desk.clock.advance(ms=self._random.choice([1, 1_000, 5_000]))
        now = self._desk.now
        await shard.submit(AdvanceDue(now, 100))
        await shard.submit(TimeOutClaims(now, 100))
        await shard.submit(ExpireJobs(now, 100))
        await shard.submit(CollectGarbage([TimeToLive(name, 2_000, 2_000) for name in QUEUES], now, 100))

    async def _bulk(self) -> None:
        queue, priority = self._random.choice(QUEUES), self._random.randrange(1, 4)
        if self._random.random() < 0.5:
            state = self._random.choice([JobState.PENDING, JobState.SUCCEEDED, JobState.FAILED])
            await self._desk.purge(state, queue=queue, priority=priority)
        else:
            await self._desk.retry_failed(queue=queue, priority=priority)


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    desk = Desk(lambda: make_store("sqlite", tmp_path))
    await desk.open()
    yield desk
    await desk.shard.close()


@pytest.mark.parametrize("seed", range(4))
async def test_memory_is_what_the_file_has_after_each_transaction(desk: Desk, seed: int) -> None:
    random = Random(seed)
    shard = desk.shard
    assert isinstance(shard, SqliteShard)
    opened = shard._open
    writer = opened.writer
    failing = FailingCommits(writer._cursor, random)
    writer._cursor = failing  # type: ignore[assignment]
    load = RandomCalls(desk, random)
    for _ in range(STEPS):
        before = failing.failed
        await load.step()
        in_file = SqliteQueueCache("1")
        in_file.reload(opened.connection.execute)
        now = picture(opened.queue_cache)
        expected = picture(in_file)
        assert {**now, "bounds": 0} == {**expected, "bounds": 0}
        assert failing.failed == before or now["bounds"] == expected["bounds"]
        assert_due_times(opened.queue_cache, opened.connection, desk.now)
    assert failing.failed > STEPS / 20
