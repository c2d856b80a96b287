"""Slices move where servers come and go: production servers on simulated shards, with faults that are steered."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from pinlater.client import Job
from pinlater.domain.durations import YEAR_MS
from pinlater.domain.slices import SLICES, slice_of
from pinlater.server.cluster.forwarding.messages import CallKind
from pinlater.server.cluster.ownership.store_coordinator import SILENT_MS_MAX
from pinlater.server.config.settings import Settings
from pinlater.server.storage.commands import InsertJobs
from pinlater.server.storage.values import NO_OWNER
from pinlater.simulation.cluster import SimulatedCluster, SimulatedServer, settings_of
from pinlater.simulation.loop import ProcessState, Timeline, new_process
from pinlater.simulation.network import ConnectionEnd, Network
from pinlater.simulation.store import SimulatedStore
from pinlater.simulation.store_trouble import StoreTrouble
from pinlater.simulation.trace import Trace
from tests.simulation.workload import Process, Workload

pytestmark = pytest.mark.usefixtures("collected")

LEASE_S = 60.0
# A silent server is noticed after three seconds, at a look that comes once a second.
MOVED_WITHIN_S = 5.0


class Scene:
    """`servers` servers on `shards` shards, started and settled. Times are virtual."""

    def __init__(self, servers: int, shards: int, seed: int = 1) -> None:
        self.timeline = Timeline()
        self.network = Network(self.timeline, Random(f"{seed} network"))
        self.cluster = SimulatedCluster(self.timeline, self.network)
        self.stores = self.cluster.stores
        for index in range(shards):
            dice = Random(f"{seed} store {index}")
            self.stores.append(SimulatedStore(str(index + 1), self.timeline, dice, self.cluster.wall_ms, LEASE_S))
        for store in self.stores:
            store.stores = self.stores
        for index in range(servers):
            self.add_server(f"server{index + 1}", Random(f"{seed} server {index}"))
        self.driver = new_process(self.timeline, "driver", "driver", self.network)

    def add_server(self, host: str, dice: Random) -> SimulatedServer:
        server = SimulatedServer(
            host, self.timeline, self.network, dice, self.stores, settings_of(host, Settings()), ahead_s=0.0
        )
        self.cluster.servers.append(server)
        return server

    def run(self, work: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
        """Starts the servers, waits until they share the slices, and does `work`."""

        async def drive() -> None:
            self.cluster.start()
            await self.settled(20.0)
            await work(self)

        try:
            assert self.timeline.run(drive(), self.driver, until_s=self.timeline.now_s + 500.0, turns_max=5_000_000)
        finally:
            self.timeline.end()

    # --- what there is ------------------------------------------------------------------------------------------------------

    @property
    def alive(self) -> list[SimulatedServer]:
        return [
            server
            for server in self.cluster.servers
            if server.ready and server.loop is not None and server.loop.state is ProcessState.RUNNING
        ]

    def owned(self, server: SimulatedServer) -> dict[str, int]:
        """How many slices of which shards it owns, as the shards say."""
        address = address_of(server)
        return {store.name: count for store in self.stores if (count := list(store.owners.by_slice).count(address)) > 0}

    def is_settled(self) -> bool:
        """Whether the servers that are alive own everything, and the same number of slices each."""
        counts = [sum(self.owned(server).values()) for server in self.alive]
        return sum(counts) == SLICES * len(self.stores) and max(counts) - min(counts) <= 1

    def all_know(self) -> bool:
        """Whether every server that is alive knows the owners."""
        return all(
            server.app is not None
            and server.app.cluster.ownership is not None
            and tuple(server.app.cluster.ownership.owners(store.name)) == store.owners.by_slice
            for server in self.alive
            for store in self.stores
        )

    def client(self, name: str, server: SimulatedServer, timeout_ms: int = 20_000) -> Process:
        """A client of one server."""
        load, trace = Workload(client_timeout_ms=timeout_ms), Trace(self.timeline)
        return Process(name, self.timeline, self.network, [server.address], 1, load, trace, self.cluster.wall_ms)

    async def done(self, client: Process, call: Coroutine[Any, Any, Any]) -> None:
        """Returns once the client has its answer."""
        task = client.start(call)
        while not task.done():
            await asyncio.sleep(0.01)
        task.result()

    async def settled(self, seconds: float) -> None:
        ends_s = self.timeline.now_s + seconds
        while not (self.is_settled() and self.all_know()):
            assert self.timeline.now_s < ends_s, [self.owned(server) for server in self.cluster.servers]
            await asyncio.sleep(0.05)

    async def unchanged(self, seconds: float) -> None:
        """Nothing moves for so long."""
        before = [store.owners for store in self.stores]
        await asyncio.sleep(seconds)
        assert [store.owners for store in self.stores] == before


def address_of(server: SimulatedServer) -> str:
    app = server.app
    assert app is not None
    assert app.cluster.ownership is not None
    return app.cluster.ownership.address


def test_as_many_servers_as_shards_own_a_shard_each_and_nothing_moves_then() -> None:
    async def work(scene: Scene) -> None:
        assert sorted(len(scene.owned(server)) for server in scene.alive) == [1, 1, 1]
        await scene.unchanged(30.0)

    Scene(3, 3).run(work)


def test_servers_that_join_one_by_one_own_a_shard_each_after_some_calm_and_nothing_moves_then() -> None:
    async def work(scene: Scene) -> None:
        for server in scene.cluster.servers[1:]:
            server.kill(told=True)
        await scene.settled(MOVED_WITHIN_S)
        for server in scene.cluster.servers[1:]:
            server.restart_after(1.0)
            await asyncio.sleep(1.1)
            await scene.settled(MOVED_WITHIN_S)
        assert any(len(set(store.owners.by_slice)) > 1 for store in scene.stores)
        ends_s = scene.timeline.now_s + 180.0
        while any(len(set(store.owners.by_slice)) > 1 for store in scene.stores):
            assert scene.timeline.now_s < ends_s
            await asyncio.sleep(0.1)
        await scene.settled(MOVED_WITHIN_S)
        await scene.unchanged(150.0)

    Scene(4, 4).run(work)


@pytest.mark.parametrize("told", [True, False])
def test_after_a_kill_the_others_own_its_slices_within_five_seconds(told: bool) -> None:
    async def work(scene: Scene) -> None:
        before = {server.name: scene.owned(server) for server in scene.cluster.servers}
        scene.cluster.servers[0].kill(told=told)
        await scene.settled(MOVED_WITHIN_S)
        scene.cluster.servers[0].restart_after(3.0)
        await asyncio.sleep(3.1)
        await scene.settled(MOVED_WITHIN_S)
        assert {server.name: scene.owned(server) for server in scene.cluster.servers} == before

    Scene(3, 3).run(work)


def test_a_clean_stop_hands_over_within_a_tenth_of_a_second() -> None:
    async def work(scene: Scene) -> None:
        leaving = scene.cluster.servers[1]
        leaving.stays_down = True
        address = address_of(leaving)
        leaving.stop(grace_s=20.0)
        await asyncio.sleep(0.1)
        assert all(address not in store.owners.by_slice for store in scene.stores)
        await scene.settled(MOVED_WITHIN_S)
        await scene.unchanged(10.0)

    Scene(3, 2).run(work)


def test_a_server_that_stops_answers_what_other_servers_have_sent() -> None:
    async def work(scene: Scene) -> None:
        [store] = scene.stores
        owner, asker = scene.cluster.servers
        owner.stays_down = True
        queue = next(f"q{i}" for i in range(99) if store.owners.by_slice[slice_of(f"q{i}")] == address_of(owner))
        client = scene.client("client", asker)
        await scene.done(client, client.client.create_queue(queue))
        store.trouble = StoreTrouble(slow=1.0, slow_s=0.6, only=(InsertJobs,))
        sent = [client.start(client.client.enqueue(queue, [Job(b"x")])) for _ in range(3)]
        await asyncio.sleep(0.05)
        assert asker.app is not None
        assert asker.app.cluster.forwarding is not None
        assert asker.app.cluster.forwarding.sent.whole.items[CallKind.INSERT] > 0
        owner.stop(grace_s=20.0)
        while not all(task.done() for task in sent):
            await asyncio.sleep(0.01)
        assert asker.app.cluster.forwarding.sent.whole.lost == 0
        assert not client.errors
        stopped_s = scene.timeline.now_s + 1.0
        while owner in scene.alive:
            assert scene.timeline.now_s < stopped_s
            await asyncio.sleep(0.01)

    Scene(2, 1).run(work)


@pytest.mark.parametrize("in_time", [True, False])
def test_an_owner_begins_a_call_only_within_the_time_limit_of_the_server_that_asks(
    in_time: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No server waits for it after that, and its client may have enqueued the job again with another key."""
    limit_s = Settings().sharding.call_timeout_ms / 1000

    def hold_back(self: Network, end: ConnectionEnd, what: Callable[[ConnectionEnd], None]) -> bool:
        self._cut[end.loop.host, end.remote[0]].append((end, what))
        return True

    async def work(scene: Scene) -> None:
        [store] = scene.stores
        owner, asker = scene.cluster.servers
        queue = next(f"q{i}" for i in range(99) if store.owners.by_slice[slice_of(f"q{i}")] == address_of(owner))
        client = scene.client("client", asker, timeout_ms=round(limit_s * 1000) - 500)
        await scene.done(client, client.client.create_queue(queue))
        monkeypatch.setattr(Network, "holds_back", hold_back)
        scene.network.cut(asker.name, owner.name, one_way=True)
        sent = client.start(client.client.enqueue(queue, [Job(b"x")]))
        await asyncio.sleep(limit_s - 1.0 if in_time else limit_s + 0.5)
        assert not store.jobs()
        scene.network.heal(asker.name, owner.name)
        await asyncio.sleep(2.0)
        assert len(store.jobs()) == int(in_time)
        assert (sent.exception() is None) is in_time

    Scene(2, 1).run(work)


@pytest.mark.parametrize("hung_s", [0.5, 3.0])
def test_a_server_stops_within_its_grace_though_a_shard_hangs(hung_s: float) -> None:
    async def work(scene: Scene) -> None:
        leaving = scene.cluster.servers[1]
        leaving.stays_down = True
        scene.stores[0].stand_still()
        await asyncio.sleep(hung_s)
        leaving.stop(grace_s=2.0)
        await asyncio.sleep(2.5)
        assert leaving not in scene.alive
        assert leaving.loop is not None
        assert leaving.loop.state is ProcessState.DEAD

    Scene(2, 2).run(work)


def test_a_server_that_stood_still_for_longer_than_its_lease_gets_slices_again() -> None:
    async def work(scene: Scene) -> None:
        paused = scene.cluster.servers[2]
        assert paused.loop is not None
        paused.loop.pause()
        await scene.settled(MOVED_WITHIN_S)
        await asyncio.sleep(LEASE_S * 1.5)
        paused.loop.resume()
        await scene.settled(30.0)  # some seeds need 23 s

    Scene(3, 2).run(work)


def test_a_server_that_can_not_reach_a_shard_owns_nothing_of_it() -> None:
    async def work(scene: Scene) -> None:
        cut, store = scene.cluster.servers[0], scene.stores[0]
        store.gone_for.add(cut.name)
        await asyncio.sleep(SILENT_MS_MAX / 1000 + 3.0)
        assert store.name not in scene.owned(cut)
        assert "" not in store.owners.by_slice
        store.gone_for.clear()
        await scene.settled(20.0)

    Scene(2, 2).run(work)


def test_a_shard_unreachable_for_all_servers_moves_no_slices_of_other_shards() -> None:
    async def work(scene: Scene) -> None:
        lost, other = scene.stores
        before = other.owners
        lost.gone_for.update(server.name for server in scene.cluster.servers)
        await asyncio.sleep(30.0)
        assert other.owners == before
        lost.gone_for.clear()
        await asyncio.sleep(20.0)
        await scene.settled(1.0)

    Scene(2, 2).run(work)


def test_a_restarted_server_gets_its_share_while_one_shard_is_unreachable_for_all() -> None:
    async def work(scene: Scene) -> None:
        lost, other = scene.stores
        lost.gone_for.update(server.name for server in scene.cluster.servers)
        await asyncio.sleep(75.0)
        shares = [other.owners.by_slice.count(address_of(server)) for server in scene.alive]
        assert shares == [SLICES // 2] * 2
        await scene.unchanged(20.0)
        restarted = scene.cluster.servers[0]
        restarted.stop(grace_s=5.0)
        await asyncio.sleep(90.0)
        assert restarted in scene.alive
        assert other.owners.by_slice.count(address_of(restarted)) == SLICES // 2
        lost.gone_for.clear()
        await scene.settled(30.0)
        await scene.unchanged(10.0)

    Scene(2, 2).run(work)


@pytest.mark.parametrize("servers", [2, 3])
def test_where_one_server_misses_a_shard_the_others_replace_it_there_and_nothing_moves_then(servers: int) -> None:
    async def work(scene: Scene) -> None:
        cut = scene.cluster.servers[-1]
        lost = next(store for store in scene.stores if store.name in scene.owned(cut))
        lost.gone_for.add(cut.name)
        await asyncio.sleep(5.0)
        assert lost.name not in scene.owned(cut)
        assert NO_OWNER not in lost.owners.by_slice
        await scene.unchanged(20.0)
        lost.gone_for.clear()
        await scene.settled(20.0)
        await scene.unchanged(10.0)

    Scene(servers, 2).run(work)


def test_where_each_server_misses_another_shard_each_shard_has_owners_that_reach_it() -> None:
    async def work(scene: Scene) -> None:
        for cut, store in zip(scene.cluster.servers, scene.stores, strict=True):
            store.gone_for.add(cut.name)
        await asyncio.sleep(10.0)
        for cut, store in zip(scene.cluster.servers, scene.stores, strict=True):
            assert not {NO_OWNER, address_of(cut)} & set(store.owners.by_slice)
        await scene.unchanged(20.0)
        for store in scene.stores:
            store.gone_for.clear()
        await scene.settled(20.0)

    Scene(3, 3).run(work)


def test_a_server_that_misses_a_shard_hands_over_the_others_when_it_stops() -> None:
    async def work(scene: Scene) -> None:
        leaving = scene.cluster.servers[1]
        leaving.stays_down = True
        address = address_of(leaving)
        lost, kept = sorted(scene.stores, key=lambda store: store.name in scene.owned(leaving))
        assert lost.name not in scene.owned(leaving)
        lost.gone_for.add(leaving.name)
        await asyncio.sleep(5.0)
        assert kept.name in scene.owned(leaving)
        leaving.stop(grace_s=20.0)
        await asyncio.sleep(0.1)
        assert address not in kept.owners.by_slice

    Scene(2, 2).run(work)


@pytest.mark.parametrize("seed", range(5))
def test_slices_end_where_they_should_though_changes_have_unknown_outcomes_and_servers_come_and_go(seed: int) -> None:
    async def work(scene: Scene) -> None:
        dice = Random(seed)
        for store in scene.stores:
            store.trouble = StoreTrouble(answer_lost=0.1, lost=0.05, refused=0.05, late=0.05, slow=0.1)
        for _ in range(6):
            server = dice.choice(scene.cluster.servers)
            if dice.random() < 0.5:
                server.kill(told=dice.random() < 0.5)
                server.restart_after(dice.uniform(0.1, 8.0))
            else:
                server.stop(grace_s=1.0)
            await asyncio.sleep(dice.uniform(0.1, 8.0))
        for store in scene.stores:
            store.trouble = StoreTrouble()
        await asyncio.sleep(30.0)
        await scene.settled(5.0)
        await scene.unchanged(10.0)

    Scene(3, 2, seed).run(work)


def test_busy_queues_of_one_owner_get_different_owners_and_then_stay() -> None:
    """Of the server that works most, one of two busy slices is exchanged for a quiet one, though another server works for it."""

    async def work(scene: Scene) -> None:
        [store] = scene.stores
        owner = store.owners.by_slice[0]
        busy: dict[int, str] = {}  # a queue of each of two slices of that server
        for name in (f"q{number}" for number in range(200)):
            if store.owners.by_slice[slice_of(name)] == owner and len(busy) < 2:
                busy.setdefault(slice_of(name), name)
        clients = [scene.client(f"client {server.name}", server) for server in scene.alive[1:]]

        async def enqueue(client: Process, queue: str) -> None:
            while True:
                await client.client.enqueue(
                    queue, [Job(b"", run_after_ms=scene.cluster.wall_ms() + YEAR_MS // 2)] * 200
                )
                await asyncio.sleep(1.0)

        for client, queue in zip(clients, busy.values(), strict=True):
            await scene.done(client, client.client.create_queue(queue))
            client.start(enqueue(client, queue))
        owners_then = store.owners
        ends_s = scene.timeline.now_s + 150.0
        while len({store.owners.by_slice[index] for index in busy}) < 2:
            assert scene.timeline.now_s < ends_s
            await asyncio.sleep(0.1)
        await asyncio.sleep(1.0)
        assert store.owners.version == owners_then.version + 1
        assert Counter(store.owners.by_slice) == Counter(owners_then.by_slice)
        assert scene.all_know()
        await scene.unchanged(70.0)
        assert not any(client.errors for client in clients)

    Scene(3, 1).run(work)
