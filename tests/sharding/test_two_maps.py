"""Two servers go by different shard maps: one has read the shard file already, the other has not yet."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import TypeVar

import pytest

from pinlater.domain.errors import ErrorCode, ShardConnectionFailed
from pinlater.domain.job import Outcome
from pinlater.domain.queue import QueueConfig
from pinlater.server.operations.claimed_jobs import ClaimedJobs
from pinlater.server.sharding.map_reader import MapReader
from pinlater.server.sharding.strays import COUNTED_S_MAX
from pinlater.wire.generated.structs import (
    Ack,
    AckBatch,
    AckResult,
    Checkpoint,
    CheckpointBatch,
    Claim,
    ClaimsRequest,
    LookupRequest,
    ReleaseRequest,
)
from tests.sharding.faulty import FaultyShard
from tests.sharding.sharded_server import CALLER, ShardedServer, on_shards, run_on_shards, shard_of

T = TypeVar("T")
OLD, NEW = ("1", "2"), ("1", "2", "3")


class WithAnotherSlot(FaultyShard):
    """As the other server sees a shard: it makes ids of its own."""

    slot = 1


async def ahead_of(server: ShardedServer, names: tuple[str, ...] = NEW) -> ShardedServer:
    """Another server, with another map of the same shards."""
    other = ShardedServer(server.clock)
    other.stores = {name: WithAnotherSlot(server.store(name).within) for name in names}
    await other.open([other.desired(name) for name in names])
    other.shards.random = Random(2)
    await other.core.catch_up()
    return other


def reads(server: ShardedServer, names: tuple[str, ...]) -> Callable[[], Awaitable[None]]:
    """What reads the file, in which these shards are."""

    async def read() -> None:
        await server.replace(*[server.desired(name) for name in names])

    return read


async def outcomes(*calls: Awaitable[object]) -> list[object]:
    """What the calls return or raise."""
    return list(await asyncio.gather(*calls, return_exceptions=True))


async def gathered(*calls: Awaitable[T]) -> list[T]:
    return list(await asyncio.gather(*calls))


@pytest.mark.parametrize("seed", range(5))
def test_with_two_maps_every_job_is_handed_out_once_and_none_is_lost(seed: int) -> None:
    """Each server serves the shards that it knows; workers that ask both get all jobs, also before both know the same map, and while
    they go by different numbers of partitions."""

    async def scenario(server: ShardedServer) -> None:
        random = Random(seed)
        other = await ahead_of(server)
        stored: list[str] = []
        done = Counter[str]()
        for step in range(200):
            asked = random.choice([server, other])
            if random.random() < 0.1:
                await asked.count()
            if random.random() < 0.05:
                await asked.service.queues.configure_queue("q", QueueConfig(partitions=random.randint(1, 2)))
            if step < 120 and random.random() < 0.6:
                stored += (await asked.enqueue(*[b"x"] * random.randint(1, 3))).descriptors
                continue
            found = [job.descriptor for job in (await asked.dequeue(random.randint(1, 5))).jobs]
            done.update(found)
            await asked.ack(*found)
            if step == 150:
                await server.replace(*[server.desired(name) for name in NEW])
        server.clock.advance(ms=int(COUNTED_S_MAX * 1000) + 1)
        while jobs := (await server.dequeue()).jobs:
            done.update(job.descriptor for job in jobs)
            await server.ack(*[job.descriptor for job in jobs])
        assert {shard_of(descriptor) for descriptor in stored} == set(NEW)
        assert done == Counter(stored)
        assert [await server.jobs_on(name) for name in NEW] == [0, 0, 0]
        await other.close()

    run_on_shards(scenario, shards=OLD)


_CALLS: dict[str, Callable[[ClaimedJobs, str, str], Awaitable[Sequence[AckResult]]]] = {
    "ack": lambda claimed, job, token: claimed.acknowledge(CALLER, AckBatch("q", [Ack(job)])),
    "checkpoint": lambda claimed, job, token: claimed.checkpoint(CALLER, CheckpointBatch("q", [Checkpoint(job)])),
    "heartbeat": lambda claimed, job, token: claimed.heartbeat(ClaimsRequest("q", [Claim(job, token)])),
    "release": lambda claimed, job, token: claimed.release(ReleaseRequest("q", [Claim(job, token)], 0)),
    "cancel": lambda claimed, job, token: claimed.cancel("q", [job]),
}


@pytest.mark.parametrize("name", _CALLS)
def test_a_server_reads_its_file_again_for_a_job_on_a_shard_that_it_does_not_know(name: str) -> None:
    """So each call about a job counts at once."""

    async def scenario(server: ShardedServer) -> None:
        other = await ahead_of(server)
        server.shards.reader = MapReader(reads(server, NEW), server.clock.monotonic)
        job = await other.put("3")
        [claim] = (await other.dequeue()).jobs
        assert (claim.descriptor, server.shards.get("3")) == (job, None)
        [result] = await _CALLS[name](server.service.claimed_jobs, job, claim.token)
        assert result.outcome is Outcome.APPLIED
        await other.close()

    run_on_shards(scenario, shards=OLD)


@on_shards(shards=OLD)
async def test_a_lookup_finds_a_job_on_a_shard_that_its_server_does_not_know(server: ShardedServer) -> None:
    other = await ahead_of(server)
    server.shards.reader = MapReader(reads(server, NEW), server.clock.monotonic)
    job = await other.put("3")
    [descriptor] = await server.service.job_queries.lookup(LookupRequest([job]))
    assert descriptor == job
    await other.close()


@on_shards(shards=OLD)
async def test_while_no_file_names_the_shard_the_answer_is_to_try_again_and_nothing_is_lost(
    server: ShardedServer,
) -> None:
    """An error of the job alone for callers who ask for such, else of the call; what is on other shards is carried out first."""
    other = await ahead_of(server)
    reads_done: list[float] = []

    async def read() -> None:
        reads_done.append(server.clock.monotonic())

    server.shards.reader = MapReader(read, server.clock.monotonic)
    claimed = server.service.claimed_jobs
    jobs = [await other.put(name) for name in ("1", "3", "1", "3")]
    assert len((await other.dequeue()).jobs) == 4
    first = AckBatch("q", [Ack(job) for job in (*jobs[:2], "q:s1:p1:77")], per_item_errors=True)
    known, unknown, missing = await server.within(400, claimed.acknowledge(CALLER, first))
    assert [known.outcome, unknown.outcome, missing.outcome] == [Outcome.APPLIED, Outcome.ERROR, Outcome.NOT_FOUND]
    assert (unknown.error_code, unknown.retry_after_ms) == (ErrorCode.SHARD_CONNECTION_FAILED, 1_000)
    calls = [claimed.acknowledge(CALLER, AckBatch("q", [Ack(job) for job in jobs[2:]])) for _ in range(10)]
    calls += [claimed.heartbeat(ClaimsRequest("q", [Claim(jobs[3], "")])) for _ in range(10)]
    failed = await server.within(1_400, outcomes(*calls))
    assert {type(failure) for failure in failed} == {ShardConnectionFailed}
    assert all("does not know shard 3" in str(failure) for failure in failed)
    assert len(reads_done) == 2, "once a second at most"
    assert await server.in_progress_on("1") == 0
    assert await server.in_progress_on("3") == 2
    await server.replace(*[server.desired(name) for name in NEW])
    late = await claimed.acknowledge(CALLER, AckBatch("q", [Ack(job) for job in jobs]))
    assert [each.outcome for each in late] == [Outcome.ALREADY_FINAL, Outcome.APPLIED] * 2
    await other.close()


@on_shards(shards=OLD)
async def test_a_file_that_is_slow_to_be_read_holds_a_call_up_for_two_seconds(server: ShardedServer) -> None:
    """All callers wait for one read, which goes on."""
    read = asyncio.Event()

    async def slowly() -> None:
        await read.wait()
        await reads(server, NEW)()

    other = await ahead_of(server)
    server.shards.reader = MapReader(slowly, server.clock.monotonic)
    job = await other.put("3")
    await other.dequeue()
    batch = AckBatch("q", [Ack(job)], per_item_errors=True)
    early = await server.within(
        2_400, gathered(*[server.service.claimed_jobs.acknowledge(CALLER, batch) for _ in range(3)])
    )
    assert [one.outcome for [one] in early] == [Outcome.ERROR] * 3
    read.set()
    [late] = await server.within(400, server.service.claimed_jobs.acknowledge(CALLER, batch))
    assert late.outcome is Outcome.APPLIED
    await other.close()


@on_shards(shards=OLD)
async def test_without_a_file_and_for_another_queue_such_a_job_does_not_exist(server: ShardedServer) -> None:
    claimed = server.service.claimed_jobs
    [result] = await claimed.acknowledge(CALLER, AckBatch("q", [Ack("q:s3:p1:7")]))
    assert result.outcome is Outcome.NOT_FOUND

    async def read() -> None:
        raise AssertionError("not for a job of another queue")

    server.shards.reader = MapReader(read, server.clock.monotonic)
    [result] = await claimed.acknowledge(CALLER, AckBatch("q", [Ack("other:s3:p1:7")]))
    assert result.outcome is Outcome.NOT_FOUND


@on_shards(shards=OLD)
async def test_a_repeat_reads_the_file_again_before_it_is_looked_for(server: ShardedServer) -> None:
    other = await ahead_of(server)
    server.shards.reader = MapReader(reads(server, NEW), server.clock.monotonic)
    firsts = {f"k{n}": await other.enqueue(b"x", key=f"k{n}") for n in range(20)}
    assert {shard_of(first.descriptors[0]) for first in firsts.values()} == {"1", "3"}
    repeats = [server.enqueue(b"x", key=key, repeat=True) for key in firsts]
    assert await server.within(1_400, gathered(*repeats)) == list(firsts.values())
    await other.close()


@on_shards(shards=OLD)
async def test_a_file_that_changes_right_after_it_was_read_is_read_once_more_for_a_repeat(
    server: ShardedServer,
) -> None:
    """Also while a read is under way that began before the change."""
    other = await ahead_of(server)
    names: list[tuple[str, ...]] = [OLD]
    reading, go_on = asyncio.Event(), asyncio.Event()

    async def read() -> None:
        found = names[-1]
        reading.set()
        await go_on.wait()
        await reads(server, found)()

    server.shards.reader = MapReader(read, server.clock.monotonic)
    first_look = asyncio.ensure_future(server.shards.reader.look())
    await reading.wait()
    names.append(NEW)
    firsts = {f"k{n}": await other.enqueue(b"x", key=f"k{n}") for n in range(10)}
    assert "3" in {shard_of(first.descriptors[0]) for first in firsts.values()}
    go_on.set()
    repeats = [server.enqueue(b"x", key=key, repeat=True) for key in firsts]
    assert await server.within(1_400, gathered(*repeats)) == list(firsts.values())
    assert await first_look
    await other.close()


@on_shards(shards=OLD)
async def test_a_repeat_is_refused_while_the_file_can_not_be_read_to_its_end(server: ShardedServer) -> None:
    """A new shard, which may hold it, is still being opened."""
    other = await ahead_of(server)
    server.shards.reader = MapReader(asyncio.Event().wait, server.clock.monotonic)  # type: ignore[arg-type]
    await other.enqueue(b"x", key="k")
    with pytest.raises(ShardConnectionFailed, match="unknown whether this request was stored already"):
        await server.within(2_400, server.enqueue(b"x", key="k", repeat=True))
    assert sum([await other.jobs_on(name) for name in NEW]) == 1
    await server.shards.reader.close()
    await other.close()


async def remove_shard_3(server: ShardedServer) -> None:
    """Which has no live jobs."""
    await server.replace(*[server.desired(name) for name in OLD])
    server.clock.advance(seconds=server.settings.removal_grace_ms // 1000 + 1)
    await server.core.shard_map.tidy()
    assert server.shards.get("3") is None


@on_shards(shards=NEW)
async def test_a_shard_that_was_removed_and_is_back_is_found_at_a_server_that_knows_of_its_removal_alone(
    server: ShardedServer,
) -> None:
    """It reads the file before it says that the job does not exist."""
    other = await ahead_of(server)
    await remove_shard_3(server)
    server.shards.reader = MapReader(reads(server, NEW), server.clock.monotonic)
    job = await other.put("3")
    await other.dequeue()
    [acked] = await server.service.claimed_jobs.acknowledge(CALLER, AckBatch("q", [Ack(job)]))
    assert acked.outcome is Outcome.APPLIED
    await other.close()


@on_shards(shards=NEW)
async def test_a_job_on_a_shard_that_is_back_exists_at_a_server_whose_file_still_lacks_the_shard(
    server: ShardedServer,
) -> None:
    """Its file may be the old one: the answer is to try again. Jobs from before the removal do not exist."""
    other = await ahead_of(server)
    before = await other.put("3")
    await other.dequeue()
    await other.ack(before)
    await remove_shard_3(server)
    server.shards.reader = MapReader(reads(server, OLD), server.clock.monotonic)
    server.clock.advance(seconds=1)
    job = await other.put("3")
    await other.dequeue()
    batch = AckBatch("q", [Ack(before), Ack(job)], per_item_errors=True)
    gone, back = await server.within(1_400, server.service.claimed_jobs.acknowledge(CALLER, batch))
    assert (gone.outcome, back.outcome) == (Outcome.NOT_FOUND, Outcome.ERROR)
    assert back.error_code == ErrorCode.SHARD_CONNECTION_FAILED
    await other.close()


@on_shards(shards=NEW)
async def test_a_job_on_a_shard_that_is_gone_does_not_exist(server: ShardedServer) -> None:
    """Its worker is told so, and does not try for ever. The data of shard 2 are lost; shard 3 is removed."""
    server.shards.reader = MapReader(reads(server, ("1",)), server.clock.monotonic)
    lost = server.desired("2")._replace(lost=True)
    await server.replace(server.desired("1"), lost)
    server.clock.advance(seconds=server.settings.removal_grace_ms // 1000 + 1)
    server.store("2").dead = "no route to host"
    for _ in range(2):
        await server.within(30_000, server.replace(server.desired("1"), lost))
    assert [shard.name for shard in server.shards] == ["1"]
    claimed = server.service.claimed_jobs
    for job in ("q:s2:p1:7", "q:s3:p1:7"):
        [acked] = await server.within(1_400, claimed.acknowledge(CALLER, AckBatch("q", [Ack(job)])))
        [renewed] = await server.within(1_400, claimed.heartbeat(ClaimsRequest("q", [Claim(job, "")])))
        assert (acked.outcome, renewed.outcome) == (Outcome.NOT_FOUND, Outcome.NOT_FOUND)


@on_shards(shards=OLD)
async def test_a_repeat_is_found_once_both_servers_know_the_map(server: ShardedServer) -> None:
    """Whichever of them stored the first, and by whichever map."""
    other = await ahead_of(server)
    firsts = {f"k{n}": await (server, other)[n % 2].enqueue(b"x", key=f"k{n}") for n in range(20)}
    await server.replace(*[server.desired(name) for name in NEW])
    for key, first in firsts.items():
        for asked in (server, other):
            assert await asked.enqueue(b"x", key=key, repeat=True) == first
    assert sum([await server.jobs_on(name) for name in NEW]) == 20
    await other.close()


@on_shards(shards=NEW)
async def test_a_server_that_has_not_learned_of_a_removal_finds_its_jobs_done_by_both(server: ShardedServer) -> None:
    """The one that has keeps the shard while there are jobs, and for a time in which the other may put some there."""
    other = await ahead_of(server)
    await server.replace(*[server.desired(name) for name in OLD])
    job = await other.put("3")
    server.clock.advance(seconds=server.settings.removal_grace_ms // 1000 + 1)
    await server.core.shard_map.tidy()
    assert server.shards.get("3") is not None
    assert [each.descriptor for each in (await server.dequeue()).jobs] == [job]
    await server.ack(job)
    await server.core.shard_map.tidy()
    assert server.shards.get("3") is None
    await other.close()
