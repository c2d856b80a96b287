"""An operator changes the file of a running server by hand: the server goes by the file, not by what it remembers."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from pinlater.domain.errors import QueueNotFound
from pinlater.domain.job import JobState
from pinlater.server.storage.commands import TimeOutClaims, create_queues
from pinlater.server.storage.sqlite.shard import SqliteShard
from pinlater.server.storage.values import InsertRequest
from tests.contract.desk import QUEUE, Desk


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


async def desk_on(path: Path) -> Desk:
    desk = Desk(lambda: SqliteShard(path))
    await desk.open()
    await desk.shard.submit(create_queues([QUEUE], desk.now))
    return desk


def by_hand(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    try:
        with connection:
            connection.execute(statement)
    finally:
        connection.close()


async def test_jobs_of_a_queue_that_was_made_by_hand_are_not_deleted_by_a_sweep(path: Path) -> None:
    """Renamed, the queue is one that the server does not know; its jobs and counts stay as they are."""
    desk = await desk_on(path)
    held = await desk.put_and_take()
    by_hand(path, "UPDATE queues SET name = 'renamed'")
    desk.clock.advance(ms=10**6)
    [swept] = await desk.shard.submit(TimeOutClaims(desk.now, 100))
    assert (swept.queue, swept.retried) == ("renamed", 1)
    assert (await desk.look(held.key._replace(queue="renamed"))).state is JobState.PENDING
    await desk.assert_counters_exact("renamed")
    await desk.shard.close()


async def test_nothing_is_stored_in_a_queue_that_was_deleted_by_hand(path: Path) -> None:
    desk = await desk_on(path)
    await desk.put()
    by_hand(path, "DELETE FROM queues")
    assert isinstance(await desk.request(InsertRequest(QUEUE, [desk.job()])), QueueNotFound)
    await desk.shard.close()
