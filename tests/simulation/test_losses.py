"""One server of three is lost, or does not reach the others: within five seconds each queue is served on each shard."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Sequence
from itertools import count

import pytest

from pinlater.client import Job, QueueConfig
from pinlater.client.errors import PinLaterError
from pinlater.domain.descriptor import shard_of
from pinlater.domain.rendezvous import rendezvous_home, rendezvous_order
from pinlater.domain.slices import SLICES, slice_of
from pinlater.server.cluster.forwarding.peer_connection import PeerConnection
from pinlater.server.cluster.ownership.ownership import Ownership
from pinlater.simulation.cluster import SimulatedServer
from pinlater.simulation.trace import Trace
from tests.simulation.test_owners import LEASE_S, Scene
from tests.simulation.workload import Process, Workload

pytestmark = pytest.mark.usefixtures("collected")

SERVERS = SHARDS = 3
SERVED_WITHIN_S = 5.0
_WAIT_MS = 10_000
_JOBS_EVERY_S = 0.25


class Load:
    """A queue in each slice; a producer that knows all servers, and for each server a worker that waits there for jobs of each queue."""

    def __init__(self, scene: Scene) -> None:
        names = {slice_of(name): name for name in (f"q{number}" for number in range(200))}
        self.queues = [names[index] for index in range(SLICES)]
        self._scene = scene
        self._shards = [store.name for store in scene.stores]
        self._producer = self._process("producer", scene.cluster.servers)
        self._workers = [self._process(f"worker of {server.name}", [server]) for server in scene.cluster.servers]
        self._keys = map(str, count())
        self._round = 0
        self._unclaimed = set[tuple[str, str]]()  # queues on shards of which no job of this round was claimed

    def _process(self, name: str, servers: Sequence[SimulatedServer]) -> Process:
        scene, addresses = self._scene, [server.address for server in servers]
        load, trace = Workload(client_timeout_ms=2_000), Trace(scene.timeline)
        return Process(name, scene.timeline, scene.network, addresses, 1, load, trace, scene.cluster.wall_ms)

    async def start(self) -> None:
        """Returns once the workers wait."""
        for queue in self.queues:
            await self._scene.done(self._producer, self._producer.client.create_queue(queue))
            on_all = QueueConfig(partitions=len(self._shards))
            await self._scene.done(self._producer, self._producer.client.configure_queue(queue, on_all))
        for worker in self._workers:
            for queue in self.queues:
                worker.start(self._work(worker, queue))
        await self.served()

    def cut_off(self, server: SimulatedServer) -> None:
        """No client reaches the server from now on."""
        for client in (self._producer, *self._workers):
            self._scene.network.cut(client.name, server.name)

    async def served(self) -> None:
        """From now on enqueues jobs until a worker has got one of them from each queue on each shard. Fails if that takes too long."""
        ends_s = self._scene.timeline.now_s + SERVED_WITHIN_S
        self._round += 1
        self._unclaimed = {(queue, shard) for queue in self.queues for shard in self._shards}
        while self._unclaimed:
            for queue, shard in sorted(self._unclaimed):
                self._producer.start(self._enqueue(queue, shard))
            await asyncio.sleep(_JOBS_EVERY_S)
            assert not self._unclaimed or self._scene.timeline.now_s < ends_s, sorted(self._unclaimed)

    async def _enqueue(self, queue: str, shard: str) -> None:
        key = next(key for key in self._keys if rendezvous_home(key, rendezvous_order(queue, self._shards)) == shard)
        with contextlib.suppress(PinLaterError):
            await self._producer.client.enqueue(queue, [Job(b"%d" % self._round)], request_key=key)

    async def _work(self, worker: Process, queue: str) -> None:
        while True:
            try:
                jobs = (await worker.client.dequeue(queue, 1, wait_ms=_WAIT_MS)).jobs
            except PinLaterError:
                await asyncio.sleep(0.1)
                continue
            for job in jobs:
                if int(job.body) == self._round:
                    self._unclaimed.discard((queue, shard_of(job.descriptor)))


def lose(scene: Scene, load: Load, server: SimulatedServer, how: str) -> None:
    if how == "suspended":
        assert server.loop is not None
        server.loop.pause()
    elif how == "cut off from clients":
        load.cut_off(server)
    elif how.startswith("split"):
        for other in scene.cluster.servers:
            if other is not server:
                scene.network.cut(server.name, other.name, one_way=how == "split, one way")
    else:
        server.stays_down = True
        server.kill(told=how == "killed")


@pytest.mark.parametrize("lost", range(SERVERS))
@pytest.mark.parametrize(
    "how", ["killed", "without power", "suspended", "cut off from clients", "split", "split, one way"]
)
def test_each_queue_is_served_on_each_shard_within_five_seconds_of_a_loss(how: str, lost: int) -> None:
    async def work(scene: Scene) -> None:
        load, server = Load(scene), scene.cluster.servers[lost]
        await load.start()
        lose(scene, load, server, how)
        await load.served()
        if how == "suspended":
            await asyncio.sleep(LEASE_S)
            assert server.loop is not None
            server.loop.resume()
            await load.served()

    Scene(SERVERS, SHARDS).run(work)


@pytest.mark.parametrize("how", ["killed", "without power", "suspended"])
def test_calls_go_past_an_owner_that_is_lost_though_no_server_takes_its_place(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def keep_owners(*_: object) -> None:
        """In place of a look at the owners."""

    async def work(scene: Scene) -> None:
        load = Load(scene)
        await load.start()
        owners = [store.owners for store in scene.stores]
        monkeypatch.setattr(Ownership, "look", keep_owners)
        lose(scene, load, scene.cluster.servers[0], how)
        await load.served()
        assert [store.owners for store in scene.stores] == owners

    Scene(SERVERS, SHARDS).run(work)


@pytest.mark.parametrize("how", ["without power", "suspended"])
def test_the_next_owner_is_called_in_time_though_calls_never_go_past_a_silent_one(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = PeerConnection.look

    async def work(scene: Scene) -> None:
        load = Load(scene)
        await load.start()
        monkeypatch.setattr(PeerConnection, "look", lambda self, ask_after_s, _: plain(self, ask_after_s, math.inf))
        lose(scene, load, scene.cluster.servers[0], how)
        await load.served()

    Scene(SERVERS, SHARDS).run(work)
