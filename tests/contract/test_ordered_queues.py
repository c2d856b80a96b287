"""A queue that is ordered as a whole: its jobs are under one ordering key, from its creation until it is deleted."""

from __future__ import annotations

import pytest

from pinlater.domain.errors import EnqueueRejected
from pinlater.domain.queue import ALL_JOBS, Life, Queue, QueueConfig
from pinlater.server.storage.commands import (
    ConfigureQueue,
    DeleteQueues,
    ListQueues,
    MergeQueues,
    create_queues,
)
from pinlater.server.storage.values import InsertRequest
from tests.contract.desk import Desk

NAME = "bookings"


async def made(desk: Desk, life: Life, *, asks_order: bool = True) -> Life:
    """The life of the queue as its creation answers, which is as the shard keeps it."""
    [answer] = await desk.shard.submit(create_queues([NAME], desk.now, life, asks_order=asks_order))
    kept = [queue for queue in await desk.shard.submit(ListQueues()) if queue.name == NAME]
    assert kept == ([] if answer.life.over else [answer])
    return answer.life


async def test_a_queue_keeps_the_order_of_its_creation_whatever_is_asked_for_and_set_later(desk: Desk) -> None:
    times = range(desk.now, desk.now + 10)
    await made(desk, Life(times[1]), asks_order=False)
    assert not (await made(desk, Life(times[2]))).ordered
    await desk.shard.submit(DeleteQueues([NAME], times[3], desk.now))
    assert (await made(desk, Life(times[4]))) == Life(times[4], times[3], times[4])
    await desk.shard.submit(ConfigureQueue(NAME, config=QueueConfig(max_backlog=7), paused=True))
    assert (await made(desk, Life(times[5]), asks_order=False)).ordered
    await desk.shard.submit(DeleteQueues([NAME], times[6], desk.now))
    assert not (await made(desk, Life(times[7]), asks_order=False)).ordered


async def test_a_creation_from_before_the_deletion_makes_no_ordered_queue(desk: Desk) -> None:
    await made(desk, Life(desk.now))
    await desk.shard.submit(DeleteQueues([NAME], desk.now + 2, desk.now))
    assert (await made(desk, Life(desk.now + 1))).over


async def test_a_shard_takes_the_order_over_from_another(desk: Desk) -> None:
    [answer] = await desk.shard.submit(MergeQueues([Queue(NAME, life=Life(2, 1, 2))], desk.now))
    assert answer.life == Life(2, 1, 2)
    assert isinstance(await desk.request(InsertRequest(NAME, [desk.job()])), EnqueueRejected)


@pytest.mark.parametrize("jobs", [1, 3_000])
async def test_jobs_of_a_server_that_does_not_know_of_the_order_are_refused(desk: Desk, jobs: int) -> None:
    """It remembers a queue of this name that was deleted since. None of the request is stored."""
    await made(desk, Life(1))
    known = [desk.job(ordering_key=ALL_JOBS) for _ in range(jobs)]
    for unknown in (desk.job(), desk.job(ordering_key="a"), desk.job(status="s")):
        answer = await desk.request(InsertRequest(NAME, [*known, unknown]))
        assert isinstance(answer, EnqueueRejected)
        assert "ordered as a whole" in str(answer)
    assert await desk.claim(queue=NAME) == []
    await desk.insert(*known, queue=NAME)
    assert [held.key.id for held in await desk.claim(5, queue=NAME)] == [known[0].id]
