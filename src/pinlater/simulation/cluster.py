"""The processes that are servers: production `App`s, each on a loop of its own, on the same shared stores.

The only parts that are not production code are those that a test of a server on one machine also replaces: the clock, the random numbers,
the stores, and the parts with threads and processes: the check of the admin password, and searches for regular expressions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import cast

from pinlater.domain.clock import Clock, SystemClock
from pinlater.domain.errors import PinLaterError, ShardConnectionFailed
from pinlater.domain.queue import Queue
from pinlater.domain.servers import AboutServer, ServerRole
from pinlater.server.access.settings import AccessSettings
from pinlater.server.cluster.settings import ClusterSettings
from pinlater.server.config.settings import Settings
from pinlater.server.config.store import StoreLocation
from pinlater.server.main.app import App
from pinlater.server.main.cluster import FindCoordinator
from pinlater.server.main.coordinator import find_coordinator
from pinlater.server.main.core import Core
from pinlater.server.operations.enqueue import Enqueue
from pinlater.server.operations.shard_router import KeyedRequest
from pinlater.server.sharding.reload import DesiredShard
from pinlater.server.sharding.shards import ShardLanes
from pinlater.server.storage.values import Inserted
from pinlater.simulation.enqueue_tries import EnqueueTry
from pinlater.simulation.loop import ProcessLoop, ProcessState, Timeline, new_process
from pinlater.simulation.network import Network
from pinlater.simulation.store import AGREED_WITHIN_MS, SimulatedStore, misleads
from pinlater.simulation.store_session import Session
from pinlater.wire.generated.structs import Job

NewCoordinator = Callable[[ClusterSettings, Clock], FindCoordinator | None]
PORT = 9010
PEER_PORT = 9011
PASSWORD = "open sesame"
# When the simulated world begins.
STARTS_AT_S = 1_767_225_600
_RESTART_S = 0.5
_ROUNDING_MS = 2
_LOOP_LAG_MS = 5_000  # every turn takes the same time here


async def check_password(password: str) -> bool:
    """Checks the password as a real server does, without its threads."""
    return password == PASSWORD


class Searches:
    """Replaces the processes for searches, which are never used here."""

    async def close(self) -> None:
        """Does nothing: there is nothing to end."""


class SimulatedApp(App):
    """A server whose shards are simulated. `agreed()` is called once it has taken the time of the shards."""

    def __init__(
        self,
        settings: Settings,
        clock: SystemClock,
        random: Random,
        stores: Sequence[SimulatedStore],
        agreed: Callable[[], None],
        coordinator: NewCoordinator = find_coordinator,
    ) -> None:
        super().__init__(settings, clock=clock, random=random, one_of_many=True)
        self._coordinator = coordinator
        self._stores = stores
        self._agreed = agreed
        self._told_apart = True
        self._thread_cpu_s = lambda: 0.0  # simulated time is not CPU time

    async def _open_core(self) -> Core:
        core = await super()._open_core()
        sessions = [cast("Session", shard.unguarded) for shard in core.shards]
        if misleads([told for session in sessions for told in session.told_here]):
            raise ShardConnectionFailed("an operator starts no server in the moments after a shard's clock jumped")
        self._agreed()
        core.passwords.check = check_password  # type: ignore[method-assign]
        core.service.searches = Searches()  # type: ignore[assignment]
        if len(self._stores) > 1:
            self._note_tries(core.service.enqueuing)
        return core

    def _note_tries(self, enqueuing: Enqueue) -> None:
        """Records at the stores which requests with keys this server sends there."""
        server = cast("ProcessLoop", asyncio.get_running_loop()).name
        stores = {store.name: store for store in self._stores}
        plain, clock = enqueuing._insert, self.clock

        def insert(
            shard: ShardLanes,
            queue: Queue,
            jobs: Sequence[Job],
            now_ms: int,
            key: str | None,
            request: KeyedRequest | None,
        ) -> Awaitable[Inserted]:
            if request is not None:
                sent_s = clock.monotonic()
                began_s = sent_s - (clock.now_ms() - now_ms + 1) / 1000  # now_ms is rounded
                sent = EnqueueTry(server, sent_s, began_s if request.repeat else None)
                for job in jobs:
                    stores[shard.name].tries.setdefault(job.body, []).append(sent)
            return plain(shard, queue, jobs, now_ms, key, request)

        enqueuing._insert = enqueuing._router._insert = insert  # type: ignore[method-assign, assignment]

    def _desired(self) -> Sequence[DesiredShard]:
        about = AboutServer(self.settings.cluster.coordinator, ServerRole(self.settings.role))
        return [DesiredShard(store.name, partial(store.shard, about)) for store in self._stores]

    def _find_coordinator(self) -> FindCoordinator | None:
        return self._coordinator(self.settings.cluster, self.clock)


@dataclass(eq=False)
class SimulatedServer:
    """One server of the cluster: its process now, and those before it. `ahead_s`: how far its machine's clock is ahead; the clock jumps
    when that changes."""

    name: str
    timeline: Timeline
    network: Network
    random: Random
    stores: Sequence[SimulatedStore]
    settings: Settings
    ahead_s: float
    app: SimulatedApp | None = None
    loop: ProcessLoop | None = None
    clocks: list[SystemClock] = field(default_factory=list)  # of all its lives that have taken the time of the shards
    agreed_errors_ms: list[int] = field(default_factory=list)  # of these clocks at that moment
    starts: int = 0
    coordinator: NewCoordinator = find_coordinator
    stays_down: bool = False  # stopped by an operator, so that its supervisor does not restart it
    init: ProcessLoop = field(init=False)

    def __post_init__(self) -> None:
        self.init = new_process(self.timeline, f"{self.name}'s supervisor", self.name)

    @property
    def address(self) -> str:
        return f"{self.name}:{PORT}"

    @property
    def ready(self) -> bool:
        return (
            self.app is not None
            and self.loop is not None
            and self.loop.state is ProcessState.RUNNING
            and self.app.readiness().ok
        )

    @property
    def knows_its_way(self) -> bool:
        """Whether it knows an owner for each slice, and has a connection to every owner other than itself."""
        cluster = self.app.cluster if self.app is not None and self.ready else None
        if cluster is None or cluster.ownership is None or cluster.forwarding is None:
            return False
        owners = {owner for store in self.stores for owner in cluster.ownership.owners(store.name)}
        usable = {address for address, link in cluster.forwarding.connections.items() if link.usable}
        return owners <= usable | {cluster.ownership.address}

    @property
    def forwarded(self) -> int:
        """How many items its process has sent to other servers."""
        forwarding = None if self.app is None else self.app.cluster.forwarding
        return 0 if forwarding is None else forwarding.items

    @property
    def refuses(self) -> bool:
        """Whether it closes new connections unread, as it does briefly after it stood still."""
        return self.app is not None and self.app.thrift._refusing_until_s is not None

    def start(self) -> None:
        """Starts a new process."""
        self.starts += 1
        loop = new_process(self.timeline, f"{self.name}-{self.starts}", self.name, self.network)
        clock = SystemClock(lambda: STARTS_AT_S + self.timeline.now_s + self.ahead_s, self.timeline.monotonic)
        agreed = partial(self._note_agreed, clock)
        self.app = SimulatedApp(
            self.settings, clock, Random(self.random.random()), self.stores, agreed, self.coordinator
        )
        self.loop = loop
        loop.create_task(self._serve(self.app, loop))

    async def _serve(self, app: SimulatedApp, loop: ProcessLoop) -> None:
        try:
            await app.start()
        except (PinLaterError, OSError):  # no shard is reachable; its supervisor retries
            self.kill(told=True)
            self.restart_after(_RESTART_S)

    def kill(self, *, told: bool) -> None:
        """Kills the server as SIGKILL does, or, if its peers are not told, as a power failure of its machine does."""
        if self.loop is not None and self.loop.state is not ProcessState.DEAD:
            self.loop.kill()
            self.network.process_died(self.loop, told=told)

    def restart_after(self, seconds: float) -> None:
        """Then starts a new process, unless there is one."""
        self.init.call_later(seconds, self._restart)

    def _restart(self) -> None:
        if self.stays_down or (self.loop is not None and self.loop.state is not ProcessState.DEAD):
            return
        if misleads([store.told_time() for store in self.stores]):
            self.restart_after(_RESTART_S)
        else:
            self.start()

    def stop(self, grace_s: float) -> None:
        """Stops the server as SIGTERM does; afterwards its process is gone."""
        if self.loop is None or self.app is None or self.loop.state is not ProcessState.RUNNING:
            return
        if self.app.readiness().reasons in (("starting",), ("draining",), ("stopped",)):
            self.kill(told=True)
        else:
            self.loop.create_task(self._stop(self.app, self.loop, grace_s))

    async def _stop(self, app: SimulatedApp, loop: ProcessLoop, grace_s: float) -> None:
        await app.stop(grace_s)
        if loop is self.loop:
            self.kill(told=True)
            self.restart_after(0.0)

    def clock_errors_ms(self) -> list[int]:
        """Returns how far the clocks of its lives were ahead of the simulation's time when they had taken that of the shards, and are
        now.
        """
        return [*self.agreed_errors_ms, *(self._error_ms(clock) for clock in self.clocks)]

    def _note_agreed(self, clock: SystemClock) -> None:
        self.clocks.append(clock)
        self.agreed_errors_ms.append(self._error_ms(clock))

    def _error_ms(self, clock: SystemClock) -> int:
        return round(clock.now_ms() - (STARTS_AT_S + self.timeline.now_s) * 1000)


@dataclass(slots=True)
class SimulatedCluster:
    """All servers and stores."""

    timeline: Timeline
    network: Network
    servers: list[SimulatedServer] = field(default_factory=list)
    stores: list[SimulatedStore] = field(default_factory=list)

    @property
    def addresses(self) -> list[str]:
        return [server.address for server in self.servers]

    def start(self) -> None:
        """All servers, at the same time."""
        for server in self.servers:
            server.start()

    def clocks_differ_ms(self) -> int:
        """Returns the largest difference between the servers' clocks, rounded up. Only those differences count on which servers can have
        agreed: a clock that is further off is a defect, and excuses no violation.
        """
        errors = [error for server in self.servers for error in server.clock_errors_ms()]
        agreed = [error for error in errors if abs(error) < AGREED_WITHIN_MS]
        return max(agreed) - min(agreed) + _ROUNDING_MS if agreed else 0

    def wall_ms(self) -> int:
        """The true time."""
        return round((STARTS_AT_S + self.timeline.now_s) * 1000)


def settings_of(host: str, base: Settings) -> Settings:
    """The settings of one server: `base`, except for its addresses, and without the files that it rereads. Clients have no
    tokens.
    """
    return replace(
        base,
        store=StoreLocation("memory"),
        host=host,
        advertised_host=host,
        advertised_address=None,
        queue_limits_file=None,
        server_set_file=None,
        processes=1,
        access=AccessSettings(),
        mysql=replace(base.mysql, lease_ms=base.database.lease_ms),
        peer_port=PEER_PORT,
        thrift=replace(base.thrift, host=host, port=PORT),
        telemetry=replace(base.telemetry, loop_lag_interval_ms=_LOOP_LAG_MS),
    )
