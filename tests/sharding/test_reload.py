"""The shard map changes while requests go on, and none is dropped."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime

import pytest

from pinlater.domain.errors import ShardConnectionFailed
from pinlater.domain.job import JobState, Outcome, UniqueScope
from pinlater.domain.queue import QueueConfig
from pinlater.server.operations.addressing import address
from pinlater.server.storage.commands import CountJobs, InsertJobs, ListQueues, LookupJobs, MergeQueues, create_queues
from pinlater.server.storage.sqlite.memory import MemoryShard
from pinlater.wire.generated.structs import (
    Ack,
    AckBatch,
    Claim,
    ClaimsRequest,
    CountRequest,
    Enqueued,
    EnqueueRequest,
    Job,
    LookupRequest,
)
from tests.contract.desk import Desk
from tests.sharding.faulty import FaultyShard
from tests.sharding.sharded_server import CALLER, ShardedServer, on_shards, run_on_shards, shard_of, shards_of

GRACE_S = 151


# --- added -----------------------------------------------------------------------------------------------------------------------


@on_shards(shards=("1", "2"))
async def test_a_new_shard_has_all_queues_before_it_gets_enqueues(server: ShardedServer) -> None:
    await server.service.queues.configure_queue("q", QueueConfig(claim_timeout_ms=7))
    await server.service.queues.create_queue("paused")
    await server.service.queues.set_paused("paused", True)
    fault = server.store("3").hangs(MergeQueues)
    replacing = asyncio.ensure_future(server.replace(server.desired("1"), server.desired("2"), server.desired("3")))
    await server.turns()
    assert fault.met.is_set()
    for _ in range(20):
        assert "3" not in shards_of(await server.enqueue(b"x"))
    fault.release()
    change = await replacing
    assert change.added == ["3"]
    assert list(await server.store("3").within.submit(ListQueues())) == list(
        await server.store("1").within.submit(ListQueues())
    )
    await server.put("3")


@on_shards(shards=("1", "2"))
async def test_a_waiting_dequeue_gets_the_jobs_of_a_new_shard(server: ShardedServer) -> None:
    """A shard that was removed too early may come back with jobs."""
    waiting = asyncio.ensure_future(server.dequeue(wait_ms=60_000))
    other = await _with_a_job("3")
    server.stores["3"] = other
    await server.turns()
    await server.replace(server.desired("1"), server.desired("2"), server.desired("3"))
    await server.turns()
    assert [shard_of(job.descriptor) for job in waiting.result().jobs] == ["3"]


@on_shards(shards=("1", "2"))
async def test_an_unreachable_new_shard_joins_when_it_answers(server: ShardedServer) -> None:
    server.store("3").dead = "refused"
    change = await server.replace(server.desired("1"), server.desired("2"), server.desired("3"))
    assert change.unopened == {"3": "refused"}
    for _ in range(20):
        assert "3" not in shards_of(await server.enqueue(b"x"))
    server.store("3").dead = None
    await server.pass_time(6_000)
    await server.put("3")


@on_shards(shards=("1",))
async def test_from_one_shard_to_several_and_back(server: ShardedServer) -> None:
    first = await server.enqueue(b"x", key="r")
    await server.replace(server.desired("1"), server.desired("2"))
    assert await server.enqueue(b"x", key="r", repeat=True) == first
    await server.service.queues.configure_queue("q", QueueConfig(partitions=2))
    await server.put("2")
    await server.replace(server.desired("1"), server.desired("2", takes_enqueues=False))
    for job in (await server.dequeue()).jobs:
        await server.ack(job.descriptor)
    server.clock.advance(seconds=GRACE_S)
    assert (await server.replace(server.desired("1"))).removed == ["2"]
    assert shards_of(await server.enqueue(b"x")) == ["1"]


@pytest.mark.parametrize("more", [{"key": "r"}, {"unique": "u"}])
def test_an_enqueue_with_a_key_that_fails_while_a_shard_comes_is_not_stored_there(more: dict[str, str]) -> None:
    """No server would look for its key there."""

    async def scenario(server: ShardedServer) -> None:
        fault = server.store("1").hangs(InsertJobs, error=ShardConnectionFailed("the connection is gone"))
        call = asyncio.ensure_future(server.enqueue(b"x", key=more.get("key"), unique=more.get("unique")))
        await fault.met.wait()
        await server.replace(server.desired("1"), server.desired("2"))
        fault.release()
        with pytest.raises(ShardConnectionFailed):
            await call
        assert await server.jobs_on("2") == 0

    run_on_shards(scenario, shards=("1",))


# --- draining --------------------------------------------------------------------------------------------------------------------


@on_shards()
async def test_a_shard_made_dequeue_only_gets_no_enqueues_and_serves_all_else(server: ShardedServer) -> None:
    job = await server.put("2")
    change = await server.replace(server.desired("1"), server.desired("2", takes_enqueues=False), server.desired("3"))
    assert change.draining == ["2"]
    for number in range(20):
        assert "2" not in shards_of(await server.enqueue(b"x"))
        assert "2" not in shards_of(await server.enqueue(b"x", key=f"k{number}"))
        assert "2" not in shards_of(await server.enqueue(b"x", unique=f"u{number}"))
    dequeued = await server.dequeue()
    [token] = [each.token for each in dequeued.jobs if each.descriptor == job]
    await server.service.claimed_jobs.heartbeat(ClaimsRequest("q", [Claim(job, token)]))
    await server.ack(job)
    assert (await server.service.job_queries.lookup(LookupRequest([job])))[job].state is JobState.SUCCEEDED
    change = await server.replace(server.desired("1"), server.desired("2"), server.desired("3"))
    assert change.taking_enqueues == ["2"]
    await server.put("2")


# --- removed ---------------------------------------------------------------------------------------------------------------------


def test_a_shard_with_live_jobs_is_kept_and_an_error_says_how_many(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pinlater.server.sharding")

    async def scenario(server: ShardedServer) -> None:
        jobs = [await server.put("2") for _ in range(3)]
        await server.dequeue(1)
        change = await server.replace(server.desired("1"), server.desired("3"))
        assert "3 live jobs" in change.kept["2"]
        assert "2" not in shards_of(await server.enqueue(*[b"x"] * 5))
        claimed = {job.descriptor for job in (await server.dequeue()).jobs}
        assert len(claimed & set(jobs)) == 2
        await server.ack(*jobs)
        server.clock.advance(seconds=GRACE_S)
        await server.core.shard_map.tidy()
        assert [shard.name for shard in server.shards] == ["1", "3"]
        await server.turns()
        assert server.store("2").closed == 1

    run_on_shards(scenario)
    [error] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert error.message == "a shard taken out of the map is kept"
    assert error.__dict__["shard"] == "2"
    assert "3 live jobs" in error.__dict__["reason"]


@on_shards()
async def test_a_shard_that_is_taken_out_stays_until_its_unique_keys_have_ended(server: ShardedServer) -> None:
    """Without it their jobs would be taken as new, though the keys' time is not over."""

    queue = await server.queue_for("2")

    async def enqueue() -> Enqueued:
        jobs = [Job(b"x", unique_key=f"k{n}", unique_scope=UniqueScope.TIME, unique_for_ms=600_000) for n in range(20)]
        return await server.service.enqueuing.enqueue(EnqueueRequest(queue, jobs))

    first = await enqueue()
    assert shards_of(first) == ["2"] * 20
    await server.dequeue(queue=queue)
    await server.ack(*first.descriptors)
    ended_at = server.clock.now_ms() + 600_000
    server.clock.advance(seconds=GRACE_S)
    await server.replace(server.desired("1"), server.desired("3"))
    server.clock.advance(seconds=GRACE_S)
    await server.core.shard_map.tidy()
    change = await server.replace(server.desired("1"), server.desired("3"))
    assert "it holds 20 unique keys" in change.kept["2"]
    assert datetime.fromtimestamp(ended_at // 1000, UTC).isoformat() in change.kept["2"]
    again = await enqueue()
    assert (again.descriptors, len(again.existing or ())) == (first.descriptors, 20)
    server.clock.advance(ms=ended_at - server.clock.now_ms())
    await server.core.shard_map.tidy()
    assert server.shards.get("2") is None
    assert (await enqueue()).existing is None


@on_shards()
async def test_an_empty_shard_goes_when_other_servers_have_had_time_to_learn_of_it(server: ShardedServer) -> None:
    """A server that still has the old map may put jobs there; and request keys are kept for two minutes."""
    change = await server.replace(server.desired("1"), server.desired("3"))
    assert "empty" in change.kept["2"]
    await server.core.shard_map.tidy()
    assert len(server.shards) == 3
    server.clock.advance(seconds=GRACE_S)
    await server.core.shard_map.tidy()
    assert len(server.shards) == 2
    assert server.shards.get("2") is None


@on_shards()
async def test_a_drained_shard_goes_at_once(server: ShardedServer) -> None:
    await server.replace(server.desired("1"), server.desired("2", takes_enqueues=False), server.desired("3"))
    server.clock.advance(seconds=GRACE_S)
    change = await server.replace(server.desired("1"), server.desired("3"))
    assert change.removed == ["2"]


@on_shards()
async def test_an_unreachable_shard_is_not_taken_for_empty(server: ShardedServer) -> None:
    await server.replace(server.desired("1"), server.desired("2", takes_enqueues=False), server.desired("3"))
    server.clock.advance(seconds=GRACE_S)
    server.store("2").dead = "gone"
    change = await server.replace(server.desired("1"), server.desired("3"))
    assert "can't be asked" in change.kept["2"]
    assert server.shards.get("2") is not None


@on_shards()
async def test_a_lost_shard_goes_at_once_and_its_unique_keys_and_requests_are_free(server: ShardedServer) -> None:
    """Otherwise every unique enqueue would be refused until the servers restart: an unreachable shard may hold any key."""
    await server.learn(after_s=61)
    job = await server.put("2")
    queue = await server.queue_for("2")
    first = await server.enqueue(b"x", unique="u", queue=queue)
    assert shards_of(first) == shards_of(await server.enqueue(b"x", key="r", queue=queue)) == ["2"]
    server.store("2").dead = "gone"
    await server.core.shard_monitor.ping_all()
    change = await server.replace(server.desired("1"), server.desired("2", lost=True), server.desired("3"))
    assert (change.removed, change.kept, change.lost) == (["2"], {}, ["2"])
    assert server.shards.get("2") is None
    again = await server.enqueue(b"x", unique="u", queue=queue)
    assert (shards_of(again) == ["2"], again.existing) == (False, None)
    assert again.descriptors != first.descriptors
    assert "2" not in shards_of(await server.enqueue(b"x", key="r", repeat=True, queue=queue))
    assert list(await server.service.job_queries.lookup(LookupRequest([job]))) == []
    [result] = await server.service.claimed_jobs.acknowledge(CALLER, AckBatch("q", [Ack(job)]))
    assert result.outcome == Outcome.NOT_FOUND


@on_shards()
async def test_a_lost_shard_that_answers_keeps_its_jobs_and_goes_only_when_it_is_empty(server: ShardedServer) -> None:
    """The operator may be wrong, or the database may be back."""
    job = await server.put("2")
    lost = (server.desired("1"), server.desired("2", lost=True), server.desired("3"))
    change = await server.replace(*lost)
    assert "1 live job" in change.kept["2"]
    assert "2" not in shards_of(await server.enqueue(*[b"x"] * 5))
    assert job in {each.descriptor for each in (await server.dequeue()).jobs}
    server.store("2").dead = "gone"
    gone = await server.core.shard_map.tidy()
    assert (gone.removed, gone.lost) == (["2"], ["2"])


@on_shards()
async def test_an_unreachable_shard_without_an_entry_is_marked_as_lost_by_a_new_entry(server: ShardedServer) -> None:
    server.store("2").dead = "gone"
    change = await server.replace(server.desired("1"), server.desired("3"))
    assert "lostForGood" in change.kept["2"]
    change = await server.replace(server.desired("1"), server.desired("2", lost=True), server.desired("3"))
    assert change.removed == ["2"]
    change = await server.replace(server.desired("1"), server.desired("2", lost=True), server.desired("3"))
    assert not any(change)


@on_shards()
async def test_a_shard_that_is_no_longer_called_lost_is_used_again(server: ShardedServer) -> None:
    server.store("2").dead = "gone"
    await server.replace(server.desired("1"), server.desired("2", lost=True), server.desired("3"))
    server.store("2").dead = None
    change = await server.replace(server.desired("1"), server.desired("2"), server.desired("3"))
    assert change.added == ["2"]
    await server.put("2")


@on_shards(shards=("1",))
async def test_a_server_starts_without_a_lost_shard(server: ShardedServer) -> None:
    other = ShardedServer(server.clock)
    await other.open([other.desired("1"), other.desired("2", lost=True)])
    assert [shard.name for shard in other.shards] == ["1"]
    assert other.store("2").calls["open"] == 0
    await other.close()


@on_shards()
async def test_a_shard_that_comes_back_into_the_file_before_it_went_is_as_before(server: ShardedServer) -> None:
    await server.replace(server.desired("1"), server.desired("3"))
    await server.replace(server.desired("1"), server.desired("2"), server.desired("3"))
    await server.put("2")
    assert server.store("2").calls["open"] == 1


@on_shards()
async def test_a_lookup_of_a_job_on_a_removed_shard_finds_nothing(server: ShardedServer) -> None:
    job = await server.put("2")
    await server.dequeue()
    await server.ack(job)
    await server.replace(server.desired("1"), server.desired("2", takes_enqueues=False), server.desired("3"))
    server.clock.advance(seconds=GRACE_S)
    await server.replace(server.desired("1"), server.desired("3"))
    assert list(await server.service.job_queries.lookup(LookupRequest([job]))) == []


@pytest.mark.parametrize("names", [(), ("1", "1")])
def test_a_map_without_shards_or_with_two_of_a_name_is_refused(names: tuple[str, ...]) -> None:
    async def scenario(server: ShardedServer) -> None:
        with pytest.raises(ValueError, match="shard"):
            await server.replace(*[server.desired(name) for name in names])
        assert len(server.shards) == 3

    run_on_shards(scenario)


# --- moved -----------------------------------------------------------------------------------------------------------------------


async def _with_a_job(name: str) -> FaultyShard:
    desk = Desk(lambda: MemoryShard(name))
    await desk.open()
    await desk.shard.submit(create_queues(["q"], desk.now))
    await desk.put(queue="q")
    return FaultyShard(desk.shard)


@on_shards()
async def test_requests_go_to_a_shards_new_address_and_the_old_one_finishes_and_closes(server: ShardedServer) -> None:
    old = server.store("2")
    fault = old.hangs(InsertJobs)
    before = []
    while not fault.met.is_set():
        before.append(asyncio.ensure_future(server.enqueue(b"old")))
        await server.turns()
    behind = []
    for _ in range(30):  # what comes in one turn of the loop goes to one shard
        behind.append(asyncio.ensure_future(server.enqueue(b"behind")))
        await server.turns()
    new = server.stores["2"] = FaultyShard(MemoryShard("2"))
    change = await server.replace(server.desired("1"), server.desired("2", address="elsewhere"), server.desired("3"))
    assert change.moved == ["2"]
    await server.turns()
    assert all(task.done() for task in behind)  # what had not begun went along
    assert await server.jobs_on("2") == sum(shards_of(task.result()) == ["2"] for task in behind) > 0
    assert old.closed == 0
    fault.release()
    await server.turns()
    assert all(task.result() for task in before)
    await server.turns()
    assert old.closed == 1
    assert new.closed == 0
    await server.put("2")


@on_shards()
async def test_a_reference_to_the_replaced_shard_reaches_the_new_one(server: ShardedServer) -> None:
    """For the moments between looking a shard up and calling it."""
    stale = server.lanes("2")
    server.stores["2"] = FaultyShard(MemoryShard("2"))
    await server.replace(server.desired("1"), server.desired("2", address="elsewhere"), server.desired("3"))
    job = await server.put("2")
    [(_, counts)] = await stale.store.submit(CountJobs(["q"]))
    assert counts.pending == 1
    [part] = address(server.shards, "q", [job], 10)
    [found] = await stale.store.submit(LookupJobs(part.keys, bodies=True))
    assert found is not None
    assert await stale.finish.submit([]) == []


@on_shards()
async def test_a_failover_to_an_address_that_does_not_answer_yet(server: ShardedServer) -> None:
    """The old one is not written to any more."""
    old = server.store("2")
    old.stops()
    server.stores["2"] = FaultyShard(MemoryShard("2"))
    server.store("2").dead = "starting"
    change = await server.replace(server.desired("1"), server.desired("2", address="elsewhere"), server.desired("3"))
    assert change.unopened == {"2": "starting"}
    calls = dict(old.calls)
    for _ in range(20):
        assert "2" not in shards_of(await server.enqueue(b"x"))
    with pytest.raises(ShardConnectionFailed):
        await server.service.job_queries.lookup(LookupRequest(["q:s2:p1:5"]))
    assert {name: number for name, number in old.calls.items() if name != "close"} == calls
    server.store("2").dead = None
    await server.pass_time(8_000)
    await server.put("2")


@pytest.mark.parametrize("when", ["at once", "later"])
def test_a_move_to_where_none_of_the_queues_is_is_an_error_in_the_log(
    when: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A typing error in the address would otherwise show only as jobs that are out of sight. A replica has the queues."""

    async def scenario(server: ShardedServer) -> None:
        await server.replace(server.desired("1"), server.desired("2", address="a replica"), server.desired("3"))
        assert "holds none" not in caplog.text
        server.stores["2"] = FaultyShard(MemoryShard("2"))
        server.store("2").dead = None if when == "at once" else "starting"
        await server.replace(server.desired("1"), server.desired("2", address="a slip"), server.desired("3"))
        server.store("2").dead = None
        await server.pass_time(8_000)
        await server.put("2")

    run_on_shards(scenario)
    [record] = [record for record in caplog.records if "holds none of its queues" in record.message]
    assert (record.levelno, record.__dict__["shard"]) == (logging.ERROR, "2")


@on_shards()
async def test_ids_go_on_growing_after_a_move(server: ShardedServer) -> None:
    job = await server.put("2")
    server.stores["2"] = FaultyShard(MemoryShard("2"))
    await server.replace(server.desired("1"), server.desired("2", address="elsewhere"), server.desired("3"))
    assert int((await server.put("2")).split(":")[3]) > int(job.split(":")[3])


@on_shards()
async def test_no_request_fails_while_the_map_changes_again_and_again(server: ShardedServer) -> None:
    """Enqueues, waiting dequeues, acks, lookups, through moves, drains, removals and returns."""
    over = asyncio.Event()
    stored: list[str] = []
    acked: set[str] = set()

    async def produce() -> None:
        while not over.is_set():
            stored.extend((await server.enqueue(b"x", b"y")).descriptors)
            await server.turns(3)

    async def consume() -> None:
        while not over.is_set() or len(acked) < len(stored):
            for job in (await server.dequeue(5, wait_ms=50)).jobs:
                await server.ack(job.descriptor)
                acked.add(job.descriptor)
            await server.turns(2)

    work = [asyncio.ensure_future(each()) for each in (produce, produce, consume, consume, consume)]
    for number in range(12):
        shard, address = "123"[number % 3], f"address {number}"
        await server.replace(*[server.desired(name, takes_enqueues=name != shard) for name in "123"])
        await server.pass_time(1_000)
        # The data stays where it is, as behind a name that points elsewhere now.
        server.stores[shard] = FaultyShard(server.store(shard).within)
        before = [server.desired(name, address=server.lanes(name).address) for name in "123" if name != shard]
        await server.replace(*before, server.desired(shard, address=address))
        await server.pass_time(1_000)
    over.set()
    for _ in range(50):
        if all(task.done() for task in work):
            break
        await server.pass_time(200)
    await asyncio.gather(*work)
    assert len(stored) > 100
    assert acked == set(stored)
    assert await server.service.job_queries.count(CountRequest("q", JobState.SUCCEEDED)) == len(stored)
