"""What a server does again and again, and how often: sweeps, samples, and looks at what may have changed."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pinlater.server.clock_watch import ClockWatch
from pinlater.server.cluster import Cluster
from pinlater.server.core import Core
from pinlater.server.dispatch.change_poller import ChangePoller
from pinlater.server.file_watch import FileWatch
from pinlater.server.maintenance.runner import Periodic
from pinlater.server.readiness import ReadinessWatch
from pinlater.server.telemetry.metrics import TICK_S

logger = logging.getLogger(__name__)

# Heartbeats in the time of a lease: a few may get lost.
_HEARTBEATS_A_LEASE = 6


class PeriodicWork:
    """Of one server. `table` is what the runner runs."""

    def __init__(
        self, core: Core, cluster: Cluster, clock_watch: ClockWatch, files: FileWatch, readiness: ReadinessWatch
    ) -> None:
        self._core = core
        self._cluster = cluster
        self._clock_watch = clock_watch
        self._files = files
        self._readiness = readiness

    def table(self) -> Sequence[Periodic]:
        """Each kind of work with its interval."""
        core, settings = self._core, self._core.settings
        every, sweeps = settings.maintenance, core.sweeps
        work = [
            Periodic("claim-timeouts", every.sweep_interval_ms, sweeps.time_out_claims),
            Periodic("expiry", every.expiry_interval_ms, sweeps.expire_jobs),
            Periodic("due", every.due_interval_ms, sweeps.advance_due),
            Periodic("garbage", every.garbage_interval_ms, sweeps.collect_garbage),
            Periodic("samples", every.sample_interval_ms, core.rates.sample),
            Periodic("metrics", round(TICK_S * 1000), self._tick),
            Periodic("others", every.others_interval_ms, ChangePoller(core.shards, core.dispatcher).look),
            Periodic("store", every.refresh_interval_ms, self._look_at_store),
            Periodic("clock", every.file_interval_ms, self._clock_watch.look),
        ]
        if not all(shard.trusted for shard in core.shards):
            lease_ms = settings.database.lease_ms
            work.append(Periodic("shards", settings.sharding.watch_interval_ms, core.shard_monitor.look))
            work.append(Periodic("life", lease_ms // _HEARTBEATS_A_LEASE, core.shard_monitor.ping_all))
        if any(shard.store.capabilities.shared for shard in core.shards):
            work.append(Periodic("members", every.refresh_interval_ms, self.look_at_members))
        if self._files:
            work.append(Periodic("files", every.file_interval_ms, self._files.look))
        return work

    async def _look_at_store(self) -> None:
        """Readiness follows the store; if others may change queues, their settings are read anew."""
        core = self._core
        await self._readiness.look(core.shards)
        if not all(shard.trusted for shard in core.shards):
            await core.shard_map.tidy()
            core.service.body_limit.look()
            await core.shards.unique.learn(list(core.shards))
            await core.service.queue_cache.refresh()

    async def look_at_members(self) -> None:
        """Which servers use the shards: they share the limits of the queues."""
        if await self._cluster.look():
            logger.info("servers on these shards", extra={"servers": self._cluster.members.servers})
            if not self._files.names_servers:
                self._core.limits_changed()

    async def _tick(self) -> None:
        await self._core.metrics.tick_in_turns(self._core.clock.monotonic())
