"""Shards that err, hang or are gone: the others go on serving, and what is lost for the moment is said."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from random import Random

import pytest
from msgspec.structs import replace

from pinlater.domain.errors import (
    EnqueueRejected,
    NoHealthyShards,
    OutcomeUnknown,
    ShardConnectionFailed,
    StoreFull,
)
from pinlater.domain.job import JobState, Outcome
from pinlater.server.operations.job_settings import JobSettings
from pinlater.server.storage.commands import (
    CheckpointJobs,
    ClaimJobs,
    CountJobs,
    ExtendClaims,
    FinishJobs,
    InsertJobs,
    ReleaseJobs,
    TimeOutClaims,
)
from pinlater.wire.generated.structs import (
    Checkpoint,
    CheckpointBatch,
    Claim,
    ClaimsRequest,
    CountRequest,
    DeleteRequest,
    JobCount,
    LookupRequest,
    ReleaseRequest,
    ScanRequest,
)
from tests.sharding.sharded_server import CALLER, ShardedServer, on_shards, run_on_shards, shard_of, shards_of


class InOrder(Random):
    """Makes shards that are as good as each other come in the order of the map."""

    def __init__(self) -> None:
        super().__init__()
        self._steps = 0

    def random(self) -> float:
        """Ever a little more, and never 1."""
        self._steps += 1
        return 1 - 1 / self._steps


# --- enqueues --------------------------------------------------------------------------------------------------------------------


@on_shards()
async def test_an_enqueue_goes_to_another_shard_if_its_shard_has_surely_stored_nothing(server: ShardedServer) -> None:
    server.store("1").dead = server.store("2").dead = "connection refused"
    for _ in range(10):
        assert shards_of(await server.enqueue(b"x", b"y")) == ["3", "3"]
    assert await server.jobs_on("1") == await server.jobs_on("2") == 0
    assert await server.jobs_on("3") == 20


@on_shards()
async def test_no_enqueue_fails_because_one_shard_is_full(server: ShardedServer) -> None:
    """And gets no enqueue for a second."""
    fault = server.store("1").fails(InsertJobs, error=StoreFull.of("disk"), times=100)
    for _ in range(30):
        assert shard_of((await server.enqueue(b"x")).descriptors[0]) in "23"
    assert fault.met_times == 1
    assert server.lanes("1").healthy
    server.clock.advance(seconds=1)
    for _ in range(30):
        await server.enqueue(b"x")
    assert fault.met_times == 2


@on_shards(shards=("1", "2"))
async def test_a_shard_that_was_full_gets_its_share_again(server: ShardedServer) -> None:
    server.store("1").fails(InsertJobs, error=StoreFull.of("disk"))
    while not server.lanes("1").fullness.full:
        await server.enqueue(b"x")
    server.clock.advance(seconds=1)
    before = await server.jobs_on("1")
    for _ in range(1_000):
        await server.enqueue(b"x")
    assert 400 < await server.jobs_on("1") - before < 600


def test_that_a_shard_is_full_is_logged_and_shown_until_it_has_stored_jobs_for_ten_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A shard near its limit stores and refuses by turns, which is one time of being full and not many."""
    caplog.set_level(logging.INFO, "pinlater.server.sharding")

    async def scenario(server: ShardedServer) -> None:
        assert shown(server) == {"1": 0}
        for _ in range(3):
            server.store("1").fails(InsertJobs, error=StoreFull.of("used up"))
            with pytest.raises(StoreFull):
                await server.enqueue(b"x")
            assert shown(server) == {"1": 1}
            await server.enqueue(b"x")
            server.clock.advance(seconds=9)
        assert shown(server) == {"1": 1}
        server.clock.advance(seconds=1)
        await server.enqueue(b"x")
        assert shown(server) == {"1": 0}

        server.store("1").fails(InsertJobs, error=StoreFull.of("used up"))
        with pytest.raises(StoreFull):
            await server.enqueue(b"x")
        server.lanes("1").close_to_enqueues()  # only drained from now on, it refuses none
        assert shown(server) == {"1": 0}

    def shown(server: ShardedServer) -> Mapping[str, float]:
        gauges = {reading.gauge.prometheus: reading.values for reading in server.core.metrics.read_gauges()}
        return gauges["pinlater_shard_full"]

    run_on_shards(scenario, shards=("1",))
    said = [(record.levelname, record.message, getattr(record, "reason", None)) for record in caplog.records]
    said = [line for line in said if "enqueues" in line[1]]
    assert said == [
        ("WARNING", "a shard is full and refuses enqueues", StoreFull.of("used up").message),
        ("INFO", "a shard takes enqueues again", None),
        ("WARNING", "a shard is full and refuses enqueues", StoreFull.of("used up").message),
    ]


@on_shards()
async def test_with_every_shard_full_the_enqueue_says_so(server: ShardedServer) -> None:
    for name in "123":
        server.store(name).fails(InsertJobs, error=StoreFull.of("disk"), times=100)
    with pytest.raises(StoreFull):
        await server.enqueue(b"x")


@on_shards()
async def test_an_enqueue_of_unknown_outcome_is_not_stored_on_another_shard(server: ShardedServer) -> None:
    """The connection went between COMMIT and its answer."""
    for name in "123":
        server.store(name).fails(InsertJobs, error=OutcomeUnknown("lost"), done_first=True)
    with pytest.raises(OutcomeUnknown):
        await server.enqueue(b"x")
    assert sum([await server.jobs_on(name) for name in "123"]) == 1


@on_shards()
async def test_a_hung_insert_is_given_up_and_those_behind_it_go_to_other_shards(server: ShardedServer) -> None:
    """Nothing is known of the one under way; the others have not begun."""
    fault = server.store("1").hangs(InsertJobs)
    calls = []
    while not fault.met.is_set():
        calls.append(asyncio.ensure_future(server.enqueue(b"first")))
        await server.turns()
    behind = []
    for _ in range(30):  # what comes in one turn of the loop goes to one shard
        behind.append(asyncio.ensure_future(server.enqueue(b"behind")))
        await server.turns()
    assert not all(task.done() for task in behind)
    await server.pass_time(server.settings.stall_ms + 400)
    assert {shard_of(task.result().descriptors[0]) for task in behind} == {"2", "3"}
    assert sum(not task.done() for task in calls) == 1
    await server.pass_time(server.settings.call_timeout_ms)
    [lost] = [task for task in calls if task.exception() is not None]
    assert isinstance(lost.exception(), OutcomeUnknown)


@on_shards()
async def test_nothing_is_sent_to_a_shard_that_has_come_to_a_stall(server: ShardedServer) -> None:
    fault = server.store("1").hangs(InsertJobs)
    calls = []
    while not fault.met.is_set():
        calls.append(asyncio.ensure_future(server.enqueue(b"first")))
        await server.turns()
    await server.pass_time(server.settings.stall_ms + 400)
    assert server.lanes("1").healthy  # it answers pings
    assert not server.lanes("1").usable
    for _ in range(20):
        assert "1" not in shards_of(await server.enqueue(b"x"))
    fault.release()
    await asyncio.gather(*calls)
    await server.pass_time(400)
    assert server.lanes("1").usable
    assert server.counted("shard_stalled_1") == 1


@on_shards(draining=("2", "3"))
async def test_the_only_shard_that_takes_enqueues_is_waited_for_though_it_is_slow(server: ShardedServer) -> None:
    fault = server.store("1").hangs(InsertJobs)
    calls = [asyncio.ensure_future(server.enqueue(b"x")) for _ in range(2)]
    await server.turns()
    await server.pass_time(2_000)
    assert not any(task.done() for task in calls)
    fault.release()
    await server.turns()
    assert [shards_of(task.result()) for task in calls] == [["1"], ["1"]]


@on_shards(draining=("1", "2", "3"))
async def test_with_every_shard_draining_enqueues_are_rejected(server: ShardedServer) -> None:
    for more in ({}, {"key": "k"}, {"unique": "u"}):
        with pytest.raises(EnqueueRejected):
            await server.enqueue(b"x", **more)  # type: ignore[arg-type]


@on_shards()
async def test_no_healthy_shards_only_when_none_is_left(server: ShardedServer) -> None:
    for name in "12":
        server.lanes(name).put_out_of_use("test")
    await server.enqueue(b"x")
    assert len((await server.dequeue()).jobs) == 1
    server.lanes("3").put_out_of_use("test")
    for call in (
        server.enqueue(b"x"),
        server.enqueue(b"x", key="k"),
        server.dequeue(),
        server.service.job_queries.count(_PENDING),
    ):
        with pytest.raises(NoHealthyShards):
            await call


@on_shards(service=JobSettings(max_backlog=30))
async def test_a_queues_bound_holds_over_all_shards_together(server: ShardedServer) -> None:
    for _ in range(30):
        await server.enqueue(b"x")
    with pytest.raises(EnqueueRejected):
        await server.enqueue(b"x")


# --- dequeues --------------------------------------------------------------------------------------------------------------------


@on_shards()
async def test_a_hung_shard_holds_up_no_dequeue_for_long_and_its_late_claim_is_given_back(
    server: ShardedServer,
) -> None:
    for name in "123":
        await server.put(name)
    fault = server.store("2").hangs(ClaimJobs, done_first=True)
    dequeued = await server.within(server.settings.stall_ms + 400, server.dequeue())
    assert sorted(shard_of(job.descriptor) for job in dequeued.jobs) == ["1", "3"]
    assert await server.in_progress_on("2") == 1  # claimed, but no worker has it
    fault.release()
    await server.turns()
    assert await server.in_progress_on("2") == 0
    await server.pass_time(400)
    assert [shard_of(job.descriptor) for job in (await server.dequeue()).jobs] == ["2"]


@on_shards()
async def test_a_waiting_dequeue_gets_jobs_of_other_shards_while_one_is_slow(server: ShardedServer) -> None:
    """Jobs of a late claim there are given back."""
    await server.put("2")
    await server.replace(server.desired("3"), *[server.desired(name, takes_enqueues=False) for name in "12"])
    fault = server.store("2").hangs(ClaimJobs, done_first=True)
    waiting = asyncio.ensure_future(server.dequeue(wait_ms=10_000))
    await server.pass_time(server.settings.slow_ms + 5)
    assert not waiting.done()
    await server.enqueue(b"x")
    await server.turns()
    assert [shard_of(job.descriptor) for job in waiting.result().jobs] == ["3"]
    fault.release()
    await server.turns()
    assert await server.in_progress_on("2") == 0


@on_shards()
async def test_a_waiting_dequeue_returns_the_jobs_it_has_when_a_shard_is_slow(server: ShardedServer) -> None:
    """Otherwise the other shards' jobs would be held by a server that does not answer."""
    await server.put("1")
    await server.put("3")
    server.store("2").hangs(ClaimJobs)
    server.shards.random = InOrder()
    dequeued = await server.within(server.settings.slow_ms + 5, server.dequeue(wait_ms=10_000))
    assert {shard_of(job.descriptor) for job in dequeued.jobs} == {"1", "3"}


@on_shards(draining=("1", "2"))
async def test_a_wake_at_the_slow_shard_is_not_lost_when_its_waiter_goes(server: ShardedServer) -> None:
    fault = server.store("2").hangs(ClaimJobs)
    first = asyncio.ensure_future(server.dequeue(wait_ms=10_000))
    await server.pass_time(server.settings.slow_ms + 5)
    second = asyncio.ensure_future(server.dequeue(wait_ms=10_000))
    await server.pass_time(server.settings.slow_ms + 5)
    put = asyncio.ensure_future(server.enqueue(b"x"))
    while not put.done():
        await asyncio.sleep(0)
    first.cancel()  # it was woken, and has not looked yet
    await server.turns()
    assert [shard_of(job.descriptor) for job in second.result().jobs] == ["3"]
    fault.release()


@on_shards()
async def test_a_slow_shard_is_asked_last(server: ShardedServer) -> None:
    server.store("2").hangs(ClaimJobs)
    stuck = asyncio.ensure_future(server.dequeue())
    await server.pass_time(server.settings.slow_ms + 5)
    assert not stuck.done()
    for name in "13" * 10:
        await server.put(name)
        assert [shard_of(job.descriptor) for job in (await server.dequeue(limit=1)).jobs] == [name]
    stuck.cancel()


@on_shards()
async def test_a_claim_that_was_given_up_is_released_once_the_shard_is_back(server: ShardedServer) -> None:
    """It came to an end while the shard was out of use."""
    await server.put("2")
    fault = server.store("2").hangs(ClaimJobs, done_first=True)
    assert not (await server.within(1_600, server.dequeue())).jobs
    server.store("2").dead = "gone"
    await server.pass_time(server.settings.call_timeout_ms)
    assert not server.lanes("2").healthy
    fault.release()
    await server.turns()
    assert await server.in_progress_on("2") == 1
    server.store("2").dead = None
    await server.pass_time(20_000)
    assert await server.in_progress_on("2") == 0
    assert len((await server.dequeue()).jobs) == 1


@on_shards()
async def test_a_dequeue_fails_only_where_every_shard_fails(server: ShardedServer) -> None:
    server.store("1").fails(ClaimJobs)
    server.store("2").fails(ClaimJobs)
    assert (await server.dequeue()).jobs == []
    for name in "123":
        server.store(name).fails(ClaimJobs)
    with pytest.raises(ShardConnectionFailed):
        await server.dequeue()


@on_shards()
async def test_a_waiting_dequeue_gets_a_job_when_its_shard_is_reachable_again(server: ShardedServer) -> None:
    await server.put("2")
    server.store("2").dead = "gone"
    await server.core.shard_monitor.ping_all()
    assert not server.lanes("2").healthy
    waiting = asyncio.ensure_future(server.dequeue(wait_ms=60_000))
    await server.pass_time(3_000)
    assert not waiting.done()
    server.store("2").dead = None
    await server.pass_time(6_000)
    assert [shard_of(job.descriptor) for job in waiting.result().jobs] == ["2"]


@on_shards()
async def test_a_waiting_dequeue_asks_a_shard_again_after_a_failed_claim(server: ShardedServer) -> None:
    """After one lost connection no other event would wake them."""
    await server.put("2")
    server.store("2").fails(ClaimJobs)
    waiting = asyncio.ensure_future(server.dequeue(wait_ms=60_000))
    await server.turns()
    assert not waiting.done()
    await server.pass_time(1_200)
    assert len(waiting.result().jobs) == 1


@on_shards()
async def test_a_dry_run_shows_what_the_others_have(server: ShardedServer) -> None:
    for name in "123":
        await server.put(name)
    server.store("1").dead = "gone"
    shown = await server.dequeue(dry_run=True)
    assert sorted(shard_of(job.descriptor) for job in shown.jobs) == ["2", "3"]


# --- jobs in hand ----------------------------------------------------------------------------------------------------------------


@on_shards()
async def test_acks_on_other_shards_are_done_though_one_hangs(server: ShardedServer) -> None:
    """At once, not after it."""
    jobs = [await server.put(name) for name in "123"]
    await server.dequeue()
    server.store("1").hangs(FinishJobs)
    acking = asyncio.ensure_future(server.ack(*jobs))
    await server.turns()
    assert [await server.in_progress_on(name) for name in "123"] == [1, 0, 0]
    await server.pass_time(server.settings.call_timeout_ms + 400)
    assert isinstance(acking.exception(), OutcomeUnknown)


@on_shards()
async def test_repeating_an_ack_is_safe(server: ShardedServer) -> None:
    job = await server.put("1")
    await server.dequeue()
    server.store("1").fails(FinishJobs, error=OutcomeUnknown("lost"), done_first=True)
    with pytest.raises(OutcomeUnknown):
        await server.ack(job)
    await server.ack(job)
    assert await server.service.job_queries.count(CountRequest("q", JobState.SUCCEEDED)) == 1


@on_shards()
async def test_calls_that_need_an_unreachable_shard_fail_at_once(server: ShardedServer) -> None:
    jobs = {name: await server.put(name) for name in "123"}
    tokens = {shard_of(job.descriptor): job.token for job in (await server.dequeue()).jobs}
    server.lanes("2").put_out_of_use("test")
    both = [jobs["2"], jobs["3"]]
    calls = (
        server.service.job_queries.lookup(LookupRequest(both, True)),
        server.service.claimed_jobs.heartbeat(ClaimsRequest("q", [Claim(jobs["2"], tokens["2"])])),
        server.service.claimed_jobs.checkpoint(CALLER, CheckpointBatch("q", [Checkpoint(jobs["2"])])),
        server.service.claimed_jobs.release(ReleaseRequest("q", [Claim(jobs["2"], tokens["2"])], 0)),
        server.service.claimed_jobs.cancel("q", both),
        server.service.bulk.delete_jobs_by_descriptor("q", both),
    )
    for call in calls:
        with pytest.raises(ShardConnectionFailed, match="Shard 2 is unreachable"):
            await call
    assert await server.jobs_on("3") == 0  # what could be done was


@on_shards()
async def test_thousands_of_heartbeats_share_a_few_calls(server: ShardedServer) -> None:
    """And checkpoints, and releases."""
    jobs = [await server.put("1") for _ in range(50)]
    tokens = {job.descriptor: job.token for job in (await server.dequeue()).jobs}

    async def each(job: str) -> None:
        await server.service.claimed_jobs.heartbeat(ClaimsRequest("q", [Claim(job, tokens[job])]))
        await server.service.claimed_jobs.checkpoint(
            CALLER, CheckpointBatch("q", [Checkpoint(job, token=tokens[job], new_body=b"half")])
        )
        [result] = await server.service.claimed_jobs.release(ReleaseRequest("q", [Claim(job, tokens[job])], 0))
        assert result.outcome == Outcome.APPLIED

    await asyncio.gather(*(each(job) for job in jobs))
    for method in (ExtendClaims, CheckpointJobs, ReleaseJobs):
        assert server.store("1").calls[method] <= 3
    assert {job.body for job in (await server.service.job_queries.lookup(LookupRequest(jobs, True))).values()} == {
        b"half"
    }


# --- everything else --------------------------------------------------------------------------------------------------------------


@on_shards()
async def test_counts_scans_and_deletes_answer_for_the_rest_when_a_shard_fails_on_the_way(
    server: ShardedServer,
) -> None:
    for name in "123":
        await server.put(name)
    server.store("2").dead = "gone"
    assert await server.service.job_queries.count(_PENDING) == 2
    scanned = await server.service.job_queries.scan(ScanRequest("q", JobState.PENDING))
    assert (len(scanned.jobs), scanned.incomplete) == (2, True)
    assert await server.service.job_queries.count(replace(_PENDING, regex="x")) == 2
    assert await server.service.job_queries.count_jobs(_PENDING) == JobCount(2, incomplete=True)
    assert await server.service.job_queries.count_jobs(replace(_PENDING, regex="x")) == JobCount(2, incomplete=True)
    assert await server.service.bulk.delete_jobs(DeleteRequest("q", JobState.PENDING, limit=10)) == 2
    [stats] = await server.service.queues.queue_stats(["q"])
    assert stats.incomplete
    assert sum(row.pending for row in stats.counts) == 0
    assert server.counted("shards_left_out") >= 5


@on_shards()
async def test_a_hung_shard_is_left_out_of_a_count_after_its_time_limit(server: ShardedServer) -> None:
    for name in "123":
        await server.put(name)
    server.store("2").hangs(CountJobs)
    assert await server.within(server.settings.work_timeout_ms + 400, server.service.job_queries.count(_PENDING)) == 2


@on_shards()
async def test_sweeps_continue_on_other_shards_while_one_hangs(server: ShardedServer) -> None:
    for name in "123":
        await server.put(name)
    await server.dequeue()
    server.clock.advance(hours=1)
    server.store("1").hangs(TimeOutClaims)
    sweeping = asyncio.ensure_future(server.core.sweeps.time_out_claims())
    await server.turns()
    assert [await server.in_progress_on(name) for name in "123"] == [1, 0, 0]
    await server.pass_time(server.settings.work_timeout_ms + 400)
    assert isinstance(sweeping.exception(), OutcomeUnknown)


@on_shards()
async def test_a_sample_keeps_what_a_lost_shard_said_last(server: ShardedServer) -> None:
    """Otherwise the totals, and the rates made of them, would fall and rise by all it holds. The gauge of that shard alone is absent."""
    for name in "123":
        await server.put(name)
    await server.core.rates.sample()
    server.store("2").dead = "gone"
    with pytest.raises(ShardConnectionFailed):
        await server.core.rates.sample()
    await server.core.shard_monitor.ping_all()
    await server.core.rates.sample()
    [(_, counts)] = server.core.rates.counts
    assert counts.pending == 3
    shown = {reading.gauge.prometheus: reading.values for reading in server.core.metrics.read_gauges()}
    assert shown["pinlater_shard_healthy"] == {"1": 1.0, "2": 0.0, "3": 1.0}
    assert shown["pinlater_shard_jobs_live"] == {"1": 1, "3": 1}


@on_shards()
async def test_the_queue_cache_is_refreshed_from_the_shards_that_answer(server: ShardedServer) -> None:
    server.store("1").dead = "gone"
    await server.service.queue_cache.refresh()
    assert list(server.service.queue_cache.queues) == ["q"]
    for name in "123":
        server.store(name).dead = "gone"
    with pytest.raises(ShardConnectionFailed):
        await server.service.queue_cache.refresh()
    assert list(server.service.queue_cache.queues) == ["q"]


_PENDING = CountRequest("q", JobState.PENDING)


@on_shards()
async def test_a_woken_dequeue_asks_only_the_shard_that_got_the_job(server: ShardedServer) -> None:
    for _ in range(10):
        waiting = asyncio.ensure_future(server.dequeue(1, wait_ms=60_000))
        await server.turns()
        before = {name: server.store(name).calls[ClaimJobs] for name in "123"}
        [shard] = shards_of(await server.enqueue(b"x"))
        await server.turns()
        [job] = waiting.result().jobs
        await server.ack(job.descriptor)
        assert {name for name in "123" if server.store(name).calls[ClaimJobs] != before[name]} == {shard}
