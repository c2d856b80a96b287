"""What goes wrong with servers of ours and with the connections between them, while three of them share the owners of all queues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.servers import PinLaterServer
from tests.databases.proxy import Proxy
from tests.faults.faults import InjectedFault
from tests.faults.stage import Stage

# The settings of a stage, and longer: another server has taken the suspended one's place by then.
LEASE_S = 10.0
_SUSPENDED_S = 13.0


async def a_server_is_killed(stage: Stage) -> None:
    """Two servers on the same shards, then three; one of them is killed -9 and comes back; one is stopped in order."""
    third = await stage.add_server()
    stage.load.spread()
    await stage.lasts(5)
    victim = stage.dice.choice(stage.servers)
    await stage.owns_slices(victim)
    victim.kill()
    await stage.recovers(victim)
    await stage.lasts(15)
    await asyncio.to_thread(victim.start)
    stage.load.spread()
    await stage.lasts(10)
    assert await stage.take_out(third) == 0, "a stop ended badly"
    await stage.lasts(5)


async def a_server_is_stopped(stage: Stage) -> None:
    """In order: it gives its slices away first, and the verdict has how long that took."""
    third = await stage.add_server()
    stage.load.spread()
    await stage.lasts(5)
    await stage.owns_slices(third)
    stopping = asyncio.ensure_future(stage.take_out(third))
    await stage.recovers(third)
    assert await stopping == 0, "a stop ended badly"
    assert stage.hand_overs, "it did not log that it gave its slices away"
    stage.load.spread()
    await stage.lasts(5)


async def a_server_is_suspended_past_its_lease(stage: Stage) -> None:
    """One of three stands still until another server may have its place; then it goes on as if nothing had happened."""
    third = await stage.add_server()
    stage.load.spread()
    await stage.lasts(5)
    await stage.owns_slices(third)
    stage.suspend(third)
    try:
        await stage.recovers(third)
        await stage.load.quiet(_SUSPENDED_S)
    finally:
        stage.resume(third)
    await stage.until(lambda: stage.answers(third), "the suspended server answers")
    stage.load.spread()
    await stage.lasts(10)
    assert await stage.take_out(third) == 0, "a stop ended badly"


async def connections_between_servers_break(stage: Stage) -> None:
    """They are cut again and again, go half open in each direction, and stand still, each while calls are on their way."""
    async with _two_behind_proxies(stage) as proxies:
        for _ in range(stage.times(20)):
            stage.dice.choice(proxies).cut()
            await stage.flows(list(stage.places), jobs=2)
        for to_server in (False, True):
            proxy = stage.dice.choice(proxies)
            proxy.swallow(to_server=to_server, to_client=not to_server)
            await stage.lasts(8)
            proxy.heal()
        proxy = stage.dice.choice(proxies)
        proxy.hold()
        await stage.lasts(8)
        proxy.heal()
        await stage.lasts(5)
        proxy = stage.dice.choice(proxies)
        proxy.refuse()
        proxy.cut()
        await stage.lasts(8)
        proxy.heal()
        await stage.lasts(5)


@asynccontextmanager
async def _two_behind_proxies(stage: Stage) -> AsyncIterator[list[Proxy]]:
    """Two more servers, which own slices and are reached by the others through these proxies."""
    added = [await stage.add_reached_by_proxy() for _ in range(2)]
    stage.load.spread()
    await stage.lasts(5)
    await stage.until(lambda: _are_used([proxy for _, proxy in added]), "servers connect through the proxies")
    yield [proxy for _, proxy in added]
    for server, _ in added:
        assert await stage.take_out(server) == 0, "a stop ended badly"
    await stage.lasts(2)


async def _are_used(proxies: list[Proxy]) -> bool:
    return all(proxy.open > 0 for proxy in proxies)


async def servers_are_replaced_by_another_version(stage: Stage) -> None:
    """One after the other, there and back. Without another build, the other version knows of no owners of queues."""
    before = list(stage.servers)
    older = [await stage.add_older_server() for _ in before]
    stage.load.spread()
    await stage.lasts(5)
    for server in before:
        await _is_taken_out(stage, server)
    for server in older:
        await stage.add_server()
        await _is_taken_out(stage, server)


async def _is_taken_out(stage: Stage, server: PinLaterServer) -> None:
    stage.load.spread()
    await stage.lasts(2)
    assert await stage.take_out(server) == 0, "a stop ended badly"
    stage.load.spread()
    await stage.lasts(3)


ON_SERVERS = (
    InjectedFault(a_server_is_killed, harmed=None),
    InjectedFault(a_server_is_stopped, harmed=None),
    InjectedFault(a_server_is_suspended_past_its_lease, harmed=None, slots_lost=True),
    InjectedFault(connections_between_servers_break, harmed=None),
    InjectedFault(servers_are_replaced_by_another_version, harmed=None),
)
"""Of whatever store."""
