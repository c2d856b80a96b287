"""A scenario from its beginning to its report."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random

from pinlater.client.values import QueueConfig
from pinlater.server.storage.sqlite.queue_cache import Counter
from pinlater.simulation.cluster import STARTS_AT_S, SimulatedCluster, SimulatedServer, settings_of
from pinlater.simulation.effects import Effect
from pinlater.simulation.fault_kinds import FaultTargets
from pinlater.simulation.history import PromiseKind
from pinlater.simulation.isolation import collect_young, collected_at_the_end, common_dice, watched_logs
from pinlater.simulation.loop import Timeline, new_process
from pinlater.simulation.measure import Measure, Sample
from pinlater.simulation.network import CALM as CALM_NETWORK
from pinlater.simulation.network import Network
from pinlater.simulation.producing import ProducerProcess
from pinlater.simulation.report import SimulationReport, all_lengths, fault_report
from pinlater.simulation.scenario import PlannedFault, Scenario
from pinlater.simulation.store import SimulatedStore
from pinlater.simulation.store_trouble import CALM as CALM_STORE
from pinlater.simulation.trace import Trace
from pinlater.simulation.verdict import judge
from pinlater.simulation.working import HandlerFailed, SupervisedWorker, WorkerProcess

_PRODUCERS_A_SERVER = 2
_START_S_MAX = 60.0
_SAMPLE_S = 1.0
_COLLECT_EVERY = 10  # samples
# After the load, in addition to the time that claims of killed workers last: the time for waiting jobs, unless workers still take jobs
# then.
_DRAIN_S = 120.0
_DAY_MS = 86_400_000


class ClusterNotReady(Exception):
    """The simulated servers did not start within a minute of simulated time."""


class ScenarioRun:
    """One run of a scenario. `progress` is called each simulated second, with the seconds of load so far."""

    def __init__(
        self,
        scenario: Scenario,
        progress: Callable[[float], None] = lambda _: None,
        make_store: Callable[..., SimulatedStore] = SimulatedStore,
    ) -> None:
        self.scenario = scenario
        self._progress = progress
        seed = scenario.seed
        self.timeline = Timeline()
        network_calm = CALM_NETWORK._replace(latency_s=scenario.network_latency_ms / 1000)
        self.network = Network(self.timeline, Random(f"{seed} network"), network_calm)
        self.cluster = SimulatedCluster(self.timeline, self.network)
        self.trace = Trace(self.timeline)
        self.measure = Measure(STARTS_AT_S * 1000)
        self._make_cluster(make_store)
        self._driver = new_process(self.timeline, "driver", "driver", self.network)
        self._producers = [
            ProducerProcess(f"producer{index + 1}", self.cluster, seed, self.trace, self.measure)
            for index in range(_PRODUCERS_A_SERVER * scenario.servers)
        ]
        self._workers = [self._worker(f"worker{index + 1}") for index in range(scenario.workers)]
        self._scheduled = self._schedule()
        self._load_began_s = self.timeline.now_s
        self._errors: dict[tuple[str, str], int] = {}
        self._busy = False

    def _make_cluster(self, make_store: Callable[..., SimulatedStore]) -> None:
        scenario, seed = self.scenario, self.scenario.seed
        calm = CALM_STORE._replace(latency_s=scenario.store_latency_ms / 1000)
        lease_s = scenario.settings.database.lease_ms / 1000
        stores, wall_ms = self.cluster.stores, self.cluster.wall_ms
        for index in range(scenario.shards):
            dice = Random(f"{seed} store {index}")
            stores.append(make_store(str(index + 1), self.timeline, dice, wall_ms, lease_s, calm=calm))
        for store in stores:
            store.stores = stores
        for index in range(scenario.servers):
            host = f"server{index + 1}"
            settings = settings_of(host, scenario.settings)
            dice = Random(f"{seed} {host}")
            server = SimulatedServer(host, self.timeline, self.network, dice, stores, settings, ahead_s=0.0)
            self.cluster.servers.append(server)

    def _worker(self, name: str) -> SupervisedWorker:
        scenario = self.scenario

        def make(process: str, host: str) -> WorkerProcess:
            return WorkerProcess(process, host, self.cluster, scenario.seed, self.trace, scenario.claim_timeout_ms)

        return SupervisedWorker(
            name,
            make,
            [queue.name for queue in scenario.queues],
            scenario.concurrency,
            scenario.handler_ms / 1000,
            scenario.failing,
            self.measure,
        )

    def _schedule(self) -> list[tuple[PlannedFault, Effect]]:
        """Gives each fault its target."""
        dice = Random(f"{self.scenario.seed} faults")
        targets = FaultTargets(self.cluster, self._workers, self._hosts)
        scheduled = []
        for fault in sorted(self.scenario.faults, key=lambda fault: fault.at_ms):
            there = self.scenario.number_of(fault.kind.target)
            number = fault.number or (dice.randint(1, there) if there else None)
            planned = fault._replace(number=number)
            scheduled.append((planned, fault.kind.effect(targets, (number or 1) - 1)))
        return scheduled

    def _hosts(self) -> list[str]:
        return [
            *(server.name for server in self.cluster.servers),
            *(producer.name for producer in self._producers),
            *(worker.name for worker in self._workers),
        ]

    # --- the run ----------------------------------------------------------------------------------------------------------------

    def carry_out(self) -> SimulationReport:
        """Runs the whole scenario. Raises ClusterNotReady."""
        with watched_logs(self.timeline, expected=HandlerFailed):
            self.timeline.run(self._drive(), self._driver, until_s=float("inf"), turns_max=2**62)
        return self._report()

    async def _drive(self) -> None:
        scenario, cluster = self.scenario, self.cluster
        cluster.start()
        if not await self._until(lambda: all(server.knows_its_way for server in cluster.servers), _START_S_MAX):
            raise ClusterNotReady("the simulated servers did not find each other within a minute")
        queues = [queue.name for queue in scenario.queues]
        creating = self._producers[0].start(self._producers[0].create(queues, self._queue_config()))
        await self._until(creating.done, _START_S_MAX)
        creating.result()
        for worker in self._workers:
            worker.start()
        await asyncio.sleep(_SAMPLE_S)
        await self._load()
        await self._drain()
        # Before workers return their jobs and end their long polls.
        self._errors = dict(sorted(self.trace.errors.items()))
        self._busy = self._is_busy()
        for worker in self._workers:
            worker.stop()
        await self._until(lambda: all(worker.over for worker in self._workers), _DRAIN_S)
        for worker in self._workers:
            worker.raise_error()

    def _queue_config(self) -> QueueConfig:
        """Returns settings that keep finished jobs, so that each can be accounted for at the end."""
        kept_ms = self.scenario.lasts_ms + 2 * self.scenario.claim_timeout_ms + _DAY_MS
        return QueueConfig(succeeded_ttl_ms=kept_ms, failed_ttl_ms=kept_ms)

    async def _load(self) -> None:
        scenario, loop = self.scenario, self._driver
        began_s = self._load_began_s = self.timeline.now_s
        ends_s = began_s + scenario.lasts_ms / 1000
        for queue in scenario.queues:
            for producer in self._producers:
                rate = queue.rate / len(self._producers)
                producer.start(producer.produce(queue, rate, scenario.batch, ends_s))
        for fault, effect in self._scheduled:
            loop.call_later(fault.at_ms / 1000, self._act, f"FAULT {fault}", effect.begin)
            loop.call_later(fault.ends_ms / 1000, self._act, f"OVER {fault}", effect.end)
        while self.timeline.now_s < ends_s:
            await asyncio.sleep(min(_SAMPLE_S, ends_s - self.timeline.now_s))
            self._sample()
            self._progress(min(self.timeline.now_s, ends_s) - began_s)

    def _act(self, note: str, act: Callable[[], object]) -> None:
        self.trace.note(note)
        act()

    async def _drain(self) -> None:
        """Waits until every job has ended, or until it is clear that these workers can't process all of them."""
        ends_s = self.timeline.now_s + _DRAIN_S + 1.5 * self.scenario.claim_timeout_ms / 1000
        while self.timeline.now_s < ends_s and not self._is_drained():
            await asyncio.sleep(_SAMPLE_S)
            self._sample()

    def _is_drained(self) -> bool:
        return self._unfinished() == 0 and not any(producer.unanswered for producer in self._producers)

    def _sample(self) -> None:
        if len(self.measure.samples) % _COLLECT_EVERY == 0:
            collect_young()
        waiting = sum(counter.pending for counter in self._counters())
        self.measure.samples.append(Sample(round(self.timeline.now_s * 1000), waiting))

    def _unfinished(self) -> int:
        return sum(store.unfinished() for store in self.cluster.stores)

    def _counters(self) -> list[Counter]:
        return [counter for store in self.cluster.stores for counter in store.counters()]

    async def _until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Waits for the condition. Returns whether it held in time."""
        ends_at_s = self.timeline.now_s + seconds
        while not condition():
            if self.timeline.now_s >= ends_at_s:
                return False
            await asyncio.sleep(0.1)
        return True

    # --- the report -------------------------------------------------------------------------------------------------------------

    def _report(self) -> SimulationReport:
        measure = self.measure
        unfinished = self._unfinished()
        broken = judge(self.cluster, self.trace.history(), failures_allowed=True).broken
        if unfinished and self._busy:
            broken = [text for text in broken if not text.startswith(f"{PromiseKind.STUCK.name} ")]
        counters = self._counters()
        load_began_ms = round(self._load_began_s * 1000)
        return SimulationReport(
            seed=self.scenario.seed,
            enqueued=measure.jobs_enqueued,
            succeeded=sum(counter.succeeded for counter in counters),
            failed=sum(counter.failed for counter in counters),
            failed_attempts=sum(counter.failed_total + counter.retried_total for counter in counters),
            unfinished=unfinished,
            wait=all_lengths(measure.starts.values()),
            enqueue=all_lengths(measure.enqueues.values()),
            backlog_max=self._backlog_max(load_began_ms),
            faults=[fault_report(measure, fault, load_began_ms) for fault, _ in self._scheduled],
            errors=self._errors,
            broken=broken,
            jobs_stored=sum(counter.enqueued_total for counter in counters),
            simulated_s=self.timeline.now_s - self._load_began_s,
        )

    def _backlog_max(self, load_began_ms: int) -> Sample:
        """The highest backlog, and how long after the beginning of the load it occurred."""
        highest = max(self.measure.samples, key=lambda sample: sample.backlog)
        return highest._replace(at_ms=highest.at_ms - load_began_ms)

    def _is_busy(self) -> bool:
        """Returns whether workers have no free slots or start jobs, so that the waiting jobs are only too many for them."""
        slots = self.scenario.workers * self.scenario.concurrency
        last_ms = max((served.last_ms for served in self.measure.starts.values()), default=0)
        idle_ms = self.timeline.now_s * 1000 - last_ms
        running = sum(counter.in_progress for counter in self._counters())
        return running >= slots or idle_ms < _DRAIN_S * 1000


def simulate(
    scenario: Scenario,
    history: Path | None = None,
    progress: Callable[[float], None] = lambda _: None,
    make_store: Callable[..., SimulatedStore] = SimulatedStore,
) -> SimulationReport:
    """Runs the scenario. If promises were broken, writes what clients saw and what went wrong to `history`, a line each."""
    with collected_at_the_end(), common_dice(scenario.seed):
        run = ScenarioRun(scenario, progress, make_store)
        try:
            report = run.carry_out()
            if report.broken and history is not None:
                history.write_text("\n".join([*run.trace.told, *report.broken]) + "\n", encoding="utf-8")
            return report
        finally:
            run.timeline.end()
            del run
