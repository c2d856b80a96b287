"""Two servers go by different shard maps: one has read the shard file already, the other has not yet."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from pinlater.domain.calls import Ack, AckBatch
from pinlater.domain.job import Outcome
from tests.sharding.faulty import FaultyShard
from tests.sharding.sharded_server import CALLER, ShardedServer, on_shards, run_on_shards, shard_of

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


@pytest.mark.parametrize("seed", range(5))
def test_with_two_maps_every_job_is_handed_out_once_and_none_is_lost(seed: int) -> None:
    """Each server serves the shards that it knows; workers that ask both get all jobs, also before both know the same map."""

    async def scenario(server: ShardedServer) -> None:
        random = Random(seed)
        other = await ahead_of(server)
        stored: list[str] = []
        done = Counter[str]()
        for step in range(200):
            asked = random.choice([server, other])
            if step < 120 and random.random() < 0.6:
                stored += (await asked.enqueue(*[b"x"] * random.randint(1, 3))).descriptors
                continue
            found = [job.descriptor for job in (await asked.dequeue(random.randint(1, 5))).jobs]
            done.update(found)
            await asked.ack(*found)
            if step == 150:
                await server.replace(*[server.desired(name) for name in NEW])
        while jobs := (await server.dequeue()).jobs:
            done.update(job.descriptor for job in jobs)
            await server.ack(*[job.descriptor for job in jobs])
        assert {shard_of(descriptor) for descriptor in stored} == set(NEW)
        assert done == Counter(stored)
        assert [await server.jobs_on(name) for name in NEW] == [0, 0, 0]
        await other.close()

    run_on_shards(scenario, shards=OLD)


@on_shards(shards=OLD)
async def test_an_ack_at_a_server_that_does_not_know_the_shard_yet_changes_nothing_and_counts_at_one_that_does(
    server: ShardedServer,
) -> None:
    """Its answer is NOT_FOUND. The claim lasts until it times out: the job is not lost, and may run again."""
    other = await ahead_of(server)
    job = await other.put("3")
    assert [each.descriptor for each in (await other.dequeue()).jobs] == [job]
    [early] = await server.service.claimed_jobs.acknowledge(CALLER, AckBatch("q", [Ack(job, True)]))
    assert early.outcome is Outcome.NOT_FOUND
    assert await server.in_progress_on("3") == 1
    await server.replace(*[server.desired(name) for name in NEW])
    [late] = await server.service.claimed_jobs.acknowledge(CALLER, AckBatch("q", [Ack(job, True)]))
    assert late.outcome is Outcome.APPLIED
    await other.close()


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
