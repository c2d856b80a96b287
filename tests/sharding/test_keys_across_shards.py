"""Request keys and unique keys over several shards: whatever fails and however the map changes, nothing is stored twice."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from unittest.mock import patch

import pytest

from pinlater.domain.errors import OutcomeUnknown, PinLaterError, RequestKeyConflict, ShardConnectionFailed
from pinlater.domain.job import UniqueScope
from pinlater.domain.rendezvous import rendezvous_home
from pinlater.server.main.readiness import ReadinessWatch
from pinlater.server.sharding import unique_places
from pinlater.server.storage.commands import ClaimJobs, FindUnique, InsertJobs
from pinlater.server.storage.values import Inserted, InsertRequest
from pinlater.wire.generated.structs import EnqueueRequest, Job
from tests.commands import instead
from tests.sharding.sharded_server import ShardedServer, on_shards, shard_of, shards_of


async def jobs(server: ShardedServer) -> int:
    return sum([await server.jobs_on(name) for name in server.stores])


async def key_for(server: ShardedServer, shard: str, prefix: str = "k") -> str:
    """A request key or unique key whose home is that shard."""
    number = 0
    while server.shards.home_of("q", f"{prefix}{number}").name != shard:
        number += 1
    return f"{prefix}{number}"


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
    key = await key_for(server, "1")
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
    key = await key_for(server, "1")
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
    key = await key_for(server, "1")
    first = await server.enqueue(b"x", key=key)
    server.lanes("2").put_out_of_use("test")
    assert await server.enqueue(b"x", key=key, repeat=True) == first


@on_shards()
async def test_a_repeat_whose_first_never_arrived_is_stored(server: ShardedServer) -> None:
    assert len((await server.enqueue(b"x", key="k", repeat=True)).descriptors) == 1
    assert await jobs(server) == 1


@on_shards()
async def test_a_keyed_request_goes_on_along_the_keys_order_where_nothing_was_stored(server: ShardedServer) -> None:
    key = await key_for(server, "1")
    server.store("1").dead = "refused"
    first = await server.enqueue(b"x", key=key)
    assert "1" not in shards_of(first)
    server.store("1").dead = None
    assert await server.enqueue(b"x", key=key, repeat=True) == first


@on_shards()
async def test_a_repeat_that_arrives_during_the_first_waits_for_it(server: ShardedServer) -> None:
    """Wherever the first is, and whatever has become of that shard meanwhile."""
    key = await key_for(server, "1")
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
async def test_a_request_with_unique_keys_is_found_again_in_all_its_parts(server: ShardedServer) -> None:
    """Also where its jobs have ended meanwhile, so that their unique keys are free."""
    uniques = [None, "a", "b", "c", "a", None, "d"]
    bodies = [b"%d" % number for number in range(7)]
    first = await server.enqueue(*bodies, unique=uniques, key="r")
    assert first.existing == [4]
    assert len(set(shards_of(first))) > 1
    for job in (await server.dequeue()).jobs:
        await server.ack(job.descriptor)
    assert await server.enqueue(*bodies, unique=uniques, key="r", repeat=True) == first
    assert await jobs(server) == 0


@on_shards()
async def test_a_request_that_was_stored_in_part_is_completed_by_its_repeat(server: ShardedServer) -> None:
    uniques = [await key_for(server, name) for name in "123"]
    server.store("2").fails(InsertJobs, error=OutcomeUnknown("lost"))
    with pytest.raises(OutcomeUnknown, match=r"stored already: the jobs at \[0, 2\]"):
        await server.enqueue(b"1", b"2", b"3", unique=uniques, key="r")
    for job in (await server.dequeue()).jobs:
        await server.ack(job.descriptor)
    again = await server.enqueue(b"1", b"2", b"3", unique=uniques, key="r", repeat=True)
    assert shards_of(again) == ["1", "2", "3"]
    assert await jobs(server) == 1
    assert await server.enqueue(b"1", b"2", b"3", unique=uniques, key="r", repeat=True) == again


@on_shards()
async def test_a_key_with_other_content_is_an_error_wherever_it_was_used(server: ShardedServer) -> None:
    key = await key_for(server, "1")
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
    key = await key_for(server, "1")
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
    """On another shard it might be there twice; other jobs' homes do not matter."""
    await server.learn(after_s=61)
    keys = {name: await key_for(server, name) for name in "123"}
    server.store("1").dead = "refused"
    for _ in range(2):
        with pytest.raises(ShardConnectionFailed) as refused:
            await server.enqueue(b"x", unique=keys["1"])
        assert refused.value.retryable
        assert refused.value.message.endswith(f"; only shard 1 takes jobs with the unique key {keys['1']!r}")
        await server.core.shard_monitor.ping_all()
    assert shards_of(await server.enqueue(b"x", unique=keys["2"])) == ["2"]
    assert await jobs(server) == 1


@on_shards()
async def test_the_refusal_of_several_unique_jobs_names_the_first_key_and_counts_the_others(
    server: ShardedServer,
) -> None:
    """The producer sees one error for the request, and must learn which of its keys and which shard it is about."""
    await server.learn(after_s=61)
    keys = [await key_for(server, "2", f"{prefix}-") for prefix in "abc"]
    server.lanes("2").put_out_of_use("test")
    wanted = [Job(b"x", unique_key=key) for key in keys]
    with pytest.raises(ShardConnectionFailed) as refused:
        await server.service.enqueuing.enqueue(EnqueueRequest("q", wanted))
    assert refused.value.message == (
        f"Shard 2 is unreachable; only shard 2 takes jobs with the unique key {keys[0]!r} and 2 other keys of the request"
    )


@on_shards()
async def test_without_a_change_of_the_map_no_other_shard_is_asked(server: ShardedServer) -> None:
    await server.learn(after_s=61)
    for name in "123":
        server.store(name).calls.clear()
    for number in range(20):
        await server.enqueue(b"x", unique=f"k{number}")
    assert not any(server.store(name).calls[FindUnique] for name in "123")


@on_shards(shards=("1", "2"))
async def test_a_key_from_before_a_change_of_the_map_is_found_where_it_is(server: ShardedServer) -> None:
    before = {f"k{number}": await server.enqueue(b"x", unique=f"k{number}") for number in range(30)}
    await server.replace(server.desired("1"), server.desired("2"), server.desired("3"))
    moved = [key for key in before if server.shards.home_of("q", key).name == "3"]
    assert moved
    for key, enqueued in before.items():
        again = await server.enqueue(b"y", unique=key)
        assert (again.descriptors, again.existing) == (enqueued.descriptors, [0])
    assert await jobs(server) == 30
    assert {shards_of(await server.enqueue(b"x", unique=f"new{number}"))[0] for number in range(20)} == {"1", "2", "3"}


@on_shards()
async def test_a_unique_enqueue_is_refused_while_a_shard_that_may_hold_its_key_is_unreachable(
    server: ShardedServer,
) -> None:
    """A shard that drains now holds some. After a minute, when all servers know the new map, one that has none of the queue isn't asked."""
    await server.service.queues.create_queue("other")
    key = await key_for(server, "1")
    first = await server.enqueue(b"x", unique=key)
    await server.replace(server.desired("1", takes_enqueues=False), server.desired("2"), server.desired("3"))
    server.lanes("1").put_out_of_use("test")
    with pytest.raises(ShardConnectionFailed, match=f"it is unknown whether the unique key '{key}' is taken there"):
        await server.enqueue(b"x", unique=key, queue="other")
    server.lanes("1").health.suspect()
    await server.pass_time(400)
    await server.learn(after_s=61)
    server.store("1").dead = "gone"
    await server.core.shard_monitor.ping_all()
    with pytest.raises(ShardConnectionFailed, match="it is unknown whether") as refused:
        await server.enqueue(b"x", unique=key)
    assert refused.value.retryable
    await server.enqueue(b"x", unique=key, queue="other")
    server.store("1").dead = None
    await server.pass_time(3_000)
    assert (await server.enqueue(b"x", unique=key)).descriptors == first.descriptors


@on_shards(shards=("1", "2"))
async def test_no_other_shard_is_asked_once_the_old_keys_are_gone(server: ShardedServer) -> None:
    for number in range(10):
        await server.enqueue(b"x", unique=f"k{number}")
    await server.replace(server.desired("1"), server.desired("2"), server.desired("3"))
    await server.learn(after_s=61)
    await server.enqueue(b"x", unique="k0")
    assert not server.shards.unique.settled
    for job in (await server.dequeue()).jobs:
        await server.ack(job.descriptor)
    await server.enqueue(b"x", unique="new", scope=UniqueScope.UNFINISHED)
    await server.learn(after_s=61)
    assert server.shards.unique.settled
    server.store("3").dead = "gone"
    await server.core.shard_monitor.ping_all()
    await server.enqueue(b"x", unique=await key_for(server, "1", "later"))


@on_shards(shards=("1", "2"))
async def test_a_server_that_starts_after_a_change_knows_of_it(server: ShardedServer) -> None:
    """The shards remember since when the map is as it is."""
    before = {f"k{number}": await server.enqueue(b"x", unique=f"k{number}") for number in range(30)}
    await server.close()
    server.clock.advance(seconds=3)
    await server.open([server.desired("1"), server.desired("2"), server.desired("3")])
    await server.service.queues.create_queue("q")
    assert not server.shards.unique.settled
    await server.learn()
    for key, enqueued in before.items():
        assert (await server.enqueue(b"y", unique=key)).descriptors == enqueued.descriptors
    await server.close()
    server.clock.advance(hours=1)
    await server.open([server.desired("1"), server.desired("2"), server.desired("3")])
    await server.service.queue_cache.refresh()
    await server.learn()
    for key, enqueued in before.items():
        assert (await server.enqueue(b"y", unique=key)).descriptors == enqueued.descriptors
    assert await jobs(server) == 30


@on_shards()
async def test_after_a_restart_without_a_change_no_other_shard_is_asked(server: ShardedServer) -> None:
    """So that a shard that is away then refuses no unique enqueue whose home is another."""
    await server.learn(after_s=61)
    await server.enqueue(b"x", unique="k")
    await server.close()
    await server.open([server.desired(name) for name in "123"])
    await server.service.queue_cache.refresh()
    await server.learn()
    server.store("3").dead = "gone"
    await server.core.shard_monitor.ping_all()
    await server.enqueue(b"x", unique=await key_for(server, "1", "other"))


@on_shards()
async def test_keys_of_the_first_minute_don_t_block_the_keys_of_other_shards(server: ShardedServer) -> None:
    """They might be from before a change of the map; but they are where they belong."""
    for number in range(10):
        await server.enqueue(b"x", unique=f"k{number}")
    await server.learn(after_s=61)
    assert server.shards.unique.settled
    server.store("3").dead = "gone"
    await server.core.shard_monitor.ping_all()
    assert shards_of(await server.enqueue(b"x", unique=await key_for(server, "1", "new"))) == ["1"]


@on_shards(shards=("1", "2"))
async def test_after_a_change_of_the_map_an_unreachable_shard_blocks_only_the_keys_that_moved_from_it(
    server: ShardedServer,
) -> None:
    keys = [f"k{number}" for number in range(40)]
    first = {key: await server.enqueue(b"x", unique=key) for key in keys}
    on_1 = {key for key in keys if shards_of(first[key]) == ["1"]}
    await server.replace(server.desired("1"), server.desired("2"), server.desired("3"))
    await server.learn(after_s=61)
    server.store("1").dead = "gone"
    await server.core.shard_monitor.ping_all()
    refused = set()
    for key in keys:
        try:
            assert (await server.enqueue(b"y", unique=key)).descriptors == first[key].descriptors
        except ShardConnectionFailed:
            refused.add(key)
    assert refused == on_1
    assert any(_moves(server, key) for key in on_1)
    new = [key for key in (f"new{number}" for number in range(40)) if server.shards.home_of("q", key).name != "1"]
    for key in new:
        await server.enqueue(b"x", unique=key)


@on_shards(shards=("1", "2"))
async def test_of_many_old_keys_only_those_that_moved_are_counted_and_blocked(server: ShardedServer) -> None:
    """A queue may have any number of keys that are where they belong."""
    keys = [f"k{number}" for number in range(8_000)]
    moving = [key for key in keys if _moves(server, key)][:20]
    staying = [key for key in keys if rendezvous_home(key, ["1", "2", "3"]) != "3"][:4_980]
    for start in range(0, 5_000, 1_000):
        part = [*staying, *moving][start : start + 1_000]
        await server.enqueue(*[b"x"] * len(part), unique=part)
    with patch("pinlater.server.sharding.misplaced_keys._MISPLACED_MAX", 100):
        await server.replace(server.desired("1"), server.desired("2"), server.desired("3"))
        await server.learn(after_s=61)
    server.store("1").dead = "gone"
    await server.core.shard_monitor.ping_all()
    for key in moving:
        with pytest.raises(ShardConnectionFailed, match="it is unknown whether"):
            await server.enqueue(b"x", unique=key)
    new = [key for key in (f"new{number}" for number in range(40)) if server.shards.home_of("q", key).name != "1"]
    for key in new:
        await server.enqueue(b"x", unique=key)


@on_shards(shards=("1", "2"))
async def test_many_old_keys_are_read_in_several_turns(server: ShardedServer) -> None:
    """A server has other periodic work. Until all are read, any key may be on the shard."""
    first = {f"k{number}": await server.enqueue(b"x", unique=f"k{number}") for number in range(40)}
    await server.replace(server.desired("1"), server.desired("2"), server.desired("3"))
    moved = next(key for key in first if _moves(server, key))
    new = await key_for(server, "3", "new")
    with patch.multiple("pinlater.server.sharding.misplaced_keys", _TURN_S=0.0, _PAGE=10):
        await server.learn(after_s=61)
        asked = server.store("1").calls[FindUnique]
        await server.enqueue(b"x", unique=new)
        assert server.store("1").calls[FindUnique] > asked
        for _ in range(4):
            await server.learn()
    asked = server.store("1").calls[FindUnique]
    await server.enqueue(b"x", unique=f"{new}, another")
    assert server.store("1").calls[FindUnique] == asked
    assert (await server.enqueue(b"y", unique=moved)).descriptors == first[moved].descriptors


@on_shards(shards=("1", "2"))
async def test_of_too_many_misplaced_keys_each_key_of_their_queue_is_asked_for(server: ShardedServer) -> None:
    with patch("pinlater.server.sharding.misplaced_keys._MISPLACED_MAX", 1):
        first = {f"k{number}": await server.enqueue(b"x", unique=f"k{number}") for number in range(30)}
        await server.replace(server.desired("1"), server.desired("2"), server.desired("3"))
        await server.learn(after_s=61)
    assert sum(_moves(server, key) for key in first) > 1
    for key, enqueued in first.items():
        assert (await server.enqueue(b"y", unique=key)).descriptors == enqueued.descriptors
    server.store("1").dead = "gone"
    await server.core.shard_monitor.ping_all()
    with pytest.raises(ShardConnectionFailed, match="it is unknown whether"):
        await server.enqueue(b"x", unique=await key_for(server, "2", "new"))


@on_shards(shards=("1", "2"))
async def test_enqueues_of_one_key_before_and_after_a_change_make_one_job(server: ShardedServer) -> None:
    """The one that goes by the old map is still under way: the other waits for it, or it would not see its key."""
    server.store("3")
    key = next(key for key in (f"k{n}" for n in range(1000)) if _moves(server, key))
    fault = server.store("1").hangs(InsertJobs)
    first = asyncio.ensure_future(server.enqueue(b"x", unique=key))
    await server.turns()
    await server.replace(server.desired("1"), server.desired("2"), server.desired("3"))
    assert server.shards.home_of("q", key).name == "3"
    second = asyncio.ensure_future(server.enqueue(b"y", unique=key))
    await server.turns()
    assert not second.done()
    fault.release()
    await server.turns()
    assert first.result().descriptors == second.result().descriptors
    assert await jobs(server) == 1


def _moves(server: ShardedServer, key: str) -> bool:
    return rendezvous_home(key, ["1", "2"]) == "1" and rendezvous_home(key, ["1", "2", "3"]) == "3"


@on_shards(shards=("1", "2"))
async def test_a_unique_enqueue_of_many_keys_mixes_old_places_and_new_ones(server: ShardedServer) -> None:
    old = await server.enqueue(*[b"x"] * 10, unique=[f"k{number}" for number in range(10)])
    await server.replace(server.desired("1"), server.desired("2"), server.desired("3"))
    names = [None, *(f"k{number}" for number in range(20)), "k3", "k15"]
    enqueued = await server.enqueue(*[b"y"] * 23, unique=names)
    assert enqueued.descriptors[1:11] == old.descriptors
    assert enqueued.existing == [*range(1, 11), 21, 22]
    assert enqueued.descriptors[21] == enqueued.descriptors[4]
    assert enqueued.descriptors[22] == enqueued.descriptors[16]
    assert await jobs(server) == 21
    assert {shard_of(each) for each in enqueued.descriptors} == {"1", "2", "3"}


# --- calls that were given up ----------------------------------------------------------------------------------------------------


@on_shards()
async def test_a_repeat_is_refused_while_a_call_that_was_given_up_may_store_the_first_yet(
    server: ShardedServer,
) -> None:
    """The shard answers everything else: it is in use, and knows nothing of the request."""
    key = await key_for(server, "1")
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
    key = await key_for(server, "1")
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
    key = await key_for(server, "1")
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
    key = await key_for(server, "1")
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
