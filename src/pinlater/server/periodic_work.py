"""What a server does again and again, and how often: sweeps, samples, and looks at what may have changed."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pinlater.domain.clock import SystemClock
from pinlater.server.clock_watch import ClockWatch
from pinlater.server.cluster import Cluster
from pinlater.server.config.settings import Settings
from pinlater.server.dispatch.change_poller import ChangePoller
from pinlater.server.dispatch.dispatcher import Dispatcher
from pinlater.server.file_watch import FileWatch
from pinlater.server.maintenance.rates import RateSampler
from pinlater.server.maintenance.runner import Periodic
from pinlater.server.maintenance.sweeps import Sweeps
from pinlater.server.operations.service import Service
from pinlater.server.readiness import ReadinessWatch
from pinlater.server.sharding.reload import Reload
from pinlater.server.sharding.shard_monitor import ShardMonitor
from pinlater.server.sharding.shards import Shards
from pinlater.server.storage.values import TimeToLive
from pinlater.server.telemetry.metrics import TICK_S, Metrics

logger = logging.getLogger(__name__)

# Heartbeats in the time of a lease: a few may get lost.
_HEARTBEATS_A_LEASE = 6


class PeriodicWork:
    """Of one server. `table` is what the runner runs."""

    def __init__(
        self,
        settings: Settings,
        clock: SystemClock,
        metrics: Metrics,
        shards: Shards,
        shard_map: Reload,
        shard_monitor: ShardMonitor,
        dispatcher: Dispatcher,
        service: Service,
        cluster: Cluster,
        rates: RateSampler,
        clock_watch: ClockWatch,
        files: FileWatch,
        readiness: ReadinessWatch,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._shards = shards
        self._shard_map = shard_map
        self._shard_monitor = shard_monitor
        self._dispatcher = dispatcher
        self._service = service
        self._cluster = cluster
        self._rates = rates
        self._clock_watch = clock_watch
        self._files = files
        self._readiness = readiness

    def table(self) -> Sequence[Periodic]:
        """Each kind of work with its interval."""
        every = self._settings.maintenance
        sweeps = Sweeps(self._shards, self._dispatcher, self._times_to_live, self._metrics, self._clock, every)
        work = [
            Periodic("claim-timeouts", every.sweep_interval_ms, sweeps.time_out_claims),
            Periodic("expiry", every.expiry_interval_ms, sweeps.expire_jobs),
            Periodic("due", every.due_interval_ms, sweeps.advance_due),
            Periodic("garbage", every.garbage_interval_ms, sweeps.collect_garbage),
            Periodic("samples", every.sample_interval_ms, self._rates.sample),
            Periodic("metrics", round(TICK_S * 1000), self._tick),
            Periodic("others", every.others_interval_ms, ChangePoller(self._shards, self._dispatcher).look),
            Periodic("store", every.refresh_interval_ms, self._look_at_store),
            Periodic("clock", every.file_interval_ms, self._clock_watch.look),
        ]
        if not all(shard.trusted for shard in self._shards):
            lease_ms = self._settings.database.lease_ms
            work.append(Periodic("shards", self._settings.sharding.watch_interval_ms, self._shard_monitor.look))
            work.append(Periodic("life", lease_ms // _HEARTBEATS_A_LEASE, self._shard_monitor.ping_all))
        if any(shard.shard.capabilities.shared for shard in self._shards):
            work.append(Periodic("members", every.refresh_interval_ms, self.look_at_members))
        if self._files:
            work.append(Periodic("files", every.file_interval_ms, self._files.look))
        return work

    def _times_to_live(self) -> list[TimeToLive]:
        jobs = self._settings.jobs
        return [
            TimeToLive(
                queue.name,
                jobs.succeeded_ttl_ms if queue.config.succeeded_ttl_ms is None else queue.config.succeeded_ttl_ms,
                jobs.failed_ttl_ms if queue.config.failed_ttl_ms is None else queue.config.failed_ttl_ms,
            )
            for queue in self._service.queue_cache.queues.values()
        ]

    async def _look_at_store(self) -> None:
        """Readiness follows the store; where others may change queues, their settings are read anew."""
        await self._readiness.look(self._shards)
        if not all(shard.trusted for shard in self._shards):
            await self._shard_map.tidy()
            self._service.body_limit.look()
            await self._shards.unique.learn(list(self._shards))
            await self._service.queue_cache.refresh()

    async def look_at_members(self) -> None:
        """Which servers use the shards: they share the limits of the queues."""
        if await self._cluster.look():
            logger.info("servers on these shards", extra={"servers": self._cluster.members.servers})
            if not self._files.names_servers:
                self.limits_changed()

    def limits_changed(self) -> None:
        """The limits of queues are worked out anew, and dequeues that wait look again."""
        self._service.queue_cache.limits_changed()
        self._dispatcher.wakeups.look_again()

    async def _tick(self) -> None:
        await self._metrics.tick_in_turns(self._clock.monotonic())
