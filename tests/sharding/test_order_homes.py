"""The home of the jobs with ordering keys of a queue is stored with it, and moves if its shard drains or is lost: order holds all the same.

Servers may go by different maps meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any

import pytest

from pinlater.domain.errors import EnqueueRejected, PinLaterError, ShardConnectionFailed
from pinlater.domain.queue import Home, Queue
from pinlater.server.features.explain.explain import Explain
from pinlater.server.sharding.map_reader import MapReader
from pinlater.server.storage.commands import LiftBarrier, ListQueues, MergeQueues, MoveHome
from pinlater.server.storage.values import DELETION_KEPT_MS
from tests.sharding.sharded_server import ShardedServer, on_shards, run_on_shards, shard_of, shards_of
from tests.sharding.test_two_maps import WithAnotherSlot

ALL = ("1", "2", "3")


async def another(server: ShardedServer, names: Sequence[str], draining: Sequence[str] = ()) -> ShardedServer:
    """A second server on the shards, with a map of its own."""
    other = ShardedServer(server.clock)
    other.stores = {name: WithAnotherSlot(server.store(name).within) for name in ALL}
    await other.open([other.desired(name, takes_enqueues=name not in draining) for name in names])
    await other.core.catch_up()
    return other


def first_of(server: ShardedServer, queue: str = "q") -> str:
    return server.shards.first_of(queue).name


async def home_of(server: ShardedServer, queue: str = "q") -> Home:
    await server.service.queue_cache.refresh()
    return server.service.queue_cache.queues[queue].home


async def maps(server: ShardedServer, *, draining: str = "", lost: str = "", names: Sequence[str] = ALL) -> None:
    """The server reads its file anew."""
    await server.replace(*[server.desired(name, takes_enqueues=name != draining, lost=name == lost) for name in names])


async def look(server: ShardedServer) -> None:
    """What a server does every second."""
    await server.service.order_homes.look()


async def work(server: ShardedServer, limit: int = 100) -> list[bytes]:
    """Claims what may go, and ends it."""
    await server.count()
    jobs = (await server.dequeue(limit)).jobs
    await server.ack(*[job.descriptor for job in jobs])
    return [job.job.body for job in jobs]


@pytest.mark.parametrize("seed", range(30))
def test_jobs_of_a_key_run_in_order_though_two_servers_go_by_different_maps_while_a_shard_drains(seed: int) -> None:
    """Each enqueue is answered before the next one is sent. Both servers look after homes now and then."""

    async def scenario(server: ShardedServer) -> None:
        random = Random(seed)
        drains = first_of(server)
        await server.enqueue(b"a 0", ordering_key="a")
        other = await another(server, ALL, draining=[drains])
        stored: dict[str, int] = defaultdict(int, a=1)
        ended: dict[str, int] = defaultdict(int)
        held: dict[str, str] = {}
        used = set[str]()

        async def end(key: str) -> None:
            await random.choice([server, other]).ack(held.pop(key))
            ended[key] += 1

        def take(jobs: Sequence[tuple[str, bytes]]) -> None:
            for descriptor, body in jobs:
                key, number = body.decode().split()
                assert key not in held
                assert int(number) == ended[key]
                held[key] = descriptor
                used.add(shard_of(descriptor))

        for step in range(300):
            asked = random.choice([server, other])
            action = random.random()
            if action < 0.4 and step < 200:
                key = random.choice("abc")
                await asked.enqueue(f"{key} {stored[key]}".encode(), ordering_key=key)
                stored[key] += 1
            elif action < 0.7:
                await asked.count()
                take([(job.descriptor, job.job.body) for job in (await asked.dequeue(random.randint(1, 3))).jobs])
            elif action < 0.9 and held:
                await end(random.choice(sorted(held)))
            elif action > 0.95:
                await look(asked)
            if step == 250:
                await maps(server, draining=drains)
        for _ in range(1_000):
            for key in list(held):
                await end(key)
            await look(server)
            await look(other)
            await other.count()
            take([(job.descriptor, job.job.body) for job in (await other.dequeue(10)).jobs])
            if not held and ended == stored:
                break
        assert ended == stored
        assert len(used) == 2
        assert (await home_of(other)).former == ""
        await other.close()

    run_on_shards(scenario, shards=ALL, partitions=1)


_MAPS = [("1", "2"), ("1", "2", "3"), ("2", "3"), ("1", "3")]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("mine", "others"), [pair for pair in itertools.product(_MAPS, _MAPS) if pair[0] < pair[1]])
def test_servers_with_different_maps_agree_upon_one_home(mine: Sequence[str], others: Sequence[str], seed: int) -> None:
    """They store the first jobs with ordering keys of a queue at once."""

    async def scenario(server: ShardedServer) -> None:
        other = await another(server, others)
        random = Random(seed)

        async def enqueue(asked: ShardedServer) -> str:
            for _ in range(random.randint(0, 12)):
                await asyncio.sleep(0)
            while True:
                try:
                    return shards_of(await asked.enqueue(b"x", ordering_key="k"))[0]
                except EnqueueRejected:  # it does not know the shard
                    if home := (await home_of(asked)).shard:  # else another server is about to choose it
                        assert home not in [shard.name for shard in asked.shards]
                        return home

        found = await asyncio.gather(*(enqueue(asked) for asked in (server, other, server, other)))
        assert len(set(found)) == 1
        await other.close()

    run_on_shards(scenario, shards=mine, partitions=1)


@on_shards(shards=("1", "2"), partitions=1)
async def test_a_new_shard_does_not_move_the_home_of_a_queue(server: ShardedServer) -> None:
    """Nor the home of its unique keys. Without a home it would move, as for one queue in three."""
    queue = await server.queue_for("1", moves_to="3")
    plain = await server.queue_for("1", moves_to="3")
    await server.enqueue(b"x", ordering_key="k", queue=queue)
    await maps(server)
    assert (first_of(server, queue), first_of(server, plain)) == ("1", "3")
    for _ in range(3):
        stored = await server.enqueue(b"x", unique="u", queue=queue)
        assert shards_of(stored) == ["1"]
        assert shards_of(await server.enqueue(b"x", ordering_key="k", unique="u2", queue=queue)) == ["1"]


@on_shards(partitions=1)
async def test_the_jobs_on_a_new_home_wait_until_the_former_one_has_none_left(server: ShardedServer) -> None:
    former = first_of(server)
    for body in (b"1", b"2"):
        await server.enqueue(body, ordering_key="k")
    version = (await home_of(server)).version
    await maps(server, draining=former)
    stored = await server.enqueue(b"3", b"4", ordering_key="k")
    [home] = set(shards_of(stored))
    assert home != former
    await server.enqueue(b"other key", ordering_key="l")
    assert await home_of(server) == Home(home, version + 1, former)
    for expected in ([b"1"], [b"2"]):
        await look(server)
        assert await work(server) == expected
    assert await work(server) == []
    await look(server)
    assert sorted(await work(server)) == [b"3", b"other key"]
    assert await work(server) == [b"4"]
    assert await home_of(server) == Home(home, version + 3)


@on_shards(partitions=1)
async def test_a_job_on_a_new_home_is_told_with_how_many_the_former_one_has(server: ShardedServer) -> None:
    former = first_of(server)
    for _ in range(3):
        await server.enqueue(b"1", ordering_key="k")
    await maps(server, draining=former)
    [waiting] = (await server.enqueue(b"2", ordering_key="l")).descriptors
    explain = server.service.of(Explain).explain
    for left in (3, 2):
        found = await explain("q", waiting)
        assert (found.former_shard, found.ahead_on_former, found.behind_job) == (former, left, None)
        await work(server)
    server.lanes(former).put_out_of_use("test")
    found = await explain("q", waiting)
    assert (found.former_shard, found.ahead_on_former) == (former, None)


@on_shards(partitions=1)
async def test_a_home_moves_without_any_enqueue_and_the_shard_goes_only_then(server: ShardedServer) -> None:
    former = first_of(server)
    await server.enqueue(b"1", ordering_key="k")
    assert await work(server) == [b"1"]
    await maps(server, names=[name for name in ALL if name != former])
    server.clock.advance(seconds=server.settings.removal_grace_ms // 1000 + 1)
    assert "jobs with ordering keys" in (await server.core.shard_map.tidy()).kept[former]
    await look(server)
    assert (await home_of(server)).former == former
    assert "still wait for those that it has" in (await server.core.shard_map.tidy()).kept[former]
    await look(server)
    assert "no enqueue for" in (await server.core.shard_map.tidy()).kept[former]  # it was a home a moment ago
    server.clock.advance(seconds=server.settings.removal_grace_ms // 1000 + 1)
    assert (await server.core.shard_map.tidy()).removed == [former]
    await look(server)
    assert (await home_of(server)).former == ""
    assert former not in shards_of(await server.enqueue(b"2", ordering_key="k"))
    assert await work(server) == [b"2"]


@on_shards(partitions=1)
async def test_while_a_home_that_drains_is_unreachable_jobs_with_ordering_keys_are_refused_with_its_name(
    server: ShardedServer,
) -> None:
    former = first_of(server)
    await server.enqueue(b"1", ordering_key="k")
    await maps(server, draining=former)
    server.lanes(former).put_out_of_use("test")
    with pytest.raises(ShardConnectionFailed, match=f"Shard {former}"):
        await server.enqueue(b"2", ordering_key="k")
    assert await server.enqueue(b"plain")


@on_shards(partitions=1)
async def test_a_server_that_dies_after_a_home_was_closed_leaves_a_queue_that_others_can_use(
    server: ShardedServer,
) -> None:
    """The next home has not heard of it yet."""
    former = first_of(server)
    await server.enqueue(b"1", ordering_key="k")
    other = await another(server, ALL, draining=[former])
    for name in ALL:
        if name != former:
            other.store(name).dead = "the server was killed"
    with pytest.raises(ShardConnectionFailed):
        await other.enqueue(b"lost", ordering_key="k")
    assert sum([await server.jobs_on(name) for name in ALL]) == 1
    [home] = set(shards_of(await server.enqueue(b"2", ordering_key="k")))
    assert home != former
    await look(server)
    assert await work(server) == [b"1"]
    await look(server)
    assert await work(server) == [b"2"]
    await other.close()


@on_shards(partitions=1)
async def test_a_home_does_not_move_while_its_jobs_wait_also_if_it_drains(server: ShardedServer) -> None:
    former = first_of(server)
    await server.enqueue(b"1", ordering_key="k")
    await maps(server, draining=former)
    [home] = shards_of(await server.enqueue(b"2", ordering_key="k"))
    await server.replace(*[server.desired(name, takes_enqueues=name not in (former, home)) for name in ALL])
    assert shards_of(await server.enqueue(b"3", ordering_key="k", unique="u")) == [home]
    assert shards_of(await server.enqueue(b"4", unique="u")) == [home]
    for expected in ([b"1"], [b"2"], [b"3"]):
        await look(server)
        assert await work(server) == expected
    [last] = shards_of(await server.enqueue(b"5", ordering_key="k"))
    assert last not in (former, home)
    await look(server)
    assert await work(server) == [b"5"]


def test_a_lost_home_keeps_no_job_waiting_and_the_log_names_the_queue(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(server: ShardedServer) -> None:
        lost = first_of(server)
        await server.enqueue(b"lost", ordering_key="k")
        server.store(lost).dead = "burnt"
        server.lanes(lost).put_out_of_use("burnt")
        await maps(server, lost=lost)
        [home] = shards_of(await server.enqueue(b"2", ordering_key="k"))
        assert home != lost
        assert await work(server) == [b"2"]
        [record] = [record for record in caplog.records if "may be out of order" in record.getMessage()]
        assert (record.__dict__["queue"], record.__dict__["shard"]) == ("q", lost)

    run_on_shards(scenario, shards=ALL, partitions=1)


def test_no_job_waits_for_those_on_a_lost_former_home_and_the_log_names_the_queue(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(server: ShardedServer) -> None:
        lost = first_of(server)
        await server.enqueue(b"lost", ordering_key="k")
        await maps(server, draining=lost)
        await server.enqueue(b"2", ordering_key="k")
        server.store(lost).dead = "burnt"
        server.lanes(lost).put_out_of_use("burnt")
        await look(server)
        assert await work(server) == []
        await maps(server, lost=lost)
        await look(server)
        assert await work(server) == [b"2"]
        [record] = [record for record in caplog.records if "may be out of order" in record.getMessage()]
        assert (record.__dict__["queue"], record.__dict__["shard"]) == ("q", lost)

    run_on_shards(scenario, shards=ALL, partitions=1)


@on_shards(shards=("1", "2"), partitions=1)
async def test_a_server_whose_file_lacks_the_home_reads_it_again(server: ShardedServer) -> None:
    queue = await server.queue_for("1", moves_to="3")
    other = await another(server, ALL)
    await other.enqueue(b"1", ordering_key="k", queue=queue)
    await server.service.queue_cache.refresh()
    names = ["1", "2"]

    async def read() -> None:
        await maps(server, names=names)

    for reader in (None, MapReader(read, server.clock.monotonic)):
        server.shards.reader = reader
        with pytest.raises(EnqueueRejected, match="on shard 3, which the shard file of this server does not name"):
            await server.within(5_000, server.enqueue(b"2", ordering_key="k", queue=queue))
        await server.within(5_000, look(server))
    names.append("3")

    server.shards.reader = MapReader(read, server.clock.monotonic)
    assert shards_of(await server.within(5_000, server.enqueue(b"2", ordering_key="k", queue=queue))) == ["3"]
    await other.close()


@on_shards(partitions=1)
async def test_a_queue_that_was_deleted_and_made_again_gets_a_new_home(server: ShardedServer) -> None:
    await server.enqueue(b"1", ordering_key="k")
    await server.service.queues.delete_queue("q", None)
    server.clock.advance(ms=1)
    await server.service.queues.create_queue("q")
    assert await home_of(server) == Home()
    await server.enqueue(b"2", ordering_key="k")
    assert await work(server) == [b"2"]
    assert (await home_of(server)).shard == first_of(server)


@on_shards(partitions=1)
async def test_a_home_of_a_queue_that_was_deleted_is_none_though_its_shard_was_away_until_the_deletion_was_forgotten(
    server: ShardedServer,
) -> None:
    await server.enqueue(b"0", ordering_key="k")
    await maps(server, draining=first_of(server))
    [former] = shards_of(await server.enqueue(b"1", ordering_key="k"))
    await maps(server)
    server.store(former).dead = "the machine is off"
    server.lanes(former).put_out_of_use("the machine is off")
    await maps(server, lost=former)
    await server.service.queues.delete_queue("q", None)
    server.clock.advance(ms=DELETION_KEPT_MS + 1_000)
    await server.service.queues.create_queue("other")
    await server.service.queues.delete_queue("other", None)  # shards forget deletions at the next one
    await server.service.queues.create_queue("q")
    [home] = shards_of(await server.enqueue(b"2", ordering_key="k"))
    server.store(former).dead = None
    await maps(server)
    await server.core.catch_up()
    await look(server)
    assert shards_of(await server.enqueue(b"3", ordering_key="k")) == [home]
    assert (await home_of(server)).shard == home


@on_shards(partitions=1)
async def test_all_shards_hear_of_a_home(server: ShardedServer) -> None:
    await server.enqueue(b"1", ordering_key="k")
    rows = [await server.store(name).within.submit(ListQueues()) for name in ALL]
    [home] = {queue.home for queues in rows for queue in queues if queue.name == "q"}
    assert (home.shard, home.former) == (first_of(server), "")


@on_shards(partitions=1)
async def test_a_wait_for_a_shard_is_not_ended_by_a_count_of_the_one_before(server: ShardedServer) -> None:
    """A server stands still between the two, and others move the home twice meanwhile."""
    oldest = first_of(server)
    await server.enqueue(b"0", ordering_key="k")
    await maps(server, draining=oldest)
    [home] = shards_of(await server.enqueue(b"1", ordering_key="k"))
    [third] = {*ALL} - {oldest, home}
    assert await work(server) == [b"0"]
    other = await another(server, ALL, draining=[oldest])
    count = server.service.order_homes.before

    async def slow(queue: Queue, limit: int) -> int:
        jobs = await count(queue, limit)
        await look(other)
        await other.replace(*[other.desired(name, takes_enqueues=name == third) for name in ALL])
        await other.enqueue(b"2", ordering_key="k")
        assert await work(other) == [b"1"]
        await look(other)
        await other.replace(*[other.desired(name, takes_enqueues=name == home) for name in ALL])
        assert shards_of(await other.enqueue(b"3", ordering_key="k")) == [home]
        return jobs

    server.service.order_homes.before = slow  # type: ignore[method-assign]
    await look(server)
    assert await work(other) == [b"2"]
    await other.close()


@on_shards(partitions=1)
async def test_a_late_answer_does_not_bring_the_home_of_a_deleted_queue_back(server: ShardedServer) -> None:
    """The queue is deleted and made again while one shard is slow to answer."""
    former = first_of(server)
    await server.enqueue(b"1", ordering_key="k")
    other = await another(server, ALL, draining=[former])
    store = server.lanes(former).store
    submit = store.submit

    async def late(command: Any) -> Any:
        answer = await submit(command)
        if isinstance(command, MergeQueues):
            store.submit = submit  # type: ignore[method-assign]
            await other.service.queues.delete_queue("q", None)
            server.clock.advance(ms=1)
            await other.service.queues.create_queue("q")
            await other.enqueue(b"2", ordering_key="k")
            await home_of(server)
        return answer

    store.submit = late  # type: ignore[method-assign]
    with contextlib.suppress(PinLaterError):
        await server.service.order_homes.settle("q")
    assert shards_of(await server.enqueue(b"3", ordering_key="k")) == [(await home_of(other)).shard]
    assert await work(server) == [b"2"]
    await other.close()


def test_a_server_whose_file_lacks_the_former_home_ends_no_wait_for_it_and_warns_of_it_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its file is wrong, or a backup is restored from a time with other shards."""

    async def scenario(server: ShardedServer) -> None:
        former = first_of(server)
        await server.enqueue(b"1", ordering_key="k")
        await maps(server, draining=former)
        [home] = shards_of(await server.enqueue(b"2", ordering_key="k"))
        other = await another(server, [name for name in ALL if name != former])
        other.shards.reader = MapReader(partial(asyncio.sleep, 0), other.clock.monotonic)
        for _ in range(2):
            await look(other)
            other.clock.advance(seconds=2)  # so that it reads the file again
        assert (await home_of(server)).waits
        assert await work(other) == []
        assert (await home_of(other)).shard == home
        await other.close()
        warnings = [each.__dict__ for each in caplog.records if each.levelname == "WARNING"]
        assert [(each["queue"], each["shard"]) for each in warnings] == [("q", former)]

    run_on_shards(scenario, shards=ALL, partitions=1)


def test_a_shard_that_disappears_again_is_warned_of_again(caplog: pytest.LogCaptureFixture) -> None:
    """The shard file named it meanwhile, and no enqueue needed it."""

    async def scenario(server: ShardedServer) -> None:
        await server.enqueue(b"1", ordering_key="k")
        home = (await home_of(server)).shard
        other = await another(server, ALL)
        known = list(other.shards)
        for there in (False, True, False):
            other.shards.take_over_map([shard for shard in known if there or shard.name != home])
            await look(other)
        other.shards.take_over_map(known)
        await other.close()
        warned = [each.__dict__["shard"] for each in caplog.records if "ordering keys wait" in each.message]
        assert warned == [home] * 2

    run_on_shards(scenario, shards=ALL, partitions=1)


def test_jobs_that_wait_on_a_shard_that_was_lost_by_mistake_go_once_it_is_back() -> None:
    async def scenario(server: ShardedServer) -> None:
        former = first_of(server)
        await server.enqueue(b"1", ordering_key="k")
        await maps(server, draining=former)
        [home] = shards_of(await server.enqueue(b"2", ordering_key="k"))
        server.store(home).dead = "unplugged"
        server.lanes(home).put_out_of_use("unplugged")
        await server.replace(*[server.desired(name, takes_enqueues=name != former, lost=name == home) for name in ALL])
        assert not {home, former} & {*shards_of(await server.enqueue(b"3", ordering_key="k"))}
        server.store(home).dead = None
        await maps(server, draining=former)
        assert (await home_of(server)).former == former
        for expected in ([b"1", b"2"], [b"3"]):
            await look(server)
            assert sorted(await work(server)) == expected
            await home_of(server)
        assert await server.jobs_on(home) == 0

    run_on_shards(scenario, shards=ALL, partitions=1)


@on_shards(partitions=1)
async def test_a_request_is_known_again_though_its_shard_has_drained_for_long_and_is_no_longer_the_home(
    server: ShardedServer,
) -> None:
    """It stayed the home while its jobs waited, and took this request."""
    oldest = first_of(server)
    await server.enqueue(b"1", ordering_key="k")
    await maps(server, draining=oldest)
    [home] = shards_of(await server.enqueue(b"2", ordering_key="k"))
    await server.replace(*[server.desired(name, takes_enqueues=name not in (oldest, home)) for name in ALL])
    server.clock.advance(ms=server.settings.removal_grace_ms + 1)
    stored = await server.enqueue(b"3", ordering_key="k", key="request")
    assert shards_of(stored) == [home]
    assert await work(server) == [b"1"]
    await look(server)
    await look(server)
    assert (await home_of(server)).former == home
    draining = [server.desired(name, takes_enqueues=name not in (oldest, home)) for name in ALL]
    moved = [one._replace(address="another host") if one.name == home else one for one in draining]
    for shards in (draining, moved):
        await server.replace(*shards)
        again = await server.enqueue(b"3", ordering_key="k", key="request", repeat=True)
        assert again.descriptors == stored.descriptors


@on_shards(partitions=1)
async def test_a_server_that_stood_still_while_it_chose_the_first_home_overrides_no_later_one(
    server: ShardedServer,
) -> None:
    first, other = first_of(server), await another(server, ALL)
    store = server.lanes(max(ALL)).store
    submit, stopped, resumes = store.submit, asyncio.Event(), asyncio.Event()

    async def stand_still(command: Any) -> Any:
        answer = await submit(command)
        if isinstance(command, MoveHome):
            store.submit = submit  # type: ignore[method-assign]
            stopped.set()
            await resumes.wait()
        return answer

    store.submit = stand_still  # type: ignore[method-assign]
    choosing = asyncio.create_task(server.service.order_homes.settle("q"))
    await stopped.wait()  # all shards have its claim
    assert shards_of(await other.enqueue(b"1", ordering_key="k")) == [first]
    await maps(other, draining=first)
    [home] = shards_of(await other.enqueue(b"2", ordering_key="k"))
    server.clock.advance(seconds=1)
    resumes.set()
    await choosing
    assert await home_of(server) == await home_of(other) == Home(home, (await home_of(other)).version, former=first)
    for server_ in (server, other):
        await look(server_)
    assert await work(server) == [b"1"]
    await other.close()


@on_shards(partitions=1)
async def test_a_choice_that_was_broken_off_for_a_shard_that_is_removed_by_now_keeps_no_job_out(
    server: ShardedServer,
) -> None:
    first = first_of(server)
    store = server.lanes(max(name for name in ALL if name != first)).store
    submit = store.submit

    async def flap(command: Any) -> Any:
        if isinstance(command, MoveHome):
            store.submit = submit  # type: ignore[method-assign]
            raise ShardConnectionFailed("a flap")
        return await submit(command)

    store.submit = flap  # type: ignore[method-assign]
    with pytest.raises(PinLaterError):
        await server.enqueue(b"0", ordering_key="k")
    left = [name for name in ALL if name != first]
    await maps(server, draining=first)
    await maps(server, names=left)
    server.clock.advance(ms=server.settings.removal_grace_ms + 1)
    assert (await server.core.shard_map.tidy()).removed == [first]
    assert shards_of(await server.enqueue(b"1", ordering_key="k")) == [first_of(server)]
    assert await work(server) == [b"1"]


@on_shards(partitions=1)
async def test_jobs_that_wait_for_nothing_are_let_go_once(server: ShardedServer) -> None:
    former = first_of(server)
    await server.enqueue(b"1", ordering_key="k")
    await maps(server, draining=former)
    [home] = shards_of(await server.enqueue(b"2", ordering_key="k"))
    server.store(home).dead = "unplugged"
    server.lanes(home).put_out_of_use("unplugged")
    await server.replace(*[server.desired(name, takes_enqueues=name != former, lost=name == home) for name in ALL])
    await server.enqueue(b"3", ordering_key="k")
    server.store(home).dead = None
    await maps(server, draining=former)
    await home_of(server)
    lifts, submit = 0, server.lanes(home).store.submit

    async def count(command: Any) -> Any:
        nonlocal lifts
        lifts += isinstance(command, LiftBarrier)
        return await submit(command)

    server.lanes(home).store.submit = count  # type: ignore[method-assign]
    for _ in range(3):
        await look(server)
    assert lifts == 1
