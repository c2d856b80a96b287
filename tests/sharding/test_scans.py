"""Scans over several shards, page by page, where ids of different shards are equal: each shard has an id maker of its own."""

from __future__ import annotations

from random import Random

import pytest

from pinlater.domain.errors import InvalidArgument, ShardConnectionFailed
from pinlater.domain.job import JobState
from pinlater.server.operations.merged_rows import ScanPosition
from pinlater.wire.generated.structs import Ack, AckBatch, CountRequest, EnqueueRequest, Job, ScanRequest
from tests.sharding.sharded_server import CALLER, ShardedServer, on_shards, run_on_shards

_NAMES = ("1", "2", "10", "3d2")
_JOBS = 150


async def fill(server: ShardedServer, seed: int) -> set[str]:
    """Jobs of all priorities, most of which are due at one of few moments, and many with one id on several shards."""
    random, descriptors = Random(seed), set[str]()
    while len(descriptors) < _JOBS:
        moment = server.clock.now_ms() - random.choice([0, 0, 5])
        jobs = [Job(b"x", random.randint(1, 3), moment) for _ in range(random.randint(1, 4))]
        descriptors.update((await server.service.enqueuing.enqueue(EnqueueRequest("q", jobs))).descriptors)
        if random.random() < 0.1:
            server.clock.advance(ms=1)
    ids = [descriptor.rpartition(":")[2] for descriptor in descriptors]
    assert len(set(ids)) < len(ids), "the test needs equal ids"
    return descriptors


async def listed(server: ShardedServer, filter: CountRequest, limit: int) -> list[str]:
    found: list[str] = []
    continuation = "0"
    while continuation != "-1":
        page = await server.service.job_queries.scan(
            ScanRequest(
                filter.queue, filter.state, future=filter.future, continuation=continuation, limit=limit, paged=True
            )
        )
        assert not page.incomplete
        found += [job.descriptor for job in page.jobs]
        continuation = page.continuation
    return found


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("state", [JobState.PENDING, JobState.IN_PROGRESS, JobState.FAILED])
def test_a_paged_scan_over_several_shards_shows_each_job_once(seed: int, state: JobState) -> None:
    """Whatever the limit of a page, and wherever it ends among jobs of one time and id."""

    async def scenario(server: ShardedServer) -> None:
        expected = await fill(server, seed)
        if state is not JobState.PENDING:
            taken = 0
            while taken < _JOBS and (jobs := (await server.dequeue()).jobs):
                taken += len(jobs)
                if state is JobState.FAILED:
                    failed = [Ack(descriptor, final=True) for descriptor in expected]
                    await server.service.claimed_jobs.acknowledge(CALLER, AckBatch("q", failed=failed))
        for limit in range(1, 65):
            found = await listed(server, CountRequest("q", state), limit)
            assert (len(found), set(found)) == (len(expected), expected), f"limit {limit}"

    run_on_shards(scenario, shards=_NAMES)


@on_shards(shards=_NAMES)
async def test_a_scan_of_one_shard_shows_the_jobs_of_that_shard_page_by_page(server: ShardedServer) -> None:
    """Named as in the map, or as in descriptors."""
    every = await fill(server, 5)
    for name in _NAMES:
        expected = {descriptor for descriptor in every if f":s{name}:" in descriptor}
        found: list[str] = []
        continuation = "0"
        while continuation != "-1":
            command = ScanRequest("q", JobState.PENDING, limit=7, continuation=continuation, paged=True, shard=name)
            page = await server.service.job_queries.scan(command)
            found += [job.descriptor for job in page.jobs]
            continuation = page.continuation
            assert not page.incomplete
        assert (len(found), set(found)) == (len(expected), expected)
        whole = ScanRequest("q", JobState.PENDING, limit=1_000, shard=f"s{name}")
        assert {job.descriptor for job in (await server.service.job_queries.scan(whole)).jobs} == expected


@on_shards(shards=("1", "2"))
async def test_a_scan_of_one_shard_does_not_depend_on_the_others(server: ShardedServer) -> None:
    """And is refused if it is that shard which is unreachable: an empty answer would be wrong."""
    [descriptor] = (await server.service.enqueuing.enqueue(EnqueueRequest("q", [Job(b"x")]))).descriptors
    here, away = ("1", "2") if ":s1:" in descriptor else ("2", "1")
    server.lanes(away).put_out_of_use("test")
    scan = server.service.job_queries.scan
    found = await scan(ScanRequest("q", JobState.PENDING, shard=here))
    assert ([job.descriptor for job in found.jobs], found.incomplete) == ([descriptor], None)
    with pytest.raises(ShardConnectionFailed, match=f"Shard {away} is unreachable"):
        await scan(ScanRequest("q", JobState.PENDING, shard=away))


@on_shards(shards=("1", "2"))
async def test_a_scan_of_a_shard_that_does_not_exist_is_refused_with_the_names_of_those_that_do(
    server: ShardedServer,
) -> None:
    with pytest.raises(InvalidArgument, match="There is no shard '9'; this server has 1, 2") as refused:
        await server.service.job_queries.scan(ScanRequest("q", JobState.PENDING, shard="9"))
    assert refused.value.detail == "SHARD_NOT_FOUND"


@on_shards(shards=_NAMES)
async def test_a_continuation_of_an_older_server_leaves_no_job_out(server: ShardedServer) -> None:
    """It doesn't name a shard, so jobs of that time and id may come twice."""
    expected = await fill(server, 1)
    whole = await listed(server, CountRequest("q", JobState.PENDING), _JOBS + 10)
    for end in range(1, len(expected), 7):
        page = await server.service.job_queries.scan(ScanRequest("q", JobState.PENDING, limit=end, paged=True))
        old = ".".join(page.continuation.split(".")[:2])
        rest = await server.service.job_queries.scan(
            ScanRequest("q", JobState.PENDING, limit=1000, continuation=old, paged=True)
        )
        assert set(whole[end:]) <= {job.descriptor for job in rest.jobs}
        assert len(rest.jobs) < len(whole) - end + len(_NAMES) + 1


@on_shards(shards=("1",))
async def test_one_shards_continuations_are_what_older_servers_read(server: ShardedServer) -> None:
    """Servers of both versions may answer a client's pages while a new version is rolled out."""
    for _ in range(10):
        await server.enqueue(b"x")
    page = await server.service.job_queries.scan(ScanRequest("q", JobState.PENDING, limit=3, paged=True))
    time, _, job_id = page.continuation.partition(".")
    assert int(time) > 0
    assert int(job_id) > 0
    assert len(await listed(server, CountRequest("q", JobState.PENDING), 3)) == 10


def test_a_page_ends_at_the_largest_id_and_time() -> None:
    most = 2**63 - 1
    assert ScanPosition(5, most, "1").on("2", alone=False) == (6, 0)
    assert ScanPosition(most, most, "1").on("2", alone=False) is None
    assert ScanPosition(5, 7, "2").on("2", alone=False) == (5, 7)
    assert ScanPosition(5, 7, "2").on("1", alone=False) == (5, 7)
    assert ScanPosition(5, 7, "1").on("2", alone=False) == (5, 8)
    assert ScanPosition(5, 7, None).on("2", alone=False) == (5, 8)
    assert ScanPosition(5, 7, None).on("2", alone=True) == (5, 7)
