"""Histories of clusters with roles that a simulated ZooKeeper ensemble coordinates keep every promise, and slices end where they should."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from pinlater.server.cluster.zookeeper import session
from pinlater.server.cluster.zookeeper.coordinator import ZooKeeperCoordinator
from pinlater.server.cluster.zookeeper.nodes import ClusterNodes
from pinlater.server.sharding.shard_lanes import ShardLanes
from pinlater.server.storage.commands import ListMembers, ListOwners
from pinlater.server.storage.values import NO_OWNER, Member
from pinlater.simulation.cluster import SimulatedServer
from pinlater.simulation.store import SimulatedStore
from pinlater.simulation.store_calls import CallKind
from tests.simulation.ensemble import SimulatedEnsemble
from tests.simulation.run import SCALES, simulate
from tests.simulation.test_added_shard import read_map, seen_by
from tests.simulation.test_owners import LEASE_S, Scene


@pytest.mark.timeout(900)  # the machine may be busy with other things
@pytest.mark.parametrize(("scale", "seeds"), [("small", 60), ("large", 6)])
def test_histories_with_an_ensemble_that_fails_too_keep_every_promise_and_end_with_shared_slices(
    scale: str, seeds: int
) -> None:
    broken = {seed: found for seed in range(seeds) if (found := broken_in(seed, scale))}
    assert not broken, f"each is what `broken_in(seed, {scale!r})` finds"


def only_the_leader_leads(patch: pytest.MonkeyPatch) -> None:
    """Though it may be for enqueues."""

    def leads(self: ZooKeeperCoordinator, shard: ShardLanes, able: Sequence[Member], wrong_s: float) -> bool:
        del shard, able, wrong_s
        return self._session.seen.current and self._session.seen.leader == self._address

    patch.setattr(ZooKeeperCoordinator, "leads", leads)


def a_client_is_never_thrown_away(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(session, "_TIMEOUTS_MAX", 10**9)


def a_server_registers_once_only(patch: pytest.MonkeyPatch) -> None:
    """Though its session may be another one by now."""
    hold = ClusterNodes._hold
    held = dict[tuple[object, str], bytes]()

    def hold_once(self: ClusterNodes, name: str) -> bytes:
        held[self, name] = held.get((self, name)) or hold(self, name)
        return held[self, name]

    patch.setattr(ClusterNodes, "_hold", hold_once)


@pytest.mark.parametrize("defect", [only_the_leader_leads, a_client_is_never_thrown_away, a_server_registers_once_only])
def test_a_defect_of_the_coordinator_is_found_within_some_histories(
    defect: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    defect(monkeypatch)
    assert any("UNOWNED" in "; ".join(broken_in(seed, "small")) for seed in range(100))


@pytest.mark.parametrize(("coordinated", "idle_s"), [(False, 300.0), (True, 3_700.0)])
@pytest.mark.usefixtures("collected")
def test_idle_servers_ask_each_shard_once_an_hour_what_the_ensemble_tells(*, coordinated: bool, idle_s: float) -> None:
    """Each server asks which servers there are; none asks for owners. Without an ensemble, they ask for both once a minute."""
    scene = Scene(3, 2)
    if coordinated:
        SimulatedEnsemble(scene.timeline, Random(1), session_timeout_s=2.0).coordinate(scene.cluster.servers)
    asked = Counter[CallKind]()

    async def idle() -> None:
        scene.cluster.start()
        await asyncio.sleep(60.0)
        for store in scene.stores:
            asked.subtract(store.called)
        await asyncio.sleep(idle_s)
        for store in scene.stores:
            asked.update(store.called)

    run(scene, idle())
    assert all(server.knows_its_way for server in scene.cluster.servers)
    times = len(scene.cluster.servers) * len(scene.stores)
    if coordinated:
        assert (asked[ListMembers], asked[ListOwners]) == (times, 0)
    else:
        assert min(asked[ListMembers], asked[ListOwners]) >= 4 * times


@pytest.mark.usefixtures("collected")
def test_a_server_without_the_ensemble_that_cannot_reach_another_one_is_counted_there_within_an_hour() -> None:
    """The shards alone tell of it."""
    scene = Scene(3, 1)
    ensemble = SimulatedEnsemble(scene.timeline, Random(1), session_timeout_s=2.0)
    ensemble.coordinate(scene.cluster.servers)
    *others, late = scene.cluster.servers

    async def work() -> None:
        for server in others:
            server.start()
        ensemble.cut_off.add(late.name)
        scene.network.cut(late.name, others[0].name, one_way=True)
        await asyncio.sleep(3_500.0)
        late.start()
        async with asyncio.timeout(240.0):
            while counted_by(others) != {3}:
                await asyncio.sleep(1.0)

    run(scene, work())


@pytest.mark.usefixtures("collected")
def test_servers_forget_a_shard_that_was_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """They show it no more, and its secret proves no server."""

    async def to_thread(function: Callable[..., object], *arguments: object) -> object:
        """A simulated loop has no threads; the audit of the removal reads a file in one."""
        return function(*arguments)

    monkeypatch.setattr(asyncio, "to_thread", to_thread)
    scene = Scene(2, 2)
    SimulatedEnsemble(scene.timeline, Random(1), session_timeout_s=2.0).coordinate(scene.cluster.servers)

    def known() -> set[str]:
        """The names of the shards whose servers are shown."""
        return {shard for one in scene.alive for server in seen_by(one).servers for shard in server.slots}

    def secrets() -> set[int]:
        """How many secrets prove a server."""
        return {len(server.app.cluster.listener.known_secrets()) for server in scene.alive if server.app is not None}

    async def work() -> None:
        scene.cluster.start()
        await asyncio.sleep(60.0)
        assert (known(), secrets()) == ({"1", "2"}, {2})
        scene.stores.pop()
        for server in scene.alive:
            read_map(server)
        async with asyncio.timeout(240.0):
            while (known(), secrets()) != ({"1"}, {1}):
                await asyncio.sleep(1.0)

    run(scene, work())


@pytest.mark.parametrize("cut_off", [False, True])
@pytest.mark.usefixtures("collected")
def test_a_server_that_may_own_nothing_and_does_not_use_all_shards_is_said(
    caplog: pytest.LogCaptureFixture, *, cut_off: bool
) -> None:
    """Owners that differ from the plan do not keep the others looking."""
    scene = Scene(3, 2)
    ensemble = SimulatedEnsemble(scene.timeline, Random(1), session_timeout_s=2.0)
    ensemble.coordinate(scene.cluster.servers)
    unlike = scene.cluster.servers[-1]
    unlike.stores = scene.stores[:1]
    if cut_off:
        ensemble.cut_off.add(unlike.name)
    else:
        unlike.settings = replace(unlike.settings, role="enqueue")

    async def work() -> None:
        scene.cluster.start()
        await asyncio.sleep(300.0)

    run(scene, work())
    said = [each for each in caplog.records if "does not use all of them" in each.message]
    assert [(each.__dict__["server"], each.__dict__["shard"]) for each in said] == [(f"{unlike.name}-1", "2")] * 2


@pytest.mark.usefixtures("collected")
def test_a_server_that_is_killed_as_it_stops_is_counted_for_its_lease_only() -> None:
    """It has left the ensemble before that, so nothing tells of its end: only its lease in the shards does."""
    scene = Scene(3, 2)
    SimulatedEnsemble(scene.timeline, Random(1), session_timeout_s=2.0).coordinate(scene.cluster.servers)
    killed, *others = scene.cluster.servers

    async def work() -> None:
        scene.cluster.start()
        await asyncio.sleep(20.0)
        assert counted_by(others) == {3}
        killed.stays_down = True
        killed.stop(grace_s=5.0)
        while not all(NO_OWNER in {member.address for member in store.members()} for store in scene.stores):
            await asyncio.sleep(0.001)
        killed.kill(told=True)
        await asyncio.sleep(LEASE_S / 2)
        assert counted_by(others) == {3}
        async with asyncio.timeout(LEASE_S + 60.0):
            while counted_by(others) != {2}:
                await asyncio.sleep(1.0)

    run(scene, work())


@pytest.mark.usefixtures("collected")
def test_a_killed_server_is_replaced_on_the_only_shard_in_reach_and_on_the_others_once_they_are_back() -> None:
    scene = Scene(3, 3)
    SimulatedEnsemble(scene.timeline, Random(1), session_timeout_s=2.0).coordinate(scene.cluster.servers)
    in_reach, *away = scene.stores
    servers = {server.name: server for server in scene.cluster.servers}

    def owners(shard: SimulatedStore) -> set[str]:
        """As the servers that run know them."""
        running = [server.app.cluster.ownership for server in servers.values() if server.app is not None]
        known = {owner for ownership in running if ownership for owner in ownership.owners(shard.name)}
        return {owner.partition(":")[0] for owner in known}

    async def until_owned(shards: Sequence[SimulatedStore], within_s: float) -> None:
        """By servers that run."""
        async with asyncio.timeout(within_s):
            while not all(owners(shard) <= servers.keys() for shard in shards):
                await asyncio.sleep(0.1)

    async def work() -> None:
        scene.cluster.start()
        await asyncio.sleep(20.0)
        for store in away:
            store.gone_for.update(servers)
        await asyncio.sleep(5.0)
        killed = servers.pop(min(owners(in_reach)))
        killed.stays_down = True
        killed.kill(told=True)
        assert killed.name in owners(in_reach)
        await until_owned([in_reach], 4.0)
        await asyncio.sleep(20.0)
        for store in away:
            store.gone_for.clear()
        await until_owned(scene.stores, 15.0)

    run(scene, work())


def run(scene: Scene, work: Coroutine[Any, Any, None]) -> None:
    """Does it in simulated time."""
    try:
        assert scene.timeline.run(work, scene.driver, until_s=scene.timeline.now_s + 5_000.0, turns_max=50_000_000)
    finally:
        scene.timeline.end()


def counted_by(servers: Sequence[SimulatedServer]) -> set[int]:
    """How many servers there are, as these know."""
    return {server.app.cluster.members.servers for server in servers if server.app is not None}


def broken_in(seed: int, scale: str) -> Sequence[str]:
    return simulate(seed, SCALES[scale], coordinated=True).broken
