"""The dispatcher where callers go at the worst moment: no claim is left without a holder, no wake is lost, no limit is overrun."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from itertools import count
from pathlib import Path
from typing import ClassVar

import pytest

from pinlater.domain.clock import ManualClock
from pinlater.domain.errors import OutcomeUnknown, PinLaterError, ShardConnectionFailed
from pinlater.domain.job import Holder
from pinlater.domain.queue import NO_HOME, Home
from pinlater.server.dispatch.claiming import FromShard
from pinlater.server.main.core import Core
from pinlater.server.sharding.shards import ClaimRequest
from pinlater.server.storage.commands import ClaimJobs, CountJobs, InsertJobs, MoveHome, ReleaseJobs
from pinlater.server.storage.interface import Shard
from pinlater.server.storage.options import Options
from pinlater.server.storage.sqlite.memory import MemoryShard
from pinlater.server.storage.sqlite.shard import SqliteShard
from pinlater.server.storage.table import Table, entry_of
from pinlater.server.storage.values import (
    Acked,
    ClaimCall,
    Claimed,
    ClaimOrder,
    ClaimRef,
    Inserted,
    InsertRequest,
    JobAck,
    JobKey,
    NewJob,
)
from tests.assembly import open_core

# Turns of the loop to wait before something happens: up to more than a claim takes on any of the stores.
_MOMENTS = (*range(24), *(32 << doubling for doubling in range(10)))


class DispatcherOnShard:
    """A dispatcher on one shard with the queue `q`."""

    def __init__(self, shard: Shard, core: Core, clock: ManualClock) -> None:
        self.shard = shard
        self.dispatcher = core.dispatcher
        self.close = core.close
        self.clock = clock
        [self._lanes] = core.shards
        self._tokens = count(1)

    async def put(self, jobs: int = 1, *, delay_ms: int = 0, options: Options | None = None) -> None:
        due_ms = self.clock.now_ms() + delay_ms
        new = [NewJob(job_id, b"x", 1, due_ms, 2, options) for job_id in self._lanes.ids.make(jobs)]
        await self._lanes.insert.submit(InsertRequest("q", new))

    async def ack(self, key: JobKey) -> None:
        await self._lanes.finish.submit([JobAck(key, True)])

    def claim(self, limit: int = 1, *, wait_ms: int = 0) -> asyncio.Task[list[FromShard]]:
        holder = Holder("h:1:2:worker:1", "worker", f"t{next(self._tokens)}")
        return asyncio.create_task(
            self.dispatcher.claim(ClaimRequest("q", ClaimCall(limit, holder, 1_000_000), 60_000, 1.0, wait_ms))
        )

    async def waiting(self, number: int) -> None:
        async with asyncio.timeout(30):
            while self.dispatcher.waiting("q") != number:
                await asyncio.sleep(0)

    async def in_progress(self) -> int:
        return sum(row.counts.in_progress for row in await self.shard.submit(CountJobs(["q"])))


async def _open(shard: Shard, limits: dict[str, float]) -> DispatcherOnShard:
    clock = ManualClock()
    core = await open_core(shard, clock=clock, file_limits=lambda: limits)
    await core.service.queues.create_queue("q")
    return DispatcherOnShard(shard, core, clock)


@pytest.fixture(params=["memory", "sqlite"])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[DispatcherOnShard]:
    shard: Shard = MemoryShard() if request.param == "memory" else SqliteShard(tmp_path / "jobs.db")
    stage = await _open(shard, {})
    yield stage
    await stage.close()


def _jobs(claimed: Sequence[FromShard]) -> int:
    return sum(len(part.jobs) for part in claimed)


async def _turns(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def _cancelled(task: asyncio.Task[list[FromShard]]) -> int:
    """How many jobs its caller got after all."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        return _jobs(await task)
    return 0


# --- callers that go -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wait_ms", [0, 60_000])
async def test_a_claim_whose_caller_goes_at_any_moment_is_given_back(stage: DispatcherOnShard, wait_ms: int) -> None:
    """Also in the very turn of the loop in which it was answered: otherwise it would stay claimed until its timeout."""
    await stage.put()
    for turns in _MOMENTS:
        task = stage.claim(wait_ms=wait_ms)
        await _turns(turns)
        if await _cancelled(task):
            break
        async with asyncio.timeout(30):
            while await stage.in_progress():
                await asyncio.sleep(0)
    else:
        pytest.fail("the claim was never done; more turns are needed")


async def test_a_claim_under_way_whose_caller_has_gone_is_given_back_also_while_the_server_stops() -> None:
    """The store answers after the last request has ended: a claim left there would cost the job an attempt."""
    shard = GatedShard()
    stage = await _open(shard, {})
    await stage.put()
    shard.gate.clear()
    task = stage.claim()
    await _turns(3)
    assert await _cancelled(task) == 0

    async def stop() -> None:
        await stage.close()

    stopping = asyncio.create_task(stop())
    await _turns(10)
    shard.gate.set()
    await stopping
    assert await stage.in_progress() == 0


async def test_a_woken_caller_that_goes_at_any_moment_leaves_the_job_to_the_next(stage: DispatcherOnShard) -> None:
    """Also where its claim waited for its turn and never ran."""
    for turns in _MOMENTS:
        first = stage.claim(wait_ms=60_000)
        await stage.waiting(1)
        second = stage.claim(wait_ms=60_000)
        await stage.waiting(2)
        await stage.put()
        await _turns(turns)
        if await _cancelled(first):
            assert await _cancelled(second) == 0
            break
        async with asyncio.timeout(30):
            assert _jobs(await second) == 1
    else:
        pytest.fail("the first claim was never done; more turns are needed")


async def test_a_claim_that_waited_behind_another_and_was_cancelled_passes_its_wake_on() -> None:
    shard = GatedShard()
    stage = await _open(shard, {})
    waiters = [stage.claim(wait_ms=60_000) for _ in range(2)]
    await stage.waiting(2)
    shard.gate.clear()
    ahead = stage.claim()  # is under way at the store, and finds nothing
    await _turns(3)
    await stage.put()
    await _turns(3)  # the first waiter's claim now stands behind it in the lane
    waiters[0].cancel()
    shard.take_nothing = 1
    shard.gate.set()
    await ahead
    async with asyncio.timeout(30):
        assert _jobs(await waiters[1]) == 1
    await stage.close()


class GatedShard(MemoryShard):
    """A store whose claims wait for a gate, and fail or find nothing when told to."""

    capabilities = MemoryShard.capabilities._replace(in_order=False)

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()
        self.failures = 0
        self.take_nothing = 0
        self.claims = 0

    async def _claim(self, orders: Sequence[ClaimOrder], now_ms: int) -> Sequence[Claimed | PinLaterError]:
        self.claims += 1
        await self.gate.wait()
        if self.failures:
            self.failures -= 1
            raise ShardConnectionFailed("the disk is gone")
        if self.take_nothing:
            self.take_nothing -= 1
            return [Claimed([() for _ in order.calls]) for order in orders]
        claimed: Sequence[Claimed | PinLaterError] = await MemoryShard.table[ClaimJobs](self, orders, now_ms)
        return claimed

    table: ClassVar[Table] = MemoryShard.table | dict([entry_of(ClaimJobs)(_claim)])


# --- what else may take a wake away ---------------------------------------------------------------------------------------------


async def test_a_woken_claim_that_fails_leaves_its_wake_to_the_next() -> None:
    """Otherwise the other waiters would sleep beside the job once the store works again."""
    shard = GatedShard()
    stage = await _open(shard, {})
    waiters = [stage.claim(wait_ms=60_000) for _ in range(2)]
    await stage.waiting(2)
    shard.failures = 1
    await stage.put()
    with pytest.raises(ShardConnectionFailed):
        await waiters[0]
    async with asyncio.timeout(30):
        assert _jobs(await waiters[1]) == 1
    await stage.close()


async def test_a_drain_answers_all_waiting_dequeues_without_a_call_to_the_store() -> None:
    """A thousand that wait for a thousand jobs each make no thousand claims at the last moment, and none is refused."""
    shard = GatedShard()
    stage = await _open(shard, {})
    waiters = [stage.claim(1_000, wait_ms=60_000) for _ in range(1_000)]
    await stage.waiting(1_000)
    before = shard.claims
    stage.dispatcher.drain()
    assert await asyncio.gather(*waiters) == [[]] * 1_000
    assert shard.claims == before
    await stage.close()


async def test_a_thousand_waiters_for_a_thousand_jobs_may_all_look_again() -> None:
    shard = GatedShard()
    stage = await _open(shard, {})
    waiters = [stage.claim(1_000, wait_ms=60_000) for _ in range(1_000)]
    await stage.waiting(1_000)
    stage.dispatcher.wakeups.look_again("q")
    await _turns(3)
    await stage.waiting(1_000)
    stage.dispatcher.drain()
    assert await asyncio.gather(*waiters) == [[]] * 1_000
    await stage.close()


async def test_a_release_whose_answer_was_lost_wakes_a_waiter() -> None:
    """The second try finds nothing to release, and the job waits already."""

    class Forgetful(MemoryShard):
        capabilities = MemoryShard.capabilities._replace(in_order=False)
        answers_lost = 1

        async def _release(self, claims: Sequence[ClaimRef], now_ms: int) -> list[Acked]:
            released: list[Acked] = await MemoryShard.table[ReleaseJobs](self, claims, now_ms)
            if self.answers_lost:
                self.answers_lost -= 1
                raise OutcomeUnknown("the connection was lost")
            return released

        table: ClassVar[Table] = MemoryShard.table | dict([entry_of(ReleaseJobs)(_release)])

    stage = await _open(Forgetful(), {})
    await stage.put()
    [part] = await stage.claim()
    waiter = stage.claim(wait_ms=60_000)
    await stage.waiting(1)
    stage.dispatcher.give_back("q", part)
    async with asyncio.timeout(30):
        assert _jobs(await waiter) == 1
    await stage.close()


# --- limits -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wait_ms", [0, 60_000])
async def test_claims_at_the_same_moment_overdraw_a_limit_by_one_request_at_most(wait_ms: int) -> None:
    stage = await _open(MemoryShard(), {"q": 5.0})
    tasks: list[asyncio.Task[list[FromShard]]] = []
    if wait_ms:
        tasks = [stage.claim(2, wait_ms=wait_ms) for _ in range(30)]
        await stage.waiting(30)
    await stage.put(100)
    if not wait_ms:
        tasks = [stage.claim(2) for _ in range(30)]
    await _turns(500)
    got = [task.result() for task in tasks if task.done() and not task.exception()]
    assert 5 <= sum(map(_jobs, got)) <= 6
    stage.dispatcher.drain()
    await asyncio.gather(*tasks, return_exceptions=True)
    await stage.close()


async def test_dequeues_that_wait_share_a_limit_and_none_overdraws_it() -> None:
    """However many jobs they ask for: one that took a hundred would keep the others waiting for 20 s."""
    stage = await _open(MemoryShard(), {"q": 5.0})
    await stage.put(100)
    assert _jobs(await stage.claim(50, wait_ms=60_000)) == 5
    waiting = [stage.claim(50, wait_ms=60_000) for _ in range(4)]
    for answered in range(4):
        await stage.waiting(4 - answered)
        stage.clock.advance(ms=200)
        done, _ = await asyncio.wait(
            [task for task in waiting if not task.done()], timeout=30, return_when="FIRST_COMPLETED"
        )
        assert [_jobs(task.result()) for task in done] == [1]
    await stage.close()


async def test_jobs_given_back_are_not_charged_to_the_rate_limit() -> None:
    stage = await _open(MemoryShard(), {"q": 2.0})
    await stage.put(2)
    [part] = await stage.claim(2)
    stage.dispatcher.give_back("q", part)
    async with asyncio.timeout(30):
        while await stage.in_progress() or stage.dispatcher.returns.under_way:
            await asyncio.sleep(0)
    assert _jobs(await stage.claim(2)) == 2
    await stage.close()


# --- one transaction for both -------------------------------------------------------------------------------------------------


async def test_a_job_for_a_waiting_dequeue_is_stored_and_claimed_in_one_transaction(tmp_path: Path) -> None:
    """So there is one flush of the disk less between the enqueue and the handler."""
    shard = SqliteShard(tmp_path / "jobs.db")
    stage = await _open(shard, {})
    waiter = stage.claim(wait_ms=60_000)
    await stage.waiting(1)
    before = shard.commits
    await stage.put()
    assert _jobs(await waiter) == 1
    assert shard.commits == before + 1
    await stage.close()


async def test_a_job_is_acked_and_the_next_one_of_its_key_claimed_in_one_transaction(tmp_path: Path) -> None:
    shard = SqliteShard(tmp_path / "jobs.db")
    stage = await _open(shard, {})
    await shard.submit(MoveHome("q", NO_HOME, Home(shard.name, 1)))
    await stage.put(2, options=Options(ordering_key="k"))
    [first] = await stage.claim()
    [acked] = first.jobs
    waiter = stage.claim(wait_ms=60_000)
    await stage.waiting(1)
    before = shard.commits
    await stage.ack(JobKey("q", 1, acked.id))
    assert _jobs(await waiter) == 1
    assert shard.commits == before + 1
    await stage.close()


async def test_a_store_that_does_not_work_in_order_wakes_waiters_once_the_job_is_stored() -> None:
    class Unordered(MemoryShard):
        capabilities = MemoryShard.capabilities._replace(in_order=False)
        stored = asyncio.Event()

        async def _insert(self, requests: Sequence[InsertRequest], now_ms: int) -> Sequence[Inserted | PinLaterError]:
            await self.stored.wait()
            answers: Sequence[Inserted | PinLaterError] = await MemoryShard.table[InsertJobs](self, requests, now_ms)
            return answers

        table: ClassVar[Table] = MemoryShard.table | dict([entry_of(InsertJobs)(_insert)])

    shard = Unordered()
    stage = await _open(shard, {})
    waiter = stage.claim(wait_ms=60_000)
    await stage.waiting(1)
    putting = asyncio.create_task(stage.put())
    await _turns(24)
    assert stage.dispatcher.waiting("q") == 1
    shard.stored.set()
    await putting
    assert _jobs(await waiter) == 1
    await stage.close()
