"""Servers that disagree about which of them live, which no fault of the simulated network brings about for long."""

from __future__ import annotations

import asyncio

import pytest

from tests.simulation.test_owners import Scene, address_of

pytestmark = pytest.mark.usefixtures("collected")


def test_servers_that_disagree_about_who_lives_change_owners_ever_more_rarely() -> None:
    async def work(scene: Scene) -> None:
        odd, denied = scene.cluster.servers[0], address_of(scene.cluster.servers[2])
        assert odd.app is not None
        assert odd.app.cluster.ownership is not None
        odd.app.cluster.ownership._serves = lambda address, _shard: address != denied
        await asyncio.sleep(120.0)
        versions = [store.owners.version for store in scene.stores]
        await asyncio.sleep(120.0)
        assert sum(store.owners.version for store in scene.stores) - sum(versions) <= 10 * len(scene.stores)

    Scene(3, 2).run(work)
