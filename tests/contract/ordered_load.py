"""A random load of ordered jobs by several servers of one shard, with any settings of the queue. No run may have too many jobs of a key in
hand, have a job pass those before it, or leave one that waits for nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from time import monotonic
from typing import NamedTuple

from pinlater.domain.job import JobState, Outcome
from pinlater.domain.queue import STOP, TO_BACK, QueueConfig
from pinlater.server.storage.commands import (
    AdvanceDue,
    CancelJobs,
    ConfigureQueue,
    DeleteJobs,
    FinishJobs,
    ListChangedQueues,
    TimeOutClaims,
    UnblockKey,
)
from pinlater.server.storage.values import JobAck, JobCheckpoint, JobKey
from tests.contract.desk import ALL, QUEUE, TIMEOUT_MS, Desk, DeskJob

_REQUESTS = 25
_OPERATIONS = 20
_PRIORITIES = (1, 2)
_FOUND_WITHIN_S = 60.0


class _InHand(NamedTuple):
    """A claim that holds: no other job may take its place before `until_ms`."""

    key: str
    token: str
    until_ms: int


class OrderedLoad:
    """One run. All desks share one clock."""

    def __init__(self, desks: Sequence[Desk], seed: int) -> None:
        self._desks = desks
        self._random = Random(seed)
        self._clock = desks[0].clock
        self._keys = ["a", "b", "ü" * 64, "k" * 128][: self._random.choice([1, 2, 4])]
        self._most = self._random.choice([1, 1, 2, 3])
        self._config = QueueConfig(
            after_failure=self._random.choice([None, STOP]),
            retry_place=self._random.choice([None, TO_BACK]),
            max_in_hand_per_key=self._most if self._most > 1 else None,
        )
        self._key_of: dict[int, str] = {}
        self._lines: dict[tuple[str, int], list[int]] = {}  # by key and server, in the order of enqueues
        self._passable: set[int] = set()  # those that began, ended, or have taken another place
        self._in_hand: dict[int, _InHand] = {}
        self._storing = len(desks)

    async def run(self) -> None:
        """Carries it out; raises AssertionError."""
        await self._desks[0].shard.submit(ConfigureQueue(QUEUE, config=self._config))
        for desk in self._desks:
            await desk.claim(1)  # it knows the queue
        await asyncio.gather(
            *[each(server) for each in (self._store, self._operate, self._work) for server in range(len(self._desks))]
        )
        await self._drain()

    async def _store(self, server: int) -> None:
        desk, random = self._desks[server], self._random
        for _ in range(_REQUESTS):
            key = random.choice(self._keys)
            jobs = [
                desk.job(
                    ordering_key=key,
                    priority=random.choice(_PRIORITIES),
                    attempts=random.randint(1, 3),
                    delay_ms=random.choice([0, 0, 0, 5]),
                )
                for _ in range(random.randint(1, 3))
            ]
            self._key_of.update({job.id: key for job in jobs})
            self._lines.setdefault((key, server), []).extend([job.id for job in jobs])
            await desk.insert(*jobs)
            await asyncio.sleep(0)
        self._storing -= 1

    async def _work(self, server: int) -> None:
        desk = self._desks[server]
        idle = 0
        while self._storing or idle < 50:
            asked_ms = self._clock.now_ms()
            found = await desk.claim(self._random.randint(1, 4), owned=self._random.random() < 0.5)
            idle = 0 if found else idle + 1
            if not found:
                await desk.shared.submit(ListChangedQueues())
            for held in found:
                self._begins(held, asked_ms)
            for held in found:
                await asyncio.sleep(0)
                await self._end(desk, held)

    def _begins(self, held: DeskJob, asked_ms: int) -> None:
        job_id, now_ms = held.key.id, self._clock.now_ms()
        key = self._key_of[job_id]
        if asked_ms + TIMEOUT_MS > now_ms:  # else the clock went on meanwhile, and the claim may be over
            others = [
                other
                for other, claim in self._in_hand.items()
                if claim.key == key and claim.until_ms > now_ms and other != job_id
            ]
            assert len(others) < self._most, f"{others} of {key} are in hand beside {job_id}"
            for server in range(len(self._desks)):
                line = self._lines.get((key, server), [])
                if job_id in line and job_id not in self._passable:
                    passed = [other for other in line[: line.index(job_id)] if other not in self._passable]
                    assert len(passed) < self._most, f"{job_id} of {key} began before {passed}"
            self._in_hand[job_id] = _InHand(key, held.ref.token, asked_ms + TIMEOUT_MS)
        self._passable.add(job_id)

    async def _end(self, desk: Desk, held: DeskJob) -> None:
        what = self._random.choice(
            ["succeed", "succeed", "succeed", "fail", "fail for good", "release", "delete", "cancel", "return", "keep"]
        )
        if what == "keep":  # until the claim times out
            return
        claim = self._in_hand.get(held.key.id)
        if claim is not None and claim.token == held.ref.token:
            del self._in_hand[held.key.id]
        if what == "succeed":
            await desk.succeed(held.key, token=held.ref.token)
        elif what in {"fail", "fail for good"}:
            delay_ms = self._random.choice([0, 3])
            await desk.fail(held.key, token=held.ref.token, final=what == "fail for good", delay_ms=delay_ms)
        elif what == "release":
            await desk.release(held.ref)
        elif what == "delete":
            await desk.shard.submit(DeleteJobs([held.key]))
        elif what == "cancel":
            await desk.cancel(held.key)
            await desk.fail(held.key, token=held.ref.token)
        else:
            await desk.checkpoint(JobCheckpoint(held.key, "worker", held.ref.token, b"new", True, self._clock.now_ms()))

    async def _operate(self, server: int) -> None:
        desk, random = self._desks[server], self._random
        for _ in range(_OPERATIONS):
            what = random.choice(["unblock", "retry", "run", "delete", "cancel", "move", "due", "time out"])
            if what == "unblock":
                await desk.shard.submit(UnblockKey(QUEUE, random.choice(self._keys), self._clock.now_ms()))
            elif what == "retry":
                await desk.retry_failed(priority=random.choice(_PRIORITIES), limit=random.choice([1, ALL]))
            elif what == "run":
                for key in await self._some(desk, JobState.FAILED):
                    assert (await desk.run(key)).outcome in set(Outcome)
            elif what == "move":
                for key in await self._some(desk, JobState.PENDING):
                    await desk.move(key, random.choice(_PRIORITIES))
            elif what in {"delete", "cancel"}:
                keys = await self._some(desk, JobState.PENDING)
                self._passable.update([key.id for key in keys])
                order = DeleteJobs(keys, JobState.PENDING)
                await desk.shard.submit(
                    order if what == "delete" else CancelJobs(keys, self._clock.now_ms(), JobState.PENDING)
                )
            elif what == "due":
                self._clock.advance(ms=5)
                await desk.shard.submit(AdvanceDue(self._clock.now_ms(), ALL))
            else:
                self._clock.advance(ms=TIMEOUT_MS + 1)
                await desk.shard.submit(TimeOutClaims(self._clock.now_ms(), random.choice([2, ALL])))
            await asyncio.sleep(random.random() * 0.01)

    async def _some(self, desk: Desk, state: JobState) -> list[JobKey]:
        keys = await self._in_state(desk, state)
        return self._random.sample(keys, min(3, len(keys)))

    async def _in_state(self, desk: Desk, state: JobState) -> list[JobKey]:
        whens = (False, True) if state is JobState.PENDING else (False,)
        return [
            row.key
            for priority in _PRIORITIES
            for future in whens
            for row in await desk.scan(state, priority=priority, future=future)
        ]

    async def _drain(self) -> None:
        """All jobs end, and what no claim finds waits behind a job that has stopped its key. A server may find a job that became ready at
        another one only when it searches from the beginning again, which it does at times."""
        desk = self._desks[0]
        deadline_s = monotonic() + _FOUND_WITHIN_S
        while True:
            self._clock.advance(ms=TIMEOUT_MS + 1)
            await desk.shard.submit(TimeOutClaims(self._clock.now_ms(), ALL))
            waiting = await self._in_state(desk, JobState.PENDING)
            if not waiting:
                break
            asked_ms = self._clock.now_ms()
            found = await desk.claim(50, owned=False)
            for held in found:
                self._begins(held, asked_ms)
            if found:
                acks = [JobAck(held.key, True, held.ref.token) for held in found]
                await desk.shard.submit(FinishJobs(acks, self._clock.now_ms()))
            orders = [] if found else [UnblockKey(QUEUE, key, self._clock.now_ms()) for key in self._keys]
            if found or any([await desk.shard.submit(order) for order in orders]):
                deadline_s = monotonic() + _FOUND_WITHIN_S
            else:
                assert monotonic() < deadline_s, f"jobs wait for nothing: {waiting}"
                await asyncio.sleep(0.05)
        assert not await desk.scan(JobState.IN_PROGRESS)
        await desk.assert_counters_exact(priorities=_PRIORITIES)
