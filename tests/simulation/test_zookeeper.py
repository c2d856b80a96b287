"""Histories of clusters with roles that a simulated ZooKeeper ensemble coordinates keep every promise, and slices end where they should."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any

import pytest

from pinlater.server.cluster.zookeeper import session
from pinlater.server.cluster.zookeeper.coordinator import ZooKeeperCoordinator
from pinlater.server.cluster.zookeeper.nodes import ClusterNodes
from pinlater.server.sharding.shard_lanes import ShardLanes
from pinlater.server.storage.commands import ListMembers, ListOwners
from pinlater.server.storage.values import NO_OWNER, Member
from pinlater.simulation.store import SimulatedStore
from pinlater.simulation.store_calls import CallKind
from tests.simulation.ensemble import SimulatedEnsemble
from tests.simulation.run import SCALES, simulate
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
def test_idle_servers_do_not_ask_the_shards_what_the_ensemble_tells(*, coordinated: bool, idle_s: float) -> None:
    """Not once in an hour."""
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
    assert (asked[ListMembers] == 0) is (asked[ListOwners] == 0) is coordinated


@pytest.mark.usefixtures("collected")
def test_a_server_that_is_killed_as_it_stops_is_counted_for_its_lease_only() -> None:
    """It has left the ensemble before that, so nothing tells of its end: only its lease in the shards does."""
    scene = Scene(3, 2)
    SimulatedEnsemble(scene.timeline, Random(1), session_timeout_s=2.0).coordinate(scene.cluster.servers)
    killed, *others = scene.cluster.servers

    def known() -> set[int]:
        """The numbers of servers that the others know."""
        return {server.app.cluster.members.servers for server in others if server.app is not None}

    async def work() -> None:
        scene.cluster.start()
        await asyncio.sleep(20.0)
        assert known() == {3}
        killed.stays_down = True
        killed.stop(grace_s=5.0)
        while not all(NO_OWNER in {member.address for member in store.members()} for store in scene.stores):
            await asyncio.sleep(0.001)
        killed.kill(told=True)
        await asyncio.sleep(LEASE_S / 2)
        assert known() == {3}
        async with asyncio.timeout(LEASE_S + 60.0):
            while known() != {2}:
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


def broken_in(seed: int, scale: str) -> Sequence[str]:
    return simulate(seed, SCALES[scale], coordinated=True).broken
