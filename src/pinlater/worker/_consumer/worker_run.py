"""One run of a worker: what the consumers of its queues share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from os import PathLike
from typing import NamedTuple, Protocol

from pinlater.client.async_client import AsyncClient
from pinlater.client.values import ClaimedJob, WorkerInfo
from pinlater.domain.clock import Clock
from pinlater.worker._attempts.endings import Ending
from pinlater.worker._children.child import ChildSetup
from pinlater.worker._consumer.held_jobs import HeldJob, HeldJobs
from pinlater.worker._consumer.outage import Outage
from pinlater.worker._consumer.recycling import Recycling
from pinlater.worker._consumer.slots import LASTING_MS, JobHolder, Slots
from pinlater.worker._leases.heartbeater import Heartbeater
from pinlater.worker._leases.introduction import Introduction, new_number, own_info
from pinlater.worker._reports.reporter import Reporter
from pinlater.worker.counts import WorkerCounts
from pinlater.worker.middleware import Middleware
from pinlater.worker.retries import RetryPolicy
from pinlater.worker.settings import WorkerSettings

_log = logging.getLogger("pinlater.worker")
# Called as an attempt ends, with the exception if it is in this process.
OnEnd = Callable[[ClaimedJob, Ending, BaseException | None], None]


class RunOptions(NamedTuple):
    """What a run has of its worker.

    `servers_of_children`: those of child processes, if they are not the worker's own.
    `number`, `info`: what the servers are told of the run, if it is not what this process is.
    """

    settings: WorkerSettings
    clock: Clock
    middleware: Sequence[Middleware]
    retry: RetryPolicy
    counts: WorkerCounts
    child_setups: Sequence[ChildSetup] = ()
    servers_of_children: str | PathLike[str] | Sequence[str] | None = None
    number: int | None = None
    info: WorkerInfo | None = None


class ClaimerState(Protocol):
    """What others ask of the claimer of a queue."""

    blocked_since_s: float | None

    @property
    def abandoned_functions(self) -> int: ...

    @property
    def server_answers(self) -> bool: ...


class QueueConsumer(JobHolder, Protocol):
    """One queue's consumer, as all others see it."""

    queue: str
    jobs: HeldJobs
    reporter: Reporter

    @property
    def claimer(self) -> ClaimerState: ...

    async def run(self) -> None: ...


class WorkerRun:
    """From its start until all consumers have ended. `stop` ends it in order; with `stop_now` running jobs get no grace time."""

    def __init__(self, client: AsyncClient, heartbeater: Heartbeater, options: RunOptions) -> None:
        self.client = client
        self.heartbeater = heartbeater
        self.leases = heartbeater.leases
        self.options = options
        self.settings = settings = options.settings
        self.clock = clock = options.clock
        self.retry = options.retry
        self.counts = options.counts
        self.outage = Outage(clock)
        self.recycling = Recycling()
        self.recycled = ""  # why the worker ends so that another replaces it
        self.slots = Slots(settings.concurrency, settings.prefetch_max, clock.monotonic)
        self.stop = asyncio.Event()
        self.stop_now = asyncio.Event()
        self.consumers: list[QueueConsumer] = []
        self.on_end: OnEnd | None = None
        self.on_slot_freed: Callable[[], None] = self.offer_claims
        self._offers_claims = self._looks = False  # soon
        self.introduction = Introduction(
            options.number or new_number(),
            options.info or own_info(clock, settings.concurrency),
            lambda: sum([len(consumer.jobs.running) for consumer in self.consumers]),
            clock.monotonic,
        )
        heartbeater.introduce(self.introduction)

    @property
    def abandoned_functions(self) -> int:
        """Functions that still run although the worker gave up on their jobs."""
        return sum(consumer.claimer.abandoned_functions for consumer in self.consumers)

    def recycle(self, reason: str) -> None:
        """Stops in order, so that another worker replaces this one."""
        if not self.stop.is_set():
            self.recycled = reason
            _log.info("the worker ends so that another replaces it: %s", reason)
            self.stop.set()

    def end_lease(self, held: HeldJob) -> None:
        """The job's claim needs no more heartbeats."""
        if held.lease is not None:
            self.leases.drop([held.lease])
            held.lease = None

    def reporter_with_acks(self, own: Reporter) -> Reporter:
        """Whose acks ride on a claim: those of its own queue, or if there are none, of the queue with the most."""
        if own.waiting_acks or len(self.consumers) == 1:
            return own
        return max([consumer.reporter for consumer in self.consumers], key=lambda reporter: reporter.waiting_acks)

    # --- slots ------------------------------------------------------------------------------------------------------------
    def new_jobs(self, queue: str) -> HeldJobs:
        """No jobs of a queue, yet."""
        return HeldJobs(self.slots, self.slots.share(queue))

    def jobs_came(self) -> None:
        """A claim has brought jobs: starts those for which there are slots, and gives back what is too much."""
        self.start_waiting()
        if self.slots.waiting:
            self._give_back_surplus()
            self._look_later()

    def start_waiting(self) -> None:
        """Starts waiting jobs while slots are free."""
        while not self.stop.is_set() and (share := self.slots.next_start()) is not None:
            share.holder.start_next()

    def offer_claims(self) -> None:
        """The worker may need more jobs: begins claims once what is ready to run has run."""
        if not self._offers_claims:
            self._offers_claims = True
            asyncio.get_running_loop().call_soon(self._begin_claims)

    def _begin_claims(self) -> None:
        self._offers_claims = False
        if self.stop.is_set():
            for consumer in self.consumers:
                consumer.claim(0)
            return
        for share, limit in self.slots.claims():
            share.holder.claim(limit)

    def _give_back_surplus(self) -> None:
        for share, jobs in self.slots.take_surplus().items():
            share.holder.give_back_newest(jobs)

    def _look_later(self) -> None:
        if not self._looks:
            self._looks = True
            asyncio.get_running_loop().call_later(LASTING_MS / 1000, self._look)

    def _look(self) -> None:
        self._looks = False
        if self.slots.waiting and not self.stop.is_set():
            self.slots.look()
            self._give_back_surplus()
            self._look_later()
            self.offer_claims()
