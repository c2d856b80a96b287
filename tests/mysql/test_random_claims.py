"""Random histories of several servers, some of which claim from memory, against what the store says of each job."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from pinlater.domain.clock import ManualClock
from pinlater.domain.job import HandedOutJob, JobState, UniqueKey, UniqueScope
from pinlater.server.storage.commands import AdvanceDue, ExpireJobs, ListChangedQueues, LookupJobs, TimeOutClaims
from pinlater.server.storage.mysql.queue_cache import MysqlQueueCache
from pinlater.server.storage.mysql.ready_jobs import JOB_BYTES
from pinlater.server.storage.mysql.shard import MysqlShard
from pinlater.server.storage.values import ClaimCall, ClaimOrder, ClaimRef, JobAck, JobCheckpoint, JobKey, NewJob
from pinlater.wire.generated.structs import JobInfo
from tests.contract.desk import About, Desk
from tests.mysql.proxied_mysql import ProxiedMysql
from tests.mysql.test_claims_from_memory import desk_by
from tests.shared_shards.proxied_database import QUEUE

STEPS = 300
# Jobs of another server are found by a search once a second, and the queue is searched from its start once a second.
_PASSED_OVER_MS = 2_300


def cache_of(desk: Desk) -> MysqlQueueCache:
    assert isinstance(desk.shard, MysqlShard)
    return desk.shard._queue_cache


def bytes_that_are_here(cache: MysqlQueueCache) -> int:
    """By what the queues keep, not by their count."""
    return sum(
        len(queue.ready) * JOB_BYTES + sum(content.bytes_here for content in queue.ready._contents.values())
        for queue in cache.by_id.values()
    )


class ClaimHistory:
    """What was done so far: jobs by id as the store had them after the last step, and since when each can be claimed."""

    def __init__(self, database: ProxiedMysql, dice: Random, clock: ManualClock, desks: list[Desk]) -> None:
        self._database, self._dice, self._clock, self._desks = database, dice, clock, desks
        self._claims_from_memory = dice.choice(["the first", "all", "now one, now another", "any"])
        self._owner = 0
        self._keys: dict[int, JobKey] = {}
        self._stored: dict[int, JobInfo] = {}
        self._claimable_since_ms: dict[int, int] = {}
        self._claims: dict[int, ClaimRef] = {}
        self._expires_ms: dict[int, int] = {}
        self._changing: set[int] = set()  # jobs that the step under way changes: what claims get of these is not judged
        # Of the step: jobs; whether there were too few; through which priority; which due job was left, as the claim said.
        self._answers: list[tuple[list[HandedOutJob], bool, int | None, tuple[int, int] | None]] = []
        self._number = 0
        self.lines = [f"claims from memory by: {self._claims_from_memory}"]

    async def step(self) -> None:
        """One or two calls at once, each by any server; then all that was handed out is judged."""
        dice = self._dice
        if dice.random() < 0.15:
            self._clock.advance(ms=dice.choice([1, 5, 50, 200, 600, 1_100, 3_000]))
        if dice.random() < 0.03:
            self._owner = dice.randrange(len(self._desks))
        self._changing.clear()
        self._answers.clear()
        calls: list[Callable[[Desk], Awaitable[None]]] = [self._put, self._claim, self._finish, self._maintain]
        some = dice.choices(calls, [30, 35, 25, 10], k=dice.choice([1, 1, 2]))
        await asyncio.gather(*(call(dice.choice(self._desks)) for call in some))
        for got, lacks_jobs, through, head in self._answers:
            self._judge_passed_over(got, through, lacks_jobs=lacks_jobs)
            if lacks_jobs:
                self._judge_head(head)
        await self._look()

    async def _put(self, desk: Desk) -> None:
        new = [self._new_job(desk) for _ in range(self._dice.choice([1, 1, 2, 5]))]
        for job in new:
            self._keys[job.id] = JobKey(QUEUE, job.priority, job.id)
            self._changing.add(job.id)
            if job.options is not None and job.options.expires_ms is not None:
                self._expires_ms[job.id] = job.options.expires_ms
        self.lines.append(f"{desk.now} put {[(job.id, job.priority, job.run_after_ms) for job in new]}")
        await desk.insert(*new)

    def _new_job(self, desk: Desk) -> NewJob:
        dice = self._dice
        self._number += 1
        about = About(priority=dice.randrange(1, 4), attempts=dice.randrange(1, 4))
        if dice.random() < 0.2:
            about["delay_ms"] = dice.randrange(1, 1_500)
        if dice.random() < 0.15:
            about["expires_in_ms"] = dice.randrange(1, 1_500)
        if dice.random() < 0.2:
            about["headers"] = {"name": f"{self._number}"}
        if dice.random() < 0.1:
            about["unique"] = UniqueKey(f"{self._number}", dice.choice(list(UniqueScope)), 10_000)
        if dice.random() < 0.1:
            about["claim_timeout_ms"] = 500
        return desk.job(b"%d" % self._number, **about)

    async def _claim(self, desk: Desk) -> None:
        dice, number = self._dice, self._desks.index(desk)
        from_memory = {
            "the first": number == 0,
            "all": True,
            "now one, now another": number == self._owner,
            "any": dice.random() < 0.6,
        }[self._claims_from_memory]
        calls = [ClaimCall(dice.choice([1, 1, 2, 3, 10]), desk.holder()) for _ in range(dice.choice([1, 1, 2]))]
        timeout_ms = dice.choice([300, 2_000, 20_000])
        through = dice.choice([None, None, 1, 2])
        order = ClaimOrder(QUEUE, calls, timeout_ms, from_memory=from_memory, through_priority=through)
        claimed = await desk.order(order)
        got = [job for jobs in claimed.jobs for job in jobs]
        self.lines.append(
            f"{desk.now} server {number} claims {[call.limit for call in calls]} {from_memory=} {through=}: {got}"
        )
        assert through is None or all(job.priority <= through for job in got)
        for call, jobs in zip(calls, claimed.jobs, strict=True):
            for job in jobs:
                self._judge(job)
                self._claims[job.id] = ClaimRef(self._keys[job.id], call.holder.token)
        self._answers.append((got, len(got) < sum(call.limit for call in calls), through, claimed.head))
        self._changing |= {job.id for job in got}

    def _judge(self, job: HandedOutJob) -> None:
        now_ms, stored = self._clock.now_ms(), self._stored.get(job.id)
        assert job.id not in {other.id for others, *_ in self._answers for other in others}, f"handed out twice: {job}"
        assert job.run_after_ms <= now_ms < self._expires_ms.get(job.id, now_ms + 1), f"not due: {job}"
        if job.id in self._changing or stored is None:
            return
        assert stored.state is JobState.PENDING, f"handed out twice: {job}, {stored}"
        assert (job.body, job.attempts_allowed, job.attempts_remaining, job.run_after_ms) == (
            stored.body,
            stored.attempts_allowed,
            stored.attempts_remaining,
            stored.run_after_ms,
        )
        assert (job.headers or {}) == (stored.headers or {})

    def _judge_passed_over(self, got: list[HandedOutJob], through: int | None, *, lacks_jobs: bool) -> None:
        """No job waits that should have been handed out before, or instead of nothing."""
        last = max(((job.priority, job.run_after_ms, job.id) for job in got), default=(0, 0, 0))
        for place in self._places_that_are_known():
            if (lacks_jobs and (through is None or place[0] <= through)) or place < last:
                raise AssertionError(f"passed over: {self._stored[place[2]]}")

    def _judge_head(self, head: tuple[int, int] | None) -> None:
        """No job waits that is better than the one which a claim said was left."""
        for place in self._places_that_are_known():
            if head is None or place[:2] < head:
                raise AssertionError(f"not said to be left: {self._stored[place[2]]}, but {head}")

    def _places_that_are_known(self) -> list[tuple[int, int, int]]:
        """The due jobs that every server must know, and that no call of this step changes."""
        now_ms = self._clock.now_ms()
        return [
            (self._keys[job_id].priority, self._stored[job_id].run_after_ms or 0, job_id)
            for job_id, since_ms in self._claimable_since_ms.items()
            if now_ms - since_ms > _PASSED_OVER_MS
            and job_id not in self._changing
            and now_ms < self._expires_ms.get(job_id, now_ms + 1)
        ]

    async def _finish(self, desk: Desk) -> None:
        """The holder of a job ends its attempt, gives it back or changes it."""
        held = [job_id for job_id in self._claims if job_id not in self._changing]
        if not held:
            return
        dice, job_id = self._dice, self._dice.choice(held)
        self._changing.add(job_id)
        claim = self._claims[job_id]
        later_ms = dice.choice([0, 0, 0, 300, 1_200])
        what = dice.choice(["succeed", "fail", "release", "checkpoint"])
        self.lines.append(f"{desk.now} {what} {job_id}")
        if what in {"succeed", "fail"}:
            await desk.ack(JobAck(claim.key, what == "succeed", claim.token, "", later_ms))
        elif what == "release":
            await desk.release(claim, later_ms)
        else:
            back = dice.random() < 0.7
            run_after_ms = desk.now + later_ms if back else None
            await desk.checkpoint(JobCheckpoint(claim.key, "worker", claim.token, b"new", back, run_after_ms))

    async def _maintain(self, desk: Desk) -> None:
        """The periodic work, a look for changes by other servers, or an operator's command."""
        dice = self._dice
        match dice.randrange(4):
            case 0:
                self._changing |= self._keys.keys()
                await desk.shard.submit(AdvanceDue(desk.now, 1_000))
                await desk.shard.submit(TimeOutClaims(desk.now, 1_000))
                await desk.shard.submit(ExpireJobs(desk.now, 1_000))
            case 1:
                await desk.shared.submit(ListChangedQueues())
            case 2 if self._keys:
                job_id = dice.choice(list(self._keys))
                self._changing.add(job_id)
                await desk.cancel(self._keys[job_id])
            case _ if self._keys:
                job_id = dice.choice(list(self._keys))
                self._changing.add(job_id)
                await desk.run(self._keys[job_id], attempts=2)

    async def _look(self) -> None:
        """Reads what the store has now. A job that it says is claimed was handed out by one of the claims."""
        now_ms, keys = self._clock.now_ms(), list(self._keys.values())
        found = await self._desks[0].shard.submit(LookupJobs(keys, bodies=True))
        for key, stored in zip(keys, found, strict=True):
            before = self._stored.get(key.id)
            if stored is None or stored.state is not JobState.PENDING:
                self._claimable_since_ms.pop(key.id, None)
            elif key.id in self._changing or before is None or before.run_after_ms != stored.run_after_ms:
                self._claimable_since_ms[key.id] = max(now_ms, stored.run_after_ms or 0)
            if stored is None:
                del self._keys[key.id]
                self._stored.pop(key.id, None)
            else:
                assert stored.state is not JobState.IN_PROGRESS or key.id in self._claims, (
                    f"claimed, and not handed out: {stored}"
                )
                self._stored[key.id] = stored
            if stored is None or stored.state is not JobState.IN_PROGRESS:
                self._claims.pop(key.id, None)

    async def assert_nothing_is_lost(self) -> None:
        """All that waits is handed out in the end, and what is kept is counted."""
        self._clock.advance(hours=1)
        self._changing = set(self._keys)
        for desk in self._desks:
            cache = cache_of(desk)
            assert cache.ready_memory.space.used == cache.ready_memory.used == bytes_that_are_here(cache)
            assert cache.ready_memory.jobs == sum(len(queue.ready) for queue in cache.by_id.values())
            await desk.shard.submit(ExpireJobs(desk.now, 10_000))
        while await self._desks[-1].claim(1_000):
            pass
        for priority in (1, 2, 3):
            assert await self._desks[0].scan(JobState.PENDING, priority=priority) == []
        await self._database.assert_consistent(deleted=True)


@pytest.mark.parametrize("seed", range(4))
async def test_claims_from_memory_are_those_of_a_search_in_random_histories_of_several_servers(
    database: ProxiedMysql, seed: int
) -> None:
    dice = Random(seed)
    clock = ManualClock()
    desks = [await desk_by(database, clock) for _ in range(dice.choice([2, 3]))]
    history = ClaimHistory(database, dice, clock, desks)
    try:
        for _ in range(STEPS):
            await history.step()
        await history.assert_nothing_is_lost()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}\n" + "\n".join(history.lines[-25:])) from error
