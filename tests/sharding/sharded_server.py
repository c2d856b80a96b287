"""The parts of a server on several faulty shards, on an event loop whose time the test turns: no time limit waits for real time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from pinlater.domain.clock import ManualClock
from pinlater.domain.job import UniqueKey, UniqueScope
from pinlater.domain.queue import QueueConfig
from pinlater.domain.rendezvous import rendezvous_home
from pinlater.server.operations.job_settings import JobSettings
from pinlater.server.operations.values import Caller
from pinlater.server.sharding.reload import DesiredShard, MapChange
from pinlater.server.sharding.settings import ShardingSettings
from pinlater.server.sharding.shards import ShardLanes
from pinlater.server.storage.commands import CountJobs
from pinlater.server.storage.options import Options
from pinlater.server.storage.sqlite.memory import MemoryShard
from pinlater.server.storage.values import InsertRequest, NewJob
from pinlater.testing._loop import TurnedLoop
from pinlater.wire.generated.structs import Ack, AckBatch, DequeueRequest, Enqueued, EnqueueRequest, Job
from tests.assembly import open_core
from tests.handed_out import DequeuedJobs, answer_of
from tests.quick_hash import quick_hash
from tests.sharding.faulty import FaultyShard

T = TypeVar("T")
CALLER = Caller("tests")
PASSWORD = "open sesame"
_HASH = quick_hash(PASSWORD)
_STEP_MS = 200


class ShardedServer:
    """Shards by name, and a server's parts on them. `run_on_shards` opens and closes it."""

    def __init__(
        self, clock: ManualClock, sharding: ShardingSettings | None = None, jobs: JobSettings | None = None
    ) -> None:
        self.clock = clock
        self.settings = sharding or ShardingSettings()
        self.stores: dict[str, FaultyShard] = {}
        self._jobs = jobs or JobSettings()
        self._made = set[str]()  # by `queue_for`
        self.turning: asyncio.Future[None] | None = None  # another task that advances the clock

    def store(self, name: str) -> FaultyShard:
        """The shard below, made at the first call. Another server's data is another object: `move` makes one."""
        return self.stores.setdefault(name, FaultyShard(MemoryShard(name)))

    def desired(self, name: str, *, takes_enqueues: bool = True, address: str = "", lost: bool = False) -> DesiredShard:
        return DesiredShard(name, lambda: self.store(name).as_shard(), address, takes_enqueues, lost=lost)

    async def open(self, desired: Sequence[DesiredShard]) -> None:
        self.core = await open_core(
            *desired, clock=self.clock, admin_password_hash=_HASH, sharding=self.settings, jobs=self._jobs
        )
        self.shards, self.service = self.core.shards, self.core.service

    async def close(self) -> None:
        closing = asyncio.ensure_future(self.core.close())
        while not closing.done():
            await self.turns()
            self.clock.advance(ms=_STEP_MS)
        await closing

    def lanes(self, name: str) -> ShardLanes:
        found = self.shards.get(name)
        assert found is not None
        return found

    # --- time -------------------------------------------------------------------------------------------------------------

    async def turns(self, number: int = 40) -> None:
        """Lets everything happen that needs no time."""
        for _ in range(number):
            await asyncio.sleep(0)

    async def pass_time(self, ms: int) -> None:
        """Time goes by, and the shard monitor looks as often as it does in a server."""
        end = self.clock.now_ms() + ms
        while self.clock.now_ms() < end:
            await self.turns()
            self.clock.advance(ms=min(_STEP_MS, end - self.clock.now_ms()))
            await self.turns()
            await self.core.shard_monitor.look()
            await self.turns()

    async def within(self, ms: int, call: Coroutine[Any, Any, T]) -> T:
        """The call's result, which must be there before so much time has passed."""
        task = asyncio.ensure_future(call)
        end = self.clock.now_ms() + ms
        await self.turns()
        while not task.done() and self.clock.now_ms() < end:
            await self.pass_time(_STEP_MS)
        assert task.done(), f"not done within {ms} ms"
        return task.result()

    # --- words ------------------------------------------------------------------------------------------------------------

    async def enqueue(
        self,
        *bodies: bytes,
        unique: str | Sequence[str | None] | None = None,
        scope: UniqueScope = UniqueScope.UNFINISHED,
        key: str | None = None,
        repeat: bool = False,
        queue: str = "q",
        ordering_key: str | None = None,
    ) -> Enqueued:
        keys = [unique] * len(bodies) if unique is None or isinstance(unique, str) else list(unique)
        jobs = [
            Job(body, unique_key=name, unique_scope=scope, unique_for_ms=60_000, ordering_key=ordering_key)
            for body, name in zip(bodies, keys, strict=True)
        ]
        return await self.service.enqueuing.enqueue(EnqueueRequest(queue, jobs, request_key=key, repeated=repeat))

    async def put(self, shard: str, body: bytes = b"x") -> str:
        """Enqueues until a job is on that shard, a partition. Returns its descriptor."""
        for _ in range(300):
            [descriptor] = (await self.enqueue(body)).descriptors
            if shard_of(descriptor) == shard:
                return descriptor
            await self.service.bulk.delete_jobs_by_descriptor("q", [descriptor])
        raise AssertionError(f"no job of the queue q comes to shard {shard}")

    async def place(
        self,
        shard: str,
        body: bytes = b"x",
        *,
        priority: int = 1,
        due_ms: int | None = None,
        unique: str = "",
        queue: str = "q",
    ) -> str:
        """Puts a job on that shard, as a server would that has another map. Returns its descriptor."""
        lanes = self.lanes(shard)
        [job_id] = lanes.ids.make(1)
        job = NewJob(job_id, body, priority, self.clock.now_ms() if due_ms is None else due_ms, 5)
        if unique:
            job = job._replace(options=Options(unique=UniqueKey(unique)))
        await lanes.insert.submit(InsertRequest(queue, [job]))
        return f"{queue}:s{shard}:p{priority}:{job_id}"

    async def queue_for(self, shard: str, *, beside: str = "", moves_to: str = "") -> str:
        """Creates a queue whose first partition is that shard. `beside`: also once that shard is added. `moves_to`: until that one is."""
        takers = [each.name for each in self.shards if each.takes_enqueues]
        later = [*takers, moves_to or beside or shard]
        for number in range(10_000):
            name = f"queue{number}"
            if (
                name not in self._made
                and rendezvous_home(name, takers) == shard
                and rendezvous_home(name, later) == (moves_to or shard)
            ):
                self._made.add(name)
                await self.service.queues.create_queue(name)
                return name
        raise AssertionError("no such name")

    async def dequeue(self, limit: int = 100, *, queue: str = "q", **more: Any) -> DequeuedJobs:
        return answer_of(queue, await self.service.dequeuing.dequeue(CALLER, DequeueRequest(queue, limit, **more)))

    async def ack(self, *descriptors: str) -> None:
        """Acks these jobs of one queue."""
        if descriptors:
            queue = descriptors[0].partition(":")[0]
            await self.service.claimed_jobs.acknowledge(CALLER, AckBatch(queue, [Ack(each) for each in descriptors]))

    async def jobs_on(self, name: str) -> int:
        """How many live jobs the shard has, whatever its state."""
        rows = await self.stores[name].within.submit(CountJobs())
        return sum(row.counts.pending + row.counts.in_progress for row in rows)

    async def in_progress_on(self, name: str) -> int:
        return sum(row.counts.in_progress for row in await self.stores[name].within.submit(CountJobs()))

    async def replace(self, *desired: DesiredShard) -> MapChange:
        return await self.core.change_shards(desired)

    async def count(self) -> None:
        """What a server does every few seconds: counts the jobs of each shard in reach."""
        self.clock.advance(ms=1)
        await self.core.rates.sample()

    async def learn(self, *, after_s: int = 0) -> None:
        """What a server does every few seconds, for unique keys; at last after so long a time."""
        self.clock.advance(seconds=after_s)
        await self.shards.unique.learn(list(self.shards))

    def counted(self, name: str) -> int:
        return self.core.metrics.snapshot().counters.get(name, 0)


def shard_of(descriptor: str) -> str:
    return descriptor.split(":")[1].removeprefix("s")


def shards_of(enqueued: Enqueued) -> list[str]:
    return [shard_of(descriptor) for descriptor in enqueued.descriptors]


def run_on_shards(
    scenario: Callable[[ShardedServer], Awaitable[None]],
    *,
    shards: Sequence[str] = ("1", "2", "3"),
    draining: Sequence[str] = (),
    settings: ShardingSettings | None = None,
    service: JobSettings | None = None,
    dead: Sequence[str] = (),
    partitions: int | None = None,
    prepare: Callable[[ShardedServer], None] = lambda server: None,
) -> None:
    """Runs the scenario on a server with these shards with the queue `q`. `dead`: those that are unreachable at the start. `partitions`: of
    the queue; not given, as many as there are shards.

    `prepare` comes before they are opened.
    """
    clock = ManualClock()
    server = ShardedServer(clock, settings, service)

    async def run() -> None:
        for name in dead:
            server.store(name).dead = "connection refused"
        prepare(server)
        await server.open([server.desired(name, takes_enqueues=name not in draining) for name in shards])
        await server.service.queues.create_queue("q")
        most = len(server.shards.partitions.order("q"))
        if most > 1:
            await server.service.queues.configure_queue("q", QueueConfig(partitions=partitions or most))
        await server.learn()
        try:
            await scenario(server)
        finally:
            for store in server.stores.values():
                store.release()
            await server.close()

    with asyncio.Runner(loop_factory=lambda: TurnedLoop(clock)) as runner:
        runner.run(run())


def on_shards(**options: Any) -> Callable[[Callable[[ShardedServer], Awaitable[None]]], Callable[[], None]]:
    """Makes a test of a scenario: `@on_shards(shards=("1", "2"))`."""

    def decorate(scenario: Callable[[ShardedServer], Awaitable[None]]) -> Callable[[], None]:
        def test() -> None:
            run_on_shards(scenario, **options)

        test.__name__ = scenario.__name__
        test.__doc__ = scenario.__doc__
        return test

    return decorate
