"""Jobs with an ordering key are on the first partition of their queue, and nowhere else."""

from __future__ import annotations

import pytest

from pinlater.domain.errors import EnqueueRejected, InvalidArgument, ShardConnectionFailed, StoreFull
from pinlater.domain.queue import Life
from pinlater.server.storage.commands import InsertJobs, ListQueues, create_queues
from tests.sharding.sharded_server import ShardedServer, on_shards, shards_of


def first_of(server: ShardedServer) -> str:
    return server.shards.first_of("q").name


@on_shards()
async def test_all_jobs_with_ordering_keys_are_on_the_first_partition(server: ShardedServer) -> None:
    for number in range(20):
        stored = await server.enqueue(
            b"1", b"2", ordering_key=f"k{number}", key=f"request {number}" if number % 2 else None
        )
        assert set(shards_of(stored)) == {first_of(server)}


@on_shards()
async def test_unique_keys_besides_change_nothing(server: ShardedServer) -> None:
    first = await server.enqueue(b"1", b"2", unique=["u1", None], ordering_key="k")
    again = await server.enqueue(b"3", b"4", unique=[None, "u1"], ordering_key="k", key="r")
    assert {*shards_of(first), *shards_of(again)} == {first_of(server)}
    assert again.existing == [1]
    assert again.descriptors[1] == first.descriptors[0]
    assert await server.jobs_on(first_of(server)) == 3


@on_shards()
async def test_a_repeat_stores_nothing_anew(server: ShardedServer) -> None:
    first = await server.enqueue(b"1", b"2", ordering_key="k", key="r")
    assert await server.enqueue(b"1", b"2", ordering_key="k", key="r", repeat=True) == first
    assert await server.jobs_on(first_of(server)) == 2


@on_shards()
async def test_while_that_shard_is_unreachable_they_are_refused_with_its_name(server: ShardedServer) -> None:
    home = first_of(server)
    await server.enqueue(b"first", ordering_key="k")
    server.lanes(home).put_out_of_use("test")
    for key in (None, "r"):
        with pytest.raises(ShardConnectionFailed, match=f"only shard {home} takes jobs with the ordering key 'k'"):
            await server.enqueue(b"x", ordering_key="k", key=key)
    plain = await server.enqueue(b"x")
    assert home not in shards_of(plain)
    assert sum([await server.jobs_on(name) for name in server.stores]) == 2


@on_shards()
async def test_the_first_of_a_queue_is_refused_while_any_shard_is_unreachable(server: ShardedServer) -> None:
    """Servers with other maps may ask that one."""
    other = next(name for name in server.stores if name != first_of(server))
    server.lanes(other).put_out_of_use("test")
    with pytest.raises(ShardConnectionFailed, match=f"Shard {other} is unreachable, and all shards have to agree"):
        await server.enqueue(b"x", ordering_key="k")
    assert sum([await server.jobs_on(name) for name in server.stores]) == 0


@on_shards()
async def test_a_full_shard_refuses_them_and_no_other_takes_them(server: ShardedServer) -> None:
    home = first_of(server)
    server.store(home).fails(InsertJobs, error=StoreFull("no space"))
    with pytest.raises(StoreFull, match="the ordering key 'k'"):
        await server.enqueue(b"x", ordering_key="k")
    assert sum([await server.jobs_on(name) for name in server.stores]) == 0


@on_shards()
async def test_while_servers_of_the_version_before_are_there_they_are_refused(server: ShardedServer) -> None:
    server.shards.unique.by_queue = False
    with pytest.raises(EnqueueRejected, match="version before"):
        await server.enqueue(b"x", ordering_key="k")


@on_shards()
async def test_jobs_of_a_key_run_one_after_the_other_over_all_shards(server: ShardedServer) -> None:
    for number in range(3):
        await server.enqueue(b"%d" % number, ordering_key="k")
    for number in range(3):
        [handed_out] = (await server.dequeue()).jobs
        assert handed_out.job.body == b"%d" % number
        await server.ack(handed_out.descriptor)


@on_shards()
async def test_all_jobs_of_an_ordered_queue_are_on_its_first_shard(server: ShardedServer) -> None:
    await server.service.queues.create_queue("bookings", ordered=True)
    for number in range(10):
        stored = await server.enqueue(b"1", b"2", queue="bookings", key=f"request {number}" if number % 2 else None)
        assert set(shards_of(stored)) == {server.shards.first_of("bookings").name}


@on_shards()
async def test_the_first_shard_decides_whether_a_queue_is_ordered_and_the_others_follow(server: ShardedServer) -> None:
    """Another server is about to create a queue of this name without order: it has come to one shard."""
    homes = {name: server.shards.first_of(name).name for name in (f"q{number}" for number in range(50))}
    for name, home in homes.items():
        [other] = [each for each in server.stores if each != home][:1]
        creation = create_queues([name], server.clock.now_ms(), Life(server.clock.now_ms()))
        await server.lanes(home if name.endswith("1") else other).store.submit(creation)
        if name.endswith("1"):
            with pytest.raises(InvalidArgument, match=f"Queue {name} exists"):
                await server.service.queues.create_queue(name, ordered=True)
        else:
            await server.service.queues.create_queue(name, ordered=True)
        kept = [await server.lanes(each).store.submit(ListQueues()) for each in server.stores]
        found = [queue.life.ordered for queues in kept for queue in queues if queue.name == name]
        assert found == ([False] if name.endswith("1") else [True] * len(server.stores))


@on_shards()
async def test_an_ordered_queue_is_not_made_while_its_first_shard_is_unreachable(server: ShardedServer) -> None:
    home = server.shards.first_of("bookings").name
    server.lanes(home).put_out_of_use("test")
    with pytest.raises(ShardConnectionFailed, match=home):
        await server.service.queues.create_queue("bookings", ordered=True)
    for name in server.stores:
        if name != home:
            assert "bookings" not in [queue.name for queue in await server.lanes(name).store.submit(ListQueues())]
