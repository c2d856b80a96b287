"""One run of a worker: what the consumers of its queues share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pinlater.client.async_client import AsyncClient
from pinlater.client.values import ClaimedJob, WorkerInfo
from pinlater.domain.clock import Clock
from pinlater.worker._attempts.endings import Ending
from pinlater.worker._children.child import ChildSetup
from pinlater.worker._consumer.pacing import Outage
from pinlater.worker._consumer.slots import LASTING_MS, Slots
from pinlater.worker._enqueueing.servers import Addresses
from pinlater.worker._outbox.heartbeater import Heartbeater
from pinlater.worker._outbox.leases import Lease
from pinlater.worker._outbox.outbox import Outbox
from pinlater.worker._outbox.renewals import Introduction, new_number, own_info
from pinlater.worker.counts import WorkerCounts
from pinlater.worker.middleware import Middleware
from pinlater.worker.retries import RetryPolicy
from pinlater.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from pinlater.worker._consumer.held_job import HeldJobs

L = TypeVar("L", bound=Lease)
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
    servers_of_children: Addresses = None
    number: int | None = None
    info: WorkerInfo | None = None


class WorkerRun:
    """From its start until all consumers have ended. `stop` ends it in order; with `stop_now` running jobs get no grace time."""

    def __init__(self, client: AsyncClient, heartbeater: Heartbeater, options: RunOptions) -> None:
        self.loop = asyncio.get_running_loop()
        self.client = client
        self.heartbeater = heartbeater
        self.leases = heartbeater.leases
        self.options = options
        self.settings = settings = options.settings
        self.clock = clock = options.clock
        self.retry = options.retry
        self.counts = options.counts
        self.outage = Outage(clock)
        self.recycled = ""  # why the worker ends so that another replaces it
        self.slots = Slots(settings.concurrency, settings.prefetch_max, clock.monotonic)
        self.stop = asyncio.Event()
        self.stop_now = asyncio.Event()
        self.jobs: list[HeldJobs] = []  # of each queue
        self.outboxes: list[Outbox] = []  # of all queues
        self.on_end: OnEnd | None = None
        self.on_slot_freed: Callable[[], None] = self.offer_claims
        self._offers_claims = self._looks = False  # soon
        self.introduction = Introduction(
            options.number or new_number(),
            options.info or own_info(clock, settings.concurrency),
            lambda: self.slots.running,
            clock.monotonic,
        )
        heartbeater.renewals.introduction = self.introduction

    # --- recycling --------------------------------------------------------------------------------------------------------
    def jobs_left(self) -> int | None:
        """How many jobs the process may still claim; None for no limit."""
        most = self.settings.recycle_jobs_max
        return None if most is None else max(0, most - self.counts.claimed)

    def recycle_at_a_limit(self, age_s: float = 0, memory_bytes: int = 0) -> None:
        """Stops in order, so that another worker replaces this one, if it has reached one of its limits.

        The worker only ends, with the exit code 75; its supervisor starts the next one (`pinlater worker --processes`, systemd,
        Kubernetes).
        """
        limits = self.settings
        if self.jobs_left() == 0:
            reason = f"{self.counts.claimed} jobs claimed"
        elif limits.recycle_age_ms is not None and age_s * 1000 >= limits.recycle_age_ms:
            reason = f"{age_s:.0f} s old"
        elif limits.recycle_memory_bytes_max is not None and memory_bytes >= limits.recycle_memory_bytes_max:
            reason = f"{memory_bytes} bytes in memory"
        else:
            return
        if not self.stop.is_set():
            self.recycled = reason
            _log.info("the worker ends so that another replaces it: %s", reason)
            self.stop.set()

    @property
    def abandoned_functions(self) -> int:
        """Functions that still run although the worker gave up their jobs."""
        return sum([jobs.abandoned_functions for jobs in self.jobs])

    def renew(self, claims: Sequence[L]) -> Sequence[L]:
        """Has the claims renewed. Returns those that were given back unread, while the event loop was blocked."""
        given_back, is_sooner = self.leases.add(claims)
        if is_sooner:
            self.heartbeater.wake()
        return given_back

    def outbox_with_acks(self, own: Outbox) -> Outbox:
        """Whose acks ride on a claim: those of its own queue, or if there are none, of the queue with the most."""
        if own.waiting_acks or len(self.outboxes) == 1:
            return own
        return max(self.outboxes, key=lambda outbox: outbox.waiting_acks)

    # --- slots ------------------------------------------------------------------------------------------------------------
    def jobs_came(self) -> None:
        """A claim has brought jobs: starts those for which there are slots, and gives back what is too much."""
        self.start_waiting()
        if self.slots.waiting:
            self._give_back_surplus()
            self._look_later()

    def start_waiting(self) -> None:
        """Starts waiting jobs while slots are free."""
        while not self.stop.is_set() and (share := self.slots.next_start()) is not None:
            share.start_next()

    def offer_claims(self) -> None:
        """The worker may need more jobs: begins claims once what is ready to run has run."""
        if not self._offers_claims:
            self._offers_claims = True
            self.loop.call_soon(self._begin_claims)

    def _begin_claims(self) -> None:
        self._offers_claims = False
        if self.stop.is_set():
            self.slots.end_claiming()
            return
        for share, limit in self.slots.claims():
            share.claim(limit)

    def _give_back_surplus(self) -> None:
        for share, jobs in self.slots.take_surplus().items():
            share.give_back_newest(jobs)

    def _look_later(self) -> None:
        if not self._looks:
            self._looks = True
            self.loop.call_later(LASTING_MS / 1000, self._look)

    def _look(self) -> None:
        self._looks = False
        if self.slots.waiting and not self.stop.is_set():
            self.slots.look()
            self._give_back_surplus()
            self._look_later()
            self.offer_claims()
