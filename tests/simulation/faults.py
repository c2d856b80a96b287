"""What goes wrong, and when: drawn from the seed before the run begins, so that a fault can be read off the plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import NamedTuple

from pinlater.server.storage.commands import ClaimJobs
from pinlater.simulation import effects, network
from pinlater.simulation.cluster import SimulatedCluster, SimulatedServer
from pinlater.simulation.effects import Effect
from pinlater.simulation.network import NetworkTrouble
from pinlater.simulation.store import CrashPoint, SimulatedStore
from pinlater.simulation.store_trouble import CALM, StoreTrouble
from tests.simulation.broken_connections import break_connections
from tests.simulation.ensemble import SimulatedEnsemble
from tests.simulation.workload import Process


class SimulatedFault(NamedTuple):
    """`begin` at `at_s` seconds after the load has begun, `end` after `lasts_s` more."""

    name: str
    at_s: float
    lasts_s: float
    begin: Callable[[], object]
    end: Callable[[], object]


# More than all leases and claims of a small cluster last.
_JUMPS_S = (30.0, 90.0, 300.0, 3_600.0)

# Draws a fault of one kind: its name and what it does.
Drawn = tuple[str, Effect]
Kind = Callable[[], Drawn]


class Faults:
    """Draws faults for a cluster.

    `long_s`: longer than every lease and time limit of this cluster; `late_s`: the longest delay of a call that a shard holds up.
    """

    def __init__(
        self, cluster: SimulatedCluster, random: Random, clients: Sequence[Process], long_s: float, late_s: float
    ) -> None:
        self._cluster = cluster
        self._random = random
        self._clients = clients
        self._long_s = long_s
        self._late_s = late_s
        self._kinds = self.kinds()

    def kinds(self) -> Sequence[Kind]:
        """All kinds, each as often as it should come up."""
        return (
            self._server_killed,
            self._server_stopped,
            self._server_paused,
            self._crash_point,
            self._client_killed,
            self._client_paused,
            self._network_bad,
            self._network_cut,
            self._connections_broken,
            self._store_bad,
            self._store_bad,
            self._answers_of_claims_lost,
            self._store_gone,
            self._store_stands_still,
            self._server_clock_jumps,
            self._store_clock_jumps,
            self._store_clock_jumps,
        )

    def clock_kinds(self) -> Sequence[Kind]:
        """In place of all kinds: clocks jump while servers stand still, stop and start, and commits are lost."""
        return (
            self._server_clock_jumps,
            self._store_clock_jumps,
            self._store_clock_jumps,
            self._server_killed,
            self._server_killed,
            self._server_paused,
            self._store_bad,
        )

    def draw(self, number: int, within_s: float) -> list[SimulatedFault]:
        """This number of faults that begin within the time."""
        random = self._random
        faults = []
        for _ in range(number):
            name, effect = random.choice(self._kinds)()
            lasts_s = self._long_s if random.random() < 0.15 else within_s * 0.6 * random.random()
            faults.append(SimulatedFault(name, random.random() * within_s, lasts_s, effect.begin, effect.end))
        return sorted(faults, key=lambda fault: fault.at_s)

    def draw_split(self, random: Random, within_s: float) -> list[SimulatedFault]:
        """Two servers that do not reach each other, or only one way; nothing where there is one server. With dice of its own, so that the
        other faults of a seed do not depend on it."""
        servers = self._cluster.servers
        if len(servers) < 2:
            return []
        one, other = (server.name for server in random.sample(servers, 2))
        one_way = random.random() < 0.5
        name = f"nothing passes from {one} to {other}" if one_way else f"{one} and {other} do not reach each other"
        begin, end = effects.hosts_cut_off(self._cluster.network, one, [other], one_way=one_way)
        lasts_s = random.choice((within_s * random.random(), self._long_s))
        return [SimulatedFault(name, random.random() * within_s, lasts_s, begin, end)]

    def draw_of_ensemble(
        self, random: Random, ensemble: SimulatedEnsemble, hosts: Sequence[str], within_s: float
    ) -> list[SimulatedFault]:
        """One or two faults of the ensemble, also with dice of their own."""
        faults = []
        for _ in range(random.choice((1, 2))):
            role = random.choice(("enqueue", "dequeue"))
            server = random.choice(self._cluster.servers)
            changed = f"{server.name} is restarted with the role {role}", _with_role(server, role)
            name, effect = random.choice([*ensemble.effects(random, hosts), changed])
            lasts_s = random.choice((within_s * random.random(), self._long_s, 4 * self._long_s))
            faults.append(SimulatedFault(name, random.random() * within_s, lasts_s, effect.begin, effect.end))
        return faults

    def heal(self) -> None:
        """Nothing goes wrong any more."""
        net = self._cluster.network
        net.trouble = network.CALM
        net.heal_all()
        for client in self._clients:
            client.resume()
        for shared in self._cluster.stores:
            shared.trouble = CALM
            shared.gone_for.clear()
            shared.crash_points.clear()
            shared.go_on()
        for server in self._cluster.servers:
            server.stays_down = False
            if server.loop is not None:
                server.loop.resume()
            server.restart_after(0.0)

    # --- servers --------------------------------------------------------------------------------------------------------------

    def _server(self) -> SimulatedServer:
        return self._random.choice(self._cluster.servers)

    def _server_killed(self) -> Drawn:
        server, told = self._server(), self._random.random() < 0.7
        name = f"{server.name} is killed" if told else f"the machine of {server.name} loses power"
        return name, Effect(lambda: server.kill(told=told), lambda: server.restart_after(0.0))

    def _server_stopped(self) -> Drawn:
        server, grace_s = self._server(), self._random.choice((0.1, 2.0))
        return f"{server.name} is stopped", effects.server_stopped(server, grace_s)

    def _server_paused(self) -> Drawn:
        server = self._server()
        return f"{server.name} stands still", effects.server_suspended(server)

    def _crash_point(self) -> Drawn:
        server, shared = self._server(), self._random.choice(self._cluster.stores)
        calls, after = self._random.randrange(8), self._random.random() < 0.5

        armed: list[CrashPoint] = []
        over = False

        def die() -> None:
            server.kill(told=True)
            if over:  # its last call was under way when the fault ended
                server.restart_after(0.0)

        def begin() -> None:
            if server.loop is not None:
                armed.append(CrashPoint(server.loop, calls, after, die))
                shared.crash_points += armed

        def end() -> None:
            nonlocal over
            over = True
            shared.crash_points[:] = [point for point in shared.crash_points if point not in armed]
            server.restart_after(0.0)

        when = "after" if after else "before"
        name = f"{server.name} dies {when} its call {calls} to shard {shared.name} is carried out"
        return name, Effect(begin, end)

    # --- clients --------------------------------------------------------------------------------------------------------------

    def _client_killed(self) -> Drawn:
        """Any but the first worker, which does the remaining jobs at the end."""
        client = self._random.choice([client for client in self._clients if client.may_die] or self._clients)
        told = self._random.random() < 0.7
        if not client.may_die:
            return self._client_paused()

        def begin() -> None:
            client.kill()
            for loop in client.loops:
                self._cluster.network.process_died(loop, told=told)

        return f"{client.name} is killed", Effect(begin, _nothing)

    def _client_paused(self) -> Drawn:
        client = self._random.choice(self._clients)
        return f"{client.name} stands still", Effect(client.pause, client.resume)

    # --- the network ------------------------------------------------------------------------------------------------------------

    def _network_bad(self) -> Drawn:
        random, net = self._random, self._cluster.network
        trouble = NetworkTrouble(
            slow=random.choice((0.0, 0.2)),
            slow_s=random.choice((0.02, 0.5)),
            split=random.choice((0.0, 0.3)),
            reset=random.choice((0.0, 0.05, 0.3)),
            black_hole=random.choice((0.0, 0.05)),
        )

        return f"the network is bad: {trouble}", effects.bad_network(net, trouble)

    def _network_cut(self) -> Drawn:
        net, server = self._cluster.network, self._server()
        client = self._random.choice(self._clients).name
        return f"{client} and {server.name} are cut off", effects.hosts_cut_off(net, client, [server.name])

    def _connections_broken(self) -> Drawn:
        net, server, told = self._cluster.network, self._server(), self._random.random() < 0.5
        how = "are reset" if told else "are half open"
        effect = Effect(lambda: break_connections(net, server.name, told=told), _nothing)
        return f"connections to {server.name} {how}", effect

    # --- stores -----------------------------------------------------------------------------------------------------------------

    def _shared(self) -> SimulatedStore:
        return self._random.choice(self._cluster.stores)

    def _store_bad(self) -> Drawn:
        random, shared = self._random, self._shared()
        trouble = StoreTrouble(
            refused=random.choice((0.0, 0.1)),
            answer_lost=random.choice((0.0, 0.05, 0.3)),
            lost=random.choice((0.0, 0.1)),
            late=random.choice((0.0, 0.05)),
            slow=random.choice((0.0, 0.1)),
            hung=random.choice((0.0, 0.02)),
            late_s=self._late_s,
        )
        return f"shard {shared.name} is bad: {trouble}", effects.bad_shard(shared, trouble)

    def _answers_of_claims_lost(self) -> Drawn:
        """The shard hands jobs out and mostly does not say so; while it does, the other shards answer."""
        shared = self._shared()
        trouble = StoreTrouble(answer_lost=0.7, unknown_after_s=0.1, only=(ClaimJobs,))
        return f"shard {shared.name} loses answers of claims: {trouble}", effects.bad_shard(shared, trouble)

    def _store_gone(self) -> Drawn:
        shared = self._shared()
        servers = self._cluster.servers
        hosts = {server.name for server in servers} if self._random.random() < 0.5 else {self._server().name}
        return f"shard {shared.name} is gone for {', '.join(sorted(hosts))}", effects.shard_gone(shared, hosts)

    def _store_stands_still(self) -> Drawn:
        shared = self._shared()
        return f"shard {shared.name} stands still", effects.shard_hangs(shared)

    # --- clocks -----------------------------------------------------------------------------------------------------------------

    def _jump_s(self) -> float:
        return self._random.choice(_JUMPS_S) * self._random.choice((1, -1))

    def _server_clock_jumps(self) -> Drawn:
        server, jump_s = self._server(), self._jump_s()
        return f"the wall clock of {server.name} jumps by {jump_s:g} s", effects.server_clock_jumps(server, jump_s)

    def _store_clock_jumps(self) -> Drawn:
        shared, jump_s = self._shared(), self._jump_s()
        return f"the clock of shard {shared.name} jumps by {jump_s:g} s", effects.shard_clock_jumps(shared, jump_s)


def _with_role(server: SimulatedServer, role: str) -> Effect:
    """Restarts it with another role, and again with that of before."""

    def change(role: str) -> None:
        server.settings = replace(server.settings, role=role)
        server.stop(grace_s=0.5)

    before = server.settings.role
    return Effect(partial(change, role), partial(change, before))


def _nothing() -> None:
    """The end of an effect that ends by itself."""
