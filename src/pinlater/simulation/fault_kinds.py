"""The faults that `pinlater bench simulate` knows, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import NamedTuple

from pinlater.simulation import effects
from pinlater.simulation.cluster import SimulatedCluster
from pinlater.simulation.effects import Effect
from pinlater.simulation.working import SupervisedWorker

_STOP_GRACE_S = 30.0
_SLOW_S = 0.3
_JUMP_S = 300.0


class Target(Enum):
    """The target of a fault."""

    SERVER = "server"
    SHARD = "shard"
    WORKER = "worker"
    NETWORK = "network"


@dataclass(frozen=True, slots=True)
class FaultTargets:
    """All possible targets of faults. `hosts`: the machines of servers and clients."""

    cluster: SimulatedCluster
    workers: Sequence[SupervisedWorker]
    hosts: Callable[[], Sequence[str]]


class FaultKind(NamedTuple):
    """`effect(targets, index)`: its effect on a target, with an index from 0. `lasts_ms`: its duration, unless the operator gives another
    one."""

    name: str
    target: Target
    lasts_ms: int
    text: str
    effect: Callable[[FaultTargets, int], Effect]


def _cut_server(targets: FaultTargets, index: int) -> Effect:
    """Cuts a server off from clients, from the other servers and from the shards."""
    cluster = targets.cluster
    host = cluster.servers[index].name
    network = effects.hosts_cut_off(cluster.network, host, targets.hosts())
    shards = [effects.shard_gone(store, [host]) for store in cluster.stores]
    parts = [network, *shards]
    return Effect(lambda: [part.begin() for part in parts], lambda: [part.end() for part in parts])


def _split_server(targets: FaultTargets, index: int, *, one_way: bool) -> Effect:
    """Splits a server from the other servers; clients and shards reach it."""
    cluster = targets.cluster
    names = [server.name for server in cluster.servers]
    return effects.hosts_cut_off(cluster.network, names[index], names, one_way=one_way)


def _lose_shard(targets: FaultTargets, index: int) -> Effect:
    return effects.shard_gone(targets.cluster.stores[index], [server.name for server in targets.cluster.servers])


def _slow_shard(targets: FaultTargets, index: int) -> Effect:
    shared = targets.cluster.stores[index]
    return effects.bad_shard(shared, shared.calm._replace(slow=0.5, slow_s=_SLOW_S))


def _lossy_shard(targets: FaultTargets, index: int) -> Effect:
    shared = targets.cluster.stores[index]
    return effects.bad_shard(shared, shared.calm._replace(refused=0.02, answer_lost=0.02, lost=0.02))


def _bad_network(targets: FaultTargets, index: int) -> Effect:
    network = targets.cluster.network
    trouble = network.calm._replace(slow=0.2, split=0.1, reset=0.01, black_hole=0.001)
    return effects.bad_network(network, trouble)


_KINDS = (
    FaultKind(
        "kill-server",
        Target.SERVER,
        5_000,
        "kill -9 of a server, which starts again at the end",
        lambda targets, index: effects.server_down(targets.cluster.servers[index], told=True),
    ),
    FaultKind(
        "power-off",
        Target.SERVER,
        30_000,
        "the machine of a server loses power: its connections stay half open",
        lambda targets, index: effects.server_down(targets.cluster.servers[index], told=False),
    ),
    FaultKind(
        "stop-server",
        Target.SERVER,
        5_000,
        "a server stops in order (SIGTERM), and starts again at the end",
        lambda targets, index: effects.server_stopped(targets.cluster.servers[index], _STOP_GRACE_S),
    ),
    FaultKind(
        "suspend-server",
        Target.SERVER,
        30_000,
        "a server is suspended (SIGSTOP), and continues at the end",
        lambda targets, index: effects.server_suspended(targets.cluster.servers[index]),
    ),
    FaultKind("cut-server", Target.SERVER, 30_000, "a server reaches no client, no server and no shard", _cut_server),
    FaultKind(
        "split-server",
        Target.SERVER,
        30_000,
        "a server and the other servers do not reach each other; clients and shards reach all of them",
        partial(_split_server, one_way=False),
    ),
    FaultKind(
        "split-server-one-way",
        Target.SERVER,
        30_000,
        "nothing that a server sends reaches the other servers; what they send reaches it",
        partial(_split_server, one_way=True),
    ),
    FaultKind("lose-shard", Target.SHARD, 60_000, "a database refuses all connections", _lose_shard),
    FaultKind(
        "hang-shard",
        Target.SHARD,
        30_000,
        "a database takes calls and answers at the end",
        lambda targets, index: effects.shard_hangs(targets.cluster.stores[index]),
    ),
    FaultKind("slow-shard", Target.SHARD, 60_000, "each call to a database takes 300 ms more on average", _slow_shard),
    FaultKind(
        "lossy-shard",
        Target.SHARD,
        60_000,
        "2 % of the calls to a database are refused, 4 % get no answer",
        _lossy_shard,
    ),
    FaultKind(
        "jump-server-clock",
        Target.SERVER,
        60_000,
        "the wall clock of a server's machine jumps five minutes ahead, and back at the end",
        lambda targets, index: effects.server_clock_jumps(targets.cluster.servers[index], _JUMP_S),
    ),
    FaultKind(
        "jump-shard-clock",
        Target.SHARD,
        60_000,
        "the clock of a database jumps five minutes ahead, and back at the end",
        lambda targets, index: effects.shard_clock_jumps(targets.cluster.stores[index], _JUMP_S),
    ),
    FaultKind(
        "kill-worker",
        Target.WORKER,
        5_000,
        "kill -9 of a worker, which starts again at the end",
        lambda targets, index: Effect(targets.workers[index].kill, targets.workers[index].start),
    ),
    FaultKind(
        "suspend-worker",
        Target.WORKER,
        30_000,
        "a worker is suspended (SIGSTOP), and continues at the end",
        lambda targets, index: Effect(targets.workers[index].suspend, targets.workers[index].resume),
    ),
    FaultKind(
        "bad-network",
        Target.NETWORK,
        60_000,
        "a fifth of all messages come late, 1 % reset their connection, and some connections become half open",
        _bad_network,
    ),
)
FAULT_KINDS: Mapping[str, FaultKind] = {kind.name: kind for kind in _KINDS}
