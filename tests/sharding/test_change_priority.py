"""Jobs of several shards that get another priority: each stays on its shard, and a call that failed on one can be sent again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from pinlater.domain.calls import MovedJob
from pinlater.domain.errors import (
    DescriptorInvalid,
    InvalidArgument,
    OutcomeUnknown,
    PriorityNotSupported,
    ShardConnectionFailed,
)
from pinlater.domain.job import Outcome
from pinlater.server.operations.job_settings import JobSettings
from pinlater.server.storage.commands import ClaimJobs, MoveJobs
from pinlater.server.storage.values import Claimed, ClaimOrder
from tests.commands import instead
from tests.sharding.sharded_server import ShardedServer, on_shards


def renamed(descriptor: str, priority: int) -> str:
    return descriptor.replace(":p1:", f":p{priority}:")


async def dequeued(server: ShardedServer) -> list[str]:
    """The descriptors of all jobs that are due."""
    return sorted(job.descriptor for job in (await server.dequeue()).jobs)


async def change(server: ShardedServer, priority: int, *descriptors: str) -> list[MovedJob]:
    return list(await server.service.bulk.change_priority("q", descriptors, priority))


@on_shards()
async def test_jobs_of_all_shards_are_moved_each_on_its_own(server: ShardedServer) -> None:
    names = [await server.put(shard) for shard in ("1", "2", "3")]
    unknown = "q:s9:p1:1"
    answers = await change(server, 2, *names, unknown, "other:s1:p1:1")
    assert answers[:3] == [MovedJob(name, Outcome.APPLIED, renamed(name, 2)) for name in names]
    assert answers[3:] == [MovedJob(name, Outcome.NOT_FOUND) for name in (unknown, "other:s1:p1:1")]
    assert await dequeued(server) == sorted(renamed(name, 2) for name in names)


@on_shards()
async def test_a_call_that_a_shard_fails_can_be_sent_again(server: ShardedServer) -> None:
    """What other shards did stays done, and so does what the shard did whose answer was lost."""
    names = [await server.put(shard) for shard in ("1", "2", "3")]
    server.store("2").fails(MoveJobs, error=OutcomeUnknown("lost"), done_first=True)
    with pytest.raises(OutcomeUnknown):
        await change(server, 2, *names)
    assert await change(server, 2, *names) == [MovedJob(name, Outcome.APPLIED, renamed(name, 2)) for name in names]
    assert [await server.jobs_on(shard) for shard in ("1", "2", "3")] == [1, 1, 1]
    assert await dequeued(server) == sorted(renamed(name, 2) for name in names)


@on_shards()
async def test_an_unreachable_shard_is_an_error_and_its_job_stays(server: ShardedServer) -> None:
    name = await server.put("1")
    server.store("1").dead = "connection refused"
    with pytest.raises(ShardConnectionFailed):
        await change(server, 2, name)
    server.store("1").dead = None
    await server.pass_time(10_000)
    assert await dequeued(server) == [name]


@on_shards(shards=("1",), service=JobSettings(max_descriptors_per_request=2))
async def test_what_can_not_be_done_is_an_error_before_anything_is_done(server: ShardedServer) -> None:
    name = await server.put("1")
    for priority in (0, 4, 256, -1):
        with pytest.raises(PriorityNotSupported, match="priorities run from 1 to 3"):
            await change(server, priority, name)
    with pytest.raises(DescriptorInvalid):
        await change(server, 2, name, "nonsense")
    with pytest.raises(InvalidArgument, match="at most 2"):
        await change(server, 2, name, name, name)
    assert await dequeued(server) == [name]


@on_shards(shards=("1",))
async def test_a_dequeue_that_missed_a_job_during_a_move_gets_it_at_its_end(server: ShardedServer) -> None:
    """A claim passes over rows that another transaction has locked."""
    name = await server.put("1")
    store = server.store("1").within
    carry_out = store.submit

    async def pass_over(orders: Sequence[ClaimOrder], now_ms: int) -> Sequence[Claimed]:
        store.submit = carry_out  # type: ignore[method-assign]
        return [Claimed([[] for _ in order.calls]) for order in orders]

    store.submit = instead(store, ClaimJobs, pass_over)  # type: ignore[method-assign]
    waiting = asyncio.ensure_future(server.dequeue(1, wait_ms=60_000))
    await server.turns()
    assert not waiting.done()
    await change(server, 2, name)
    await server.turns()
    assert waiting.done()
    assert [job.descriptor for job in waiting.result().jobs] == [renamed(name, 2)]
