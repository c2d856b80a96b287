"""A queue is stored on its partitions, and handed out from wherever its jobs are."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from pinlater.domain.errors import InvalidArgument, ShardConnectionFailed, StoreFull
from pinlater.domain.queue import QueueConfig
from pinlater.server.sharding.heads import SEEN_S_MAX
from pinlater.server.sharding.strays import COUNTED_S_MAX
from pinlater.server.storage.commands import ClaimJobs, InsertJobs
from pinlater.server.storage.values import InsertRequest, NewJob
from tests.sharding.sharded_server import ShardedServer, on_shards, run_on_shards, shard_of, shards_of

NAMES = ("1", "2", "3")


def order(server: ShardedServer) -> list[str]:
    """The shards in the order of the queue `q`."""
    return [shard.name for shard in server.shards.partitions.order("q")]


async def another_server(server: ShardedServer) -> ShardedServer:
    """One that starts now, on the same shards, and hears nothing from the other one."""
    other = ShardedServer(server.clock)
    other.stores = server.stores
    await other.open([server.desired(name) for name in NAMES])
    other.shards.random = Random(2)
    await other.count()
    return other


def asked(server: ShardedServer) -> set[str]:
    """The shards that claims have asked since the last time."""
    found = {name for name, store in server.stores.items() if store.calls[ClaimJobs]}
    for store in server.stores.values():
        store.calls.clear()
    return found


# --- where jobs are stored -------------------------------------------------------------------------------------------------------


@on_shards(partitions=1)
async def test_a_queue_of_one_partition_is_on_its_first_shard_and_is_asked_for_there_only(
    server: ShardedServer,
) -> None:
    first = order(server)[0]
    await server.count()
    for number in range(10):
        await server.enqueue(b"plain")
        await server.enqueue(b"keyed", key=f"k{number}")
        await server.enqueue(b"unique", b"plain", unique=[f"u{number}", None])
    assert [await server.jobs_on(name) for name in NAMES] == [40 * (name == first) for name in NAMES]
    asked(server)
    assert len((await server.dequeue()).jobs) == 40
    assert (await server.dequeue()).jobs == []
    waiting = asyncio.ensure_future(server.dequeue(wait_ms=5_000))
    await server.turns()
    await server.enqueue(b"x")
    await server.turns()
    assert len(waiting.result().jobs) == 1
    assert asked(server) == {first}


@on_shards(partitions=2)
async def test_a_queue_of_several_partitions_is_spread_over_the_first_shards_of_its_order(
    server: ShardedServer,
) -> None:
    """But for its unique keys, which are on the first."""
    partitions = order(server)[:2]
    await server.count()
    plain, keyed, unique = set[str](), set[str](), set[str]()
    for number in range(40):
        plain.update(shards_of(await server.enqueue(b"x")))
        keyed.update(shards_of(await server.enqueue(b"x", key=f"k{number}")))
        unique.update(shards_of(await server.enqueue(b"x", unique=f"u{number}")))
    assert plain == keyed == set(partitions)
    assert unique == {partitions[0]}
    asked(server)
    assert len((await server.dequeue(200)).jobs) == 120
    assert asked(server) == set(partitions)


@pytest.mark.parametrize("trouble", ["unreachable", "full", "stalled"])
def test_without_its_partition_a_queue_goes_on_on_the_next_shard_of_its_order(trouble: str) -> None:
    """This server finds the strays at once; another, that was told nothing, by its next count; one that can't count, in ten seconds."""

    async def scenario(server: ShardedServer) -> None:
        first, second, _ = order(server)
        before = await server.place(first, b"before")
        counting, blind = await another_server(server), await another_server(server)
        await server.count()
        if trouble == "unreachable":
            server.lanes(first).put_out_of_use("test")
        elif trouble == "full":
            server.store(first).fails(InsertJobs, error=StoreFull.of("used up"), times=10**6)
        else:
            server.store(first).hangs(ClaimJobs)
            with pytest.raises(ShardConnectionFailed, match=f"Shard {first} is slow to answer"):
                await server.within(1_200, server.dequeue(1))
            assert server.lanes(first).stalled
        strays: list[str] = []
        for key in (None, "r"):
            strays += (await server.enqueue(b"x", key=key)).descriptors
        assert [shard_of(each) for each in strays] == [second] * 2
        if trouble != "full":
            assert {job.descriptor for job in (await server.dequeue()).jobs} == set(strays)
            strays = list((await server.enqueue(b"x", b"y")).descriptors)
        server.lanes(first).health.suspect()
        server.store(first).recover()
        await server.pass_time(400)

        asked(server)
        assert [job.descriptor for job in (await counting.dequeue(1)).jobs] == [before]
        assert (await counting.dequeue()).jobs == []
        assert asked(server) == {first}
        await counting.count()
        [stray] = [job.descriptor for job in (await counting.dequeue(1)).jobs]
        assert (await blind.dequeue()).jobs == []
        server.clock.advance(ms=int(COUNTED_S_MAX * 1000) + 1)
        [last] = [job.descriptor for job in (await blind.dequeue()).jobs]
        assert {stray, last} == set(strays)
        for other in (counting, blind):
            await other.close()

    run_on_shards(scenario, partitions=1)


@on_shards(partitions=1)
async def test_another_server_that_is_told_of_a_stray_finds_it_at_once(server: ShardedServer) -> None:
    second = order(server)[1]
    other = await another_server(server)
    waiting = asyncio.ensure_future(other.dequeue(wait_ms=60_000))
    await server.turns()
    stray = await server.place(second)
    other.core.dispatcher.wakeups.wake_from_peer("q", 1, True)
    await server.turns()
    assert [job.descriptor for job in waiting.result().jobs] == [stray]
    await other.close()


@on_shards(partitions=1)
async def test_a_stray_that_is_stored_while_a_claim_looks_there_is_found_by_the_next(server: ShardedServer) -> None:
    first, second, _ = order(server)
    await server.count()
    server.lanes(first).put_out_of_use("test")
    fault = server.store(second).hangs(InsertJobs)
    storing = asyncio.ensure_future(server.enqueue(b"x"))
    await server.turns()
    server.lanes(first).health.suspect()
    await server.pass_time(400)
    assert (await server.dequeue()).jobs == []
    fault.release()
    await server.turns()
    assert [job.descriptor for job in (await server.dequeue()).jobs] == storing.result().descriptors


@on_shards(partitions=1)
async def test_a_stray_that_this_server_is_told_of_while_a_claim_looks_there_is_found_by_the_next(
    server: ShardedServer,
) -> None:
    second = order(server)[1]
    await server.count()
    other = await another_server(server)
    server.core.dispatcher.wakeups.wake_from_peer("q", 1, True)
    fault = server.store(second).hangs(ClaimJobs, done_first=True)
    looking = asyncio.ensure_future(server.dequeue())
    await server.turns()
    stray = await other.place(second)
    server.core.dispatcher.wakeups.wake_from_peer("q", 1, True)
    fault.release()
    await server.turns()
    assert looking.result().jobs == []
    assert [job.descriptor for job in (await server.dequeue()).jobs] == [stray]
    await other.close()


# --- where they are looked for ---------------------------------------------------------------------------------------------------


@on_shards(partitions=1)
async def test_strays_are_forgotten_when_they_are_gone(server: ShardedServer) -> None:
    first, second, third = order(server)
    strays = [await server.place(second), await server.place(third)]
    await server.count()
    claimed = [job.descriptor for job in (await server.dequeue()).jobs]
    assert set(claimed) == set(strays)
    assert asked(server) == set(NAMES)
    await server.dequeue()
    assert asked(server) == set(NAMES)  # what is in hand there may be given back
    await server.ack(*claimed)
    await server.count()
    asked(server)
    await server.dequeue()
    assert asked(server) == {first}


@on_shards(partitions=1)
async def test_a_shard_is_asked_for_strays_until_a_job_that_is_due_later_has_been_handed_out(
    server: ShardedServer,
) -> None:
    second = order(server)[1]
    later = await server.place(second, due_ms=server.clock.now_ms() + 60_000)
    for _ in range(8):
        await server.count()
        assert (await server.dequeue()).jobs == []
        await server.pass_time(7_000)
    await server.count()
    await server.pass_time(5_000)
    assert [job.descriptor for job in (await server.dequeue()).jobs] == [later]


@pytest.mark.parametrize("urgent_on", ["the partition", "the other shard"])
@pytest.mark.parametrize("by", ["priority", "age"])
def test_more_urgent_and_older_jobs_go_first_wherever_they_are(urgent_on: str, by: str) -> None:
    """As soon as both heads were seen."""

    async def scenario(server: ShardedServer) -> None:
        first, second, _ = order(server)
        urgent, other = (first, second) if urgent_on == "the partition" else (second, first)
        for number in range(10):
            old = server.clock.now_ms() - 60_000 + number
            await server.place(urgent, b"%d" % number, priority=1, due_ms=old)
            await server.place(other, b"%d" % (10 + number), priority=1 if by == "age" else 2, due_ms=old + 30_000)
        found = [int(job.job.body) for _ in range(20) for job in (await server.dequeue(1)).jobs]
        assert sorted(found) == list(range(20))
        assert found[2:] == sorted(found[2:])

    run_on_shards(scenario, partitions=1)


@on_shards(partitions=1)
async def test_an_urgent_job_that_comes_unseen_to_another_shard_waits_no_longer_than_a_head_is_known(
    server: ShardedServer,
) -> None:
    first, second, _ = order(server)
    for number in range(10):
        await server.place(first, b"%d" % number, priority=2)
        await server.place(second, b"%d" % number, priority=3)
    await server.dequeue(1)
    await server.dequeue(1)
    job = NewJob(server.lanes(second).ids.make(1)[0], b"urgent", 1, server.clock.now_ms(), 1)
    await server.store(second).within.submit(InsertJobs([InsertRequest("q", [job])], server.clock.now_ms()))
    server.clock.advance(ms=int(SEEN_S_MAX * 1000) + 1)
    found = [job.job.priority for _ in range(2) for job in (await server.dequeue(1)).jobs]
    assert 1 in found


# --- changes ---------------------------------------------------------------------------------------------------------------------


@on_shards(partitions=1)
async def test_no_job_is_lost_when_the_number_of_partitions_is_raised_and_lowered(server: ShardedServer) -> None:
    """None moves, and each is handed out where it is."""
    stored: list[str] = []
    found: list[str] = []
    for number in (1, 3, 2, 1):
        await server.service.queues.configure_queue("q", QueueConfig(partitions=number))
        here = [await server.enqueue(b"x") for _ in range(15)]
        assert {name for each in here for name in shards_of(each)} == set(order(server)[:number])
        stored += [descriptor for each in here for descriptor in each.descriptors]
        await server.count()
        found += [job.descriptor for job in (await server.dequeue(5)).jobs]
    for _ in range(20):
        found += [job.descriptor for job in (await server.dequeue(5)).jobs]
    assert sorted(found) == sorted(stored)


@on_shards(partitions=2)
async def test_jobs_on_a_former_partition_are_handed_out_at_once_though_it_had_none_when_it_was_counted(
    server: ShardedServer,
) -> None:
    other = await another_server(server)
    await server.count()
    second = order(server)[1]
    jobs = {await server.place(second), await server.place(second)}
    for each in (server, other):
        await each.service.queues.configure_queue("q", QueueConfig(partitions=1))
    found = {job.descriptor for each in (server, other) for job in (await each.dequeue(1)).jobs}
    assert found == jobs
    await other.close()


@on_shards(partitions=1)
async def test_jobs_of_a_queue_whose_shard_drains_are_handed_out_there_and_new_ones_on_the_next(
    server: ShardedServer,
) -> None:
    first, second, _ = order(server)
    old = (await server.enqueue(b"x", b"y")).descriptors
    await server.count()
    await server.replace(*[server.desired(name, takes_enqueues=name != first) for name in NAMES])
    new = (await server.enqueue(b"z")).descriptors
    assert [shard_of(each) for each in new] == [second]
    for _ in range(2):
        await server.count()
        await server.pass_time(3_000)
    found = [job.descriptor for job in (await server.dequeue()).jobs]
    assert sorted(found) == sorted([*old, *new])
    await server.ack(*found)
    await server.count()
    asked(server)
    await server.dequeue()
    assert asked(server) == {second}


@on_shards(partitions=3)
async def test_other_settings_are_changed_while_fewer_shards_take_enqueues_than_the_queue_is_to_have(
    server: ShardedServer,
) -> None:
    await server.replace(*[server.desired(name, takes_enqueues=name != "2") for name in NAMES])
    queues = server.service.queues
    changed = QueueConfig(claim_timeout_ms=7_000, partitions=3)
    await queues.configure_queue("q", changed)
    assert (await queues.queue_config("q")).config == changed
    with pytest.raises(InvalidArgument, match="at most 2, the number of shards that take enqueues, not 4"):
        await queues.configure_queue("q", QueueConfig(partitions=4))


@on_shards(partitions=1, shards=("1", "2"))
async def test_a_new_shard_that_becomes_the_partition_leaves_the_old_jobs_where_they_are(server: ShardedServer) -> None:
    former = order(server)[0]
    old = (await server.enqueue(b"x")).descriptors
    await server.replace(*[server.desired(name) for name in NAMES])
    assert order(server)[0] == "3"
    await server.count()
    new = (await server.enqueue(b"y")).descriptors
    assert [shard_of(each) for each in (*old, *new)] == [former, "3"]
    assert sorted(job.descriptor for job in (await server.dequeue()).jobs) == sorted([*old, *new])


@pytest.mark.parametrize("change", ["a shard is added", "a shard drains"])
def test_jobs_on_a_former_partition_are_handed_out_at_once_though_it_had_none_before_the_map_changed(
    change: str,
) -> None:
    """The last count of the former partition is older than the jobs."""

    async def scenario(server: ShardedServer) -> None:
        await server.count()
        former = order(server)[0]
        old = (await server.enqueue(b"x")).descriptors
        added = change == "a shard is added"
        await server.replace(*[server.desired(name, takes_enqueues=added or name != former) for name in NAMES])
        assert order(server)[0] != former
        assert [job.descriptor for job in (await server.dequeue()).jobs] == old

    run_on_shards(scenario, partitions=1, shards=("1", "2") if change == "a shard is added" else NAMES)


@on_shards(partitions=3)
async def test_a_queue_has_as_many_partitions_as_there_are_shards_once_some_have_gone(server: ShardedServer) -> None:
    await server.replace(server.desired("1"), server.desired("2", takes_enqueues=False), server.desired("3"))
    found = {name for _ in range(30) for name in shards_of(await server.enqueue(b"x"))}
    assert found == {"1", "3"}
