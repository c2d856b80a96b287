"""A steady load of SDK clients that goes on through anything and writes down what it was promised.

Open: requests leave at their pace whether others are answered or not, so that a shard that hangs costs the others no load. Producers
give each request a key and send it again as a repeat until it is answered; workers claim, and then succeed, fail, forget, or hold a
job for long under heartbeats. Acks go out shard by shard, and no two calls share a connection, where the second would wait for the first:
so each call's time is one shard's.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TypeVar

from pinlater.client import Ack, AsyncClient, Claim, ClaimedJob, Job, JobState, Outcome, QueueConfig
from pinlater.client._retries import is_unsent
from pinlater.client.errors import PinLaterError
from pinlater.domain.queue import STOP, TO_BACK
from pinlater.domain.rendezvous import rendezvous_home
from pinlater.domain.slices import slice_of
from pinlater.simulation.history import HistoryRecorder
from tests.faults.latency import ACK, ENQUEUE, PICKUP, SENT_ON, Latencies


def _in_slices_of_their_own(number: int) -> tuple[str, ...]:
    """Names of `number` queues: each may have an owner of its own on each shard."""
    found: dict[int, str] = {}
    for name in (f"faults_{count}" for count in itertools.count()):
        found.setdefault(slice_of(name), name)
        if len(found) == number:
            break
    return tuple(found.values())


QUEUES = _in_slices_of_their_own(5)
POLLED = "polled"  # has few jobs, so that a worker that waits for them waits for long
T = TypeVar("T")
# A worker that can't ack for so long lets the job go; its claim has timed out long before.
_ACK_DEADLINE_S = 15.0
_OUTSTANDING_MAX = 2_000
_WAIT_MS = 300
_LONG_WAIT_MS = 20_000
_POLLS_DONE_S = 60.0
_PAUSE_S_MAX = 2.0


class Pace(NamedTuple):
    """How much there is to do. `ordered` is the share of requests whose jobs have ordering keys, one of `ordering_keys` of their queue.
    `forgotten`, `failed`, `given_up` and `long` are shares of the claimed jobs; only jobs with ordering keys are given up, since a final
    failure means most to them."""

    requests_per_s: float = 40.0
    jobs_max: int = 4
    ordered: float = 0.3
    ordering_keys: int = 20
    workers: int = 10
    claim_timeout_ms: int = 3_000
    forgotten: float = 0.005
    failed: float = 0.03
    given_up: float = 0.02
    long: float = 0.01


def settings_by_queue(seed: int, partitions: int) -> dict[str, QueueConfig]:
    """What each queue says about its ordering keys, drawn anew for each seed."""
    dice = Random(f"{seed} settings")
    return {
        queue: QueueConfig(
            partitions=partitions,
            max_in_hand_per_key=dice.choice((None, None, 2, 3)),
            retry_place=dice.choice((None, TO_BACK)),
            after_failure=dice.choice((None, STOP)),
        )
        for queue in QUEUES
    }


class SteadyLoad:
    """Use as `async with SteadyLoad(...) as load`. `servers` is a server-set file; all that is seen goes to `recorder`."""

    def __init__(
        self, servers: Path, seed: int, pace: Pace, shards: Sequence[str], settings: Mapping[str, QueueConfig]
    ) -> None:
        """`settings`: of the queues."""
        self._servers = servers
        self.shards = shards
        self._seed = seed
        self._pace = pace
        self.settings = settings
        self._key_of: dict[str, str] = {}  # ordering keys by body
        self.recorder = HistoryRecorder()
        self.judged = 0  # lines of it that have been looked at
        self.latencies = Latencies()
        self.errors = Counter[str]()
        self.enqueued = Counter[str]()  # jobs, by shard
        self.ordered = 0  # jobs with ordering keys
        self.ordered_in_hand = Counter[tuple[str, str]]()  # how often one was handed out, by queue and shard
        self.succeeded = Counter[str]()
        self.done: set[str] = set()  # descriptors
        self.failed: set[str] = set()  # those of jobs that have surely failed for good
        self.may_have_failed: set[str] = set()  # those of jobs that may have
        self.unexpected: list[str] = []
        self.unanswered: set[str] = set()  # request keys
        self._answered_at: dict[str, float] = {}  # by body, for those that were stored at the first try
        self._flowing = asyncio.Event()
        self._working = asyncio.Event()
        self._dequeues = 0  # under way
        self.go_on()
        self._over = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._puts = 0
        self._free: dict[str, list[AsyncClient]] = defaultdict(list)  # by the server they go to; '' for any
        self._opened: list[AsyncClient] = []

    async def __aenter__(self) -> SteadyLoad:
        self._start(self._produce())
        for number in range(self._pace.workers):
            self._start(self._work(f"worker-{number}"))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._over.set()
        self.go_on()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in self._opened:
            await client.close()

    def pause(self) -> None:
        """No new requests of producers; those under way go on until they are answered, and workers work on."""
        self._flowing.clear()

    async def rest(self) -> None:
        """Workers pause, too; until no call is under way."""
        self._working.clear()
        while self._dequeues:
            await self._pause(0.02)

    def go_on(self) -> None:
        """The pace as before."""
        self._flowing.set()
        self._working.set()

    def spread(self) -> None:
        """New clients from now on, so that there are connections to servers that came."""
        self._free.clear()

    async def put(self, queue: str, jobs: int = 1) -> Sequence[str]:
        """Enqueues until it is answered; the jobs' descriptors."""
        key = self._new_key(queue)
        return await self._enqueue([f"{key}-{index}" for index in range(jobs)], Random(key), queue)

    def begin_put(self, queue: str, shard: str, server: str) -> asyncio.Task[Sequence[str]]:
        """The same with one job, by way of a server, and to a shard while that takes jobs. Goes on if nothing waits for it."""
        key = self._new_key(queue)
        while rendezvous_home(key, self.shards) != shard:
            key = self._new_key(queue)
        return self._start(self._enqueue([f"{key}-0"], Random(key), queue, server))

    def _new_key(self, queue: str) -> str:
        self._puts += 1
        return f"{queue}-{self._seed}-{self._puts}"

    def begin_work(self, queue: str, server: str, over: asyncio.Event) -> None:
        """One more worker, which goes to this server only."""
        self._start(self._work_at(queue, server, over))

    async def _work_at(self, queue: str, server: str, over: asyncio.Event) -> None:
        dice = Random(f"{self._seed} {server} {queue}")
        while not over.is_set() and not self._over.is_set():
            self._handle(await self._dequeue(f"{queue} {server}", 10, queue, server=server), dice)

    @contextlib.asynccontextmanager
    async def polls(self, number: int, *, puts_per_s: float = 0.0) -> AsyncIterator[None]:
        """More workers, each in long polls of the queue `POLLED`, and jobs for them. Ends when all of these are done.

        A job is held for longer than its claim lasts, so that it is seen when another worker gets it meanwhile.
        """
        async with client_of(self._servers) as client:
            await client.create_queue(POLLED)
            polls = [asyncio.ensure_future(self._poll(f"poll-{index}")) for index in range(number)]
            puts = asyncio.ensure_future(self._put_now_and_then(puts_per_s))
            try:
                yield
                puts.cancel()
                await asyncio.wait([puts])
                ends_at = time.monotonic() + _POLLS_DONE_S
                while (left := await _left(client, POLLED)) or self.unanswered_of(POLLED):
                    assert time.monotonic() < ends_at, f"{left} jobs of {POLLED} were never done"
                    await self._pause(0.05)
            finally:
                for task in (puts, *polls):
                    task.cancel()
                ended = await asyncio.gather(puts, *polls, return_exceptions=True)
                self.unexpected += [repr(error) for error in ended if isinstance(error, Exception)]

    def unanswered_of(self, queue: str) -> set[str]:
        """Keys of this queue's enqueues that have no answer."""
        return {key for key in self.unanswered if key.startswith(f"{queue}-")}

    async def _put_now_and_then(self, puts_per_s: float) -> None:
        dice = Random(f"{self._seed} puts")
        while puts_per_s:
            self._start(self.put(POLLED))
            await self._pause(dice.expovariate(puts_per_s))

    async def _poll(self, name: str) -> None:
        while not self._over.is_set():
            for job in await self._dequeue(name, 1, POLLED, _LONG_WAIT_MS):
                self._start(self._hold(job))

    async def quiet(self, seconds: float) -> None:
        """Lets so much time go by, unless the load ends before."""
        await self._pause(seconds)

    @property
    def busy(self) -> bool:
        """Whether anything is under way beside the producer and the workers themselves."""
        return len(self._tasks) > 1 + self._pace.workers

    # --- how it works -------------------------------------------------------------------------------------------------------

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.unexpected.append(repr(error))

    @contextlib.asynccontextmanager
    async def _client(self, server: str = "") -> AsyncIterator[AsyncClient]:
        """One for a call. It makes no call twice: that is for the load, which writes each one down."""
        free = self._free[server]
        if free:
            client = free.pop(0)  # in turn, so that all servers get some
        else:
            client = await AsyncClient(server or self._servers, source="load", connections=1, retries=0).open()
            self._opened.append(client)
        try:
            yield client
        finally:
            self._free[server].append(client)

    def _count(self, call: str, error: PinLaterError) -> None:
        self.errors[f"{call}: {type(error).__name__} {error.detail}".rstrip()] += 1

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._over.wait()

    async def _produce(self) -> None:
        dice = Random(f"{self._seed} producer")
        made = 0
        next_at = time.monotonic()
        while not self._over.is_set():
            await self._flowing.wait()
            size = dice.randint(1, self._pace.jobs_max)
            bodies = [f"{self._seed}-{made + index}-{'x' * dice.randint(0, 300)}" for index in range(size)]
            made += size
            if len(self._tasks) < _OUTSTANDING_MAX:
                self._start(
                    self._enqueue(
                        bodies,
                        Random(f"{self._seed} {made}"),
                        dice.choice(QUEUES),
                        ordered=dice.random() < self._pace.ordered,
                    )
                )
            next_at = max(next_at, time.monotonic() - 0.1) + dice.expovariate(self._pace.requests_per_s)
            await self._pause(max(0.0, next_at - time.monotonic()))

    async def _enqueue(
        self, bodies: Sequence[str], dice: Random, queue: str, server: str = "", *, ordered: bool = False
    ) -> Sequence[str]:
        """Until it is answered: as a repeat, once it may have taken effect. The descriptors. `ordered`: the jobs have ordering keys."""
        key = bodies[0].rpartition("-")[0]
        jobs = [
            Job(
                body.encode(),
                priority=dice.randint(1, 3),
                attempts_allowed=1_000,
                claim_timeout_ms=self._pace.claim_timeout_ms,
                ordering_key=f"key {dice.randrange(self._pace.ordering_keys)}" if ordered else None,
            )
            for body in bodies
        ]
        self.unanswered.add(key)
        keys = {"ordering_keys": [job.ordering_key for job in jobs]} if ordered else {}
        self._key_of |= {body: job.ordering_key for body, job in zip(bodies, jobs, strict=True) if job.ordering_key}
        call = self.recorder.call("enqueue", bodies=bodies, **keys)
        repeat, failures = False, 0
        while True:
            began = time.monotonic()
            try:
                async with self._client(server) as client:
                    enqueued = await client.enqueue(queue, jobs, request_key=key, repeat=repeat)
            except PinLaterError as error:
                self._count("repeated enqueue" if repeat else "enqueue", error)
                repeat, failures = repeat or not is_unsent(error), failures + 1
                # All clients that were refused at once must not come back at the same moment.
                await self._pause(dice.uniform(0.02, min(0.1 * 2**failures, _PAUSE_S_MAX)))
            else:
                break
        self.recorder.answer(call, descriptors=list(enqueued.descriptors))
        self.unanswered.discard(key)
        now = time.monotonic()
        shards = Counter(shard_of(descriptor) for descriptor in enqueued.descriptors)
        self.enqueued += shards
        if ordered:
            self.ordered += len(jobs)
        if queue not in QUEUES or server or ordered:
            return enqueued.descriptors
        if len(shards) == 1:
            [shard] = shards
            kind = ENQUEUE if shard == rendezvous_home(key, self.shards) else SENT_ON
            self.latencies.add(kind, shard, now - began)
        if not failures:
            self._answered_at.update(dict.fromkeys(bodies, now))
        return enqueued.descriptors

    async def _work(self, name: str) -> None:
        dice = Random(f"{self._seed} {name}")
        while not self._over.is_set():
            await self._working.wait()
            self._dequeues += 1
            try:
                jobs = await self._dequeue(name, dice.randint(1, 10), dice.choice(QUEUES))
            finally:
                self._dequeues -= 1
            self._handle(jobs, dice)

    async def _dequeue(
        self, name: str, limit: int, queue: str, wait_ms: int = _WAIT_MS, server: str = ""
    ) -> Sequence[ClaimedJob]:
        call = self.recorder.call("claim", worker=name, timeout_ms=self._pace.claim_timeout_ms)
        try:
            async with self._client(server) as client:
                jobs = (await client.dequeue(queue, limit, wait_ms=wait_ms)).jobs
        except PinLaterError as error:
            self._count("dequeue", error)
            await self._pause(0.05)
            return ()
        now_ms = time.time() * 1000
        self.recorder.answer(
            call,
            jobs=[
                [job.descriptor, job.token, job.body.decode(), int((job.claim_deadline_ms or 0) - now_ms)]
                for job in jobs
            ],
        )
        now = time.monotonic()
        for job in jobs:
            answered_at = self._answered_at.pop(job.body.decode(), None)
            if answered_at is not None and job.attempt == 1:
                self.latencies.add(PICKUP, shard_of(job.descriptor), max(0.0, now - answered_at))
        return jobs

    def _handle(self, jobs: Sequence[ClaimedJob], dice: Random) -> None:
        pace = self._pace
        at_once: dict[str, list[Ack]] = {}
        for job in jobs:
            key = self._key_of.get(job.body.decode())
            if key is not None:
                self.ordered_in_hand[queue_of(job.descriptor), shard_of(job.descriptor)] += 1
                if dice.random() < pace.given_up:
                    self._start(self._give_up(job, key, dice.random()))
                    continue
            roll = dice.random()
            if roll < pace.forgotten:
                continue
            if roll < pace.forgotten + pace.long:
                self._start(self._hold(job))
                continue
            ack = Ack(job.descriptor, token=job.token)
            if roll < pace.forgotten + pace.long + pace.failed:
                ack = ack._replace(succeeded=False, retry_delay_ms=dice.choice((0, 0, 200)))
            at_once.setdefault(shard_of(job.descriptor), []).append(ack)
        for acks in at_once.values():
            self._start(self._ack(acks))

    async def _hold(self, job: ClaimedJob) -> None:
        """Works on it for longer than its claim lasts, with heartbeats; lets it go once it is told that it is not its own."""
        ends_at = time.monotonic() + 1.5 * self._pace.claim_timeout_ms / 1000
        while time.monotonic() < ends_at:
            await self._pause(self._pace.claim_timeout_ms / 5_000)
            call = self.recorder.call("heartbeat", descriptor=job.descriptor, token=job.token)
            try:
                async with self._client() as client:
                    [result] = await client.heartbeat(queue_of(job.descriptor), [Claim(job.descriptor, job.token)])
            except PinLaterError as error:
                self._count("heartbeat", error)
                continue
            self.recorder.answer(call, outcome=int(result.outcome))
            if result.outcome is not Outcome.APPLIED:
                return
        await self._ack([Ack(job.descriptor, token=job.token)])

    async def _give_up(self, job: ClaimedJob, key: str, roll: float) -> None:
        """Fails it finally. If it has stopped its key, an operator runs it again a moment later, or lets the key go."""
        queue = queue_of(job.descriptor)
        await self._ack([Ack(job.descriptor, token=job.token, succeeded=False, final=True)])
        if self.settings[queue].after_failure != STOP:
            return
        await self._pause(roll)
        while (state := await self._answered("lookup", lambda client: _state_of(client, job.descriptor))) in (
            JobState.PENDING,
            JobState.IN_PROGRESS,
        ):
            await self._pause(0.2)  # the ack has not counted, or comes late: the job goes on elsewhere
        if state is not JobState.FAILED:
            return
        if roll < 0.5:
            await self._answered("run", partial(self._run_again, job))
        else:
            await self.unblock(queue, key)

    async def unblock(self, queue: str, key: str) -> None:
        """Lets a key go, as an operator does, until that is answered."""
        await self._answered("unblock", partial(self._unblock, queue, key))

    async def _run_again(self, job: ClaimedJob, client: AsyncClient) -> None:
        call = self.recorder.call("run", descriptor=job.descriptor)
        [result] = await client.run_jobs(queue_of(job.descriptor), [job.descriptor], attempts=1_000)
        self.recorder.answer(call, outcome=int(result.outcome))

    async def _unblock(self, queue: str, key: str, client: AsyncClient) -> None:
        call = self.recorder.call("unblock", queue=queue, key=key)
        await client.unblock_key(queue, key)
        self.recorder.answer(call)

    async def _answered(self, call: str, ask: Callable[[AsyncClient], Awaitable[T]]) -> T:
        """What a call answers that is safe to repeat until it is answered."""
        while True:
            try:
                async with self._client() as client:
                    return await ask(client)
            except PinLaterError as error:
                self._count(call, error)
                await self._pause(0.2)

    async def _ack(self, acks: Sequence[Ack]) -> None:
        """Until it is answered, or an answer can't be expected any more."""
        acks = sorted(acks, key=lambda ack: not ack.succeeded)
        shard = shard_of(acks[0].descriptor)
        ends_at = time.monotonic() + _ACK_DEADLINE_S
        while time.monotonic() < ends_at:
            call = self.recorder.call(
                "ack", acks=[(ack.descriptor, ack.token, ack.succeeded, ack.final) for ack in acks]
            )
            began = time.monotonic()
            try:
                async with self._client() as client:
                    results = await client.ack(queue_of(acks[0].descriptor), acks)
            except PinLaterError as error:
                self._count("ack", error)
                await self._pause(0.1)
                continue
            self.latencies.add(ACK, shard, time.monotonic() - began)
            self.recorder.answer(call, outcomes=[int(result.outcome) for result in results])
            done = {
                ack.descriptor for ack, result in zip(acks, results, strict=True) if ack.succeeded and result.applied
            }
            self.succeeded[shard] += len(done)
            self.done |= done
            return


@contextlib.asynccontextmanager
async def client_of(servers: Path) -> AsyncIterator[AsyncClient]:
    """For looks: with a long time-out, and with retries."""
    async with AsyncClient(servers, source="checker", timeout_ms=30_000, retries=10) as client:
        yield client


async def _state_of(client: AsyncClient, descriptor: str) -> JobState | None:
    found = (await client.lookup([descriptor])).get(descriptor)
    return None if found is None else JobState(found.state)


async def _left(client: AsyncClient, queue: str) -> int:
    [stats] = await client.queue_stats(queue)
    return stats.total("pending") + stats.total("in_progress")


def queue_of(descriptor: str) -> str:
    """The name of the job's queue."""
    return descriptor.split(":")[0]


def shard_of(descriptor: str) -> str:
    """The name of the shard that keeps the job."""
    return descriptor.split(":")[1].removeprefix("s")
