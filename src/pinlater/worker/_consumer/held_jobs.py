"""The jobs that one queue's consumer has claimed and not yet finished."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from enum import Enum

from pinlater.client.values import ClaimedJob
from pinlater.worker._consumer.pacing import smoothed_ms
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
    """The jobs that wait for a slot, and those that run."""

    def __init__(self) -> None:
        self.waiting: deque[HeldJob] = deque()
        self.running: set[HeldJob] = set()
        self.abandoned = 0
        self.changed = asyncio.Event()  # set when the consumer may be able to claim again
        self.backlogged = True  # until a claim returns fewer jobs than it asked for
        self.mean_ms: float | None = None  # moving mean of how long jobs take

    @property
    def count(self) -> int:
        """All of them."""
        return len(self.waiting) + len(self.running)

    @property
    def wants_slots(self) -> bool:
        """Whether the queue has, or may have, jobs that wait for a slot."""
        return self.backlogged or bool(self.waiting)

    def abandoned_functions(self, busy_threads: int) -> int:
        """Functions that still run although the worker gave up their jobs: in threads, or coroutines that ignore cancellation."""
        at_work = sum([held.in_thread and held.stopped is None for held in self.running])
        return self.abandoned + max(0, busy_threads - at_work)

    def stoppable(self) -> list[HeldJob]:
        """Running jobs whose functions have neither ended nor been stopped."""
        return [held for held in self.running if held.stopped is None and not held.reporting]

    def took(self, took_ms: float) -> None:
        """A job took this long."""
        self.mean_ms = smoothed_ms(self.mean_ms, took_ms)
