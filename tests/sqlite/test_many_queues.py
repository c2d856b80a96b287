"""Thousands of queues with finished jobs: they are collected in several transactions, and all of them."""

from __future__ import annotations

from pinlater.server.storage.commands import CancelJobs, CollectGarbage, InsertJobs, create_queues
from pinlater.server.storage.values import Inserted, InsertRequest, JobKey, TimeToLive
from tests.sqlite.conftest import NOW, Bench

QUEUES = 450


async def test_finished_jobs_of_many_queues_are_collected_in_several_transactions(bench: Bench) -> None:
    names = [f"q{number}" for number in range(QUEUES)]
    await bench.shard.submit(create_queues(names, NOW))
    requests = [InsertRequest(name, bench.jobs(2)) for name in names]
    assert all(isinstance(answer, Inserted) for answer in await bench.shard.submit(InsertJobs(requests, NOW)))
    keys = [JobKey(request.queue, 1, job.id) for request in requests for job in request.jobs]
    await bench.shard.submit(CancelJobs(keys, NOW))
    ttls = [TimeToLive(name, 0, 0) for name in names]
    before = bench.shard.commits
    first = await bench.shard.submit(CollectGarbage(ttls, NOW + 10, 500))
    assert sum(row.deleted_failed for row in first) == 500, "the limit holds for all of them together"
    rest = await bench.shard.submit(CollectGarbage(ttls, NOW + 10, 10_000))
    assert sum(row.deleted_failed for row in rest) == 2 * QUEUES - 500
    assert bench.shard.commits - before >= 3
    assert not await bench.shard.submit(CollectGarbage(ttls, NOW + 10, 10_000))
