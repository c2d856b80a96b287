"""Shards that err, hang or are gone: the others go on serving, and what is lost for the moment is said."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from random import Random

import pytest

from pinlater.domain.calls import Checkpoint, Claim, JobCount
from pinlater.domain.errors import (
    EnqueueRejected,
    NoHealthyShards,
    OutcomeUnknown,
    ShardConnectionFailed,
    StoreFull,
)
from pinlater.domain.job import JobState
from pinlater.server.operations.settings import ServiceSettings
from pinlater.server.operations.values import JobFilter, ScanCommand
from tests.sharding.farm import CALLER, Farm, on_farm, play, shard_of, shards_of


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


@on_farm()
async def test_an_enqueue_goes_to_another_shard_if_its_shard_has_surely_stored_nothing(farm: Farm) -> None:
    farm.store("1").dead = farm.store("2").dead = "connection refused"
    for _ in range(10):
        assert shards_of(await farm.enqueue(b"x", b"y")) == ["3", "3"]
    assert await farm.jobs_on("1") == await farm.jobs_on("2") == 0
    assert await farm.jobs_on("3") == 20


@on_farm()
async def test_no_enqueue_fails_because_one_shard_is_full(farm: Farm) -> None:
    """And gets no enqueue for a second."""
    fault = farm.store("1").hangs("insert_jobs", error=StoreFull.of("disk"))
    fault._released.set()
    for _ in range(30):
        assert shard_of((await farm.enqueue(b"x")).descriptors[0]) in "23"
    assert fault.met_times == 1
    assert farm.lanes("1").healthy
    farm.clock.advance(seconds=1)
    for _ in range(30):
        await farm.enqueue(b"x")
    assert fault.met_times == 2


@on_farm(shards=("1", "2"))
async def test_a_shard_that_was_full_gets_its_share_again(farm: Farm) -> None:
    farm.store("1").fails("insert_jobs", error=StoreFull.of("disk"))
    while not farm.lanes("1").full:
        await farm.enqueue(b"x")
    farm.clock.advance(seconds=1)
    before = await farm.jobs_on("1")
    for _ in range(1_000):
        await farm.enqueue(b"x")
    assert 400 < await farm.jobs_on("1") - before < 600


def test_that_a_shard_is_full_is_logged_and_shown_until_it_has_stored_jobs_for_ten_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A shard near its limit stores and refuses by turns, which is one time of being full and not many."""
    caplog.set_level(logging.INFO, "pinlater.server.sharding")

    async def scenario(farm: Farm) -> None:
        assert shown(farm) == {"1": 0}
        for _ in range(3):
            farm.store("1").fails("insert_jobs", error=StoreFull.of("used up"))
            with pytest.raises(StoreFull):
                await farm.enqueue(b"x")
            assert shown(farm) == {"1": 1}
            await farm.enqueue(b"x")
            farm.clock.advance(seconds=9)
        assert shown(farm) == {"1": 1}
        farm.clock.advance(seconds=1)
        await farm.enqueue(b"x")
        assert shown(farm) == {"1": 0}

        farm.store("1").fails("insert_jobs", error=StoreFull.of("used up"))
        with pytest.raises(StoreFull):
            await farm.enqueue(b"x")
        farm.lanes("1").close_to_enqueues()  # only drained from now on, it refuses none
        assert shown(farm) == {"1": 0}

    def shown(farm: Farm) -> Mapping[str, float]:
        gauges = {reading.gauge.prometheus: reading.values for reading in farm.core.metrics.read_gauges()}
        return gauges["pinlater_shard_full"]

    play(scenario, shards=("1",))
    said = [(record.levelname, record.message, getattr(record, "reason", None)) for record in caplog.records]
    said = [line for line in said if "enqueues" in line[1]]
    assert said == [
        ("WARNING", "a shard is full and refuses enqueues", StoreFull.of("used up").message),
        ("INFO", "a shard takes enqueues again", None),
        ("WARNING", "a shard is full and refuses enqueues", StoreFull.of("used up").message),
    ]


@on_farm()
async def test_with_every_shard_full_the_enqueue_says_so(farm: Farm) -> None:
    for name in "123":
        farm.store(name).hangs("insert_jobs", error=StoreFull.of("disk"))._released.set()
    with pytest.raises(StoreFull):
        await farm.enqueue(b"x")


@on_farm()
async def test_an_enqueue_of_unknown_outcome_is_not_stored_on_another_shard(farm: Farm) -> None:
    """The connection went between COMMIT and its answer."""
    for name in "123":
        farm.store(name).fails("insert_jobs", error=OutcomeUnknown("lost"), done_first=True)
    with pytest.raises(OutcomeUnknown):
        await farm.enqueue(b"x")
    assert sum([await farm.jobs_on(name) for name in "123"]) == 1


@on_farm()
async def test_a_hung_insert_is_given_up_and_those_behind_it_go_to_other_shards(farm: Farm) -> None:
    """Nothing is known of the one under way; the others have not begun."""
    fault = farm.store("1").hangs("insert_jobs")
    calls = []
    while not fault.met.is_set():
        calls.append(asyncio.ensure_future(farm.enqueue(b"first")))
        await farm.turns()
    behind = [asyncio.ensure_future(farm.enqueue(b"behind")) for _ in range(30)]
    await farm.turns()
    assert not all(task.done() for task in behind)
    await farm.pass_time(farm.settings.stall_ms + 400)
    assert {shard_of(task.result().descriptors[0]) for task in behind} == {"2", "3"}
    assert sum(not task.done() for task in calls) == 1
    await farm.pass_time(farm.settings.call_timeout_ms)
    [lost] = [task for task in calls if task.exception() is not None]
    assert isinstance(lost.exception(), OutcomeUnknown)


@on_farm()
async def test_nothing_is_sent_to_a_shard_that_has_come_to_a_stall(farm: Farm) -> None:
    fault = farm.store("1").hangs("insert_jobs")
    calls = []
    while not fault.met.is_set():
        calls.append(asyncio.ensure_future(farm.enqueue(b"first")))
        await farm.turns()
    await farm.pass_time(farm.settings.stall_ms + 400)
    assert farm.lanes("1").healthy  # it answers pings
    assert not farm.lanes("1").usable
    for _ in range(20):
        assert "1" not in shards_of(await farm.enqueue(b"x"))
    fault.release()
    await asyncio.gather(*calls)
    await farm.pass_time(400)
    assert farm.lanes("1").usable
    assert farm.counted("shard_stalled_1") == 1


@on_farm(draining=("2", "3"))
async def test_the_only_shard_that_takes_enqueues_is_waited_for_though_it_is_slow(farm: Farm) -> None:
    fault = farm.store("1").hangs("insert_jobs")
    calls = [asyncio.ensure_future(farm.enqueue(b"x")) for _ in range(2)]
    await farm.turns()
    await farm.pass_time(2_000)
    assert not any(task.done() for task in calls)
    fault.release()
    await farm.turns()
    assert [shards_of(task.result()) for task in calls] == [["1"], ["1"]]


@on_farm(draining=("1", "2", "3"))
async def test_with_every_shard_draining_enqueues_are_rejected(farm: Farm) -> None:
    for more in ({}, {"key": "k"}, {"unique": "u"}):
        with pytest.raises(EnqueueRejected):
            await farm.enqueue(b"x", **more)  # type: ignore[arg-type]


@on_farm()
async def test_no_healthy_shards_only_when_none_is_left(farm: Farm) -> None:
    for name in "12":
        farm.lanes(name).put_out_of_use("test")
    await farm.enqueue(b"x")
    assert len((await farm.dequeue()).jobs) == 1
    farm.lanes("3").put_out_of_use("test")
    for call in (
        farm.enqueue(b"x"),
        farm.enqueue(b"x", key="k"),
        farm.dequeue(),
        farm.service.job_queries.count(_PENDING),
    ):
        with pytest.raises(NoHealthyShards):
            await call


@on_farm(service=ServiceSettings(max_backlog=30))
async def test_a_queues_bound_holds_over_all_shards_together(farm: Farm) -> None:
    for _ in range(30):
        await farm.enqueue(b"x")
    with pytest.raises(EnqueueRejected):
        await farm.enqueue(b"x")


# --- dequeues --------------------------------------------------------------------------------------------------------------------


@on_farm()
async def test_a_hung_shard_holds_up_no_dequeue_for_long_and_its_late_claim_is_given_back(farm: Farm) -> None:
    for name in "123":
        await farm.put(name)
    fault = farm.store("2").hangs("claim_jobs", done_first=True)
    dequeued = await farm.within(farm.settings.stall_ms + 400, farm.dequeue())
    assert sorted(shard_of(job.descriptor) for job in dequeued.jobs) == ["1", "3"]
    assert await farm.in_progress_on("2") == 1  # claimed, but no worker has it
    fault.release()
    await farm.turns()
    assert await farm.in_progress_on("2") == 0
    await farm.pass_time(400)
    assert [shard_of(job.descriptor) for job in (await farm.dequeue()).jobs] == ["2"]


@on_farm()
async def test_a_waiting_dequeue_gets_jobs_of_other_shards_while_one_is_slow(farm: Farm) -> None:
    """Jobs of a late claim there are given back."""
    await farm.put("2")
    await farm.replace(farm.desired("3"), *[farm.desired(name, takes_enqueues=False) for name in "12"])
    fault = farm.store("2").hangs("claim_jobs", done_first=True)
    waiting = asyncio.ensure_future(farm.dequeue(wait_ms=10_000))
    await farm.pass_time(farm.settings.slow_ms + 5)
    assert not waiting.done()
    await farm.enqueue(b"x")
    await farm.turns()
    assert [shard_of(job.descriptor) for job in waiting.result().jobs] == ["3"]
    fault.release()
    await farm.turns()
    assert await farm.in_progress_on("2") == 0


@on_farm()
async def test_a_waiting_dequeue_returns_the_jobs_it_has_when_a_shard_is_slow(farm: Farm) -> None:
    """Otherwise the other shards' jobs would be held by a server that does not answer."""
    await farm.put("1")
    await farm.put("3")
    farm.store("2").hangs("claim_jobs")
    farm.shards.random = InOrder()
    dequeued = await farm.within(farm.settings.slow_ms + 5, farm.dequeue(wait_ms=10_000))
    assert {shard_of(job.descriptor) for job in dequeued.jobs} == {"1", "3"}


@on_farm(draining=("1", "2"))
async def test_a_wake_at_the_slow_shard_is_not_lost_when_its_waiter_goes(farm: Farm) -> None:
    fault = farm.store("2").hangs("claim_jobs")
    first = asyncio.ensure_future(farm.dequeue(wait_ms=10_000))
    await farm.pass_time(farm.settings.slow_ms + 5)
    second = asyncio.ensure_future(farm.dequeue(wait_ms=10_000))
    await farm.pass_time(farm.settings.slow_ms + 5)
    put = asyncio.ensure_future(farm.enqueue(b"x"))
    while not put.done():
        await asyncio.sleep(0)
    first.cancel()  # it was woken, and has not looked yet
    await farm.turns()
    assert [shard_of(job.descriptor) for job in second.result().jobs] == ["3"]
    fault.release()


@on_farm()
async def test_a_slow_shard_is_asked_last(farm: Farm) -> None:
    farm.store("2").hangs("claim_jobs")
    stuck = asyncio.ensure_future(farm.dequeue())
    await farm.pass_time(farm.settings.slow_ms + 5)
    assert not stuck.done()
    for name in "13" * 10:
        await farm.put(name)
        assert [shard_of(job.descriptor) for job in (await farm.dequeue(limit=1)).jobs] == [name]
    stuck.cancel()


@on_farm()
async def test_a_claim_that_was_given_up_is_released_once_the_shard_is_back(farm: Farm) -> None:
    """It came to an end while the shard was out of use."""
    await farm.put("2")
    fault = farm.store("2").hangs("claim_jobs", done_first=True)
    assert not (await farm.within(1_600, farm.dequeue())).jobs
    farm.store("2").dead = "gone"
    await farm.pass_time(farm.settings.call_timeout_ms)
    assert not farm.lanes("2").healthy
    fault.release()
    await farm.turns()
    assert await farm.in_progress_on("2") == 1
    farm.store("2").dead = None
    await farm.pass_time(20_000)
    assert await farm.in_progress_on("2") == 0
    assert len((await farm.dequeue()).jobs) == 1


@on_farm()
async def test_a_dequeue_fails_only_where_every_shard_fails(farm: Farm) -> None:
    farm.store("1").fails("claim_jobs")
    farm.store("2").fails("claim_jobs")
    assert (await farm.dequeue()).jobs == []
    for name in "123":
        farm.store(name).fails("claim_jobs")
    with pytest.raises(ShardConnectionFailed):
        await farm.dequeue()


@on_farm()
async def test_a_waiting_dequeue_gets_a_job_when_its_shard_is_reachable_again(farm: Farm) -> None:
    await farm.put("2")
    farm.store("2").dead = "gone"
    await farm.core.shard_monitor.ping_all()
    assert not farm.lanes("2").healthy
    waiting = asyncio.ensure_future(farm.dequeue(wait_ms=60_000))
    await farm.pass_time(3_000)
    assert not waiting.done()
    farm.store("2").dead = None
    await farm.pass_time(6_000)
    assert [shard_of(job.descriptor) for job in waiting.result().jobs] == ["2"]


@on_farm()
async def test_a_waiting_dequeue_asks_a_shard_again_after_a_failed_claim(farm: Farm) -> None:
    """After one lost connection no other event would wake them."""
    await farm.put("2")
    farm.store("2").fails("claim_jobs")
    waiting = asyncio.ensure_future(farm.dequeue(wait_ms=60_000))
    await farm.turns()
    assert not waiting.done()
    await farm.pass_time(1_200)
    assert len(waiting.result().jobs) == 1


@on_farm()
async def test_a_dry_run_shows_what_the_others_have(farm: Farm) -> None:
    for name in "123":
        await farm.put(name)
    farm.store("1").dead = "gone"
    shown = await farm.dequeue(dry_run=True)
    assert sorted(shard_of(job.descriptor) for job in shown.jobs) == ["2", "3"]


# --- jobs in hand ----------------------------------------------------------------------------------------------------------------


@on_farm()
async def test_acks_on_other_shards_are_done_though_one_hangs(farm: Farm) -> None:
    """At once, not after it."""
    jobs = [await farm.put(name) for name in "123"]
    await farm.dequeue()
    farm.store("1").hangs("finish_jobs")
    acking = asyncio.ensure_future(farm.ack(*jobs))
    await farm.turns()
    assert [await farm.in_progress_on(name) for name in "123"] == [1, 0, 0]
    await farm.pass_time(farm.settings.call_timeout_ms + 400)
    assert isinstance(acking.exception(), OutcomeUnknown)


@on_farm()
async def test_repeating_an_ack_is_safe(farm: Farm) -> None:
    job = await farm.put("1")
    await farm.dequeue()
    farm.store("1").fails("finish_jobs", error=OutcomeUnknown("lost"), done_first=True)
    with pytest.raises(OutcomeUnknown):
        await farm.ack(job)
    await farm.ack(job)
    assert await farm.service.job_queries.count(JobFilter("q", JobState.SUCCEEDED)) == 1


@on_farm()
async def test_calls_that_need_an_unreachable_shard_fail_at_once(farm: Farm) -> None:
    jobs = {name: await farm.put(name) for name in "123"}
    tokens = {shard_of(job.descriptor): job.token for job in (await farm.dequeue()).jobs}
    farm.lanes("2").put_out_of_use("test")
    both = [jobs["2"], jobs["3"]]
    calls = (
        farm.service.job_queries.lookup(both, bodies=True),
        farm.service.claimed_jobs.heartbeat(CALLER, "q", [Claim(jobs["2"], tokens["2"])]),
        farm.service.claimed_jobs.checkpoint(CALLER, "q", [Checkpoint(jobs["2"])]),
        farm.service.claimed_jobs.release(CALLER, "q", [Claim(jobs["2"], tokens["2"])], 0),
        farm.service.claimed_jobs.cancel(CALLER, "q", both),
        farm.service.bulk.delete_jobs_by_descriptor("q", both),
    )
    for call in calls:
        with pytest.raises(ShardConnectionFailed, match="Shard 2 is unreachable"):
            await call
    assert await farm.jobs_on("3") == 0  # what could be done was


@on_farm()
async def test_thousands_of_heartbeats_share_a_few_calls(farm: Farm) -> None:
    """And checkpoints, and releases."""
    jobs = [await farm.put("1") for _ in range(50)]
    tokens = {job.descriptor: job.token for job in (await farm.dequeue()).jobs}

    async def each(job: str) -> None:
        await farm.service.claimed_jobs.heartbeat(CALLER, "q", [Claim(job, tokens[job])])
        await farm.service.claimed_jobs.checkpoint(CALLER, "q", [Checkpoint(job, tokens[job], new_body=b"half")])
        [result] = await farm.service.claimed_jobs.release(CALLER, "q", [Claim(job, tokens[job])], 0)
        assert result.outcome.name == "APPLIED"

    await asyncio.gather(*(each(job) for job in jobs))
    for method in ("extend_claims", "checkpoint_jobs", "release_jobs"):
        assert farm.store("1").calls[method] <= 3
    assert {job.body for _, job in await farm.service.job_queries.lookup(jobs, bodies=True)} == {b"half"}


# --- everything else --------------------------------------------------------------------------------------------------------------


@on_farm()
async def test_counts_scans_and_deletes_answer_for_the_rest_when_a_shard_fails_on_the_way(farm: Farm) -> None:
    for name in "123":
        await farm.put(name)
    farm.store("2").dead = "gone"
    assert await farm.service.job_queries.count(_PENDING) == 2
    scanned = await farm.service.job_queries.scan(ScanCommand(_PENDING))
    assert (len(scanned.jobs), scanned.incomplete) == (2, True)
    assert await farm.service.job_queries.count(_PENDING._replace(body_regex="x")) == 2
    assert await farm.service.job_queries.count_jobs(_PENDING) == JobCount(2, incomplete=True)
    assert await farm.service.job_queries.count_jobs(_PENDING._replace(body_regex="x")) == JobCount(2, incomplete=True)
    assert await farm.service.bulk.delete_jobs(_PENDING._replace(priority=1), 10) == 2
    [stats] = await farm.service.queues.queue_stats(["q"])
    assert stats.incomplete
    assert sum(row.pending for row in stats.counts) == 0
    assert farm.counted("shards_left_out") >= 5


@on_farm()
async def test_a_hung_shard_is_left_out_of_a_count_after_its_time_limit(farm: Farm) -> None:
    for name in "123":
        await farm.put(name)
    farm.store("2").hangs("count_jobs")
    assert await farm.within(farm.settings.work_timeout_ms + 400, farm.service.job_queries.count(_PENDING)) == 2


@on_farm()
async def test_sweeps_continue_on_other_shards_while_one_hangs(farm: Farm) -> None:
    for name in "123":
        await farm.put(name)
    await farm.dequeue()
    farm.clock.advance(hours=1)
    farm.store("1").hangs("time_out_claims")
    sweeping = asyncio.ensure_future(farm.core.sweeps.time_out_claims())
    await farm.turns()
    assert [await farm.in_progress_on(name) for name in "123"] == [1, 0, 0]
    await farm.pass_time(farm.settings.work_timeout_ms + 400)
    assert isinstance(sweeping.exception(), OutcomeUnknown)


@on_farm()
async def test_a_sample_keeps_what_a_lost_shard_said_last(farm: Farm) -> None:
    """Otherwise the totals, and the rates made of them, would fall and rise by all it holds. The gauge of that shard alone is absent."""
    for name in "123":
        await farm.put(name)
    await farm.core.rates.sample()
    farm.store("2").dead = "gone"
    with pytest.raises(ShardConnectionFailed):
        await farm.core.rates.sample()
    await farm.core.shard_monitor.ping_all()
    await farm.core.rates.sample()
    [row] = farm.core.rates.counts
    assert row.pending == 3
    shown = {reading.gauge.prometheus: reading.values for reading in farm.core.metrics.read_gauges()}
    assert shown["pinlater_shard_healthy"] == {"1": 1.0, "2": 0.0, "3": 1.0}
    assert shown["pinlater_shard_jobs_live"] == {"1": 1, "3": 1}


@on_farm()
async def test_the_queue_cache_is_refreshed_from_the_shards_that_answer(farm: Farm) -> None:
    farm.store("1").dead = "gone"
    await farm.service.queue_cache.refresh()
    assert list(farm.service.queue_cache.queues) == ["q"]
    for name in "123":
        farm.store(name).dead = "gone"
    with pytest.raises(ShardConnectionFailed):
        await farm.service.queue_cache.refresh()
    assert list(farm.service.queue_cache.queues) == ["q"]


_PENDING = JobFilter("q", JobState.PENDING)


@on_farm()
async def test_a_woken_dequeue_asks_only_the_shard_that_got_the_job(farm: Farm) -> None:
    for _ in range(10):
        waiting = asyncio.ensure_future(farm.dequeue(1, wait_ms=60_000))
        await farm.turns()
        before = {name: farm.store(name).calls["claim_jobs"] for name in "123"}
        [shard] = shards_of(await farm.enqueue(b"x"))
        await farm.turns()
        [job] = waiting.result().jobs
        await farm.ack(job.descriptor)
        assert {name for name in "123" if farm.store(name).calls["claim_jobs"] != before[name]} == {shard}
