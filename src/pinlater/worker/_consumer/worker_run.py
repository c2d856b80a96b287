"""One run of a worker: what the consumers of its queues share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from os import PathLike
from typing import TYPE_CHECKING

from pinlater.client.async_client import AsyncClient
from pinlater.client.values import ClaimedJob, WorkerInfo
from pinlater.domain.clock import Clock
from pinlater.worker._attempts.endings import Ending
from pinlater.worker._children.child import ChildSetup
from pinlater.worker._consumer.held_jobs import HeldJob
from pinlater.worker._consumer.outage import Outage
from pinlater.worker._consumer.recycling import Recycling
from pinlater.worker._consumer.slots import Slots
from pinlater.worker._leases.heartbeater import Heartbeater
from pinlater.worker._leases.introduction import Introduction, new_number, own_info
from pinlater.worker.counts import WorkerCounts
from pinlater.worker.middleware import Middleware
from pinlater.worker.retries import RetryPolicy
from pinlater.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from pinlater.worker._consumer.consumer import Consumer

_log = logging.getLogger("pinlater.worker")
# Called as an attempt ends, with the exception if it is in this process.
OnEnd = Callable[[ClaimedJob, Ending, BaseException | None], None]


class WorkerRun:
    """From its start until all consumers have ended. `stop` ends it in order; with `stop_now` running jobs get no grace time.

    `number`, `info`: what the servers are told of it, if it is not what this process is.
    """

    def __init__(
        self,
        client: AsyncClient,
        settings: WorkerSettings,
        clock: Clock,
        heartbeater: Heartbeater,
        *,
        middleware: Sequence[Middleware],
        retry: RetryPolicy,
        counts: WorkerCounts,
        child_setups: Sequence[ChildSetup] = (),
        servers_of_children: str | PathLike[str] | Sequence[str] | None = None,
        number: int | None = None,
        info: WorkerInfo | None = None,
    ) -> None:
        self.client = client
        self.settings = settings
        self.clock = clock
        self.heartbeater = heartbeater
        self.leases = heartbeater.leases
        self.middleware = middleware
        self.retry = retry
        self.counts = counts
        self.child_setups = tuple(child_setups)
        self.servers_of_children = servers_of_children  # if they are not the worker's own
        self.outage = Outage(clock)
        self.recycling = Recycling()
        self.recycled = ""  # why the worker ends so that another replaces it
        self.slots = Slots(settings.concurrency)
        self.stop = asyncio.Event()
        self.stop_now = asyncio.Event()
        self.consumers: list[Consumer] = []
        self.on_end: OnEnd | None = None
        self.on_slot_freed: Callable[[], None] = self.offer_slots
        self.introduction = Introduction(
            number or new_number(),
            info or own_info(clock, settings.concurrency),
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

    def offer_slots(self) -> None:
        """Slots may be free for other queues."""
        if len(self.consumers) > 1:
            self.wake_consumers()

    def wake_consumers(self) -> None:
        """Each consumer checks for free slots."""
        for consumer in self.consumers:
            consumer.wake()
