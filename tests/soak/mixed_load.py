"""Producers, a worker and a canceller that use what the service offers, mixed by dice; counts what they were promised.

Everything runs in one event loop with the real client and the real worker. Not a benchmark: the pace is set, so that what grows
in the server grows because of time and not because of a race.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from random import Random

from pinlater import AsyncClient, ClaimedJob, Job, Reject, Snooze, UniqueKey, Worker, WorkerSettings

QUEUES = ("soak_a", "soak_b")
_FAILURES = 0.05
_REJECTS = 0.01
_SNOOZES = 0.02
_CANCELS = 0.01


@dataclass(slots=True)
class AnsweredCalls:
    """What was answered. `watched` are the first jobs of each request: all of them would fill the memory of a long run.

    `slowest_ms` is the slowest enqueue since the last look.
    """

    enqueued: int = 0
    watched: list[str] = field(default_factory=list)
    handled: int = 0
    slowest_ms: float = 0.0


@dataclass(slots=True)
class MixedLoad:
    """Runs until `stop`; `jobs_per_second` is what the producers aim at together."""

    servers: str
    seed: int
    jobs_per_second: int
    seen: AnsweredCalls = field(default_factory=AnsweredCalls)
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self) -> None:
        """No more jobs; `run` ends when all that exist have ended."""
        self._stopping.set()

    async def run(self) -> None:
        """Produces, works and cancels; after `stop` works until every queue is empty."""
        async with AsyncClient(self.servers) as client:
            for queue in QUEUES:
                await client.create_queue(queue)
            worker = self._worker()
            async with asyncio.TaskGroup() as group:
                working = group.create_task(worker.run_async(client=client))
                async with asyncio.TaskGroup() as producing:
                    for queue in QUEUES:
                        producing.create_task(self._produce(client, queue, Random(f"{self.seed} {queue}")))
                await self._until_drained(client)
                worker.request_stop()
                await working

    def _worker(self) -> Worker:
        worker = Worker(settings=WorkerSettings(concurrency=32, retry_delay_ms=50))
        dice = Random(f"{self.seed} worker")

        async def handle(job: ClaimedJob) -> None:
            self.seen.handled += 1
            roll = dice.random()
            if roll < _FAILURES:
                raise RuntimeError("the dice said so")
            if roll < _FAILURES + _REJECTS:
                raise Reject("hopeless")
            if roll < _FAILURES + _REJECTS + _SNOOZES:
                raise Snooze(0.1)

        for queue in QUEUES:
            worker.task(queue)(handle)
        return worker

    async def _produce(self, client: AsyncClient, queue: str, dice: Random) -> None:
        made = 0
        next_at = time.monotonic()
        while not self._stopping.is_set():
            size = dice.randint(1, 50)
            jobs = [self._job(dice, made + index) for index in range(size)]
            made += size
            started = time.monotonic()
            enqueued = await client.enqueue(queue, jobs, request_key=f"{self.seed}-{queue}-{made}")
            self.seen.slowest_ms = max(self.seen.slowest_ms, (time.monotonic() - started) * 1000)
            self.seen.enqueued += size
            self.seen.watched.append(enqueued.descriptors[0])
            if dice.random() < _CANCELS * size:
                await client.cancel(queue, [dice.choice(enqueued.descriptors)])
            next_at = max(next_at + size * len(QUEUES) / self.jobs_per_second, started)
            if (pause := next_at - time.monotonic()) > 0:
                await self._pause(pause)

    def _job(self, dice: Random, number: int) -> Job:
        now_ms = int(time.time() * 1000)
        return Job(
            dice.randbytes(dice.choice((10, 100, 1_000, 10_000))),
            priority=dice.randint(1, 3),
            run_after_ms=now_ms + dice.choice((0, 0, 0, 500, 2_000)),
            attempts_allowed=dice.randint(1, 4),
            headers={"number": str(number)} if dice.random() < 0.1 else None,
            unique=UniqueKey(f"key-{dice.randint(1, 1000)}") if dice.random() < 0.05 else None,
            expires_at_ms=now_ms + 600_000 if dice.random() < 0.1 else None,
        )

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass

    async def _until_drained(self, client: AsyncClient) -> None:
        """Looks until nothing waits and nothing is held, for two minutes at most; the checker reports the rest."""
        ends_at = time.monotonic() + 120
        while time.monotonic() < ends_at:
            stats = await client.queue_stats(*QUEUES)
            if not any(each.total("pending") + each.total("in_progress") for each in stats):
                return
            await asyncio.sleep(0.1)
