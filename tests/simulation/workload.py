"""The processes that are clients: production `AsyncClient`s over the simulated network, which write down what they are told.

Producers enqueue under request keys and repeat until they are answered; workers claim by long polls and ack, fail, forget, renew, save,
give back, or ack too late; an administrator deletes a queue and makes it again, and cancels jobs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from pinlater.client import Ack, Checkpoint, Claim, ClaimedJob, Job, Outcome, UniqueKey
from pinlater.client.errors import PinLaterError, QueueNotFound
from pinlater.client.values import QueueStats
from pinlater.simulation.client import ClientProcess
from pinlater.simulation.cluster import PASSWORD
from pinlater.simulation.loop import Timeline
from pinlater.simulation.network import Network
from pinlater.simulation.trace import Trace

QUEUE = "jobs"
SCRATCH = "scratch"  # deleted and made again while it is used
_ATTEMPTS = 1_000  # so that no job ever fails for want of them
_ACK_DEADLINE_S = 15.0
_UNIQUE_KEYS = 3
_ORDERING_KEYS = 2


class Workload(NamedTuple):
    """How much there is to do, and in what shares. Of the claimed jobs; the rest is acked at once."""

    producers: int = 1
    workers: int = 2
    requests: int = 6  # of each producer
    jobs_max: int = 3  # of a request
    pause_s: float = 0.1  # between two requests of a producer
    claim_timeout_ms: int = 600
    wait_ms: int = 1_000
    client_timeout_ms: int = 2_000
    scratch: float = 0.0  # of the requests
    unique: float = 0.0  # of the other requests: one job with a unique key of a few
    delayed: float = 0.1  # of the jobs
    ordered: float = 0.0  # of the jobs that are not in the scratch queue: one of a few ordering keys
    failed: float = 0.06
    forgotten: float = 0.05
    late: float = 0.05
    held: float = 0.05
    released: float = 0.04
    saved: float = 0.04
    cancelled: float = 0.02


class Process(ClientProcess):
    """One client process."""

    def __init__(
        self,
        name: str,
        timeline: Timeline,
        network: Network,
        servers: Sequence[str],
        seed: object,
        load: Workload,
        trace: Trace,
        wall_ms: Callable[[], int],
    ) -> None:
        self.load = load
        follows = Random(f"{seed} {name} follows").choice((True, None, False))
        super().__init__(
            name, timeline, network, servers, seed, trace, timeout_ms=load.client_timeout_ms, follow_owners=follows
        )
        self.working = True
        self.may_die = False
        self.ends_soon = False  # whether only the end of all jobs matters now
        self._wall_ms = wall_ms
        # Of its own, so that the rest of a seed does not depend on ordering keys.
        self._ordering_dice = Random(f"{seed} {name} order")

    def finish(self) -> None:
        """Workers claim no more."""
        self.working = False

    # --- producers ------------------------------------------------------------------------------------------------------------

    async def produce(self) -> None:
        """All requests of one producer."""
        load, dice = self.load, self.dice
        for number in range(load.requests):
            await asyncio.sleep(dice.expovariate(1 / load.pause_s))
            queue = SCRATCH if dice.random() < load.scratch else QUEUE
            unique = None
            if queue == QUEUE and load.unique and dice.random() < load.unique:
                unique = UniqueKey(f"key{dice.randint(1, _UNIQUE_KEYS)}")
            jobs = dice.randint(1, load.jobs_max) if unique is None else 1
            await self.enqueue(queue, f"{self.name}-{number}", jobs, unique)

    async def enqueue(
        self, queue: str, key: str, jobs: int, unique: UniqueKey | None = None, ordering_key: str | None = None
    ) -> bool:
        """One request, as a repeat once it may have taken effect; whether it was answered. `ordering_key`: of all jobs, in place of the
        load's."""
        dice, load = self.dice, self.load
        bodies = [f"{key}-{index}" for index in range(jobs)]
        now_ms = self._wall_ms()
        requested = [
            Job(
                body.encode(),
                priority=dice.randint(1, 3),
                attempts_allowed=_ATTEMPTS,
                unique=unique,
                claim_timeout_ms=load.claim_timeout_ms,
                ordering_key=ordering_key or (self._ordering_key() if queue == QUEUE else None),
                run_after_ms=now_ms + dice.randint(1, 500) if dice.random() < load.delayed else None,
            )
            for body in bodies
        ]
        answer = await self._enqueue_until_answered(queue, key, requested, may_be_deleted=queue == SCRATCH)
        return answer is not None

    def _ordering_key(self) -> str | None:
        dice = self._ordering_dice
        return f"key{dice.randint(1, _ORDERING_KEYS)}" if dice.random() < self.load.ordered else None

    # --- workers --------------------------------------------------------------------------------------------------------------

    async def work(self, queues: Sequence[str]) -> None:
        """Claims and works until `working` is over."""
        load, dice = self.load, self.dice
        while self.working:
            queue = dice.choice(queues)
            wait_ms = dice.choice((0, load.wait_ms, load.wait_ms)) if not self.ends_soon else min(1_000, load.wait_ms)
            jobs = await self.claim(queue, dice.randint(1, 4), wait_ms)
            if jobs is None or (not jobs and not wait_ms):
                await asyncio.sleep(dice.uniform(0.02, 0.2))
            for job in jobs or ():
                self._tasks.add(self.loop.create_task(self._handle(job)))

    async def claim(self, queue: str, limit: int, wait_ms: int) -> Sequence[ClaimedJob] | None:
        """One dequeue; None where it was not answered."""
        call = self.trace.call("claim", worker=self.name, queue=queue, timeout_ms=self.load.claim_timeout_ms)
        try:
            jobs = (await self._call(self.client.dequeue(queue, limit, wait_ms=wait_ms))).jobs
        except PinLaterError:
            return None
        self.trace.answer(call, jobs=[[job.descriptor, job.token, job.body.decode()] for job in jobs])
        return jobs

    async def claim_until_answered(self, queue: str, limit: int, wait_ms: int) -> Sequence[ClaimedJob]:
        """A dequeue, made again as long as it fails."""
        while (jobs := await self.claim(queue, limit, wait_ms)) is None:
            await asyncio.sleep(0.05)
        return jobs

    async def _handle(self, job: ClaimedJob) -> None:
        load, roll = self.load, self.dice.random()
        timeout_s = load.claim_timeout_ms / 1000
        if self.ends_soon:
            return await self.ack(Ack(job.descriptor, token=job.token))
        for share, handle in (
            (load.forgotten, self._forget),
            (load.failed, self._fail),
            (load.late, self._ack_late),
            (load.held, self._hold),
            (load.released, self._release),
            (load.saved, self._save),
            (load.cancelled, self._cancel),
        ):
            if roll < share:
                return await handle(job)
            roll -= share
        await asyncio.sleep(self.dice.random() * timeout_s / 4)
        return await self.ack(Ack(job.descriptor, token=job.token))

    async def _forget(self, job: ClaimedJob) -> None:
        """As a worker that died."""

    async def _fail(self, job: ClaimedJob) -> None:
        delay_ms = self.dice.choice((0, 0, 200))
        await self.ack(Ack(job.descriptor, succeeded=False, token=job.token, retry_delay_ms=delay_ms))

    async def _ack_late(self, job: ClaimedJob) -> None:
        """Around the claim's time-out, or after it."""
        await asyncio.sleep(self.load.claim_timeout_ms / 1000 * self.dice.uniform(0.8, 3))
        await self.ack(Ack(job.descriptor, token=job.token))

    async def _hold(self, job: ClaimedJob) -> None:
        """Longer than the claim lasts, with heartbeats."""
        timeout_s = self.load.claim_timeout_ms / 1000
        for _ in range(5):
            await asyncio.sleep(timeout_s / 3)
            call = self.trace.call("heartbeat", descriptor=job.descriptor, token=job.token)
            try:
                [result] = await self._call(self.client.heartbeat(job.queue, [Claim(job.descriptor, job.token)]))
            except PinLaterError:
                continue
            self.trace.answer(call, outcome=int(result.outcome))
            if result.outcome is not Outcome.APPLIED:
                return
        await self.ack(Ack(job.descriptor, token=job.token))

    async def _release(self, job: ClaimedJob) -> None:
        call = self.trace.call("ack", acks=[(job.descriptor, job.token, False)], how="release")
        try:
            claim = Claim(job.descriptor, job.token)
            [result] = await self._call(self.client.release(job.queue, [claim]))
        except PinLaterError:
            return
        self.trace.answer(call, outcomes=[int(result.outcome)])

    async def _save(self, job: ClaimedJob) -> None:
        """A checkpoint that renews the claim; then perhaps one that gives the job back."""
        call = self.trace.call("heartbeat", descriptor=job.descriptor, token=job.token, how="checkpoint")
        item = Checkpoint(job.descriptor, job.token, prepend_status="x")
        try:
            [result] = await self._call(self.client.checkpoint(job.queue, [item]))
        except PinLaterError:
            return None
        self.trace.answer(call, outcome=int(result.outcome))
        if self.dice.random() < 0.5:
            return await self.ack(Ack(job.descriptor, token=job.token))
        call = self.trace.call("ack", acks=[(job.descriptor, job.token, False)], how="checkpoint")
        try:
            [result] = await self._call(self.client.checkpoint(job.queue, [item._replace(move_to_pending=True)]))
        except PinLaterError:
            return None
        self.trace.answer(call, outcomes=[int(result.outcome)])
        return None

    async def _cancel(self, job: ClaimedJob) -> None:
        call = self.trace.call("cancel", descriptor=job.descriptor)
        try:
            [result] = await self._call(self.client.cancel(job.queue, [job.descriptor]))
        except PinLaterError:
            return
        self.trace.answer(call, outcome=int(result.outcome))

    async def ack(self, ack: Ack) -> None:
        """Until it is answered, or an answer can't be expected any more."""
        queue = ack.descriptor.split(":")[0]
        ends_at_s = self._timeline.now_s + _ACK_DEADLINE_S
        while self._timeline.now_s < ends_at_s:
            call = self.trace.call("ack", acks=[(ack.descriptor, ack.token, ack.succeeded)])
            try:
                [result] = await self._call(self.client.ack(queue, [ack]))
            except QueueNotFound:
                return
            except PinLaterError:
                await asyncio.sleep(0.1)
                continue
            self.trace.answer(call, outcomes=[int(result.outcome)])
            return

    # --- administrators -------------------------------------------------------------------------------------------------------

    async def create(self, *queues: str) -> None:
        """Until they are there."""
        for queue in queues:
            await self._until_answered(lambda queue=queue: self.client.create_queue(queue))  # type: ignore[misc]

    async def count(self, queue: str) -> QueueStats:
        """What a server says of the queue."""
        [stats] = await self._until_answered(lambda: self.client.queue_stats(queue))
        return stats

    async def recreate(self, times: int, pause_s: float) -> None:
        """Deletes the scratch queue and makes it again."""
        for _ in range(times):
            await asyncio.sleep(self.dice.expovariate(1 / pause_s))
            call = self.trace.call("delete", queue=SCRATCH)
            try:
                await self._call(self.client.delete_queue(SCRATCH, PASSWORD))
            except PinLaterError:
                pass
            else:
                self.trace.answer(call)
            await self.create(SCRATCH)
