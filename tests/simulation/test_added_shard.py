"""A shard that is added while the servers are calm, and look at the shards that they know once a minute."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from pinlater.simulation.cluster import SimulatedServer
from pinlater.simulation.store import SimulatedStore
from pinlater.wire.generated.structs import ClusterStatus
from tests.simulation.test_owners import LEASE_S, MOVED_WITHIN_S, Scene

pytestmark = pytest.mark.usefixtures("collected")

# The next periodic look, and a connection.
_LISTED_WITHIN_S = 2.0


def added_store(scene: Scene) -> SimulatedStore:
    """Another store, which no server uses yet."""
    name = str(len(scene.stores) + 1)
    store = SimulatedStore(name, scene.timeline, Random(f"store {name}"), scene.cluster.wall_ms, LEASE_S)
    store.stores = scene.stores
    scene.stores.append(store)
    return store


def read_map(server: SimulatedServer) -> None:
    """The server reads its map of shards anew."""
    assert server.app is not None
    assert server.loop is not None
    server.loop.create_task(server.app.core.change_shards(server.app._desired()))


def seen_by(server: SimulatedServer) -> ClusterStatus:
    assert server.app is not None
    return server.app.cluster.status()


@pytest.mark.parametrize("apart_s", [0.0, 7.0])
def test_an_added_shard_has_owners_within_seconds_and_no_server_is_listed_twice(apart_s: float) -> None:
    """Whether the servers read their shard files at the same moment or one after the other."""

    async def work(scene: Scene) -> None:
        await asyncio.sleep(150.0)
        store = added_store(scene)
        watch = asyncio.get_running_loop().create_task(no_ghosts())
        for server in scene.cluster.servers:
            read_map(server)
            await asyncio.sleep(apart_s)
        await scene.settled(MOVED_WITHIN_S)
        assert {len(seen_by(server).shards) for server in scene.alive} == {len(scene.stores)}
        assert {member.address for member in store.members()} == {
            server.address for server in seen_by(scene.alive[0]).servers
        }
        if watch.done():
            watch.result()
        watch.cancel()

    async def no_ghosts() -> None:
        while True:
            for server in scene.alive:
                listed = [each.address for each in seen_by(server).servers]
                assert "" not in listed
                assert len(listed) == len(scene.cluster.servers)
            await asyncio.sleep(0.05)

    scene = Scene(3, 2)  # which the watch sees
    scene.run(work)


def test_a_server_is_registered_with_its_address_on_an_added_shard_before_it_looks_at_it() -> None:
    """The other servers connect to it at once."""

    async def work(scene: Scene) -> None:
        await asyncio.sleep(150.0)
        store = added_store(scene)
        read_map(scene.cluster.servers[0])
        ends_s = scene.timeline.now_s + _LISTED_WITHIN_S
        while not (found := store.members()):
            assert scene.timeline.now_s < ends_s
            await asyncio.sleep(0.001)
        assert all(member.address for member in found)

    Scene(2, 1).run(work)
