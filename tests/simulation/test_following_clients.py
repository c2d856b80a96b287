"""Production clients that follow the owners of queues, among production servers on simulated shards, while owners move and fail."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count, islice

import pytest

from pinlater.client import Ack, Job
from pinlater.client.errors import PinLaterError
from pinlater.domain.slices import slice_of
from pinlater.server.cluster.forwarding.messages import CallKind
from pinlater.simulation.cluster import SimulatedServer
from pinlater.simulation.trace import Trace
from tests.simulation.test_owners import LEASE_S, Scene, address_of
from tests.simulation.workload import Process, Workload

pytestmark = pytest.mark.usefixtures("collected")

QUEUE = "jobs"
# Owners are asked for again after this time at most, and a server that was lost is tried again.
FOLLOWED_WITHIN_S = 90.0


def followers(scene: Scene, number: int, timeout_ms: int = 4_000) -> list[Process]:
    """Clients of all servers that follow owners: not all that the simulation makes do."""
    load, trace = Workload(client_timeout_ms=timeout_ms), Trace(scene.timeline)
    made = (
        Process(
            f"client{index}",
            scene.timeline,
            scene.network,
            scene.cluster.addresses,
            1,
            load,
            trace,
            scene.cluster.wall_ms,
        )
        for index in count()
    )
    return list(islice((process for process in made if process.client._follow_owners is not False), number))


class Producer:
    """A client of all servers that enqueues one job after the other, and knows which enqueues were answered."""

    def __init__(self, scene: Scene, timeout_ms: int = 4_000) -> None:
        self.scene = scene
        [self.process] = followers(scene, 1, timeout_ms)
        self.answered = set[bytes]()
        self._made = 0
        self.took_s: list[float] = []

    async def create(self) -> None:
        await self.scene.done(self.process, self.process.client.create_queue(QUEUE))

    async def enqueue(self, jobs: int) -> None:
        """One job after the other; a call that fails is not made again."""
        for _ in range(jobs):
            self._made += 1
            body = str(self._made).encode()
            began_s = self.scene.timeline.now_s
            try:
                await self.scene.done(
                    self.process, self.process.client.enqueue(QUEUE, [Job(body)], request_key=f"key {self._made}")
                )
            except PinLaterError:
                pass
            else:
                self.answered.add(body)
            self.took_s.append(self.scene.timeline.now_s - began_s)

    async def until_followed(self) -> None:
        """Returns once several enqueues went to the owners of their shards."""
        ends_s = self.scene.timeline.now_s + FOLLOWED_WITHIN_S
        while True:
            before = forwarded(self.scene, CallKind.INSERT)
            await self.enqueue(16)
            if forwarded(self.scene, CallKind.INSERT) == before:
                return
            assert self.scene.timeline.now_s < ends_s
            await asyncio.sleep(1.0)

    def check_stored(self) -> None:
        """Each answered enqueue was stored once, and no other one twice."""
        stored = Counter(row.job.body for store in self.scene.stores for row in store.jobs())
        assert self.answered <= stored.keys()
        assert max(stored.values()) == 1


def forwarded(scene: Scene, kind: CallKind) -> int:
    """How many items of this kind servers have sent to each other."""
    clusters = [server.app.cluster for server in scene.alive if server.app is not None]
    return sum(each.forwarding.sent.whole.items[kind] for each in clusters if each.forwarding is not None)


def owner_of(scene: Scene) -> SimulatedServer:
    """That of the queue on the first shard."""
    address = scene.stores[0].owners.by_slice[slice_of(QUEUE)]
    return next(server for server in scene.cluster.servers if address_of(server) == address)


def test_enqueues_and_acks_reach_the_owner_without_another_server() -> None:
    async def work(scene: Scene) -> None:
        producer = Producer(scene)
        await producer.create()
        await producer.until_followed()
        before = forwarded(scene, CallKind.INSERT)
        await producer.enqueue(30)
        assert forwarded(scene, CallKind.INSERT) == before
        acks = forwarded(scene, CallKind.FINISH)
        client = producer.process.client

        async def one_by_one() -> None:
            while jobs := (await client.dequeue(QUEUE)).jobs:
                await client.ack(QUEUE, [Ack(job.descriptor, token=job.token) for job in jobs])

        await scene.done(producer.process, one_by_one())
        assert forwarded(scene, CallKind.FINISH) == acks

    Scene(3, 3).run(work)


@pytest.mark.parametrize("told", [True, False])
def test_an_owner_that_is_killed_delays_calls_for_moments_and_the_next_owner_is_followed(told: bool) -> None:
    async def work(scene: Scene) -> None:
        producer = Producer(scene)
        await producer.create()
        await producer.until_followed()
        killed = owner_of(scene)
        killed.stays_down = True
        killed.kill(told=told)
        await producer.enqueue(20)
        await producer.until_followed()
        producer.check_stored()
        assert max(producer.took_s) < 4.5

    Scene(3, 3).run(work)


def test_a_client_that_cannot_reach_an_owner_goes_by_way_of_the_others_until_it_can() -> None:
    async def work(scene: Scene) -> None:
        producer = Producer(scene)
        await producer.create()
        await producer.until_followed()
        owner = owner_of(scene)
        scene.network.cut(producer.process.name, owner.name)
        before = len(producer.took_s)
        await producer.enqueue(80)
        assert forwarded(scene, CallKind.INSERT) > 0
        # As many as of a client that follows no owners: one over a connection that was cut, one that makes a connection.
        assert len([each for each in producer.took_s[before:] if each > 0.5]) <= 2
        scene.network.heal(producer.process.name, owner.name)
        await producer.until_followed()
        producer.check_stored()

    Scene(3, 3).run(work)


def test_an_owner_that_stands_still_past_all_leases_stores_nothing_twice() -> None:
    """What it had received before goes unread when it continues; a repeat was stored through another server."""

    async def work(scene: Scene) -> None:
        producer = Producer(scene)
        await producer.create()
        await producer.until_followed()
        owner = owner_of(scene)
        assert owner.loop is not None
        owner.loop.pause()
        await producer.enqueue(20)
        await asyncio.sleep(LEASE_S + 10.0)
        await producer.enqueue(5)
        owner.loop.resume()
        await producer.until_followed()
        producer.check_stored()

    Scene(3, 3).run(work)


def test_a_server_that_comes_is_followed() -> None:
    async def work(scene: Scene) -> None:
        late = scene.cluster.servers[-1]
        late.stays_down = True
        late.kill(told=True)
        await scene.settled(20.0)
        producer = Producer(scene)
        await producer.create()
        await producer.until_followed()
        late.start()
        await scene.settled(20.0)
        await producer.until_followed()
        producer.check_stored()

    Scene(3, 3).run(work)


class Messages:
    """What reached the owner since `start`: `jobs` in `requests` of clients and `calls` of other servers."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.start()

    def start(self) -> None:
        self._before = self._now()

    def _now(self) -> tuple[int, int, int]:
        app = owner_of(self._scene).app
        assert app is not None
        taken = app.cluster.listener.taken.whole
        requests = app.metrics.method("enqueueJobs").requests
        return requests, taken.calls[CallKind.INSERT], taken.items[CallKind.INSERT]

    @property
    def requests(self) -> int:
        return self._now()[0] - self._before[0]

    @property
    def calls(self) -> int:
        return self._now()[1] - self._before[1]

    @property
    def jobs(self) -> int:
        return self.requests + self._now()[2] - self._before[2]


def test_clients_of_a_busy_owner_send_it_fewer_messages_for_as_many_jobs() -> None:
    """Their calls come joined, by way of the servers that are not busy; those store them past an owner that is saturated. Once it is no
    longer busy, each comes straight to it again."""
    clients, rounds = 24, 10

    async def work(scene: Scene) -> None:
        await Producer(scene).create()
        scene.network.trouble = scene.network.trouble._replace(latency_s=0.0)  # calls of one moment arrive in one turn
        processes = followers(scene, clients)
        messages = Messages(scene)
        await enqueue_until(scene, processes, lambda: messages.jobs == messages.requests, messages)
        assert messages.requests == clients * rounds
        owner = owner_of(scene).app
        assert owner is not None
        since_s = scene.timeline.monotonic()
        owner.cluster._load._cpu = lambda: 0.8 * (scene.timeline.monotonic() - since_s)  # of a core
        await enqueue_until(scene, processes, lambda: messages.requests < clients * rounds * 2 / 3, messages)
        assert messages.jobs == clients * rounds
        assert messages.requests + messages.calls < messages.jobs / 1.5
        owner.cluster._load._cpu = scene.timeline.monotonic  # a whole core
        await enqueue_until(scene, processes, lambda: messages.calls == 0, messages)
        assert messages.jobs < clients * rounds / 2
        owner.cluster._load._cpu = lambda: 0.0
        await enqueue_until(scene, processes, lambda: messages.requests == clients * rounds, messages)
        assert messages.calls == 0

    async def enqueue_until(
        scene: Scene, processes: Sequence[Process], true: Callable[[], bool], messages: Messages
    ) -> None:
        """Each client enqueues a job at the same moment, `rounds` times, until it is true of these rounds."""
        ends_s = scene.timeline.now_s + FOLLOWED_WITHIN_S
        while True:
            messages.start()
            for _ in range(rounds):
                calls = [process.start(process.client.enqueue(QUEUE, [Job(b"x")])) for process in processes]
                while not all(call.done() for call in calls):
                    await asyncio.sleep(0.01)
            if true():
                return
            assert scene.timeline.now_s < ends_s, (messages.requests, messages.calls, messages.jobs)
            await asyncio.sleep(5.0)

    Scene(3, 1).run(work)
