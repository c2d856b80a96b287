"""A server has its busy queues grow, and take back what did not help. How busy owners are is what the test says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from pinlater.domain.errors import StoreFull
from pinlater.domain.history import MINUTE_S
from pinlater.domain.queue import PartitionNumber, QueueConfig
from pinlater.server.features.explain.explain import Explain
from pinlater.server.features.history.queries import HistoryQueries
from pinlater.server.features.partitions.auto_partitions import AutoPartitions
from pinlater.server.features.partitions.growth import OwnerLoad
from pinlater.server.features.status.status import Status
from pinlater.server.storage.commands import ListQueues, MergeQueues
from pinlater.server.telemetry.metrics import Metrics
from pinlater.server.telemetry.numbers import Numbers
from pinlater.server.telemetry.prometheus import render
from pinlater.wire.generated import structs
from tests.sharding.sharded_server import ShardedServer, on_shards, run_on_shards

BUSY, IDLE = 0.9, 0.1


@dataclass
class Owners:
    """What is known of the owners. Each shard has one of its own. `lanes`: by shard; None: not known."""

    server: ShardedServer
    lanes: dict[str, float | None] = field(default_factory=dict)
    loop: float = IDLE
    others: set[str] = field(default_factory=set)
    """Queues that another server owns."""

    def __post_init__(self) -> None:
        self.auto = self.server.service.of(AutoPartitions)
        self.auto.join(self.own_loads, self.load_of)

    def own_loads(self) -> Mapping[str, float]:
        """The server under test is the owner everywhere that it decides on."""
        return {shard.name: max(self.lanes.get(shard.name) or IDLE, self.loop) for shard in self.server.shards}

    def load_of(self, shard: str, queue: str) -> OwnerLoad | None:
        if queue in self.others:
            return OwnerLoad("another server", IDLE, IDLE)
        lanes = self.lanes.get(shard, IDLE)
        return None if lanes is None else OwnerLoad(f"owner of {shard}", lanes, self.loop)

    def busy(self, *shards: str) -> None:
        self.lanes = dict.fromkeys(shards, BUSY)

    async def work(self, seconds: int, *, jobs: int = 10, queue: str = "q") -> None:
        """This number of jobs comes every five seconds, and the server looks after each count."""
        for _ in range(0, seconds, 5):
            for _ in range(jobs):
                await self.server.enqueue(b"x", queue=queue)
            self.server.clock.advance(seconds=5)
            await self.server.core.rates.sample()
            await self.auto.look()


def order(server: ShardedServer) -> list[str]:
    """The shards in the order of the queue `q`."""
    return [shard.name for shard in server.shards.partitions.order("q")]


async def number(server: ShardedServer) -> PartitionNumber:
    """As `queue stats` has it."""
    [stats] = await server.service.queues.queue_stats(["q"])
    found = stats.partition_number
    assert found is not None
    return PartitionNumber(found.number, found.automatic, found.since_ms)


async def marks(server: ShardedServer) -> list[str]:
    now_ms = server.clock.now_ms()
    asked = structs.QueueHistoryRequest(["q"], now_ms - 3_600_000, now_ms + 1, MINUTE_S)
    found = await server.service.of(HistoryQueries).queue_history(asked)
    return [mark.text for mark in found.marks]


def in_metrics(metrics: Metrics) -> dict[str, float]:
    text = render(Numbers(gauges=metrics.read_gauges()))[0].decode()
    lines = [line for line in text.splitlines() if line.startswith("pinlater_queue_partitions")]
    return {name: float(value) for name, _, value in (line.partition(" ") for line in lines)}


async def automatic(server: ShardedServer) -> Owners:
    await server.service.queues.configure_queue("q", QueueConfig())
    return Owners(server)


@on_shards()
async def test_a_queue_that_keeps_its_partition_busy_grows(server: ShardedServer) -> None:
    """Everything that shows a queue says how many partitions it has, who chose that, and when."""
    owners = await automatic(server)
    first, second, _ = order(server)
    assert await number(server) == PartitionNumber(1, True)
    owners.busy(first)
    await owners.work(20)
    chosen_ms = server.clock.now_ms()
    grown = PartitionNumber(2, True, (await number(server)).since_ms)
    assert await number(server) == grown
    assert 0 <= chosen_ms - (grown.since_ms or 0) <= 10_000
    assert await marks(server) == ["2 partitions instead of 1: busy"]
    assert server.counted("partitions_changed") == 1

    [descriptor] = (await server.enqueue(b"x")).descriptors
    explained = await server.service.of(Explain).explain("q", descriptor)
    status = await server.service.of(Status).cluster()
    told = structs.PartitionNumber(*grown)
    assert explained.queue.partition_number == told
    assert status.partitions == {"q": told}
    assert {
        descriptor.split(":")[1][1:] for _ in range(40) for descriptor in (await server.enqueue(b"x")).descriptors
    } == {
        first,
        second,
    }


@on_shards()
async def test_a_step_that_makes_nothing_faster_is_taken_back(server: ShardedServer) -> None:
    owners = await automatic(server)
    owners.busy(order(server)[0])
    await owners.work(60)
    assert (await number(server)).number == 1
    assert await marks(server) == ["2 partitions instead of 1: busy", "1 partition instead of 2: not faster with more"]
    await owners.work(600)
    assert server.counted("partitions_changed") == 2


@on_shards()
async def test_a_queue_that_became_quiet_shrinks(server: ShardedServer) -> None:
    owners = await automatic(server)
    owners.busy(order(server)[0])
    await owners.work(20)
    await owners.work(35, jobs=20)
    owners.busy()
    await owners.work(590, jobs=1)
    assert (await number(server)).number == 2
    await owners.work(60, jobs=1)
    assert (await number(server)).number == 1
    assert (await marks(server))[-1] == "1 partition instead of 2: quiet"


@on_shards()
async def test_a_queue_that_is_not_why_its_owner_is_busy_does_not_grow(server: ShardedServer) -> None:
    owners = await automatic(server)
    first = order(server)[0]
    other = await server.queue_for(first)
    owners.busy(first)
    for _ in range(4):
        for _ in range(40):
            await server.enqueue(b"x", queue=other)
        await owners.work(5)
    assert (await number(server)).number == 1
    assert server.service.queue_cache.queues[other].auto_partitions == 2


@on_shards()
async def test_a_queue_grows_whatever_other_servers_do_on_its_shard(server: ShardedServer) -> None:
    owners = await automatic(server)
    first = order(server)[0]
    other = await server.queue_for(first)
    owners.busy(first)
    owners.others.add(other)
    for _ in range(4):
        for _ in range(80):
            await server.enqueue(b"x", queue=other)
        await owners.work(5)
    assert (await number(server)).number == 2


@pytest.mark.parametrize("what", ["an operator", "another owner", "unknown"])
def test_a_server_leaves_the_number_alone(what: str) -> None:
    """That an operator has set, that the owner of the first partition decides on, or if it does not hear an owner."""

    async def scenario(server: ShardedServer) -> None:
        owners = await automatic(server)
        first, second, _ = order(server)
        owners.busy(first)
        if what == "an operator":
            await server.service.queues.configure_queue("q", QueueConfig(partitions=1))
        elif what == "another owner":
            server.lanes(first).route([None] * 16, [False] * 16)
        else:
            owners.lanes[second] = None
        await owners.work(60)
        found = await number(server)
        assert (found.number, found.automatic) == (1, what != "an operator")

    run_on_shards(scenario)


@on_shards()
async def test_the_numbers_of_an_operator_and_of_the_servers_are_kept_apart(server: ShardedServer) -> None:
    """And a client that configures the queue without the field sets it back to the number of the servers."""
    queues = server.service.queues
    await queues.configure_queue("q", QueueConfig())
    await queues.set_auto_partitions("q", 3)
    chosen = await number(server)
    assert chosen[:2] == (3, True)
    await queues.configure_queue("q", QueueConfig(partitions=2))
    assert (await number(server))[:2] == (2, False)
    assert in_metrics(server.core.metrics) == {
        'pinlater_queue_partitions{queue="q"}': 2,
        'pinlater_queue_partitions_automatic{queue="q"}': 0,
        'pinlater_queue_partitions_since_seconds{queue="q"}': ((await number(server)).since_ms or 0) / 1000,
    }
    await queues.set_auto_partitions("q", 1)
    assert (await number(server))[:2] == (2, False)
    await queues.set_auto_partitions("q", 3)
    await queues.configure_queue("q", QueueConfig(max_backlog=7))
    assert (await number(server))[:2] == (3, True)


@on_shards()
async def test_a_shard_that_was_away_gets_the_number_when_it_is_back(server: ShardedServer) -> None:
    await server.service.queues.configure_queue("q", QueueConfig())
    away = order(server)[1]
    server.lanes(away).put_out_of_use("test")
    await server.service.queues.set_auto_partitions("q", 2)
    server.lanes(away).health.suspect()
    await server.pass_time(1_000)
    for store in server.stores.values():
        [queue] = await store.within.submit(ListQueues())
        assert queue.auto_partitions == 2


@on_shards()
async def test_a_deleted_queue_begins_anew_with_one(server: ShardedServer) -> None:
    queues = server.service.queues
    await queues.configure_queue("q", QueueConfig())
    await queues.set_auto_partitions("q", 3)
    await queues.delete_queue("q", None)
    server.clock.advance(ms=1)
    await queues.create_queue("q")
    assert await number(server) == PartitionNumber(1, True)


@on_shards()
async def test_a_step_that_a_shard_refuses_is_tried_again(server: ShardedServer) -> None:
    owners = await automatic(server)
    first = order(server)[0]
    owners.busy(first)
    server.store(first).fails(MergeQueues, error=StoreFull.of("used up"), times=1)
    await owners.work(20)
    assert (await number(server)).number == 2


@on_shards(shards=("1",))
async def test_with_one_shard_nothing_is_looked_at(server: ShardedServer) -> None:
    owners = Owners(server)
    owners.busy("1")
    await owners.work(60)
    [stats] = await server.service.queues.queue_stats(["q"])
    assert (stats.partition_number, stats.partitions) == (None, None)
    assert server.counted("partitions_changed") == 0
    assert in_metrics(server.core.metrics) == {}


@on_shards()
async def test_a_server_on_shards_that_no_other_can_share_leaves_the_number_at_one(server: ShardedServer) -> None:
    """`join` is not called there."""
    owners = await automatic(server)
    owners.auto.join(dict, lambda _shard, _queue: None)
    await owners.work(60)
    assert (await number(server)).number == 1
