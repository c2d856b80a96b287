"""Queues that are made, deleted and made again under the same names by different servers, each of which remembers what it saw last."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from random import Random

from pinlater.client import Ack, AsyncClient, Claim, ClaimedJob, Job, Outcome
from pinlater.simulation.history import HistoryRecorder, check
from tests.faults.faults import InjectedFault
from tests.faults.stage import ADMIN_PASSWORD, Stage

_QUEUES = 3
_JOBS = 6
# Shorter than the time after which a server looks again what queues there are.
_CLAIM_MS = 300
_WAIT_MS = 500
# Two in five claims are forgotten, and each of these costs a second or two on a busy machine: of a hundred jobs one may need a dozen.
_DEADLINE_S = 60.0


async def queues_come_and_go(stage: Stage) -> None:
    """Jobs of each are claimed, forgotten until they time out, failed, renewed and acked by way of one server after the other."""
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        clients = [
            await stack.enter_async_context(AsyncClient([f"127.0.0.1:{server.port}"], source="tenant", retries=5))
            for server in stage.servers
        ]
        for number in range(_QUEUES):
            tenant = _Tenant(f"comes_and_goes_{number}", clients, Random(stage.dice.random()))
            group.create_task(tenant.live(stage.times(40)))


class _Tenant:
    """One queue's life, again and again. A call goes to one of some servers at random; others hear nothing of the queue, and sweep it."""

    def __init__(self, queue: str, clients: Sequence[AsyncClient], dice: Random) -> None:
        self._queue = queue
        self._clients = clients
        self._crew = clients
        self._dice = dice

    @property
    def _any(self) -> AsyncClient:
        return self._dice.choice(self._crew)

    async def live(self, rounds: int) -> None:
        for number in range(rounds):
            self._crew = self._dice.sample(self._clients, self._dice.randint(1, len(self._clients)))
            await self._any.create_queue(self._queue)
            await self._work(number)
            await self._any.delete_queue(self._queue, ADMIN_PASSWORD)

    async def _work(self, number: int) -> None:
        """Until all jobs have succeeded; then nothing is lost, nothing was handed out twice, and the counts agree."""
        recorder = HistoryRecorder()
        bodies = [f"{self._queue}-{number}-{index}" for index in range(_JOBS)]
        jobs = [Job(body.encode(), attempts_allowed=1_000, claim_timeout_ms=_CLAIM_MS) for body in bodies]
        call = recorder.call("enqueue", bodies=bodies)
        descriptors = [
            descriptor
            for job in jobs  # one by one, so that they are on all shards
            for descriptor in (await self._any.enqueue(self._queue, [job])).descriptors
        ]
        recorder.answer(call, descriptors=descriptors)
        done: set[str] = set()
        ends_at = time.monotonic() + _DEADLINE_S
        while len(done) < _JOBS:
            assert time.monotonic() < ends_at, f"{self._queue}: {sorted(set(descriptors) - done)} never came back"
            for job in await self._claim(recorder):
                if await self._handle(job, recorder):
                    done.add(job.descriptor)
        found = await self._any.lookup(descriptors)
        final = {descriptor: int(info.state) for descriptor, info in found.items()}
        broken = check(recorder.history(), final)
        assert not broken, broken
        [stats] = await self._any.queue_stats(self._queue)
        totals = {name: stats.total(name) for name in ("pending", "future", "in_progress", "succeeded", "failed")}
        assert totals == {"pending": 0, "future": 0, "in_progress": 0, "succeeded": _JOBS, "failed": 0}, totals

    async def _claim(self, recorder: HistoryRecorder) -> Sequence[ClaimedJob]:
        call = recorder.call("claim", worker=self._queue, timeout_ms=_CLAIM_MS)
        jobs = (await self._any.dequeue(self._queue, self._dice.randint(1, 3), wait_ms=_WAIT_MS)).jobs
        now_ms = time.time() * 1000
        recorder.answer(
            call,
            jobs=[
                [job.descriptor, job.token, job.body.decode(), int((job.claim_deadline_ms or 0) - now_ms)]
                for job in jobs
            ],
        )
        return jobs

    async def _handle(self, job: ClaimedJob, recorder: HistoryRecorder) -> bool:
        """Whether it has succeeded. A claim may be over by the time that its ack comes; but the job is there."""
        roll = self._dice.random()
        if roll < 0.4:
            return False  # forgotten: its claim times out
        if roll < 0.6:
            call = recorder.call("heartbeat", descriptor=job.descriptor, token=job.token)
            [renewed] = await self._any.heartbeat(self._queue, [Claim(job.descriptor, job.token)])
            assert renewed.outcome is not Outcome.NOT_FOUND, f"a heartbeat of {job.descriptor} finds no job"
            recorder.answer(call, outcome=int(renewed.outcome))
        ack = Ack(job.descriptor, token=job.token, succeeded=self._dice.random() < 0.8)
        call = recorder.call("ack", acks=[(ack.descriptor, ack.token, ack.succeeded)])
        [result] = await self._any.ack(self._queue, [ack])
        assert result.outcome is not Outcome.NOT_FOUND, f"an ack of {job.descriptor} finds no job"
        recorder.answer(call, outcomes=[int(result.outcome)])
        return ack.succeeded and result.outcome in (Outcome.APPLIED, Outcome.ALREADY_FINAL)


ON_QUEUES = (InjectedFault(queues_come_and_go, harmed=None),)
"""Of whatever store."""
