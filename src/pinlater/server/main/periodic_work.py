"""The periodic work of a server and its intervals: sweeps, samples, and looks at what may have changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pinlater.server.config.file_authors import authors_of
from pinlater.server.dispatch.change_poller import ChangePoller
from pinlater.server.main.clock_watch import ClockWatch
from pinlater.server.main.cluster import Cluster
from pinlater.server.main.core import Core
from pinlater.server.main.file_changes import shard_changes
from pinlater.server.main.file_watch import FileWatch
from pinlater.server.main.listener_files import ListenerFiles
from pinlater.server.main.readiness import ReadinessWatch
from pinlater.server.maintenance.runner import Periodic
from pinlater.server.telemetry.metrics import TICK_S

logger = logging.getLogger(__name__)

# Heartbeats within a lease: a few may get lost.
_HEARTBEATS_A_LEASE = 6
# How often heartbeats are sent while another server is not heard (`ownership`).
_HEARTBEAT_MS = 1_000
# How often the queues are read while all other servers report changes of them; and how often that is decided.
_TOLD_LOOK_S = 30.0
_LOOK_MS = 500
_HOMES_MS = 1_000


@dataclass(eq=False)
class PeriodicWork:
    """The periodic work of one server. `table` is what the runner runs. `tell_readiness()` is called after each look at the store."""

    core: Core
    cluster: Cluster
    clock_watch: ClockWatch
    files: FileWatch
    readiness: ReadinessWatch
    listener_files: ListenerFiles
    tell_readiness: Callable[[], None]
    next_heartbeat_s: float = 0.0

    def __post_init__(self) -> None:
        core, cluster = self.core, self.cluster
        cluster.members_changed = self._members_changed
        cluster.queues_changed = core.service.queue_cache.another_changed
        core.service.queue_cache.changed_here = cluster.tell_queues_changed
        core.sweeps.swept_by_others = cluster.swept_by_others

    def table(self) -> Sequence[Periodic]:
        """Returns each kind of work with its interval."""
        core, settings = self.core, self.core.settings
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
            Periodic("homes", _HOMES_MS, core.service.order_homes.look),
            Periodic("clock", every.file_interval_ms, self.clock_watch.look),
        ]
        if not all(shard.trusted for shard in core.shards):
            work.append(Periodic("shards", settings.sharding.watch_interval_ms, self._look_at_calls))
            work.append(Periodic("life", _HEARTBEAT_MS, self._send_heartbeats))
            work.append(Periodic("queues", min(_LOOK_MS, every.refresh_interval_ms), self._look_at_queues))
        if any(shard.unguarded.capabilities.shared for shard in core.shards):
            work.append(Periodic("members", _HEARTBEAT_MS, self._look_at_members))
        work += core.service.periodic
        work += self.listener_files.periodic()
        if self.files:
            work.append(Periodic("files", every.file_interval_ms, self.files.look))
        return work

    async def _look_at_calls(self) -> None:
        """Gives up calls that take too long, of shards and of other servers."""
        await self.core.shard_monitor.look()
        self.cluster.look_at_calls()

    async def _look_at_store(self) -> None:
        """Updates the readiness from the store, and the refusals from the map of shards."""
        core = self.core
        try:
            await self.readiness.look(core.shards)
        finally:
            self.tell_readiness()
        if not all(shard.trusted for shard in core.shards):
            change = await core.shard_map.tidy()
            authors = await asyncio.to_thread(authors_of, core.settings.store.shard_file) if change.removed else {}
            core.service.changed(*shard_changes(change, core.clock.now_ms(), authors))
            core.service.body_limit.look()
            await core.shards.unique.learn(list(core.shards))

    async def _look_at_queues(self) -> None:
        """Reads what other servers may have changed."""
        every_s = self.core.settings.maintenance.refresh_interval_ms / 1000
        told_s = max(every_s, _TOLD_LOOK_S) if self.cluster.is_told else every_s
        await self.core.service.queue_cache.refresh_if_due(every_s, told_s)

    async def _send_heartbeats(self) -> None:
        """Sends heartbeats to all shards: six within a lease, and one a second while another server is not heard."""
        now_s = self.core.clock.monotonic()
        if not self.cluster.is_calm or now_s >= self.next_heartbeat_s:
            self.next_heartbeat_s = now_s + self.core.settings.database.lease_ms / _HEARTBEATS_A_LEASE / 1000
            await self.core.shard_monitor.ping_all()

    async def _look_at_members(self) -> None:
        """Reads which servers use the shards, if it is time."""
        await self.cluster.look_if_due(self.core.settings.maintenance.refresh_interval_ms / 1000)

    def _members_changed(self) -> None:
        """Servers share the limits of the queues."""
        logger.info("servers on these shards", extra={"servers": self.cluster.members.servers})
        if self.files.shared_limits.servers is None:
            self.core.limits_changed()

    async def _tick(self) -> None:
        await self.core.metrics.tick_in_turns(self.core.clock.monotonic())
