"""The service: the operations of a caller, put together. Transports call them; it knows no transport."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from pinlater.domain.calls import (
    DELETES_QUEUES,
    ClusterStatus,
    FrontProcess,
    QueueOwners,
    ServerFacts,
    ServerInfo,
    WaitingDequeues,
)
from pinlater.domain.clock import Clock
from pinlater.domain.queue import Rates
from pinlater.domain.workers import ServerWorkers, cut_to
from pinlater.server.dispatch.dispatcher import Dispatcher
from pinlater.server.features.audit.settings import AuditSettings
from pinlater.server.features.audit.trail import AuditTrail
from pinlater.server.features.bulk.runs import BulkRuns
from pinlater.server.features.explain.explain import Explain
from pinlater.server.features.failures.groups import FailureQueries
from pinlater.server.features.history.queries import HistoryQueries
from pinlater.server.features.status.cluster_status import status_alone
from pinlater.server.features.status.shard_details import ShardReports
from pinlater.server.features.workers.registry import WORKERS_MAX, WorkerRegistry
from pinlater.server.operations.body_limit import BodyLimit
from pinlater.server.operations.body_search import SearchProcesses
from pinlater.server.operations.bulk import Bulk
from pinlater.server.operations.claimed_jobs import ClaimedJobs
from pinlater.server.operations.dequeue import Dequeue
from pinlater.server.operations.enqueue import Enqueue
from pinlater.server.operations.identity import Identity
from pinlater.server.operations.job_queries import JobQueries
from pinlater.server.operations.job_settings import JobSettings
from pinlater.server.operations.long_lists import in_turns
from pinlater.server.operations.passwords import PasswordCheck
from pinlater.server.operations.queue_cache import QueueCache
from pinlater.server.operations.queues import Queues
from pinlater.server.operations.settings_in_force import QueueSettings
from pinlater.server.operations.standstill import Standstill
from pinlater.server.sharding.shards import Shards
from pinlater.server.telemetry.metrics import Metrics
from pinlater.version import __version__

_WORKERS_A_TURN = 250
_WORKERS_BYTES_MAX = 8 * 1024 * 1024
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
    "cluster",
    "explain",
    "queue-owners",
    "audit",
    "history",
    "failures",
    "bulk-runs",
    "workers",
    "incomplete-bulk-runs",
    "scan-of-shard",
)


async def _no_other_server() -> Sequence[ServerWorkers]:
    return ()


class Service:
    """One object for each group of operations. A transport calls them there: `service.enqueuing.enqueue(...)`.

    Every operation raises `PinLaterError` for an answer other than success. `cluster_status` says what `cluster` answers, `queue_owners`
    what `owners` answers, where servers share the shards; `front_processes` lists the front processes of this one, if it has any. `facts`
    says what others are told of this server. `workers_elsewhere` asks the other servers for the workers that they know.
    """

    def __init__(
        self,
        shards: Shards,
        dispatcher: Dispatcher,
        passwords: PasswordCheck,
        identity: Identity,
        metrics: Metrics,
        clock: Clock,
        settings: JobSettings,
        rates: Callable[[str], Rates],
        standstill: Standstill,
        audit: AuditSettings,
        shard_reports: ShardReports,
    ) -> None:
        self.shards = shards
        self.dispatcher = dispatcher
        self.identity = identity
        self.access = ""  # `ServerInfo.access`; set before it listens
        self.server_id = ""  # `ServerInfo.server_id`
        self._clock = clock
        self._started_s = clock.monotonic()
        self._passwords = passwords
        self._settings = settings
        self.queue_cache = queue_cache = QueueCache(shards, dispatcher, clock, settings.max_queues)
        self.body_limit = body_limit = BodyLimit(shards, settings.max_body_bytes)
        self.searches = SearchProcesses(settings.regex_processes_max, settings.regex_steps_in_flight_max)

        self.queues = Queues(shards, queue_cache, dispatcher, passwords, metrics, clock, rates)
        self.history = HistoryQueries(shards, queue_cache, metrics, clock)
        self.failures = FailureQueries(shards, queue_cache, metrics, clock)
        self.queue_settings = QueueSettings(queue_cache, dispatcher.limits, settings)
        self.enqueuing = Enqueue(shards, queue_cache, metrics, clock, settings, body_limit, standstill)
        self.workers = workers = WorkerRegistry(clock.monotonic)
        self.claimed_jobs = ClaimedJobs(shards, queue_cache, dispatcher, metrics, clock, settings, body_limit, workers)
        self.dequeuing = Dequeue(
            shards, queue_cache, dispatcher, self.claimed_jobs, identity, metrics, clock, settings, workers
        )
        self.job_queries = JobQueries(shards, queue_cache, metrics, clock, settings, self.searches)
        self.explaining = Explain(
            shards, queue_cache, dispatcher, identity, metrics, clock, rates, lambda: self.cluster_status().members
        )
        self.cluster_status: Callable[[], ClusterStatus] = lambda: status_alone(shards, identity.address)
        self.queue_owners: Callable[[], QueueOwners] = QueueOwners
        self.front_processes: Callable[[], Sequence[FrontProcess]] = tuple
        self.facts: Callable[[], ServerFacts] = lambda: ServerFacts(__version__, identity.started_at_ms)
        self.workers_elsewhere: Callable[[], Awaitable[Sequence[ServerWorkers]]] = _no_other_server
        self.shard_reports = shard_reports
        self.audit = AuditTrail(shards, metrics, clock, audit, lambda: identity.address)
        self.bulk = Bulk(shards, queue_cache, self.job_queries, dispatcher, metrics, clock, settings)
        self.bulk_runs = BulkRuns(
            shards,
            queue_cache,
            self.job_queries,
            self.bulk,
            self.claimed_jobs,
            metrics,
            clock,
            settings,
            lambda: identity.life,
            self.audit.note,
        )

    async def close(self) -> None:
        """Leaves its bulk runs, ends the search processes, and the questions to shards under way. The shards are not its own."""
        await self.bulk_runs.close()
        await self.shard_reports.close()
        await self.searches.close()

    async def waiting_dequeues(self) -> Sequence[WaitingDequeues]:
        """The dequeues that wait for jobs on this server, by queue and source."""
        waiting = sorted(self.dispatcher.waiting_by_source().items())
        return [WaitingDequeues(queue, source, number) for (queue, source), number in waiting]

    async def known_workers(self, everywhere: bool) -> Sequence[ServerWorkers]:
        """The workers that this server heard lately, and what became of their claims here; then the same of other servers that answer it.

        An answer that would be too long has the first workers of each server.
        """
        found = [await self.workers_here(WORKERS_MAX)]
        if everywhere:
            found += await self.workers_elsewhere()
        share_bytes = _WORKERS_BYTES_MAX // len(found)
        cut = []
        for each in found:
            cut.append(cut_to(each, share_bytes))
            await asyncio.sleep(0)
        return cut

    async def workers_here(self, workers_max: int) -> ServerWorkers:
        """The workers that this server heard lately, the last heard first, at most that number of them."""
        now_ms = self._clock.now_ms()
        known = self.workers.known()
        return ServerWorkers(
            await in_turns(known[:workers_max], self.workers.shown, _WORKERS_A_TURN),
            await self.waiting_dequeues(),
            self.identity.life,
            self.cluster_status().members,
            now_ms,
            round((self._clock.monotonic() - self._started_s) * 1000),
            self.workers.forgotten + len(known[workers_max:]),
        )

    async def cluster(self) -> ClusterStatus:
        """Which servers share the shards, and which of them owns what, as this server knows it."""
        details, status, facts = await self.shard_reports.details(), self.cluster_status(), self.facts()
        return status._replace(
            servers=[each._replace(facts=facts) if each.answers else each for each in status.servers],
            shards=[each._replace(details=details.get(each.name)) for each in status.shards],
            front_processes=self.front_processes(),
        )

    async def owners(self) -> QueueOwners:
        """Which servers own queues, for clients that send their calls there."""
        return self.queue_owners()

    async def server_info(self) -> ServerInfo:
        """This server's version, features and limits."""
        settings = self._settings
        return ServerInfo(
            __version__,
            (*FEATURES, DELETES_QUEUES) if self._passwords.configured else FEATURES,
            next(iter(self.shards)).store.capabilities.kind,
            self._clock.now_ms(),
            self.identity.started_at_ms,
            settings.priority_levels,
            self.body_limit.bytes,
            settings.max_frame_bytes,
            settings.max_jobs_per_request,
            settings.max_descriptors_per_request,
            settings.max_wait_ms,
            self.access,
            self.server_id,
        )
