"""A pool of worker pods that follows the number, in the simulator: real servers count, real workers run jobs, on simulated time.

KEDA and the controller are stood in for: each `POLL_S` one server is asked, pods are added at once, and pods are ended at random, as the
controller knows no jobs, down to the highest number of the last `window_s`. A pod that ends takes no jobs, and gives back those that it
still runs after `grace_s`: these were cut.

Not simulated: pods become ready at once, so that a peak is the highest possible.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import NamedTuple

from pinlater.client import ClaimedJob, Job
from pinlater.server.config.settings import Settings
from pinlater.server.features.demand.demand import Demand
from pinlater.simulation.isolation import collected_at_the_end, common_dice
from pinlater.simulation.measure import Measure
from pinlater.simulation.run import ScenarioRun
from pinlater.simulation.scenario import QueueLoad, Scenario, read_fault
from pinlater.simulation.working import SupervisedWorker, WorkerProcess

QUEUE = "jobs"
POLL_S = 5.0
_STEP_S = 1.0
_SAMPLE_EVERY = 10  # steps
_A_REQUEST = 500


class Burst(NamedTuple):
    """Jobs that are enqueued at a time, in seconds from the beginning; how long each runs; their ordering key."""

    at_s: float
    lengths_s: Sequence[float]
    ordering_key: str | None = None


@dataclass(frozen=True)
class PoolPlan:
    """A pool and its load. `fault`: in the words of `pinlater bench simulate`."""

    concurrency: int
    bursts: Sequence[Burst]
    lasts_s: int
    seed: int = 1
    grace_s: int = 30
    window_s: int = 300
    fault: str = ""

    @property
    def scenario(self) -> Scenario:
        """Two servers and two shards, without load and workers: these are the pool's."""
        return Scenario(
            Settings(),
            self.seed,
            servers=2,
            shards=2,
            queues=[QueueLoad(QUEUE, 0.0)],
            batch=1,
            workers=0,
            concurrency=self.concurrency,
            handler_ms=0,
            failing=0.0,
            lasts_ms=self.lasts_s * 1000,
            store_latency_ms=2.0,
            network_latency_ms=0.3,
            faults=[read_fault(self.fault)] if self.fault else [],
        )


class Pod(SupervisedWorker):
    """A worker whose jobs say how long they run. `unfinished`: those that have begun and not ended."""

    unfinished = 0

    async def _handle(self, job: ClaimedJob) -> None:
        self.unfinished += 1
        await asyncio.sleep(float(job.body.decode().partition(" ")[0]))
        self.unfinished -= 1


class PoolRun(ScenarioRun):
    """One run. `seen`: each answer, None for none, with the number of pods then. `cut`: jobs. `done`: jobs, when the time is over."""

    def __init__(self, plan: PoolPlan) -> None:
        super().__init__(plan.scenario)
        self._plan = plan
        self._random = Random(plan.seed)
        self._numbers: deque[tuple[float, int]] = deque()
        self.pods: list[Pod] = []
        self._ended: list[Pod] = []
        self.seen: list[tuple[int | None, int]] = []
        self.cut = self.done = 0

    @property
    def peak(self) -> int:
        return max(pods for _, pods in self.seen)

    async def _load(self) -> None:
        """The bursts, and the pool beside them."""
        began_s = self._load_began_s = self.timeline.now_s
        for number, burst in enumerate(self._plan.bursts):
            self._driver.call_later(burst.at_s, self._enqueue, number, burst)
        for fault, effect in self._scheduled:
            self._driver.call_later(fault.at_ms / 1000, effect.begin)
            self._driver.call_later(fault.ends_ms / 1000, effect.end)
        self._start_pod()
        polled_s = -math.inf
        while self.timeline.now_s < began_s + self._plan.lasts_s:
            if self.timeline.now_s >= polled_s + POLL_S:
                polled_s = self.timeline.now_s
                self._scale()
            if round(self.timeline.now_s) % _SAMPLE_EVERY == 0:
                self._sample()
            await asyncio.sleep(_STEP_S)
        self.cut = sum(pod.unfinished for pod in self._ended if pod.over)
        self.done = sum(counter.succeeded for counter in self._counters())

    def _enqueue(self, number: int, burst: Burst) -> None:
        producer = self._producers[0]
        bodies = [f"{length_s} {number}-{index}".encode() for index, length_s in enumerate(burst.lengths_s)]
        for start in range(0, len(bodies), _A_REQUEST):
            jobs = [Job(body, ordering_key=burst.ordering_key) for body in bodies[start : start + _A_REQUEST]]
            producer.start(producer._enqueue_until_answered(QUEUE, f"{number}-{start}", jobs))

    def _scale(self) -> None:
        answer = self._ask()
        self.seen.append((answer, len(self.pods)))
        if answer is None:
            return
        now_s = self.timeline.now_s
        self._numbers.append((now_s, answer))
        while self._numbers[0][0] < now_s - self._plan.window_s:
            self._numbers.popleft()
        highest = max(slots for _, slots in self._numbers)
        wanted, kept = (max(1, math.ceil(slots / self._plan.concurrency)) for slots in (answer, highest))
        while len(self.pods) < wanted:
            self._start_pod()
        while len(self.pods) > kept:
            pod = self.pods.pop(self._random.randrange(len(self.pods)))
            pod.stop()
            self._ended.append(pod)

    def _ask(self) -> int | None:
        """What a server answers to KEDA."""
        server = self._random.choice(self.cluster.servers)
        if not server.ready or server.app is None:
            return None
        return server.app.core.service.of(Demand).slots().get(QUEUE)

    def _start_pod(self) -> None:
        name = f"pod{len(self._workers) + 1}"
        pod = Pod(name, self._pod_process, [QUEUE], self._plan.concurrency, 0.0, 0.0, Measure(0))
        pod._settings = replace(pod._settings, grace_ms=self._plan.grace_s * 1000)
        pod.start()
        self.pods.append(pod)
        self._workers.append(pod)

    def _pod_process(self, process: str, host: str) -> WorkerProcess:
        return WorkerProcess(
            process, host, self.cluster, self.scenario.seed, self.trace, self.scenario.claim_timeout_ms
        )


def run_pool(plan: PoolPlan) -> PoolRun:
    """Carries it out. Fails if a promise to a client was broken on the way."""
    with collected_at_the_end(), common_dice(plan.seed):
        run = PoolRun(plan)
        try:
            broken = run.carry_out().broken
        finally:
            run.timeline.end()
    assert not broken, (plan.seed, broken)
    return run
