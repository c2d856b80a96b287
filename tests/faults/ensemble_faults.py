"""What goes wrong with a ZooKeeper ensemble, and with servers that it coordinates. Each fault changes all servers from the store to the
ensemble under load, one after the other, and back."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

from msgspec import json

from bench.servers import PinLaterServer
from tests.databases.proxy import Proxy
from tests.databases.zookeeper import ZooKeeperEnsemble
from tests.faults.faults import InjectedFault
from tests.faults.stage import Stage

_SESSION_S = 2.0
_ROOT = "/pinlater/faults"
_MOVES_WITHIN_S = 30.0
# What a request begins with that stores the owners of a shard: ZooKeeper's number of such a request, the length of the path, the path.
_STORES_OWNERS = struct.pack(">ii", 5, len(f"{_ROOT}/owners/1")) + f"{_ROOT}/owners/".encode()


class _Coordination(NamedTuple):
    """An ensemble of three, and what leads servers to each of it."""

    ensemble: ZooKeeperEnsemble
    proxies: Sequence[Proxy]

    @property
    def options(self) -> Sequence[str]:
        """Of a server that it coordinates."""
        settings = (
            "cluster.coordinator=zookeeper",
            f"cluster.zookeeper={','.join(proxy.address for proxy in self.proxies)}{_ROOT}",
            f"cluster.session_timeout_s={_SESSION_S}",
        )
        return [word for setting in settings for word in ("--set", setting)]


async def the_coordinator_changes(stage: Stage) -> None:
    """There and back, with load on both."""
    async with _coordinated(stage):
        await stage.lasts(5)


async def an_ensemble_fails(stage: Stage) -> None:
    """Its leader is killed, then all of it, and it comes back without data."""
    async with _coordinated(stage) as coordination:
        ensemble = coordination.ensemble
        await asyncio.to_thread(ensemble.leader().kill)
        await stage.lasts(5)
        await asyncio.to_thread(ensemble.start)
        await stage.lasts(5)
        await asyncio.to_thread(ensemble.lose_data)
        await stage.lasts(5)
        await asyncio.to_thread(ensemble.start)
        await stage.add_server(*coordination.options)
        await stage.owns_slices(stage.servers[-1])
        await stage.lasts(5)


async def the_leading_server_is_suspended_in_mid_move(stage: Stage) -> None:
    """For longer than its session, as another one stops; then one that does not lead is killed."""
    async with _coordinated(stage) as coordination:
        third = await stage.add_server(*coordination.options)
        stage.load.spread()
        await stage.owns_slices(third)
        leading = await _leading(stage, coordination.ensemble)
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


async def the_leading_server_is_killed_in_mid_move(stage: Stage) -> None:
    """As it gives the slices of a killed server to others. Their new owners on one shard are stored, of which it gets no answer; those on
    another shard are not.
    """
    async with _coordinated(stage) as coordination:
        for _ in range(2):  # four servers on three shards, so two of them own slices on two shards
            await stage.add_server(*coordination.options)
        stage.load.spread()
        for server in stage.servers:
            await stage.owns_slices(server)
        leading = await _leading(stage, coordination.ensemble)
        owned = {
            server: [slices for slices in (await stage.metric(server, "pinlater_slices_owned")).values() if slices]
            for server in stage.servers
            if server is not leading
        }
        lost = max(owned, key=lambda server: len(owned[server]))
        assert len(owned[lost]) > 1, "its slices are on one shard, so there is no middle"
        stored = [
            asyncio.ensure_future(proxy.lose_answer(_STORES_OWNERS, hang=True).wait()) for proxy in coordination.proxies
        ]
        lost.kill()
        done, _ = await asyncio.wait(stored, timeout=_MOVES_WITHIN_S, return_when=asyncio.FIRST_COMPLETED)
        assert done, "no server stored other owners"
        leading.kill()
        for proxy, waiting in zip(coordination.proxies, stored, strict=True):
            proxy.heal()
            waiting.cancel()
        await stage.recovers(leading, lost)
        for server in (leading, lost):
            await stage.take_out(server)
        await stage.lasts(5)


@asynccontextmanager
async def _coordinated(stage: Stage) -> AsyncIterator[_Coordination]:
    """An ensemble coordinates the servers meanwhile."""
    ensemble = stage.database_servers.make_zookeeper(3)
    try:
        await asyncio.to_thread(ensemble.start)
        async with AsyncExitStack() as stack:
            proxies = [await stack.enter_async_context(Proxy(server.address)) for server in ensemble.servers]
            coordination = _Coordination(ensemble, proxies)
            await _replace_servers(stage, *coordination.options)
            yield coordination
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
    InjectedFault(the_leading_server_is_killed_in_mid_move, harmed=None),
)
"""Of whatever store."""
