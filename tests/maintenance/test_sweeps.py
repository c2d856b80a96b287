"""Sweeps: what comes back, how fast, and who is told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import ClassVar, NoReturn
from unittest.mock import AsyncMock

import pytest
import pytest_asyncio

from pinlater.domain.clock import ManualClock
from pinlater.domain.errors import OutcomeUnknown, ShardConnectionFailed
from pinlater.domain.job import Holder, JobState
from pinlater.server.main.core import Core
from pinlater.server.operations.job_settings import JobSettings
from pinlater.server.storage.commands import ClaimJobs, FinishJobs, InsertJobs, ScanJobs, TimeOutClaims
from pinlater.server.storage.options import Options
from pinlater.server.storage.sqlite.memory import MemoryShard
from pinlater.server.storage.table import Table, entry_of
from pinlater.server.storage.values import (
    ClaimCall,
    ClaimOrder,
    InsertRequest,
    JobAck,
    JobKey,
    NewJob,
    Page,
    PageRow,
    raise_error,
)
from tests.assembly import open_core
from tests.commands import replaced

HOLDER = Holder("h:1:2:worker:1", "worker", "t1")


class Fixture:
    """A shard with the sweeps around it, and with other shards before it."""

    def __init__(self, shard: MemoryShard, core: Core, clock: ManualClock) -> None:
        self.shard = shard
        self.clock = clock
        self.rates = core.rates
        self.metrics = core.metrics
        self.sweeps = core.sweeps
        self.close = core.close
        *_, self._lanes = core.shards

    async def insert(self, count: int, attempts_allowed: int = 2, options: Options | None = None) -> list[int]:
        now = self.clock.now_ms()
        jobs = [NewJob(job_id, b"x", 1, now, attempts_allowed, options) for job_id in self._lanes.ids.make(count)]
        await self.shard.submit(InsertJobs([InsertRequest("q", jobs)], now))
        return [job.id for job in jobs]

    async def claim(self, count: int) -> None:
        order = ClaimOrder("q", [ClaimCall(count, HOLDER)], 10_000)
        await self.shard.submit(ClaimJobs([order], self.clock.now_ms()))

    async def in_state(self, state: JobState) -> list[PageRow]:
        page = Page("q", state, [1], 10_000, due_by_ms=self.clock.now_ms())
        return list(raise_error(await self.shard.submit(ScanJobs(page))))


async def _open(*before: MemoryShard) -> Fixture:
    clock, shard = ManualClock(), MemoryShard()
    jobs = JobSettings(succeeded_ttl_ms=1_000, failed_ttl_ms=5_000)
    core = await open_core(*before, shard, clock=clock, jobs=jobs)
    await core.service.queues.create_queue("q")
    return Fixture(shard, core, clock)


@pytest_asyncio.fixture
async def store() -> AsyncIterator[Fixture]:
    store = await _open()
    yield store
    await store.close()


async def test_a_dead_workers_thousand_jobs_come_back_in_growing_batches(store: Fixture) -> None:
    await store.insert(1000)
    await store.claim(1000)
    store.clock.advance(seconds=11)
    steps, pauses = [], []
    while await store.in_state(JobState.IN_PROGRESS):
        before = len(await store.in_state(JobState.PENDING))
        pauses.append(await store.sweeps.time_out_claims())
        steps.append(len(await store.in_state(JobState.PENDING)) - before)
    assert steps == [100, 200, 400, 300]
    assert pauses == [0.1, 0.1, 0.1, None]
    assert store.metrics.queue("q").timeout_retry == 1000


async def test_a_shard_that_another_server_sweeps_is_swept_here_every_half_a_minute(store: Fixture) -> None:
    """The other one may fail in a way that this one doesn't see."""
    await store.insert(2, options=Options(expires_ms=store.clock.now_ms() + 20_000))
    await store.claim(1)
    store.sweeps.swept_by_others = lambda: {store.shard.name}

    async def sweep() -> None:
        await store.sweeps.time_out_claims()
        await store.sweeps.expire_jobs()
        await store.sweeps.advance_due()
        await store.sweeps.collect_garbage()

    await sweep()
    store.clock.advance(seconds=29)
    await sweep()
    assert len(await store.in_state(JobState.IN_PROGRESS)) == 1
    assert len(await store.in_state(JobState.PENDING)) == 1
    store.clock.advance(seconds=1)
    await sweep()
    assert not await store.in_state(JobState.IN_PROGRESS)
    assert len(await store.in_state(JobState.FAILED)) == 2


async def test_a_dead_workers_thousand_jobs_come_back_soon_though_the_sweeper_fails_unseen(store: Fixture) -> None:
    await store.insert(1000)
    await store.claim(1000)
    store.sweeps.swept_by_others = lambda: {store.shard.name}
    await store.sweeps.time_out_claims()
    store.clock.advance(seconds=11)
    seconds = 0.0
    while await store.in_state(JobState.IN_PROGRESS) and seconds < 600:
        pause = await store.sweeps.time_out_claims()
        store.clock.advance(ms=round((pause or 1.0) * 1000))
        seconds += pause or 1.0
    assert seconds < 40


async def test_a_sweep_that_fails_is_tried_again_before_half_a_minute_has_passed(store: Fixture) -> None:
    await store.insert(1)
    await store.claim(1)
    store.sweeps.swept_by_others = lambda: {store.shard.name}
    await store.sweeps.time_out_claims()
    store.clock.advance(seconds=30)
    broken = AsyncMock(side_effect=OutcomeUnknown("the connection is gone"))
    with replaced(store.shard, TimeOutClaims, broken), pytest.raises(OutcomeUnknown):
        await store.sweeps.time_out_claims()
    store.clock.advance(seconds=5)
    await store.sweeps.time_out_claims()
    assert not await store.in_state(JobState.IN_PROGRESS)


async def test_a_server_sweeps_a_shard_at_once_when_no_other_does_any_more(store: Fixture) -> None:
    await store.insert(1)
    await store.claim(1)
    store.sweeps.swept_by_others = lambda: {store.shard.name}
    await store.sweeps.time_out_claims()
    store.clock.advance(seconds=11)
    await store.sweeps.time_out_claims()
    assert len(await store.in_state(JobState.IN_PROGRESS)) == 1
    store.sweeps.swept_by_others = frozenset
    await store.sweeps.time_out_claims()
    assert len(await store.in_state(JobState.PENDING)) == 1


async def test_a_claim_that_times_out_on_its_last_attempt_fails(store: Fixture) -> None:
    await store.insert(1, attempts_allowed=1)
    await store.claim(1)
    store.clock.advance(seconds=11)
    await store.sweeps.time_out_claims()
    assert len(await store.in_state(JobState.FAILED)) == 1
    assert store.metrics.queue("q").timeout_done == 1


async def test_the_sweep_deletes_finished_jobs_after_their_own_times_to_live(store: Fixture) -> None:
    good, bad = await store.insert(2, attempts_allowed=1)
    await store.claim(2)
    acks = [JobAck(JobKey("q", 1, good), succeeded=True), JobAck(JobKey("q", 1, bad), succeeded=False)]
    await store.shard.submit(FinishJobs(acks, store.clock.now_ms()))
    store.clock.advance(seconds=2)
    await store.sweeps.collect_garbage()
    assert [len(await store.in_state(state)) for state in (JobState.SUCCEEDED, JobState.FAILED)] == [0, 1]
    store.clock.advance(seconds=4)
    await store.sweeps.collect_garbage()
    assert not await store.in_state(JobState.FAILED)
    assert (store.metrics.queue("q").succeeded_gc, store.metrics.queue("q").failed_gc) == (1, 1)


async def test_old_keys_go_as_fast_as_they_come(store: Fixture) -> None:
    """A full batch of them brings the sweep back at once; otherwise busy producers with keys would fill the store."""
    now = store.clock.now_ms()
    await store.shard.submit(InsertJobs([InsertRequest("q", [], f"key {number}") for number in range(1500)], now))
    store.clock.advance(seconds=121)
    assert await store.sweeps.collect_garbage() is not None
    assert await store.sweeps.collect_garbage() is None


async def test_waiting_jobs_past_their_expiry_fail(store: Fixture) -> None:
    await store.insert(3, options=Options(expires_ms=store.clock.now_ms() + 100))
    store.clock.advance(seconds=1)
    await store.sweeps.expire_jobs()
    failed = await store.in_state(JobState.FAILED)
    assert [row.job.custom_status for row in failed] == ["expired"] * 3


async def test_a_shard_that_fails_keeps_no_other_from_being_swept() -> None:
    """Otherwise the jobs of a dead worker on the others would never come back."""

    class Broken(MemoryShard):
        async def _time_out_claims(self, now_ms: int, limit: int, quarantine_after: int = 0) -> NoReturn:
            raise ShardConnectionFailed("gone")

        table: ClassVar[Table] = MemoryShard.table | dict([entry_of(TimeOutClaims)(_time_out_claims)])

    store = await _open(Broken("2"))
    await store.insert(1)
    await store.claim(1)
    store.clock.advance(seconds=11)
    with pytest.raises(ShardConnectionFailed):
        await store.sweeps.time_out_claims()
    assert len(await store.in_state(JobState.PENDING)) == 1
    await store.close()


async def test_rates_come_from_the_stores_totals(store: Fixture) -> None:
    sampler = store.rates
    await sampler.sample()
    assert sampler.per_second("q").enqueued == 0
    await store.insert(50)
    store.clock.advance(seconds=10)
    await sampler.sample()
    assert sampler.per_second("q").enqueued == 5.0
