"""What a deleted queue leaves behind goes piece by piece, and the sweep says so."""

from __future__ import annotations

import asyncio
import sqlite3
import threading

import pytest

from pinlater.domain.job import JobState
from pinlater.server.storage.commands import CollectGarbage, CountJobs, DeleteQueues, PurgeJobs
from pinlater.server.storage.sqlite import reading
from pinlater.server.storage.values import Purge
from tests.sqlite.conftest import NOW, QUEUE, Bench


async def test_rows_of_a_deleted_queue_are_counted_as_they_go(bench: Bench) -> None:
    """A full piece tells the sweep to come back soon; otherwise a queue of a million jobs would take hours."""
    await bench.insert(3)
    await bench.insert(4)
    await bench.claim(2)
    await bench.shard.submit(DeleteQueues([QUEUE]))

    freed = [sum(one.freed for one in await bench.shard.submit(CollectGarbage([], NOW, 4))) for _ in range(3)]

    assert freed == [4, 3, 0]
    assert await bench.shard.submit(CollectGarbage([], NOW, 4)) == []


async def test_claims_that_end_while_they_are_purged_are_passed_over(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scan of all claims is a reader's, so a worker's ack may come between; it stands, and the purge continues."""
    keys = await bench.insert(6)
    await bench.claim(5)
    look = reading.oldest_claims
    looks: list[int] = []

    def look_late(connection: sqlite3.Connection, order: Purge) -> object:
        found = look(connection, order)
        looks.append(threading.get_ident())
        if len(looks) == 1:
            asyncio.run_coroutine_threadsafe(bench.succeed(keys[0]), loop).result(30)
        return found

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(reading, "oldest_claims", look_late)

    assert await bench.shard.submit(PurgeJobs(Purge(QUEUE, JobState.IN_PROGRESS, 1, 3))) == 3

    assert threading.get_ident() not in looks
    [(_, counts)] = await bench.shard.submit(CountJobs([QUEUE]))
    assert (counts.pending, counts.in_progress, counts.succeeded) == (1, 1, 1)
