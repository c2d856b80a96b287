"""The jobs that one queue's consumer has claimed and not yet finished."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from enum import Enum

from pinlater.client.values import ClaimedJob
from pinlater.worker._consumer.slots import QueueShare, Slots
from pinlater.worker.counts import TaskCounts


class StopReason(Enum):
    """Why the worker stopped a running job."""

    LOST = "its claim was lost"
    GIVEN_BACK = "the worker stops"
    TIME_LIMIT = "it ran too long"


class HeldJob:
    """A claimed job. Equal to itself only: a job may be claimed again while its first, lost claim still runs."""

    __slots__ = (
        "abandoned",
        "counts",
        "in_thread",
        "job",
        "lease",
        "log_level",
        "reporting",
        "slot_since_ms",
        "started_s",
        "stopped",
        "task",
        "task_name",
        "timer",
    )

    def __init__(self, job: ClaimedJob) -> None:
        self.job = job
        self.lease: int | None = None  # the heartbeater's number for it
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None  # of its time limit
        self.slot_since_ms = 0.0  # by the time of the slots
        self.started_s = 0.0  # monotonic
        self.counts: TaskCounts | None = None  # known once its task is known
        self.task_name = ""
        self.log_level = logging.INFO  # of the line of an attempt that succeeds
        self.in_thread = False
        self.stopped: StopReason | None = None
        self.reporting = False  # its function has ended: the worker no longer stops it
        self.abandoned = False  # its function ignores cancellation

    def hand_over_lease(self) -> tuple[ClaimedJob, int | None]:
        """The job and its lease, for a report: the lease now ends when the server has the report, not when the job ends."""
        lease, self.lease = self.lease, None
        return self.job, lease


class HeldJobs:
    """The jobs that wait for a slot, and those that run. Tells the worker's slots of them."""

    def __init__(self, slots: Slots, share: QueueShare) -> None:
        self._slots = slots
        self._share = share
        self.queue = share.queue
        self.waiting: deque[HeldJob] = deque()
        self.running: set[HeldJob] = set()
        self.abandoned = 0
        self.changed = asyncio.Event()  # set when a function has ended

    @property
    def count(self) -> int:
        """All of them."""
        return len(self.waiting) + len(self.running)

    def wait(self, jobs: Sequence[HeldJob]) -> None:
        """These jobs wait for slots."""
        self.waiting.extend(jobs)
        self._slots.add_waiting(self._share, len(jobs))

    def start(self) -> HeldJob:
        """Gives a slot to the job that has waited longest."""
        held = self.waiting.popleft()
        held.slot_since_ms = self._slots.start(self._share)
        self.running.add(held)
        return held

    def end(self, held: HeldJob) -> None:
        """A running job gives back its slot."""
        self.running.discard(held)
        self._slots.end(self._share, held.slot_since_ms)

    def ran(self, took_s: float) -> None:
        """A job's function ran so long."""
        self._slots.ran(self._share, took_s * 1000)

    def drop(self, held: HeldJob) -> None:
        """A waiting job is held no longer."""
        self.waiting.remove(held)
        self._slots.withdraw(self._share)

    def pop_newest(self, jobs: int) -> list[HeldJob]:
        """Waiting jobs that were claimed last, and that the slots count no longer."""
        return [self.waiting.pop() for _ in range(jobs)]

    def drop_waiting(self) -> list[HeldJob]:
        """All waiting jobs are held no longer. Returns them."""
        dropped = list(self.waiting)
        for held in dropped:
            self.drop(held)
        return dropped

    def abandoned_functions(self, busy_threads: int) -> int:
        """Functions that still run although the worker gave up their jobs: in threads, or coroutines that ignore cancellation."""
        at_work = sum([held.in_thread and held.stopped is None for held in self.running])
        return self.abandoned + max(0, busy_threads - at_work)

    def stoppable(self) -> list[HeldJob]:
        """Running jobs whose functions have neither ended nor been stopped."""
        return [held for held in self.running if held.stopped is None and not held.reporting]
