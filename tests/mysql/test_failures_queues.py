"""A queue is deleted by one server while another still believes in it."""

from __future__ import annotations

import asyncio

import pytest

from pinlater.domain.errors import QueueNotFound
from pinlater.domain.job import Outcome
from pinlater.server.storage.commands import (
    ClaimJobs,
    CollectGarbage,
    DeleteQueues,
    InsertJobs,
    TimeOutClaims,
    create_queues,
)
from pinlater.server.storage.values import ClaimCall, ClaimOrder, Inserted, InsertRequest, JobCheckpoint, TimeToLive
from tests.contract.desk import Desk, DeskJob
from tests.mysql.proxied_mysql import ProxiedMysql
from tests.shared_shards.proxied_database import QUEUE


@pytest.fixture
async def other(database: ProxiedMysql, desk: Desk) -> Desk:
    """A second server on the same shard."""
    return await database.desk(direct=True)


async def nothing_left(database: ProxiedMysql, desk: Desk) -> bool:
    """What a deleted queue held is freed bit by bit."""
    while await desk.shard.submit(CollectGarbage([TimeToLive(QUEUE, 0, 0)], desk.now, 1_000)):
        pass
    await desk.shard.submit(TimeOutClaims(desk.now + 10**9, 1_000))
    rows = [
        await database.ask(f"SELECT COUNT(*) FROM {table}")
        for table in ("ready", "claims", "done", "counters", "dropped_queues")
    ]
    return not sum(count for [[count]] in rows)


async def test_nothing_is_stored_in_a_queue_that_is_gone(database: ProxiedMysql, desk: Desk, other: Desk) -> None:
    await other.shard.submit(DeleteQueues([QUEUE]))
    assert isinstance(await desk.request(InsertRequest(QUEUE, [desk.job()])), QueueNotFound)
    assert await database.ask("SELECT id FROM jobs") == []
    assert await nothing_left(database, desk)


async def test_other_requests_of_the_same_call_are_stored(database: ProxiedMysql, desk: Desk, other: Desk) -> None:
    await other.shard.submit(create_queues(["others"], desk.now))
    await other.shard.submit(DeleteQueues([QUEUE]))
    requests = [InsertRequest(queue, [desk.job(queue.encode())]) for queue in (QUEUE, "others")]
    gone, stored = await desk.shard.submit(InsertJobs(requests, desk.now))
    assert isinstance(gone, QueueNotFound)
    assert isinstance(stored, Inserted)
    await database.assert_consistent()


async def test_nothing_is_claimed_from_a_queue_that_is_gone(database: ProxiedMysql, desk: Desk, other: Desk) -> None:
    await desk.put()
    await other.shard.submit(DeleteQueues([QUEUE]))
    order = ClaimOrder(QUEUE, [ClaimCall(1, desk.holder())], 1_000)
    assert isinstance((await desk.shard.submit(ClaimJobs([order], desk.now)))[0], QueueNotFound)
    assert await nothing_left(database, desk)


@pytest.mark.parametrize("word", ["finish", "fail", "checkpoint", "extend", "release", "cancel"])
async def test_a_job_in_hand_is_gone_with_its_queue(database: ProxiedMysql, desk: Desk, other: Desk, word: str) -> None:
    held: DeskJob = await desk.put_and_take()
    await other.shard.submit(DeleteQueues([QUEUE]))
    acts = {
        "finish": lambda: desk.succeed(held.key, token=held.holder.token),
        "fail": lambda: desk.fail(held.key, token=held.holder.token),
        "checkpoint": lambda: desk.checkpoint(JobCheckpoint(held.key, "worker", held.holder.token, b"new")),
        "extend": lambda: desk.heartbeat(held.ref),
        "release": lambda: desk.release(held.ref),
        "cancel": lambda: desk.cancel(held.key),
    }
    assert (await acts[word]()).outcome is Outcome.NOT_FOUND
    assert await nothing_left(database, desk)


async def test_a_queue_made_again_is_another_one(database: ProxiedMysql, desk: Desk, other: Desk) -> None:
    await desk.put(b"old")
    await other.shard.submit(DeleteQueues([QUEUE]))
    await other.shard.submit(create_queues([QUEUE], other.now))
    await desk.put(b"new")
    assert [held.job.body for held in await desk.claim(10)] == [b"new"]
    await database.assert_consistent(deleted=True)


async def test_a_queue_deleted_under_load_leaves_nothing_and_blocks_no_call(
    database: ProxiedMysql, desk: Desk, other: Desk
) -> None:
    """Inserts, claims and acks continue meanwhile: each is done or told that there is no such queue."""
    gone = asyncio.Event()

    async def work() -> None:
        while not gone.is_set():
            if isinstance(await desk.request(InsertRequest(QUEUE, [desk.job(), desk.job()])), QueueNotFound):
                gone.set()

    async def run() -> None:
        while not gone.is_set():
            try:
                for held in await desk.claim(3):
                    await desk.succeed(held.key, token=held.holder.token)
            except AssertionError:  # the desk expects a queue
                gone.set()

    working = asyncio.gather(work(), run(), run())
    await desk.put()
    await other.shard.submit(DeleteQueues([QUEUE]))
    await asyncio.wait_for(working, 30)
    assert isinstance(await desk.request(InsertRequest(QUEUE, [desk.job()])), QueueNotFound)
    assert await nothing_left(database, desk)
