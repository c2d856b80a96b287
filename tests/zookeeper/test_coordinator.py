"""Servers whose owners of slices are in a real ZooKeeper ensemble, on a real Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial

import pytest

from pinlater.server.config.load import load
from pinlater.server.main.app import App
from pinlater.server.storage.commands import ListOwners
from pinlater.server.storage.values import NO_OWNERS
from tests.databases.redis import RedisServer
from tests.databases.zookeeper import ZooKeeperEnsemble
from tests.redis.proxied_redis import proxied
from tests.shared_shards.proxied_database import until
from tests.shared_shards.test_hand_over import share_all

SESSION_S = 2.0
Start = Callable[..., Awaitable[App]]


@pytest.fixture
def ensemble(start_zookeeper: Callable[[int], ZooKeeperEnsemble]) -> ZooKeeperEnsemble:
    return start_zookeeper(1)


@pytest.fixture
async def start(redis_server: RedisServer) -> AsyncIterator[Start]:
    """Starts servers on one shard; they stop with the test."""
    async with AsyncExitStack() as running, proxied(redis_server) as database:

        async def one(ensemble: ZooKeeperEnsemble, path: str = "pinlater") -> App:
            settings = {
                "store": database.url,
                "thrift.port": 0,
                "http.port": 0,
                "cluster.coordinator": "zookeeper",
                "cluster.zookeeper": f"{ensemble.address}/{path}",
                "cluster.session_timeout_s": SESSION_S,
            }
            app = App(load(None, {}, settings).settings)
            await app.start()
            running.push_async_callback(app.stop, 1.0)
            return app

        yield one


async def test_servers_share_the_slices_by_what_the_ensemble_says_and_the_shard_keeps_no_owners(
    start: Start, ensemble: ZooKeeperEnsemble
) -> None:
    apps = [await start(ensemble) for _ in range(3)]
    await until(partial(share_all, apps))
    [shard] = apps[0].core.shards
    assert await shard.store.submit(ListOwners()) == NO_OWNERS


async def test_a_server_that_stops_gives_its_slices_to_the_others(start: Start, ensemble: ZooKeeperEnsemble) -> None:
    stops, *others = [await start(ensemble) for _ in range(3)]
    await until(partial(share_all, [stops, *others]))
    await stops.stop(5.0)
    await until(partial(share_all, others))
