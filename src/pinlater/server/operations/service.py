"""The service: one object with one method for each operation. Transports call it; it knows none of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from pinlater.domain.clock import Clock
from pinlater.domain.job import Job
from pinlater.domain.queue import Queue, QueueConfig, Rates
from pinlater.server.dispatch.dispatcher import Dispatcher
from pinlater.server.operations.acknowledge import Acknowledge
from pinlater.server.operations.body_limit import BodyLimit
from pinlater.server.operations.bulk import Bulk
from pinlater.server.operations.dequeue import Dequeue
from pinlater.server.operations.enqueue import Enqueue
from pinlater.server.operations.identity import Identity
from pinlater.server.operations.inspect import Inspect
from pinlater.server.operations.passwords import PasswordCheck
from pinlater.server.operations.queue_cache import QueueCache
from pinlater.server.operations.queues import Queues
from pinlater.server.operations.searches import SearchProcesses
from pinlater.server.operations.settings import ServiceSettings
from pinlater.server.operations.settings_in_force import QueueSettings
from pinlater.server.operations.standstill import Standstill
from pinlater.server.operations.values import (
    AckBatch,
    AckResult,
    Caller,
    CheckpointItem,
    ClaimItem,
    DequeueCommand,
    Dequeued,
    Enqueued,
    JobCount,
    JobFilter,
    JobToEnqueue,
    QueueStats,
    ScanCommand,
    Scanned,
    ServerInfo,
    SettingsInForce,
    WaitingDequeues,
)
from pinlater.server.sharding.shards import Shards
from pinlater.server.telemetry.metrics import Metrics
from pinlater.version import __version__


class Operations(Protocol):
    """What a transport may call. Every method raises `PinLaterError` for an answer other than success."""

    async def create_queue(self, name: str) -> None: ...
    async def delete_queue(self, name: str, password: str) -> None: ...
    async def queue_names(self) -> Sequence[str]: ...
    async def enqueue(
        self,
        caller: Caller,
        queue: str,
        jobs: Sequence[JobToEnqueue],
        *,
        request_key: str | None = None,
        repeat: bool = False,
    ) -> Enqueued: ...
    async def dequeue(self, caller: Caller, command: DequeueCommand) -> Dequeued: ...
    async def acknowledge(self, caller: Caller, batch: AckBatch) -> Sequence[AckResult]: ...
    async def checkpoint(
        self, caller: Caller, queue: str, items: Sequence[CheckpointItem], *, per_item_errors: bool = False
    ) -> Sequence[AckResult]: ...
    async def heartbeat(
        self, caller: Caller, queue: str, claims: Sequence[ClaimItem], *, per_item_errors: bool = False
    ) -> Sequence[AckResult]: ...
    async def release(
        self, caller: Caller, queue: str, claims: Sequence[ClaimItem], delay_ms: int, *, per_item_errors: bool = False
    ) -> Sequence[AckResult]: ...
    async def cancel(self, caller: Caller, queue: str, descriptors: Sequence[str]) -> Sequence[AckResult]: ...
    async def lookup(self, descriptors: Sequence[str], *, bodies: bool) -> Sequence[tuple[str, Job]]: ...
    async def count(self, filter: JobFilter) -> int: ...
    async def count_jobs(self, filter: JobFilter) -> JobCount: ...
    async def scan(self, command: ScanCommand) -> Scanned: ...
    async def retry_failed(
        self, queue: str, priority: int, attempts: int, run_after_ms: int | None, limit: int
    ) -> int: ...
    async def run_jobs(
        self, queue: str, descriptors: Sequence[str], attempts: int, run_after_ms: int | None
    ) -> Sequence[AckResult]: ...
    async def delete_jobs(self, filter: JobFilter, limit: int) -> int: ...
    async def delete_jobs_by_descriptor(self, queue: str, descriptors: Sequence[str]) -> int: ...
    async def configure_queue(self, name: str, config: QueueConfig) -> None: ...
    async def queue_config(self, name: str) -> Queue: ...
    async def settings_in_force(self, name: str) -> SettingsInForce: ...
    async def waiting_dequeues(self) -> Sequence[WaitingDequeues]: ...
    async def set_paused(self, name: str, paused: bool) -> None: ...
    async def queue_stats(self, names: Sequence[str]) -> Sequence[QueueStats]: ...
    async def server_info(self) -> ServerInfo: ...
    def undelivered(self, caller: Caller, queue: str, dequeued: Dequeued) -> None: ...


FEATURES = (
    "long-poll",
    "claim-tokens",
    "heartbeat",
    "release",
    "cancel",
    "headers",
    "unique-keys",
    "request-keys",
    "expiry",
    "attempts-history",
    "queue-config",
    "pause",
    "queue-stats",
    "paged-scan",
    "per-item-errors",
    "incomplete-counts",
    "run-jobs",
    "settings-in-force",
    "waiting-dequeues",
)


class Service:
    """The operations on a real store: puts the rooms of this folder together and nothing more.

    Each operation is the bound method of the class that carries it out, so that a call costs no layer.
    """

    def __init__(
        self,
        shards: Shards,
        dispatcher: Dispatcher,
        passwords: PasswordCheck,
        identity: Identity,
        metrics: Metrics,
        clock: Clock,
        settings: ServiceSettings,
        rates: Callable[[str], Rates] = lambda queue: Rates(),
        standstill: Standstill | None = None,
    ) -> None:
        self.shards = shards
        self.dispatcher = dispatcher
        self.identity = identity
        self.queue_cache = QueueCache(shards, dispatcher, clock, settings.max_queues)
        self._clock = clock
        self._settings = settings

        self.body_limit = BodyLimit(shards, settings.max_body_bytes)
        queues = Queues(shards, self.queue_cache, dispatcher, passwords, metrics, clock, rates)
        self.create_queue = queues.create_queue
        self.delete_queue = queues.delete_queue
        self.queue_names = queues.queue_names
        self.configure_queue = queues.configure_queue
        self.queue_config = queues.queue_config
        self.set_paused = queues.set_paused
        self.queue_stats = queues.queue_stats
        self.settings_in_force = QueueSettings(self.queue_cache, dispatcher.limits, settings).in_force

        self.enqueue = Enqueue(shards, self.queue_cache, metrics, clock, settings, self.body_limit, standstill).enqueue

        holders = Acknowledge(shards, self.queue_cache, dispatcher, metrics, clock, settings, self.body_limit)
        self.acknowledge = holders.acknowledge
        self.checkpoint = holders.checkpoint
        self.heartbeat = holders.heartbeat
        self.release = holders.release
        self.cancel = holders.cancel

        dequeue = Dequeue(shards, self.queue_cache, dispatcher, holders, identity, metrics, clock, settings)
        self.dequeue = dequeue.dequeue
        self.undelivered = dequeue.undelivered

        self.searches = SearchProcesses(settings.regex_processes_max, settings.regex_steps_in_flight_max)
        inspect = Inspect(shards, self.queue_cache, metrics, clock, settings, self.searches)
        self.lookup = inspect.lookup
        self.count = inspect.count
        self.count_jobs = inspect.count_jobs
        self.scan = inspect.scan

        bulk = Bulk(shards, self.queue_cache, inspect, dispatcher, metrics, clock, settings)
        self.retry_failed = bulk.retry_failed
        self.run_jobs = bulk.run_jobs
        self.delete_jobs = bulk.delete_jobs
        self.delete_jobs_by_descriptor = bulk.delete_jobs_by_descriptor

    async def close(self) -> None:
        """Ends the search processes. The shards are not its own."""
        await self.searches.close()

    async def waiting_dequeues(self) -> Sequence[WaitingDequeues]:
        """Who waits for jobs on this server, by queue and source."""
        waiting = sorted(self.dispatcher.waiting_by_source().items())
        return [WaitingDequeues(queue, source, number) for (queue, source), number in waiting]

    async def server_info(self) -> ServerInfo:
        """What a client may want to know before it talks."""
        settings = self._settings
        return ServerInfo(
            __version__,
            FEATURES,
            next(iter(self.shards)).shard.capabilities.kind,
            self._clock.now_ms(),
            self.identity.started_at_ms,
            settings.priority_levels,
            self.body_limit.bytes,
            settings.max_frame_bytes,
            settings.max_jobs_per_request,
            settings.max_descriptors_per_request,
            settings.max_wait_ms,
        )
