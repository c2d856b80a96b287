"""A ZooKeeper ensemble in a simulation, and sessions of servers with it. All but the client and its thread is production code.

A session talks to one member of the ensemble, which may be behind the others until it is asked to `sync`. A watch comes late, once for
several changes. A call may fail although the ensemble has carried it out. An ensemble that has lost its data takes no client again that
has seen more changes than it has made since.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, NamedTuple

from kazoo.exceptions import BadVersionError, ConnectionLoss, NodeExistsError, NoNodeError

from pinlater.domain.clock import Clock
from pinlater.server.cluster.ownership.coordinator import Coordinator
from pinlater.server.cluster.settings import ClusterSettings
from pinlater.server.cluster.zookeeper.coordinator import ZooKeeperCoordinator
from pinlater.server.cluster.zookeeper.session import TICK_S, ZooKeeperSession
from pinlater.server.main.cluster import FindCoordinator
from pinlater.simulation.cluster import SimulatedServer
from pinlater.simulation.effects import Effect
from pinlater.simulation.loop import ProcessLoop, Timeline, new_process

ROOT = "/pinlater"
_LOOK_S = 0.1
_WATCH_S = 0.3


class Node(NamedTuple):
    """`ephemeralOwner` as kazoo calls it: the session with which the node ends; 0: none."""

    data: bytes
    version: int
    ephemeralOwner: int


Nodes = Mapping[str, Node]


class SimulatedEnsemble:
    """Its nodes after each change, and the sessions that it knows. `lag_s`: how far members may be behind."""

    def __init__(self, timeline: Timeline, random: Random, session_timeout_s: float) -> None:
        self.timeline = timeline
        self.random = random
        self.session_timeout_s = session_timeout_s
        self.states: list[tuple[float, Nodes]] = [(0.0, {})]
        self.heard_s: dict[int, float] = {}  # by session
        self.clients: list[SimulatedClient] = []
        self.away = False
        self.cut_off = set[str]()  # hosts
        self.lag_s = 0.0
        self.failing = 0.0  # share of the calls
        self._sessions = 0
        self._process = new_process(timeline, "ensemble", "ensemble")
        self._process.call_later(_LOOK_S, self._look)

    @property
    def nodes(self) -> Nodes:
        return self.states[-1][1]

    @property
    def now_s(self) -> float:
        return self.timeline.now_s

    def new_session(self) -> int:
        self._sessions += 1
        self.heard_s[self._sessions] = self.now_s
        return self._sessions

    def change(self, nodes: Nodes) -> None:
        """Stores a change, and tells those that watch what has changed."""
        changed = {path for path, _ in self.nodes.items() ^ nodes.items()}
        changed |= {path.rpartition("/")[0] for path in changed}
        self.states.append((self.now_s, nodes))
        for client in self.clients:
            client.tell(changed)

    def end_session(self, session: int) -> None:
        self.heard_s.pop(session, None)
        left = {path: node for path, node in self.nodes.items() if node.ephemeralOwner != session}
        if len(left) < len(self.nodes):
            self.change(left)

    def _look(self) -> None:
        """Ends the sessions that were not heard for too long. While there is no quorum, none ends."""
        for session, heard_s in list(self.heard_s.items()):
            if self.away:
                self.heard_s[session] = self.now_s
            elif self.now_s - heard_s > self.session_timeout_s:
                self.end_session(session)
        self._process.call_later(_LOOK_S, self._look)

    def lose_data(self) -> None:
        self.states = [(self.now_s, {})]
        self.heard_s.clear()

    # --- what goes wrong --------------------------------------------------------------------------------------------------

    def effects(self, random: Random, hosts: Sequence[str]) -> Sequence[tuple[str, Effect]]:
        """One of each kind, with its name."""
        host = random.choice(hosts)
        lag_s = random.choice((0.5, 2 * self.session_timeout_s))
        cut_off = Effect(lambda: self.cut_off.add(host), lambda: self.cut_off.discard(host))
        return [
            ("the ensemble has no quorum", Effect(lambda: self._set(away=True), lambda: self._set(away=False))),
            ("the ensemble loses its data", Effect(self.lose_data, lambda: None)),
            (f"{host} is cut off from the ensemble", cut_off),
            (
                f"members of the ensemble are up to {lag_s} s behind",
                Effect(lambda: self._set(lag_s=lag_s), lambda: self._set(lag_s=0.0)),
            ),
            (
                "calls of the ensemble fail",
                Effect(lambda: self._set(failing=0.3), lambda: self._set(failing=0.0)),
            ),
        ]

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            setattr(self, name, value)

    def heal(self) -> None:
        """Nothing goes wrong any more."""
        self._set(away=False, lag_s=0.0, failing=0.0)
        self.cut_off.clear()

    # --- servers ----------------------------------------------------------------------------------------------------------

    def coordinate(self, servers: Iterable[SimulatedServer]) -> None:
        """Makes it their coordinator; they must not have started."""
        settings = ClusterSettings("zookeeper", f"zk:2181{ROOT}", session_timeout_s=self.session_timeout_s)
        for server in servers:
            server.coordinator = self._find_coordinator
            server.settings = replace(server.settings, cluster=settings)

    def _find_coordinator(self, settings: ClusterSettings, clock: Clock) -> FindCoordinator:
        """As `main.coordinator` does for a real ensemble."""

        async def begin(address: str, changed: Callable[[], None]) -> Coordinator:
            make = partial(SimulatedSession, self)
            coordinator = ZooKeeperCoordinator(settings, "", address, changed, clock, make)
            await coordinator.begin()
            return coordinator

        return begin


class SimulatedAnswer(NamedTuple):
    """Of a call, as kazoo has it: the result, or what it raises, comes with `get`."""

    carry_out: Callable[[], Any]

    def get(self, timeout: float) -> Any:
        del timeout
        return self.carry_out()


class SimulatedClient:
    """What `ClusterNodes` uses of kazoo's client."""

    def __init__(self, ensemble: SimulatedEnsemble, loop: ProcessLoop, wake: Callable[[], None]) -> None:
        self._ensemble = ensemble
        self._loop = loop
        self._wake = wake
        self._watched = set[str]()
        self._is_told = False
        self._seen = 0  # changes
        self._behind_s = ensemble.random.random()  # of the ensemble's `lag_s`
        self._session = 0
        ensemble.clients.append(self)

    @property
    def client_id(self) -> tuple[int, bytes]:
        return self._session, b""

    @property
    def connected(self) -> bool:
        """Tells the ensemble that this client is there. After the end of its session, it has another one."""
        ensemble = self._ensemble
        if ensemble.away or self._loop.host in ensemble.cut_off or self._seen > len(ensemble.states):
            return False
        if self._session not in ensemble.heard_s:
            self._session = ensemble.new_session()
            self._watched.clear()
            self._wake()
        ensemble.heard_s[self._session] = ensemble.now_s
        return True

    def tell(self, changed: set[str]) -> None:
        """Of these paths, later. What changes meanwhile is told with it."""
        if not self._is_told and not changed.isdisjoint(self._watched):
            self._is_told = True
            self._loop.call_later(self._ensemble.random.random() * _WATCH_S, self._come)

    def _come(self) -> None:
        self._is_told = False
        self._watched.clear()
        self._wake()

    def close(self) -> None:
        """May be called twice."""
        if self in self._ensemble.clients:
            self._ensemble.clients.remove(self)
            if self.connected:
                self._ensemble.end_session(self._session)

    # --- kazoo's calls ------------------------------------------------------------------------------------------------------

    def sync_async(self, path: str) -> SimulatedAnswer:
        del path
        return self._asked(lambda: None, newest=True)

    def get_async(self, path: str, watch: object = None) -> SimulatedAnswer:
        return self._read(path, watch, lambda nodes: (nodes[path].data, nodes[path]))

    def get_children_async(self, path: str, watch: object = None) -> SimulatedAnswer:
        return self._read(
            path,
            watch,
            lambda nodes: [each.rpartition("/")[2] for each in nodes if each.rpartition("/")[0] == path],
        )

    def ensure_path_async(self, path: str) -> SimulatedAnswer:
        return self._asked(lambda: None if path in self._ensemble.nodes else self._put(path, Node(b"", 0, 0)))

    def create_async(
        self, path: str, data: bytes, *, ephemeral: bool = False, makepath: bool = False
    ) -> SimulatedAnswer:
        del makepath

        def create() -> None:
            if path in self._ensemble.nodes:
                raise NodeExistsError
            self._put(path, Node(data, 0, self._session if ephemeral else 0))

        return self._asked(create)

    def set_async(self, path: str, data: bytes, version: int) -> SimulatedAnswer:
        def put() -> None:
            node = self._found(self._ensemble.nodes, path)
            if node.version != version:
                raise BadVersionError
            self._put(path, Node(data, version + 1, node.ephemeralOwner))

        return self._asked(put)

    def delete_async(self, path: str) -> SimulatedAnswer:
        def delete() -> None:
            self._found(self._ensemble.nodes, path)
            self._ensemble.change({each: node for each, node in self._ensemble.nodes.items() if each != path})

        return self._asked(delete)

    def _put(self, path: str, node: Node) -> None:
        self._ensemble.change({**self._ensemble.nodes, path: node})

    @staticmethod
    def _found(nodes: Nodes, path: str) -> Node:
        if path not in nodes:
            raise NoNodeError
        return nodes[path]

    def _read(self, path: str, watch: object, look: Callable[[Nodes], Any]) -> SimulatedAnswer:
        def read() -> Any:
            nodes = self._ensemble.states[self._seen - 1][1]
            self._found(nodes, path)
            if watch is not None:
                self._watched.add(path)
            return look(nodes)

        return self._asked(read, newest=False)

    def _asked(self, act: Callable[[], Any], *, newest: bool = True) -> SimulatedAnswer:
        def carry_out() -> Any:
            ensemble = self._ensemble
            fails = ensemble.failing and ensemble.random.random() < ensemble.failing
            if not self.connected or (fails and ensemble.random.random() < 0.5):
                raise ConnectionLoss
            self._see(newest=newest)
            answer = act()
            if newest:
                self._seen = len(ensemble.states)
            if fails:  # but is carried out
                raise ConnectionLoss
            return answer

        return SimulatedAnswer(carry_out)

    def _see(self, *, newest: bool) -> None:
        """The changes that the member knows which this client talks to; never fewer than before."""
        ensemble = self._ensemble
        known_s = ensemble.now_s - self._behind_s * ensemble.lag_s
        while self._seen < len(ensemble.states) and (newest or ensemble.states[self._seen][0] <= known_s):
            self._seen += 1
        self._seen = max(1, self._seen)


class SimulatedEvent:
    """In place of the event that wakes the thread."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.set = wake


class SimulatedSession(ZooKeeperSession):
    """A session whose thread is a task of the event loop."""

    def __init__(self, ensemble: SimulatedEnsemble, *rest: Any) -> None:
        super().__init__(*rest)
        self._ensemble = ensemble
        self._told = asyncio.Event()
        self._woken = SimulatedEvent(self._told.set)  # type: ignore[assignment]
        self._client: SimulatedClient | None = None

    def _start(self) -> None:
        self._loop.create_task(self._turns())

    async def _turns(self) -> None:
        while not self._ends:
            self._client = SimulatedClient(self._ensemble, self._loop, self._told.set)  # type: ignore[arg-type]
            nodes = self._nodes_of(self._client)
            good = True
            while good and not self._ends:
                told = True
                try:
                    async with asyncio.timeout(TICK_S):
                        await self._told.wait()
                except TimeoutError:
                    told = False
                self._told.clear()
                good = self._turn(self._client, nodes, "", told, self._loop.time())
            self._client.close()

    async def close(self) -> None:
        self._ends = True
        self._told.set()
        if self._client is not None:
            self._client.close()
