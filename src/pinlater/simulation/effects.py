"""The faults of a simulation: each effect has a beginning and an end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from pinlater.simulation.cluster import SimulatedServer
from pinlater.simulation.loop import ProcessLoop
from pinlater.simulation.network import Network, NetworkTrouble
from pinlater.simulation.store import SimulatedStore
from pinlater.simulation.store_trouble import StoreTrouble


class Effect(NamedTuple):
    """An effect. `end` undoes what `begin` did, even if other effects came between."""

    begin: Callable[[], object]
    end: Callable[[], object]


def server_down(server: SimulatedServer, *, told: bool) -> Effect:
    """Kills a server as SIGKILL does; if its peers are not told, as a machine that loses power. It stays down until the end."""

    def begin() -> None:
        server.stays_down = True
        server.kill(told=told)

    return Effect(begin, lambda: _start_again(server))


def server_stopped(server: SimulatedServer, grace_s: float) -> Effect:
    """Stops a server as SIGTERM does. It starts again at the end."""

    def begin() -> None:
        server.stays_down = True
        server.stop(grace_s)

    return Effect(begin, lambda: _start_again(server))


def _start_again(server: SimulatedServer) -> None:
    server.stays_down = False
    server.restart_after(0.0)


def server_suspended(server: SimulatedServer) -> Effect:
    """Suspends a server as SIGSTOP does, and continues it at the end."""
    suspended: list[ProcessLoop] = []

    def begin() -> None:
        if server.loop is not None:
            server.loop.pause()
            suspended.append(server.loop)

    def end() -> None:
        for loop in suspended:
            loop.resume()

    return Effect(begin, end)


def hosts_cut_off(network: Network, host: str, others: Iterable[str], *, one_way: bool = False) -> Effect:
    """Blocks all messages between a host and others; or, one way, those from the host to the others."""
    pairs = [(host, other) for other in others if other != host]

    def begin() -> None:
        for one, other in pairs:
            network.cut(one, other, one_way=one_way)

    def end() -> None:
        for one, other in pairs:
            network.heal(one, other)

    return Effect(begin, end)


def bad_network(network: Network, trouble: NetworkTrouble) -> Effect:
    def begin() -> None:
        network.trouble = trouble

    def end() -> None:
        network.trouble = network.calm

    return Effect(begin, end)


def bad_shard(shared: SimulatedStore, trouble: StoreTrouble) -> Effect:
    def begin() -> None:
        shared.trouble = trouble

    def end() -> None:
        shared.trouble = shared.calm

    return Effect(begin, end)


def shard_gone(shared: SimulatedStore, hosts: Iterable[str]) -> Effect:
    """A shard refuses the connections of these hosts."""
    refused = list(hosts)
    return Effect(lambda: shared.gone_for.update(refused), lambda: shared.gone_for.difference_update(refused))


def shard_hangs(shared: SimulatedStore) -> Effect:
    """A shard accepts calls, and executes them only at the end."""
    return Effect(shared.stand_still, shared.go_on)


def server_clock_jumps(server: SimulatedServer, jump_s: float) -> Effect:
    """The wall clock of a server's machine jumps, and jumps back at the end. Its monotonic clock does not."""

    def jump(by_s: float) -> None:
        server.ahead_s += by_s

    return Effect(lambda: jump(jump_s), lambda: jump(-jump_s))


def shard_clock_jumps(shared: SimulatedStore, jump_s: float) -> Effect:
    """The clock of a shard's database jumps, and jumps back at the end."""

    def jump(by_s: float) -> None:
        shared.ahead_ms += round(by_s * 1000)

    return Effect(lambda: jump(jump_s), lambda: jump(-jump_s))
