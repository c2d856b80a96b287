"""What goes wrong with a ZooKeeper ensemble, and with servers that it coordinates. Each fault changes all servers from the store to the
ensemble under load, one after the other, and back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import json

from bench.servers import PinLaterServer
from tests.databases.zookeeper import ZooKeeperEnsemble
from tests.faults.faults import InjectedFault
from tests.faults.stage import Stage

_SESSION_S = 2.0
_ROOT = "/pinlater/faults"


async def the_coordinator_changes(stage: Stage) -> None:
    """There and back, with load on both."""
    async with _coordinated(stage):
        await stage.lasts(5)


async def an_ensemble_fails(stage: Stage) -> None:
    """Its leader is killed, then all of it, and it comes back without data."""
    async with _coordinated(stage) as ensemble:
        await asyncio.to_thread(ensemble.leader().kill)
        await stage.lasts(5)
        await asyncio.to_thread(ensemble.start)
        await stage.lasts(5)
        await asyncio.to_thread(ensemble.lose_data)
        await stage.lasts(5)
        await asyncio.to_thread(ensemble.start)
        await stage.add_server(*_options(ensemble))
        await stage.owns_slices(stage.servers[-1])
        await stage.lasts(5)


async def the_leading_server_is_suspended_in_mid_move(stage: Stage) -> None:
    """For longer than its session, as another one stops; then one that does not lead is killed."""
    async with _coordinated(stage) as ensemble:
        third = await stage.add_server(*_options(ensemble))
        stage.load.spread()
        await stage.owns_slices(third)
        leading = await _leading(stage, ensemble)
        stops, *_ = [server for server in stage.servers if server is not leading]
        stopping = asyncio.ensure_future(stage.take_out(stops))
        await asyncio.sleep(0)  # it is asked to stop
        stage.suspend(leading)
        try:
            await stage.recovers(leading)
        finally:
            stage.resume(leading)
        assert await stopping == 0, "a stop ended badly"
        stage.load.spread()
        await stage.owns_slices(leading)
        await stage.lasts(5)
        [other] = [server for server in stage.servers if server is not leading]
        other.kill()
        await stage.recovers(other)
        await asyncio.to_thread(other.start)
        await stage.owns_slices(other)


@asynccontextmanager
async def _coordinated(stage: Stage) -> AsyncIterator[ZooKeeperEnsemble]:
    """An ensemble of three, which coordinates the servers meanwhile."""
    ensemble = stage.database_servers.make_zookeeper(3)
    try:
        await asyncio.to_thread(ensemble.start)
        await _replace_servers(stage, *_options(ensemble))
        yield ensemble
        await _replace_servers(stage)
    finally:
        await asyncio.to_thread(ensemble.remove)


async def _replace_servers(stage: Stage, *options: str) -> None:
    """One after the other, by as many with these options; the number of servers stays two."""
    before = list(stage.servers)
    for _ in range(2):
        await stage.add_server(*options)
        stage.load.spread()
        await stage.lasts(2)
        assert await stage.take_out(before.pop(0)) == 0, "a stop ended badly"
    for server in before:
        assert await stage.take_out(server) == 0, "a stop ended badly"
    for server in stage.servers:
        await stage.owns_slices(server)


def _options(ensemble: ZooKeeperEnsemble) -> list[str]:
    settings = (
        "cluster.coordinator=zookeeper",
        f"cluster.zookeeper={ensemble.address}{_ROOT}",
        f"cluster.session_timeout_s={_SESSION_S}",
    )
    return [word for setting in settings for word in ("--set", setting)]


async def _leading(stage: Stage, ensemble: ZooKeeperEnsemble) -> PinLaterServer:
    """The server that changes owners now."""
    node = await asyncio.to_thread(ensemble.read, f"{_ROOT}/leader")
    address, _ = json.decode(node, type=tuple[str, str])
    for server in stage.servers:
        if await stage.address_among_servers(server) == address:
            return server
    raise AssertionError(f"no server has the address {address}")


ON_ENSEMBLES = (
    InjectedFault(the_coordinator_changes, harmed=None),
    InjectedFault(an_ensemble_fails, harmed=None),
    InjectedFault(the_leading_server_is_suspended_in_mid_move, harmed=None),
)
"""Of whatever store."""
