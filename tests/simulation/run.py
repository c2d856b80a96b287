"""A seed from its beginning to its verdict."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import NamedTuple, TypeVar, cast

from pinlater.client import Ack, ClaimedJob, QueueConfig
from pinlater.domain.errors import PinLaterError
from pinlater.domain.job import JobState
from pinlater.server.config.settings import Settings
from pinlater.server.maintenance.settings import MaintenanceSettings
from pinlater.server.sharding.settings import ShardingSettings
from pinlater.server.storage.commands import ListQueues
from pinlater.server.storage.mysql.settings import MysqlSettings
from pinlater.server.storage.sqlite.dialect import at_once
from pinlater.server.telemetry.settings import TelemetrySettings
from pinlater.server.thrift.settings import ThriftSettings
from pinlater.simulation.cluster import SimulatedCluster, SimulatedServer, settings_of
from pinlater.simulation.isolation import collected_at_the_end, common_dice, watched_logs
from pinlater.simulation.loop import ProcessLoop, ProcessState, Timeline, new_process
from pinlater.simulation.network import Network
from pinlater.simulation.store import SimulatedStore
from pinlater.simulation.trace import Trace
from pinlater.simulation.verdict import judge
from tests.simulation.broken_connections import end_half_open
from tests.simulation.ensemble import SimulatedEnsemble
from tests.simulation.faults import Faults
from tests.simulation.operator import Operator
from tests.simulation.worker import SimulatedWorkerProcess
from tests.simulation.workload import QUEUE, SCRATCH, Process, Workload

P = TypeVar("P", bound=Process)

# A run that takes longer in its own time has come to a standstill.
_RUN_S_MAX = 1_000.0
_DRAIN_S_MAX = 60.0
# So long after its last error a shard may still be taken for one that is unreachable.
_SETTLE_S = 1.5
# Of settings, in a run in which they change.
_CHANGES = 6
# A waiting dequeue learns of a job at any server within about a second, wake or no wake.
_WAKE_S_MAX = 2.5
# How often servers look at the queues if no other server tells of a change: the last one of a call that was given up may come late.
_TOLD_LOOK_S = 30.0


_SESSION_S = 2.0
# Three session time-outs until a client is thrown away, one until its session ends, and some looks.
_OWN_S_MAX = 4 * _SESSION_S + 20.0


class SimulationPlan(NamedTuple):
    """What a seed decides before the run begins."""

    seed: int
    servers: int
    stores: int
    faults: int
    busy_s: float
    scratch: bool
    operated: bool  # whether settings change meanwhile
    owned: bool  # whether the load begins only once the servers own all slices and forward to each other
    split: bool  # whether two servers do not reach each other for a while
    wide: bool  # whether the queue begins with as many partitions as there are shards
    grown: bool  # whether servers change the automatic number of partitions meanwhile
    drained: bool  # whether shards drain meanwhile
    load: Workload
    settings: Settings
    lease_s: float
    late_s: float
    coordinated: bool = False  # whether a ZooKeeper ensemble, which fails, too, is the coordinator


class SimulationResult(NamedTuple):
    """How a run ended. `told` is its history, line by line."""

    plan: SimulationPlan
    broken: Sequence[str]
    told: Sequence[str]
    operations: int
    lasted_s: float
    errors: Counter[str]
    overtaken: int  # jobs stored twice by a repeat that overtook its first try: no promise, but worth a look


class Scale(NamedTuple):
    """From what a plan is drawn."""

    servers: Sequence[int]
    stores: Sequence[int]
    faults: Sequence[int]
    busy_s: Sequence[float]
    requests: Sequence[int]
    workers: Sequence[int]
    claim_timeout_ms: Sequence[int]
    wait_ms: Sequence[int]
    lease_s: float
    scratch: float = 0.2  # share of the runs in which a queue is deleted and created again
    operated: float = 0.3  # share of the runs in which settings change
    owned: float = 0.8  # share of the runs that begin with all slices owned
    split: float = 0.3  # share of the runs in which two servers do not reach each other for a while
    wide: float = 0.5  # share of the runs whose queue begins with several partitions
    grown: float = 0.5  # share of the runs in which servers change the automatic number
    drained: float = 0.5  # share of the runs without unique keys in which shards drain
    ordered: Sequence[float] = (0.0, 0.0, 0.5, 1.0)  # shares of the jobs that have an ordering key
    client_timeout_ms: Sequence[int] = (500, 2_000, 10_000)
    call_timeout_ms: Sequence[int] = (500, 5_000)
    work_timeout_ms: Sequence[int] = (1_000, 10_000)
    probe_timeout_ms: Sequence[int] = (200, 1_000)
    due_interval_ms: Sequence[int] = (1_000, 5_000)
    refresh_interval_ms: Sequence[int] = (1_000, 5_000)
    standstill_s: Sequence[float] = (1.0, 20.0)
    stall_ms: int = 500
    probe_interval_ms: Sequence[int] = (1_000, 5_000)  # the first and the longest
    late_s: float = 12.0  # the longest delay of a call that hangs


# Some milliseconds of real time each: nothing is drawn that makes a run wait for seconds. `make test` runs some thousand of these.
TINY = Scale(
    servers=(2,),
    stores=(2,),
    faults=(1, 2),
    busy_s=(0.4,),
    requests=(2,),
    workers=(1, 2),
    claim_timeout_ms=(200, 400),
    wait_ms=(300, 1_000),
    lease_s=2.0,
    scratch=0.15,
    operated=0.05,
    client_timeout_ms=(300, 1_000),
    call_timeout_ms=(300, 600),
    work_timeout_ms=(500, 1_000),
    probe_timeout_ms=(200,),
    due_interval_ms=(1_000,),
    refresh_interval_ms=(1_000,),
    standstill_s=(1.0,),
    stall_ms=100,
    probe_interval_ms=(300, 1_000),
    late_s=1.5,
)
# Time for servers to start while a clock is wrong, and claims that a wrong clock ends early; with `Faults.clock_kinds`.
CLOCKS = TINY._replace(faults=(4,), busy_s=(2.0,), requests=(8,), workers=(2,), claim_timeout_ms=(2_000,))
SMALL = Scale((1, 2, 2, 3), (1, 2, 2), (1, 2, 3), (0.5, 1.0), (2, 3), (1, 2), (300, 700), (300, 1_500), 3.0)
# As long as the production time limits are.
LARGE = Scale(
    (1, 2, 2, 3),
    (1, 2, 2, 3),
    (0, 1, 2, 3, 5),
    (1.0, 2.0, 4.0, 20.0),
    (4, 10, 30),
    (1, 2, 3),
    (400, 800, 1_500, 20_000),
    (500, 2_000, 8_000, 30_000),
    6.0,
)


SCALES: Mapping[str, Scale] = {"tiny": TINY, "small": SMALL, "large": LARGE}


def plan_of(seed: int, scale: Scale = LARGE) -> SimulationPlan:
    """Draws the cluster's shape, its load and how much goes wrong."""
    dice = Random(f"{seed} plan")
    more = Random(f"{seed} more")
    scratch = dice.random() < scale.scratch
    busy_s = dice.choice(scale.busy_s)
    requests = dice.choice(scale.requests)
    load = Workload(
        producers=dice.choice((1, 2)),
        workers=dice.choice(scale.workers),
        requests=requests,
        pause_s=busy_s / requests,
        claim_timeout_ms=dice.choice(scale.claim_timeout_ms),
        wait_ms=dice.choice(scale.wait_ms),
        client_timeout_ms=dice.choice(scale.client_timeout_ms),
        scratch=0.5 if scratch else 0.0,
        unique=more.choice((0.0, 0.0, 0.5)),
        ordered=Random(f"{seed} ordered").choice(scale.ordered),
    )
    settings = Settings(
        sharding=ShardingSettings(
            call_timeout_ms=dice.choice(scale.call_timeout_ms),
            work_timeout_ms=dice.choice(scale.work_timeout_ms),
            probe_timeout_ms=dice.choice(scale.probe_timeout_ms),
            stall_ms=scale.stall_ms,
            probe_interval_ms=scale.probe_interval_ms[0],
            probe_interval_max_ms=scale.probe_interval_ms[-1],
        ),
        maintenance=MaintenanceSettings(
            sweep_interval_ms=dice.choice((200, 1_000)),
            expiry_interval_ms=10_000,  # no job of the load expires
            due_interval_ms=dice.choice(scale.due_interval_ms),
            refresh_interval_ms=dice.choice(scale.refresh_interval_ms),
        ),
        thrift=ThriftSettings(standstill_s=dice.choice(scale.standstill_s)),
        mysql=MysqlSettings(lease_ms=round(scale.lease_s * 1000)),
        telemetry=TelemetrySettings(loop_lag_interval_ms=5_000),  # every turn takes the same time here
    )
    return SimulationPlan(
        seed,
        dice.choice(scale.servers),
        dice.choice(scale.stores),
        dice.choice(scale.faults),
        busy_s,
        scratch,
        more.random() < scale.operated,
        more.random() < scale.owned,
        more.random() < scale.split,
        more.random() < scale.wide,
        more.random() < scale.grown,
        not load.unique
        and Random(f"{seed} drained").random() < scale.drained,  # servers with two maps may take a unique key twice
        load,
        settings,
        scale.lease_s,
        scale.late_s,
    )


class SimulationRun:
    """One seed's cluster, load and faults."""

    def __init__(self, plan: SimulationPlan, make_store: Callable[..., SimulatedStore] = SimulatedStore) -> None:
        self.plan = plan
        seed = plan.seed
        self.timeline = Timeline()
        self.network = Network(self.timeline, Random(f"{seed} network"))
        self.cluster = SimulatedCluster(self.timeline, self.network)
        self.trace = Trace(self.timeline)
        dice = Random(f"{seed} machines")
        for index in range(plan.stores):
            self.cluster.stores.append(
                make_store(
                    str(index + 1),
                    self.timeline,
                    Random(f"{seed} store {index}"),
                    self.cluster.wall_ms,
                    plan.lease_s,
                    dice.choice((0, 0, 37, 2_500)),
                )
            )
        for store in self.cluster.stores:
            store.stores = self.cluster.stores
        for index in range(plan.servers):
            host = f"server{index + 1}"
            self.cluster.servers.append(
                SimulatedServer(
                    host,
                    self.timeline,
                    self.network,
                    Random(f"{seed} {host}"),
                    self.cluster.stores,
                    settings_of(host, plan.settings),
                    dice.choice((0.0, 0.0, 0.3, -5.0)),
                )
            )
        self._ensemble = self._coordinate() if plan.coordinated else None
        self._driver = new_process(self.timeline, "driver", "driver", self.network)
        self._admin = self._process("admin", Process)
        self._operator = self._process("operator", Operator)
        self._producers = [self._process(f"producer{index + 1}", Process) for index in range(plan.load.producers)]
        # The first is a scripted one, which does the remaining jobs at the end.
        self._workers = [self._process("worker1", Process)]
        for index in range(1, plan.load.workers):
            make = dice.choice((Process, SimulatedWorkerProcess))
            self._workers.append(self._process(f"worker{index + 1}", make))
        for process in (*self._producers, *self._workers[1:]):
            process.may_die = True
        self.broken: list[str] = []
        self.overtaken = 0

    def _process(self, name: str, make: Callable[..., P]) -> P:
        return make(
            name,
            self.timeline,
            self.network,
            self.cluster.addresses,
            self.plan.seed,
            self.plan.load,
            self.trace,
            self.cluster.wall_ms,
        )

    # --- the run ----------------------------------------------------------------------------------------------------------------

    def carry_out(self) -> SimulationResult:
        """All of it, and what it proves."""
        began_s = self.timeline.now_s
        with watched_logs(self.timeline):
            if not self.timeline.run(self._drive(), self._driver, until_s=began_s + _RUN_S_MAX):
                self.broken.append("the run never came to its end")
        self._judge()
        lasted_s = self.timeline.now_s - began_s
        errors = Counter[str]()
        for process in self.processes:
            errors.update(process.errors)
        return SimulationResult(
            self.plan, self.broken, self.trace.told, self.trace.operations, lasted_s, errors, self.overtaken
        )

    @property
    def processes(self) -> list[Process]:
        """All clients."""
        return [self._admin, self._operator, *self._producers, *self._workers]

    async def _drive(self) -> None:
        plan, cluster = self.plan, self.cluster
        cluster.start()
        await self._until(lambda: all(server.ready for server in cluster.servers), 30.0)
        if plan.owned:
            await self._until(lambda: all(server.knows_its_way for server in cluster.servers), 30.0)
        await self._done(self._admin.start(self._admin.create(QUEUE, *([SCRATCH] if plan.scratch else []))))
        if plan.wide and plan.stores > 1:
            await self._done(self._operator.start(self._operator.divide(QUEUE, plan.stores)))
        producing = [process.start(process.produce()) for process in self._producers]
        queues = [QUEUE, QUEUE, SCRATCH] if plan.scratch else [QUEUE]
        working = [process.start(process.work(queues)) for process in self._workers]
        if plan.scratch:
            producing.append(self._admin.start(self._admin.recreate(3, plan.busy_s / 4)))
        if plan.operated:
            producing.append(self._operator.start(self._operator.operate(QUEUE, _CHANGES, plan.busy_s / _CHANGES)))
        if plan.grown and plan.stores > 1:
            self._grow(Random(f"{plan.seed} growth"))
        if plan.drained and plan.stores > 1:
            self._drain_shards(Random(f"{plan.seed} drains"))
        await self._let_things_go_wrong()
        self._take_enqueues()
        await self._until(lambda: all(_ended(task) for task in producing), 150.0)
        settled = await self._settle() if plan.operated else None
        await self._drain()
        await self._rest(working)
        for task in (*producing, *working):
            if task.done() and task.exception() is not None:
                self.broken.append(f"a client failed unexpectedly: {task.exception()!r}")
        if not self.broken:
            await self._wake()
            await self._count()
            await self._own()
            if settled is not None:
                self._hold(settled)
                await self._pause()
            if not await self._until(self._numbers_agree, _TOLD_LOOK_S + 4 * self._learning_s):
                self.broken.append("DIVIDED shards have different automatic numbers of partitions")

    async def _settle(self) -> QueueConfig:
        """No pause and no limit holds any more, and every server has had the time to learn of it.

        A try of an earlier change that its client gave up may still be under way, and would count as a later one.
        """
        sharding = self.plan.settings.sharding
        await asyncio.sleep((sharding.call_timeout_ms + sharding.work_timeout_ms) / 1000 + _SETTLE_S)
        settling = self._operator.start(self._operator.settle(QUEUE))
        await self._done(settling)
        await asyncio.sleep(self._learning_s)
        return settling.result()

    @property
    def _learning_s(self) -> float:
        """How long it takes at most until all servers know of changed settings."""
        return self.plan.settings.maintenance.refresh_interval_ms / 1000 + _SETTLE_S

    async def _rest(self, working: Sequence[asyncio.Task[None]]) -> None:
        """Workers claim no more."""
        for process in self._workers:
            process.finish()
        await self._until(lambda: all(_ended(task) for task in working), 30.0)

    def _grow(self, dice: Random) -> None:
        """Servers change the automatic number of partitions at random moments, as if they had decided so."""

        async def change(server: SimulatedServer, number: int) -> None:
            if server.app is not None and server.ready:
                self.trace.note(f"{server.name} gives the queue {number} partitions")
                with contextlib.suppress(PinLaterError):
                    await server.app.core.service.queues.set_auto_partitions(QUEUE, number)

        def begin() -> None:
            server, number = dice.choice(self.cluster.servers), dice.randint(1, self.plan.stores)
            if server.loop is not None and server.loop.state is ProcessState.RUNNING:
                server.loop.create_task(change(server, number))

        for _ in range(_CHANGES):
            self._driver.call_later(dice.uniform(0.0, self.plan.busy_s), begin)

    def _drain_shards(self, dice: Random) -> None:
        """One shard drains for a while, then another. Each server learns of it at another moment, and forgets it if it starts anew."""
        names = dice.sample([store.name for store in self.cluster.stores], 2)
        part_s = self.plan.busy_s / len(names)
        for number, name in enumerate(names):
            for server in self.cluster.servers:
                for takes, from_s in ((False, number * part_s), (True, (number + 0.5) * part_s)):
                    at_s = from_s + dice.uniform(0.0, part_s / 2)
                    self._driver.call_later(at_s, self._change_enqueues, server, name, takes)

    def _change_enqueues(self, server: SimulatedServer, name: str, takes: bool) -> None:
        async def change() -> None:
            core = getattr(server.app, "core", None)  # not before it has opened its shards
            if core is not None and (shard := core.shards.get(name)) is not None:
                self.trace.note(f"{server.name}: shard {name} {'takes enqueues' if takes else 'drains'}")
                core.shards.change_enqueues(shard, takes=takes)

        if server.loop is not None and server.loop.state is ProcessState.RUNNING:
            server.loop.create_task(change())

    def _take_enqueues(self) -> None:
        """No shard drains any more, as far as all servers know."""
        for server in self.cluster.servers:
            for store in self.cluster.stores:
                self._change_enqueues(server, store.name, takes=True)

    async def _let_things_go_wrong(self) -> None:
        """Faults begin and end; then all is well again, and every server is back."""
        plan, trace = self.plan, self.trace
        dice = Random(f"{plan.seed} faults")
        faults = Faults(self.cluster, dice, self.processes, plan.lease_s * 1.5, plan.late_s)
        drawn = faults.draw(plan.faults, plan.busy_s)
        if plan.split:
            drawn += faults.draw_split(Random(f"{plan.seed} cut"), plan.busy_s)
        if self._ensemble is not None:
            hosts = [server.name for server in self.cluster.servers]
            drawn += faults.draw_of_ensemble(Random(f"{plan.seed} ensemble faults"), self._ensemble, hosts, plan.busy_s)
        loop = self._driver
        over_s = plan.busy_s
        for fault in drawn:
            loop.call_later(fault.at_s, _told, trace, f"FAULT {fault.name}", fault.begin)
            loop.call_later(fault.at_s + fault.lasts_s, _told, trace, f"OVER {fault.name}", fault.end)
            over_s = max(over_s, fault.at_s + fault.lasts_s)
        await asyncio.sleep(over_s + 0.01)
        faults.heal()
        if self._ensemble is not None:
            self._ensemble.heal()
        trace.note("ALL IS WELL")

    def _coordinate(self) -> SimulatedEnsemble:
        """An ensemble, and all servers with it as their coordinator."""
        ensemble = SimulatedEnsemble(self.timeline, Random(f"{self.plan.seed} ensemble"), _SESSION_S)
        ensemble.coordinate(self.cluster.servers)
        dice = Random(f"{self.plan.seed} roles")
        for server in self.cluster.servers:
            server.settings = replace(server.settings, role=dice.choice(("all", "all", "enqueue", "dequeue")))
        return ensemble

    async def _own(self) -> None:
        """The servers that may own slices come to own all of them in equal shares, and all servers know it. There are nodes of servers and
        shards only."""
        if self._ensemble is not None and not await self._until(self._is_shared_out, _OWN_S_MAX):
            owners = [sorted(self._owners_known(server).items()) for server in self.cluster.servers]
            nodes = sorted(self._ensemble.nodes)
            self.broken.append(f"UNOWNED servers know these owners: {owners}; the nodes are {nodes}")

    def _owners_known(self, server: SimulatedServer) -> Counter[str]:
        """How many slices each server owns, as this one knows it."""
        ownership = None if server.app is None else server.app.cluster.ownership
        if ownership is None:
            return Counter()
        return Counter(owner for store in self.cluster.stores for owner in ownership.owners(store.name))

    def _is_shared_out(self) -> bool:
        assert self._ensemble is not None
        servers = self.cluster.servers
        known = [self._owners_known(server) for server in servers]
        roles = {server.name: server.app.settings.role for server in servers if server.app is not None}
        owning = [name for name, role in roles.items() if role != "enqueue" or set(roles.values()) == {"enqueue"}]
        counts = known[0].values()
        return (
            {owner.partition(":")[0] for owner in known[0]} == set(owning)
            and max(counts) - min(counts) <= 1
            and all(each == known[0] for each in known)
            and len(self._ensemble.nodes) == 5 + len(servers) + len(self.cluster.stores)
        )

    async def _until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Waits for the condition; whether it held in time."""
        ends_at_s = self.timeline.now_s + seconds
        while not condition():
            if self.timeline.now_s >= ends_at_s:
                return False
            await asyncio.sleep(0.1)
        return True

    async def _done(self, task: asyncio.Task[object]) -> None:
        """Waits for a task of another process."""
        await self._until(task.done, 120.0)
        if not task.done():
            self.broken.append("a client's call was never answered")
        else:
            task.result()

    # --- the verdict ------------------------------------------------------------------------------------------------------------

    async def _drain(self) -> None:
        """Until every job has ended and every server takes calls and serves from every shard."""
        timeout_s = self.plan.load.claim_timeout_ms / 1000
        for process in self._workers:
            process.ends_soon = True
        last_poll_s = self.plan.load.wait_ms / 1000  # of a worker that began it before
        await self._until(self._drained, _DRAIN_S_MAX + 4 * timeout_s + last_poll_s)
        if not all(server.ready for server in self.cluster.servers):
            self.broken.append("a server did not come back")

    def _drained(self) -> bool:
        return (
            not any(store.unfinished() for store in self.cluster.stores)
            and all(self.timeline.now_s > store.fails_until_s + _SETTLE_S for store in self.cluster.stores)
            and all(
                server.ready and not server.refuses and not server.app.readiness().reasons  # type: ignore[union-attr]
                for server in self.cluster.servers
            )
        )

    async def _wake(self) -> None:
        """A dequeue that waits at some server learns of a job that is enqueued at some server, and of the next job of an ordering key.

        Not on a connection that is half open and was not used since: its client notices that only when the poll should have ended. A
        message that the network still holds back may end a connection between two servers; a dequeue that fails by this is made again.
        """
        end_half_open(self.network)
        waiter, producer = self._workers[0], self._admin
        ordered = bool(self.plan.load.ordered)

        async def enqueue() -> None:
            await producer.enqueue(QUEUE, "wake", 1 + ordered, ordering_key="wake" if ordered else None)

        jobs = await self._woken("the enqueue", lambda: producer.start(enqueue()))
        if ordered and jobs:
            ack = Ack(jobs[0].descriptor, token=jobs[0].token)
            jobs = await self._woken("the end of the job before", lambda: producer.start(producer.ack(ack)))
        for job in jobs:
            await self._done(waiter.start(waiter.ack(Ack(job.descriptor, token=job.token))))
        if not self._drained():
            waiter.working = True
            working = waiter.start(waiter.work([QUEUE]))
            await self._drain()
            await self._rest([working])

    async def _woken(self, cause: str, begin: Callable[[], asyncio.Task[None]]) -> Sequence[ClaimedJob]:
        """Returns what a dequeue gets that waits for what `begin` does."""
        waiter = self._workers[0]
        claiming = waiter.start(waiter.claim_until_answered(QUEUE, 1, 20_000))
        await asyncio.sleep(0.2)
        await self._done(begin())
        ended_s = self.timeline.now_s
        await self._until(claiming.done, 30.0)
        waited_s = self.timeline.now_s - ended_s
        jobs = claiming.result() if claiming.done() else ()
        if not jobs or waited_s > _WAKE_S_MAX:
            self.broken.append(f"UNWOKEN a waiting dequeue had {jobs!r} {waited_s:.1f} s after {cause}")
        return jobs

    def _hold(self, settled: QueueConfig) -> None:
        """The settings that were answered last are on every shard."""
        for store in self.cluster.stores:
            [queue] = [each for each in at_once(store.data.submit(ListQueues())) if each.name == QUEUE]
            if queue.paused or queue.config != settled:
                self.broken.append(f"UNSETTLED shard {store.name} has {queue}, and {settled} was answered")

    def _numbers_agree(self) -> bool:
        """Whether all shards and all servers have the same automatic number, of the same version."""
        rows = [
            each
            for store in self.cluster.stores
            for each in at_once(store.data.submit(ListQueues()))
            if each.name == QUEUE
        ]
        known = [server.app.core.service.queue_cache.queues.get(QUEUE) for server in self.cluster.servers if server.app]
        numbers = {queue and (queue.auto_partitions, queue.versions.auto_partitions) for queue in (*rows, *known)}
        return len(numbers) == 1

    async def _pause(self) -> None:
        """While a queue is paused, and every server has had the time to learn of it, no job is handed out; then it is."""
        waiter, operator = self._workers[0], self._operator
        await self._done(operator.start(operator.pause_queue(QUEUE)))
        await asyncio.sleep(self._learning_s)
        await self._done(self._admin.start(self._admin.enqueue(QUEUE, "paused", 1)))
        claiming = waiter.start(waiter.claim(QUEUE, 1, 1_000))
        await self._done(claiming)
        if claiming.result():
            self.broken.append(f"UNPAUSED {claiming.result()!r} was handed out though the queue was paused")
        await self._done(operator.start(operator.resume_queue(QUEUE)))
        waiter.working = True
        working = waiter.start(waiter.work([QUEUE]))
        await self._drain()
        await self._rest([working])

    async def _count(self) -> None:
        """What the counters say, by a server, is what there is."""
        counting = self._admin.start(self._admin.count(QUEUE))
        await self._done(counting)
        stats = counting.result()
        rows = [row for store in self.cluster.stores for row in store.jobs() if row.key.queue == QUEUE]
        states = Counter(row.job.state for row in rows)
        for field, state in (
            ("pending", JobState.PENDING),
            ("in_progress", JobState.IN_PROGRESS),
            ("succeeded", JobState.SUCCEEDED),
            ("failed", JobState.FAILED),
        ):
            if stats.total(field) != states[state]:
                self.broken.append(f"MISCOUNTED {field}: {stats.total(field)}, and there are {states[state]}")

    def _judge(self) -> None:
        verdict = judge(self.cluster, self.trace.history())
        self.broken += verdict.broken
        self.overtaken = verdict.overtaken


def simulate(seed: int, scale: Scale = LARGE, *, coordinated: bool = False) -> SimulationResult:
    """One seed. `coordinated`: by a ZooKeeper ensemble."""
    return carry_out(lambda: SimulationRun(plan_of(seed, scale)._replace(coordinated=coordinated)))


def carry_out(make: Callable[[], SimulationRun]) -> SimulationResult:
    """A run, and all that it leaves in memory collected."""
    with collected_at_the_end():
        run = make()
        with common_dice(run.plan.seed):
            try:
                return run.carry_out()
            finally:
                run.timeline.end()
                del run


def _ended(task: asyncio.Task[None]) -> bool:
    """Whether nothing comes of it any more."""
    return task.done() or cast("ProcessLoop", task.get_loop()).state is ProcessState.DEAD


def _told(trace: Trace, text: str, act: Callable[[], object]) -> None:
    trace.note(text)
    act()
