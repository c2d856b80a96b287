"""Priority holds over several shards: but for jobs that have just become due, a dequeue gives none while a better one waits."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import pytest

from pinlater.domain.job import Holder, Outcome
from pinlater.domain.queue import QueueConfig
from pinlater.server.sharding.heads import SEEN_S_MAX
from pinlater.server.sharding.joined_claims import ClaimRequest
from pinlater.server.storage.commands import ClaimJobs
from pinlater.server.storage.values import ClaimCall
from pinlater.wire.generated.structs import Ack, AckBatch, EnqueueRequest, Job
from tests.sharding.priority_oracle import PriorityOracle
from tests.sharding.sharded_server import CALLER, ShardedServer, on_shards, run_on_shards
from tests.sharding.test_partitions import another_server

FRESH_MS = int(SEEN_S_MAX * 1000)
LEVELS = 3


class PriorityLoad:
    """Enqueues, failures and dequeues, one after the other, by servers that hear nothing from each other."""

    def __init__(self, servers: list[ShardedServer], dice: Random) -> None:
        self.servers = servers
        self.oracle = PriorityOracle()
        self._dice = dice
        self._clock = servers[0].clock
        self._in_hand: list[tuple[str, int]] = []

    async def step(self) -> None:
        dice = self._dice
        what = dice.choices([self.enqueue, self.dequeue, self.fail], [4, 4, 1])[0]
        await what(dice.choice(self.servers))
        if dice.random() < 0.3:
            self._clock.advance(ms=dice.choice([1, 20, 60, 200, 700]))

    async def enqueue(self, _: ShardedServer) -> None:
        """Always by the first server: both would make the same ids."""
        dice, now_ms = self._dice, self._clock.now_ms()
        priority, delay_ms = dice.randrange(1, LEVELS + 1), dice.choice([0, 0, 0, 300, 1_500])
        jobs = [
            Job(b"x", priority=priority, run_after_ms=now_ms + delay_ms, attempts_allowed=100)
            for _ in range(dice.choice([1, 1, 8]))
        ]
        stored = await self.servers[0].service.enqueuing.enqueue(EnqueueRequest("q", jobs))
        for descriptor in stored.descriptors:
            self.oracle.waits(descriptor, priority, now_ms + delay_ms)

    async def dequeue(self, server: ShardedServer) -> list[str]:
        began_ms = self._clock.now_ms()
        given = (await server.dequeue(self._dice.choice([1, 1, 3, 10]))).jobs
        self.oracle.given([each.descriptor for each in given], began_ms)
        self._in_hand += [(each.descriptor, each.job.priority) for each in given]
        return [each.descriptor for each in given]

    async def fail(self, server: ShardedServer) -> None:
        if self._in_hand:
            descriptor, priority = self._in_hand.pop(self._dice.randrange(len(self._in_hand)))
            delay_ms = self._dice.choice([0, 400])
            acks = [Ack(descriptor, retry_delay_ms=delay_ms)]
            await server.service.claimed_jobs.acknowledge(CALLER, AckBatch("q", failed=acks))
            self.oracle.waits(descriptor, priority, self._clock.now_ms() + delay_ms)


@pytest.mark.parametrize("partitions", [2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_no_job_is_handed_out_while_a_better_one_has_waited_for_longer_than_heads_are_known(
    seed: int, partitions: int
) -> None:
    """By two servers; also while jobs are left on shards that are no partitions any more."""

    async def scenario(server: ShardedServer) -> None:
        load = PriorityLoad([server, await another_server(server)], Random(seed))
        for number in range(600):
            if number == 400:
                for each in load.servers:
                    await each.service.queues.configure_queue("q", QueueConfig(partitions=1))
            if number % 150 == 0:
                for each in load.servers:
                    await each.count()
            await load.step()
        server.clock.advance(seconds=3)
        for each in load.servers:
            await each.count()
        while await load.dequeue(server):
            pass
        assert load.oracle.beyond(FRESH_MS) == []
        assert len(load.oracle) == 0
        await load.servers[1].close()

    run_on_shards(scenario, partitions=partitions)


@on_shards(shards=("1", "2"))
async def test_one_dequeue_gets_the_jobs_of_two_shards_in_the_order_of_priorities(server: ShardedServer) -> None:
    """By several claims of one shard, each with a token of its own, so that each can be given back by itself."""
    for priority, shard in ((3, "2"), (2, "1"), (1, "2"), (1, "1")):
        await server.place(shard, priority=priority)
    dequeued = await server.dequeue(5)
    assert [each.job.priority for each in dequeued.jobs] == [1, 1, 2, 3]
    tokens = {each.token: each.descriptor.split(":")[1] for each in dequeued.jobs}
    assert Counter(tokens.values())["s2"] == 2
    acks = [Ack(each.descriptor, token=each.token) for each in dequeued.jobs]
    results = await server.service.claimed_jobs.acknowledge(CALLER, AckBatch("q", acks))
    assert {result.outcome for result in results} == {Outcome.APPLIED}


@on_shards(shards=("1", "2"))
async def test_claims_of_one_turn_with_different_last_priorities_are_calls_of_their_own(server: ShardedServer) -> None:
    """Two orders for one queue would lock the same rows of a database."""
    for priority in (1, 2, 3):
        await server.place("1", priority=priority)
    server.store("1").calls.clear()
    lane = server.lanes("1").claim
    claims = [
        lane.submit(
            ClaimRequest("q", ClaimCall(1, Holder("h", "s", f"token{number}")), 60_000, through_priority=through)
        )
        for number, through in enumerate([1, None, 1, 2])
    ]
    found = [[job.priority for job in (await claim).jobs[0]] for claim in claims]
    assert found == [[1], [2], [], []]
    assert server.store("1").calls[ClaimJobs] == 3


@pytest.mark.parametrize("priority", [1, 3])
def test_a_waiting_dequeue_asks_each_shard_a_few_times_for_a_job_of_a_late_priority_and_none_while_nothing_comes(
    priority: int,
) -> None:
    async def scenario(server: ShardedServer) -> None:
        def claims() -> int:
            return sum(store.calls[ClaimJobs] for store in server.stores.values())

        for shard in ("1", "2"):
            waiting = asyncio.ensure_future(server.dequeue(10, wait_ms=60_000))
            await server.pass_time(2_000)
            before = claims()
            await server.pass_time(2_000)
            assert claims() == before
            await server.place(shard, priority=priority)
            await server.turns()
            assert [each.job.priority for each in waiting.result().jobs] == [priority]
            assert claims() - before <= 3

    run_on_shards(scenario, shards=("1", "2"))


@on_shards(shards=("1", "2"))
async def test_a_shard_that_does_not_answer_holds_back_jobs_of_later_priorities_until_it_counts_as_stalled(
    server: ShardedServer,
) -> None:
    await server.place("1", priority=1)
    await server.place("1", priority=2)
    server.store("2").hangs(ClaimJobs)
    first = await server.within(2_000, server.dequeue(1))
    second = await server.within(2_000, server.dequeue(1))
    assert [each.job.priority for each in (*first.jobs, *second.jobs)] == [1, 2]
