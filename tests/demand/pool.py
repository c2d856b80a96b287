"""A pool of worker pods that follows the number: KEDA asks, the controller adds and ends pods, pods run jobs.

Second by second, with the real formula. The run times and the rate of enqueues that the formula gets are those of former minutes, as
servers store them. Pods claim short jobs ahead, as workers do. The controller ends pods at random, as it knows no jobs, and sees the
highest number of the last `window_s`. A pod that ends takes no jobs, and after `grace_s` gives its jobs back: these are the jobs that
were cut.

Not in the model: pods become ready at once, so that a peak is the highest possible, and a slot runs its next job without a pause.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random

from pinlater.server.features.demand.formula import QueueWork, slots_wanted

TARGET_S = 60.0
POLL_S = 30
_MINUTE_S = 60
_CLAIMS_S = 10
_AHEAD_S, _AHEAD_MAX = 0.05, 512

Number = Callable[[QueueWork], int | None]
"""What KEDA reads, for a load of the queue; None for an answer that is an error."""


def wanted(load: QueueWork) -> int:
    """What servers answer."""
    return slots_wanted(load, TARGET_S)


@dataclass(eq=False)
class Pod:
    """Jobs by the seconds that each still takes, with their whole length. `ends_at_s`: when its grace is over, once it is being ended."""

    jobs: list[tuple[float, float]] = field(default_factory=list)
    ends_at_s: int | None = None


@dataclass
class Pool:
    """`jobs`: the lengths of waiting jobs. `one_key`: they are under one ordering key. `known_run_s`: the run time that the history had."""

    concurrency: int
    random: Random
    number: Number = wanted
    grace_s: int = 30
    window_s: int = 300
    known_run_s: float | None = None
    one_key: bool = False
    pods_min: int = 1
    jobs: deque[float] = field(default_factory=deque)
    now_s: int = 0
    cut: int = 0
    done: int = 0

    def __post_init__(self) -> None:
        self.pods = [Pod() for _ in range(self.pods_min)]
        self.leaving: list[Pod] = []
        self.peak = self.pods_min
        self._numbers: deque[tuple[int, int]] = deque()
        self._enqueued = Counter[int]()  # by minute
        self._taken = Counter[int]()  # by second
        self._ended: dict[int, tuple[int, float]] = {}  # of each minute: how many jobs, and their lengths

    def enqueue(self, lengths_s: Iterable[float]) -> None:
        before = len(self.jobs)
        self.jobs.extend(lengths_s)
        self._enqueued[self.now_s // _MINUTE_S] += len(self.jobs) - before

    def run(self, seconds: int) -> None:
        """Time passes."""
        for _ in range(seconds):
            if self.now_s % POLL_S == 0:
                self._scale()
            for pod in self.pods:
                self._work(pod, takes=True)
            for pod in list(self.leaving):
                self._work(pod, takes=False)
                self._leave(pod)
            self.now_s += 1

    @property
    def running(self) -> int:
        return sum(len(pod.jobs) for pod in (*self.pods, *self.leaving))

    def load(self) -> QueueWork:
        """The load as servers see it."""
        minute = self.now_s // _MINUTE_S
        enqueued = sum(self._enqueued[at] for at in range(minute - 6, minute - 1)) / (5 * _MINUTE_S)
        claimed = sum(self._taken[at] for at in range(self.now_s - _CLAIMS_S, self.now_s)) / _CLAIMS_S
        runnable = min(len(self.jobs), 1 - self.running) if self.one_key else len(self.jobs)
        ahead = min(runnable, sum(self._ahead(pod) for pod in self.pods))
        return QueueWork(self.running + ahead, runnable - ahead, claimed, enqueued, self._run_s())

    def _ahead(self, pod: Pod) -> int:
        """How many jobs a pod claims ahead: short ones, for slots without a long one."""
        length_s = self.jobs[0] if self.jobs else _AHEAD_S
        slots = self.concurrency - len(pod.jobs)
        return min(_AHEAD_MAX, int(slots * _AHEAD_S / length_s)) if length_s < _AHEAD_S else 0

    def _run_s(self) -> float | None:
        minute = self.now_s // _MINUTE_S
        told = [ended for at, ended in self._ended.items() if minute - 15 <= at < minute]
        jobs = sum(count for count, _ in told)
        return sum(length_s for _, length_s in told) / jobs if jobs else self.known_run_s

    def _scale(self) -> None:
        number = self.number(self.load())
        if number is None:
            return
        self._numbers.append((self.now_s, number))
        while self._numbers[0][0] < self.now_s - self.window_s:
            self._numbers.popleft()
        highest = max(slots for _, slots in self._numbers)
        wanted_pods = max(self.pods_min, math.ceil(number / self.concurrency))
        kept_pods = max(self.pods_min, math.ceil(highest / self.concurrency))
        while len(self.pods) < wanted_pods:
            self.pods.append(Pod())
        while len(self.pods) > kept_pods:
            pod = self.pods.pop(self.random.randrange(len(self.pods)))
            pod.ends_at_s = self.now_s + self.grace_s
            self.leaving.append(pod)
        self.peak = max(self.peak, len(self.pods))

    def _work(self, pod: Pod, *, takes: bool) -> None:
        """One second of each slot."""
        slots = [(1.0, *job) for job in pod.jobs]
        slots += [(1.0, 0.0, 0.0)] * (self.concurrency - len(slots))
        pod.jobs = []
        for left_of_second_s, left_s, length_s in slots:
            while True:
                if not length_s:
                    if not takes or not self.jobs or (self.one_key and self.running):
                        break
                    left_s = length_s = self.jobs.popleft()
                    self._taken[self.now_s] += 1
                if left_s > left_of_second_s:
                    pod.jobs.append((left_s - left_of_second_s, length_s))
                    break
                left_of_second_s -= left_s
                self._end(length_s)
                length_s = 0.0

    def _end(self, length_s: float) -> None:
        self.done += 1
        minute = self.now_s // _MINUTE_S
        jobs, total_s = self._ended.get(minute, (0, 0.0))
        waited_s = _AHEAD_S if self.jobs and length_s < _AHEAD_S else 0.0  # in the worker
        self._ended[minute] = jobs + 1, total_s + length_s + waited_s

    def _leave(self, pod: Pod) -> None:
        over = pod.ends_at_s is not None and self.now_s >= pod.ends_at_s
        if not pod.jobs or over:
            self.cut += len(pod.jobs)
            self.jobs.extend(length_s for _, length_s in pod.jobs)
            self.leaving.remove(pod)
