"""Request keys and unique keys over several shards: whatever fails and however the map changes, nothing is stored twice."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import pytest

from pinlater.domain.errors import OutcomeUnknown, PinLaterError, RequestKeyConflict, ShardConnectionFailed
from pinlater.domain.rendezvous import rendezvous_home
from pinlater.domain.servers import PEER_VERSION_UNTOLD
from pinlater.server.main.cluster import Cluster
from pinlater.server.main.readiness import ReadinessWatch
from pinlater.server.sharding import unique_places
from pinlater.server.storage.commands import ClaimJobs, FindUnique, InsertJobs, NoteMap
from pinlater.server.storage.values import Inserted, InsertRequest, Member
from tests.commands import instead
from tests.sharding.sharded_server import ShardedServer, on_shards, run_on_shards, shard_of, shards_of


async def jobs(server: ShardedServer) -> int:
    return sum([await server.jobs_on(name) for name in server.stores])


def key_for(server: ShardedServer, shard: str) -> str:
    """A request key that leads to that partition of the queue `q`."""
    return next(
        key for key in (f"k{number}" for number in range(1_000)) if server.shards.for_request("q", key).name == shard
    )


def unique_for(server: ShardedServer, shard: str, prefix: str = "u") -> str:
    """A unique key whose home is that shard for servers of the version before, which know no homes of queues."""
    names = [each.name for each in server.shards]
    return next(key for key in (f"{prefix}{number}" for number in range(1_000)) if rendezvous_home(key, names) == shard)


async def moving_queues(server: ShardedServer) -> list[str]:
    """Queues on 1, 2, 1 and 2, of which the last two move to 3 when it is added."""
    stay = [await server.queue_for(name, beside="3") for name in "12"]
    return [*stay, *[await server.queue_for(name, moves_to="3") for name in "12"]]


# --- request keys ----------------------------------------------------------------------------------------------------------------


@on_shards(shards=("1", "2"), dead=("2",))
async def test_a_refusal_of_all_unique_keys_is_logged_once_and_its_end(server: ShardedServer) -> None:
    lines: list[tuple[int, str]] = []
    shards: list[list[str]] = []

    def keep(record: logging.LogRecord) -> None:
        lines.append((record.levelno, record.getMessage()))
        shards.extend([vars(record)["shards"]] if "shards" in vars(record) else [])

    handler = logging.Handler()
    handler.emit = keep  # type: ignore[method-assign]
    unique_places.logger.addHandler(handler)
    level = unique_places.logger.level
    unique_places.logger.setLevel(logging.INFO)
    try:
        server.shards.unique.refused_because_of = frozenset()  # said at the start already, before the handler was there
        for _ in range(3):
            await server.learn(after_s=5)
        assert [(number, text[:43]) for number, text in lines] == [
            (logging.WARNING, "all jobs with a unique key are refused: a s")
        ]
        assert shards == [["2"]]
        server.stores["2"].dead = None
        await server.pass_time(5_000)
        await server.learn(after_s=5)
        assert lines[1:] == [(logging.INFO, "jobs with a unique key are accepted again")]
    finally:
        unique_places.logger.removeHandler(handler)
        unique_places.logger.setLevel(level)


@on_shards(shards=("1", "2"), dead=("2",))
async def test_a_refusal_of_all_unique_keys_is_shown_until_its_end(server: ShardedServer) -> None:
    watch = ReadinessWatch()
    watch.state = "ready"

    def shown() -> tuple[float, bool]:
        gauges = {reading.gauge.prometheus: reading.values for reading in server.core.metrics.read_gauges()}
        readiness = watch.readiness(server.shards)
        assert readiness.ok
        refused = "all jobs with a unique key are refused: the keys on shard 2 are not known" in readiness.reasons
        return gauges["pinlater_unique_keys_refused"][""], refused

    await server.learn(after_s=5)
    assert shown() == (1.0, True)
    server.stores["2"].dead = None
    await server.pass_time(5_000)
    await server.learn(after_s=5)
    assert shown() == (0.0, False)


@on_shards()
async def test_a_repeat_is_found_on_whatever_shard_it_was_stored(server: ShardedServer) -> None:
    """The first in the key's order was out of use then, and is back now."""
    key = key_for(server, "1")
    server.lanes("1").put_out_of_use("test")
    first = await server.enqueue(b"x", b"y", key=key)
    assert "1" not in shards_of(first)
    server.lanes("1").health.suspect()
    await server.pass_time(400)
    assert server.lanes("1").healthy
    assert await server.enqueue(b"x", b"y", key=key, repeat=True) == first
    assert await jobs(server) == 2
    assert server.core.metrics.queue("q").repeated_requests == 1


@on_shards()
async def test_a_repeat_that_is_not_found_is_refused_while_a_shard_that_may_know_it_is_unreachable(
    server: ShardedServer,
) -> None:
    """Never a second insert."""
    key = key_for(server, "1")
    fault = server.store("1").fails(InsertJobs, error=OutcomeUnknown("lost"), done_first=True)
    with pytest.raises(OutcomeUnknown):
        await server.enqueue(b"x", key=key)
    assert fault.met.is_set()
    server.lanes("1").put_out_of_use("test")
    for _ in range(2):
        with pytest.raises(ShardConnectionFailed, match="stored already") as refused:
            await server.enqueue(b"x", key=key, repeat=True)
        assert refused.value.retryable
    server.lanes("1").health.suspect()
    await server.pass_time(400)
    assert shards_of(await server.enqueue(b"x", key=key, repeat=True)) == ["1"]
    assert await jobs(server) == 1


@on_shards()
async def test_a_repeat_is_answered_although_another_shard_is_unreachable(server: ShardedServer) -> None:
    key = key_for(server, "1")
    first = await server.enqueue(b"x", key=key)
    server.lanes("2").put_out_of_use("test")
    assert await server.enqueue(b"x", key=key, repeat=True) == first


@on_shards()
async def test_a_repeat_whose_first_never_arrived_is_stored(server: ShardedServer) -> None:
    assert len((await server.enqueue(b"x", key="k", repeat=True)).descriptors) == 1
    assert await jobs(server) == 1


@on_shards()
async def test_a_keyed_request_goes_on_along_the_keys_order_where_nothing_was_stored(server: ShardedServer) -> None:
    key = key_for(server, "1")
    server.store("1").dead = "refused"
    first = await server.enqueue(b"x", key=key)
    assert "1" not in shards_of(first)
    server.store("1").dead = None
    assert await server.enqueue(b"x", key=key, repeat=True) == first


@on_shards()
async def test_a_repeat_that_arrives_during_the_first_waits_for_it(server: ShardedServer) -> None:
    """Wherever the first is, and whatever has become of that shard meanwhile."""
    key = key_for(server, "1")
    fault = server.store("1").hangs(InsertJobs, done_first=True)
    first = asyncio.ensure_future(server.enqueue(b"x", key=key))
    await server.turns()
    again = asyncio.ensure_future(server.enqueue(b"x", key=key, repeat=True))
    await server.pass_time(2_000)
    assert not again.done()
    fault.release()
    await server.turns()
    assert first.result() == again.result()
    assert await jobs(server) == 1


@on_shards()
async def test_a_request_with_unique_keys_is_stored_whole_and_found_again(server: ShardedServer) -> None:
    """Also where its jobs have ended meanwhile, so that their unique keys are free."""
    uniques = [None, "a", "b", "c", "a", None, "d"]
    bodies = [b"%d" % number for number in range(7)]
    first = await server.enqueue(*bodies, unique=uniques, key="r")
    assert first.existing == [4]
    assert shards_of(first) == [server.shards.partitions.order("q")[0].name] * 7
    for job in (await server.dequeue()).jobs:
        await server.ack(job.descriptor)
    assert await server.enqueue(*bodies, unique=uniques, key="r", repeat=True) == first
    assert await jobs(server) == 0


@pytest.mark.parametrize("key", [None, "r"], ids=["without a request key", "with one"])
def test_a_request_with_several_unique_keys_and_plain_jobs_is_all_or_nothing(key: str | None) -> None:
    """Its shard refuses, or can't say; no other shard gets a part of it."""

    async def scenario(server: ShardedServer) -> None:
        await server.learn(after_s=61)
        queue = await server.queue_for("2")
        bodies, uniques = [b"1", b"2", b"3", b"4"], ["a", None, "b", "c"]
        server.store("2").fails(InsertJobs)
        with pytest.raises(ShardConnectionFailed, match="only shard 2 takes jobs with the unique key 'a' and 2 other"):
            await server.enqueue(*bodies, unique=uniques, key=key, queue=queue)
        assert await jobs(server) == 0
        server.store("2").fails(InsertJobs, error=OutcomeUnknown("lost"), done_first=True)
        with pytest.raises(OutcomeUnknown):
            await server.enqueue(*bodies, unique=uniques, key=key, queue=queue)
        assert [await server.jobs_on(name) for name in "123"] == [0, 4, 0]
        again = await server.enqueue(*bodies, unique=uniques, key=key, repeat=key is not None, queue=queue)
        assert shards_of(again) == ["2"] * 4
        assert await server.jobs_on("2") == (4 if key else 5)  # without a request key the plain job is there twice

    run_on_shards(scenario)


@on_shards()
async def test_a_repeat_stores_what_a_server_of_the_version_before_has_not_stored(server: ShardedServer) -> None:
    """That one places each unique key by itself, and has stored the request in part."""
    server.shards.unique.go_by(queue=False)
    uniques = [unique_for(server, name) for name in "123"]
    server.store("2").fails(InsertJobs, error=OutcomeUnknown("lost"))
    with pytest.raises(OutcomeUnknown, match=r"stored already: the jobs at \[0, 2\]"):
        await server.enqueue(b"1", b"2", b"3", unique=uniques, key="r")
    for job in (await server.dequeue()).jobs:
        await server.ack(job.descriptor)
    server.shards.unique.go_by(queue=True)
    again = await server.enqueue(b"1", b"2", b"3", unique=uniques, key="r", repeat=True)
    assert shards_of(again) == ["1", server.shards.home_of("q", uniques[1]).name, "3"]
    assert await jobs(server) == 1
    assert await server.enqueue(b"1", b"2", b"3", unique=uniques, key="r", repeat=True) == again


@on_shards()
async def test_a_key_with_other_content_is_an_error_wherever_it_was_used(server: ShardedServer) -> None:
    key = key_for(server, "1")
    server.lanes("1").put_out_of_use("test")
    await server.enqueue(b"x", key=key)
    server.lanes("1").health.suspect()
    await server.pass_time(400)
    with pytest.raises(RequestKeyConflict):
        await server.enqueue(b"other", key=key, repeat=True)
    assert await jobs(server) == 1


@on_shards()
async def test_a_repeat_is_looked_for_on_shards_that_only_drain_now(server: ShardedServer) -> None:
    """For as long as keys are kept; then one that is away is asked no more."""
    key = key_for(server, "1")
    first = await server.enqueue(b"x", key=key)
    await server.replace(server.desired("1", takes_enqueues=False), server.desired("2"), server.desired("3"))
    assert await server.enqueue(b"x", key=key, repeat=True) == first
    server.lanes("1").put_out_of_use("test")
    with pytest.raises(ShardConnectionFailed):
        await server.enqueue(b"y", key="other", repeat=True)
    server.clock.advance(ms=server.settings.removal_grace_ms)
    server.lanes("1").put_out_of_use("test")
    await server.enqueue(b"y", key="other", repeat=True)


# --- unique keys -----------------------------------------------------------------------------------------------------------------


@on_shards()
async def test_a_unique_job_goes_to_its_home_or_nowhere(server: ShardedServer) -> None:
    """On another shard it might be there twice; other queues' homes do not matter, nor do other jobs of the queue."""
    await server.learn(after_s=61)
    lost, other = await server.queue_for("1"), await server.queue_for("2")
    server.store("1").dead = "refused"
    for _ in range(2):
        with pytest.raises(ShardConnectionFailed) as refused:
            await server.enqueue(b"x", unique="k", queue=lost)
        assert refused.value.retryable
        assert refused.value.message.endswith("; only shard 1 takes jobs with the unique key 'k'")
        await server.core.shard_monitor.ping_all()
    assert shards_of(await server.enqueue(b"x", unique="k", queue=other)) == ["2"]
    assert shards_of(await server.enqueue(b"plain", queue=lost)) != ["1"]
    assert await jobs(server) == 2


@on_shards()
async def test_the_refusal_of_several_unique_jobs_names_the_first_key_and_counts_the_others(
    server: ShardedServer,
) -> None:
    """The producer sees one error for the request, and must learn which of its keys and which shard it is about."""
    await server.learn(after_s=61)
    queue = await server.queue_for("2")
    server.lanes("2").put_out_of_use("test")
    with pytest.raises(ShardConnectionFailed) as refused:
        await server.enqueue(b"x", b"y", b"z", unique=["a", "b", "c"], queue=queue)
    assert refused.value.message == (
        "Shard 2 is unreachable; only shard 2 takes jobs with the unique key 'a' and 2 other keys of the request"
    )


@on_shards()
async def test_without_a_change_of_the_map_no_other_shard_is_asked(server: ShardedServer) -> None:
    await server.learn(after_s=61)
    queues = [await server.queue_for(name) for name in "123"]
    for name in "123":
        server.store(name).calls.clear()
    for queue in queues:
        for number in range(5):
            await server.enqueue(b"x", unique=f"k{number}", queue=queue)
    assert not any(server.store(name).calls[FindUnique] for name in "123")


@on_shards(shards=("1", "2"))
async def test_a_key_from_before_a_change_of_the_map_is_found_where_it_is(server: ShardedServer) -> None:
    queues = await moving_queues(server)
    before = {queue: await server.enqueue(b"x", unique="k", queue=queue) for queue in queues}
    await server.replace(server.desired("1"), server.desired("2"), server.desired("3"))
    for queue, enqueued in before.items():
        again = await server.enqueue(b"y", unique="k", queue=queue)
        assert (again.descriptors, again.existing) == (enqueued.descriptors, [0])
    assert await jobs(server) == 4
    assert [shards_of(await server.enqueue(b"x", unique="new", queue=queue)) for queue in queues] == [
        ["1"],
        ["2"],
        ["3"],
        ["3"],
    ]


@on_shards()
async def test_a_unique_enqueue_is_refused_while_a_shard_that_may_hold_its_key_is_unreachable(
    server: ShardedServer,
) -> None:
    """A shard that drains now holds some. After a minute, when all servers know the new map, one that has none of the queue isn't asked."""
    queue, other = await server.queue_for("1"), await server.queue_for("2")
    first = await server.enqueue(b"x", unique="k", queue=queue)
    await server.replace(server.desired("1", takes_enqueues=False), server.desired("2"), server.desired("3"))
    server.lanes("1").put_out_of_use("test")
    with pytest.raises(ShardConnectionFailed, match="it is unknown whether the unique key 'k' is taken there"):
        await server.enqueue(b"x", unique="k", queue=other)
    server.lanes("1").health.suspect()
    await server.pass_time(400)
    await server.learn(after_s=61)
    server.store("1").dead = "gone"
    await server.core.shard_monitor.ping_all()
    for key in ("k", "new"):
        with pytest.raises(ShardConnectionFailed, match="it is unknown whether") as refused:
            await server.enqueue(b"x", unique=key, queue=queue)
        assert refused.value.retryable
    await server.enqueue(b"x", unique="k", queue=other)
    server.store("1").dead = None
    await server.pass_time(3_000)
    assert (await server.enqueue(b"x", unique="k", queue=queue)).descriptors == first.descriptors


@on_shards(shards=("1", "2"))
async def test_no_other_shard_is_asked_once_the_old_keys_are_gone(server: ShardedServer) -> None:
    queue = await server.queue_for("1", moves_to="3")
    for number in range(10):
        await server.enqueue(b"x", unique=f"k{number}", queue=queue)
    await server.replace(server.desired("1"), server.desired("2"), server.desired("3"))
    await server.learn(after_s=61)
    await server.enqueue(b"x", unique="k0", queue=queue)
    assert not server.shards.unique.settled
    await server.ack(*[job.descriptor for job in (await server.dequeue(queue=queue)).jobs])
    await server.enqueue(b"x", unique="new", queue=queue)
    await server.learn(after_s=61)
    assert server.shards.unique.settled
    server.store("1").dead = "gone"
    await server.core.shard_monitor.ping_all()
    assert shards_of(await server.enqueue(b"x", unique="later", queue=queue)) == ["3"]


@on_shards(shards=("1", "2"))
async def test_a_server_that_starts_after_a_change_knows_of_it(server: ShardedServer) -> None:
    """The shards remember since when the map is as it is."""
    queues = await moving_queues(server)
    before = {queue: await server.enqueue(b"x", unique="k", queue=queue) for queue in queues}
    for wait_s in (3, 3_600):
        await server.close()
        server.clock.advance(seconds=wait_s)
        await server.open([server.desired("1"), server.desired("2"), server.desired("3")])
        assert not server.shards.unique.settled
        await server.learn()
        for queue, enqueued in before.items():
            assert (await server.enqueue(b"y", unique="k", queue=queue)).descriptors == enqueued.descriptors
    assert await jobs(server) == 4


@on_shards()
async def test_a_key_from_a_map_that_no_shard_heard_of_is_found(server: ShardedServer) -> None:
    """A drain that was taken back at once, while the shards failed to note it."""
    await server.learn(after_s=61)
    queue = await server.queue_for("3")
    for name in "123":
        server.store(name).fails(NoteMap, times=10)
    await server.replace(server.desired("1"), server.desired("2"), server.desired("3", takes_enqueues=False))
    first = await server.enqueue(b"x", unique="k", queue=queue)
    await server.replace(server.desired("1"), server.desired("2"), server.desired("3"))
    for name in "123":
        server.store(name).forget_faults()
    for wait_s in (0, 5, 61):
        await server.learn(after_s=wait_s)
        assert (await server.enqueue(b"x", unique="k", queue=queue)).descriptors == first.descriptors


@on_shards()
async def test_after_a_restart_without_a_change_no_other_shard_is_asked(server: ShardedServer) -> None:
    """So that a shard that is away then refuses no unique enqueue whose home is another."""
    await server.learn(after_s=61)
    queue = await server.queue_for("1")
    await server.enqueue(b"x", unique="k", queue=queue)
    await server.close()
    await server.open([server.desired(name) for name in "123"])
    await server.learn()
    server.store("3").dead = "gone"
    await server.core.shard_monitor.ping_all()
    assert shards_of(await server.enqueue(b"x", unique="other", queue=queue)) == ["1"]


@on_shards()
async def test_keys_of_the_first_minute_don_t_block_the_keys_of_other_shards(server: ShardedServer) -> None:
    """They might be from before a change of the map; but they are where they belong."""
    queues = [await server.queue_for(name) for name in "123"]
    for queue in queues:
        await server.enqueue(b"x", unique="k", queue=queue)
    await server.learn(after_s=61)
    assert server.shards.unique.settled
    server.store("3").dead = "gone"
    await server.core.shard_monitor.ping_all()
    assert shards_of(await server.enqueue(b"x", unique="new", queue=queues[0])) == ["1"]


@on_shards(shards=("1", "2"))
async def test_after_a_change_of_the_map_an_unreachable_shard_blocks_only_the_queues_that_moved_from_it(
    server: ShardedServer,
) -> None:
    """And those whose keys live there; also for new keys."""
    queues = await moving_queues(server)
    first = {queue: await server.enqueue(b"x", unique="k", queue=queue) for queue in queues}
    await server.replace(server.desired("1"), server.desired("2"), server.desired("3"))
    await server.learn(after_s=61)
    server.store("1").dead = "gone"
    await server.core.shard_monitor.ping_all()
    for queue, refusal in zip(queues, ["only shard 1 takes", None, "it is unknown whether", None], strict=True):
        for key in ("k", "new"):
            if refusal is None:
                again = await server.enqueue(b"y", unique=key, queue=queue)
                assert (again.existing is not None) == (key == "k")
                assert (again.descriptors == first[queue].descriptors) == (key == "k")
            else:
                with pytest.raises(ShardConnectionFailed, match=refusal):
                    await server.enqueue(b"y", unique=key, queue=queue)


@on_shards(shards=("1", "2"))
async def test_enqueues_of_one_key_before_and_after_a_change_make_one_job(server: ShardedServer) -> None:
    """The one that goes by the old map is still under way: the other waits for it, or it would not see its key."""
    queue = await server.queue_for("1", moves_to="3")
    fault = server.store("1").hangs(InsertJobs)
    first = asyncio.ensure_future(server.enqueue(b"x", unique="k", queue=queue))
    await server.turns()
    await server.replace(server.desired("1"), server.desired("2"), server.desired("3"))
    assert server.shards.home_of(queue, "k").name == "3"
    second = asyncio.ensure_future(server.enqueue(b"y", unique="k", queue=queue))
    await server.turns()
    assert not second.done()
    fault.release()
    await server.turns()
    assert first.result().descriptors == second.result().descriptors
    assert await jobs(server) == 1


@on_shards(shards=("1", "2"))
async def test_a_unique_enqueue_ends_by_the_map_by_which_it_asked_the_other_shards(server: ShardedServer) -> None:
    """By the new map it would go to a shard that does not have the key, without having asked its former home."""
    queue = await server.queue_for("1", moves_to="3")
    first = await server.enqueue(b"x", unique="k", queue=queue)
    fault = server.store("2").hangs(FindUnique)
    second = asyncio.ensure_future(server.enqueue(b"y", unique="k", queue=queue))
    await server.turns()
    assert fault.met.is_set()
    await server.replace(server.desired("1"), server.desired("2"), server.desired("3"))
    fault.release()
    await server.turns()
    assert (second.result().descriptors, second.result().existing) == (first.descriptors, [0])


@on_shards(shards=("1", "2"))
async def test_a_unique_enqueue_of_many_keys_mixes_old_places_and_new_ones(server: ShardedServer) -> None:
    queue = await server.queue_for("1", moves_to="3")
    old = await server.enqueue(*[b"x"] * 10, unique=[f"k{number}" for number in range(10)], queue=queue)
    await server.replace(server.desired("1"), server.desired("2"), server.desired("3"))
    names = [None, *(f"k{number}" for number in range(20)), "k3", "k15"]
    enqueued = await server.enqueue(*[b"y"] * 23, unique=names, queue=queue)
    assert enqueued.descriptors[1:11] == old.descriptors
    assert enqueued.existing == [*range(1, 11), 21, 22]
    assert enqueued.descriptors[21] == enqueued.descriptors[4]
    assert enqueued.descriptors[22] == enqueued.descriptors[16]
    assert await jobs(server) == 21
    assert {shard_of(each) for each in enqueued.descriptors[11:21]} == {"3"}


# --- unique keys beside servers of the version before ----------------------------------------------------------------------------


@on_shards()
async def test_a_key_that_a_server_of_the_version_before_put_elsewhere_is_found_until_its_job_ends(
    server: ShardedServer,
) -> None:
    """For its queue only: another queue may have a job under the same key."""
    queue, other = await server.queue_for("1"), await server.queue_for("1")
    server.shards.unique.go_by(queue=False)
    await server.learn(after_s=61)
    old = await server.place("2", unique="k", queue=queue)
    server.shards.unique.go_by(queue=True)  # the last server of the version before has gone
    for wait_s in (0, 61):
        await server.learn(after_s=wait_s)
        again = await server.enqueue(b"x", unique="k", queue=queue)
        assert (again.descriptors, again.existing) == ([old], [0])
    assert shards_of(await server.enqueue(b"x", unique="k", queue=other)) == ["1"]
    server.store("2").calls.clear()
    assert (await server.enqueue(b"x", unique="k", queue=other)).existing == [0]
    assert not server.store("2").calls[FindUnique]
    await server.ack(*[job.descriptor for job in (await server.dequeue(queue=queue)).jobs])
    assert shards_of(await server.enqueue(b"x", unique="k", queue=queue)) == ["1"]
    await server.learn(after_s=61)
    assert server.shards.unique.settled


@on_shards()
async def test_beside_servers_of_the_version_before_each_key_has_its_own_home(server: ShardedServer) -> None:
    """As those servers place it. A request is stored in parts, and the error says which are stored."""
    first = await server.enqueue(b"0", unique="by queue")
    server.shards.unique.go_by(queue=False)
    uniques = [unique_for(server, name) for name in "123"]
    for wait_s in (0, 61):
        await server.learn(after_s=wait_s)
        assert (await server.enqueue(b"x", unique="by queue")).descriptors == first.descriptors
    stored = await server.enqueue(b"1", b"2", b"3", unique=uniques)
    assert shards_of(stored) == ["1", "2", "3"]
    again = await server.enqueue(b"1", b"2", b"3", unique=uniques)
    assert (again.descriptors, again.existing) == (stored.descriptors, [0, 1, 2])
    server.store("2").fails(InsertJobs)
    new = [unique_for(server, name, "new") for name in "123"]
    with pytest.raises(ShardConnectionFailed, match=r"stored already: the jobs at \[0, 2\]"):
        await server.enqueue(b"1", b"2", b"3", unique=new)
    server.shards.unique.go_by(queue=True)
    for wait_s in (0, 61):
        await server.learn(after_s=wait_s)
        again = await server.enqueue(b"1", b"2", b"3", unique=uniques)
        assert (again.descriptors, again.existing) == (stored.descriptors, [0, 1, 2])


@on_shards()
async def test_keys_are_placed_as_by_the_version_before_while_a_shard_names_a_server_of_it_and_a_minute_longer(
    server: ShardedServer,
) -> None:
    """Whether it answers or not: it may have been killed, or stand still. A server that has its place in the shards no longer may go on."""
    cluster = Cluster(server.shards, server.core.dispatcher, server.core.standstill, lambda _: None)
    new, old = Member(1, "new", "a:1", 0, 0), Member(2, "old", "b:1", 0, 0, peer_version=PEER_VERSION_UNTOLD)
    unique = server.shards.unique
    server.stores["1"].members = [new]
    await cluster.look()
    assert unique.by_queue
    server.stores["1"].members = [new, old]
    await cluster.look()
    assert not unique.by_queue
    server.clock.advance(seconds=3_600)
    cluster.look_at_calls()
    assert not unique.by_queue
    server.stores["1"].members = [new]
    await cluster.look()
    server.clock.advance(seconds=59)
    cluster.look_at_calls()
    assert not unique.by_queue
    server.clock.advance(seconds=2)
    cluster.look_at_calls()
    assert unique.by_queue


@on_shards()
async def test_beside_servers_of_the_version_before_a_key_is_found_that_a_server_put_on_the_first_partition(
    server: ShardedServer,
) -> None:
    """It had learned sooner that the last of these servers has gone."""
    queue = await server.queue_for("1")
    server.shards.unique.go_by(queue=False)
    await server.learn(after_s=61)
    await server.learn(after_s=61)
    key = unique_for(server, "2")
    placed = await server.place("1", unique=key, queue=queue)
    again = await server.enqueue(b"x", unique=key, queue=queue)
    assert (again.descriptors, again.existing) == ([placed], [0])


# --- calls that were given up ----------------------------------------------------------------------------------------------------


@on_shards()
async def test_a_repeat_is_refused_while_a_call_that_was_given_up_may_store_the_first_yet(
    server: ShardedServer,
) -> None:
    """The shard answers everything else: it is in use, and knows nothing of the request."""
    key = key_for(server, "1")
    fault = server.store("1").hangs(InsertJobs)
    first = asyncio.ensure_future(server.enqueue(b"x", key=key))
    await server.pass_time(server.settings.call_timeout_ms + 400)
    assert isinstance(first.exception(), OutcomeUnknown)
    assert server.lanes("1").healthy
    with pytest.raises(ShardConnectionFailed, match="given up"):
        await server.enqueue(b"x", key=key, repeat=True)
    fault.release()
    await server.turns()
    assert shards_of(await server.enqueue(b"x", key=key, repeat=True)) == ["1"]
    assert await jobs(server) == 1


@on_shards()
async def test_a_repeat_that_is_not_found_goes_where_another_server_may_be_storing_it(server: ShardedServer) -> None:
    """The first in the key's order, though it is slow: it recognises the two as one request."""
    key = key_for(server, "1")
    fault = server.store("1").hangs(ClaimJobs)
    claiming = asyncio.ensure_future(server.dequeue())
    await server.pass_time(1_200)
    assert server.lanes("1").stalled
    assert shards_of(await server.enqueue(b"x", key=key, repeat=True)) == ["1"]
    fault.release()
    await server.turns()
    await claiming


@on_shards()
async def test_a_repeat_goes_to_another_shard_only_once_the_first_can_no_longer_be_stored(
    server: ShardedServer,
) -> None:
    """The first try's COMMIT is still on its way when its outcome is given up as unknown. A store ends it before the writer's next."""
    key = key_for(server, "1")
    server.lanes("1").put_out_of_use("test")
    store = server.store("2").within
    carry_out, on_its_way = store.submit, list[tuple[Sequence[InsertRequest], int]]()

    async def insert(requests: Sequence[InsertRequest], now_ms: int) -> Sequence[Inserted | PinLaterError]:
        if any(request.request_key == key for request in requests):
            on_its_way.append((requests, now_ms))
            raise OutcomeUnknown("the connection is gone")
        on_its_way.clear()
        return await carry_out(InsertJobs(requests, now_ms))

    store.submit = instead(store, InsertJobs, insert)  # type: ignore[method-assign]
    with pytest.raises(OutcomeUnknown):
        await server.enqueue(b"x", key=key)
    server.lanes("1").health.suspect()
    await server.pass_time(400)
    assert shards_of(await server.enqueue(b"x", key=key, repeat=True)) == ["1"]
    for requests, now_ms in on_its_way:
        await insert(requests, now_ms)
    assert await jobs(server) == 1


@on_shards()
async def test_a_repeat_is_refused_while_an_unknown_outcome_can_not_be_ended(server: ShardedServer) -> None:
    key = key_for(server, "1")
    server.lanes("1").put_out_of_use("test")
    for _ in range(2):
        server.store("2").fails(InsertJobs, error=OutcomeUnknown("the connection is gone"))
    with pytest.raises(OutcomeUnknown):
        await server.enqueue(b"x", key=key)
    server.lanes("1").health.suspect()
    await server.pass_time(400)
    with pytest.raises(ShardConnectionFailed, match="given up"):
        await server.enqueue(b"x", key=key, repeat=True)
    assert shards_of(await server.enqueue(b"x", key=key, repeat=True)) == ["1"]
    assert await jobs(server) == 1
