"""The parts of a server between its shards and its listeners: the operations, dispatch, sweeps and watches.

No listener, no file, and nothing that runs by itself. `App` adds these. A test opens a `Core` and calls it, so that it has the same
parts as a server in production.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import Random
from typing import Self

from pinlater.domain.clock import Clock
from pinlater.server.config.settings import Settings
from pinlater.server.dispatch.dispatcher import Dispatcher
from pinlater.server.dispatch.identity import Identity
from pinlater.server.dispatch.rate_limits import RateLimits
from pinlater.server.features.all import FEATURES, KNOWN_TO_CLIENTS
from pinlater.server.maintenance.rates import RateSampler
from pinlater.server.maintenance.sweeps import Sweeps
from pinlater.server.operations.passwords import PasswordCheck
from pinlater.server.operations.service import Service
from pinlater.server.operations.standstill import Standstill
from pinlater.server.sharding.gauges import show_shards
from pinlater.server.sharding.reload import DesiredShard, MapChange, Reload, open_shards
from pinlater.server.sharding.shard_monitor import ShardMonitor
from pinlater.server.sharding.shards import Shards
from pinlater.server.storage.values import TimeToLive
from pinlater.server.telemetry.metrics import Metrics


class Core:
    """The core of a server, which `open` makes. `close` closes the shards, too."""

    @classmethod
    async def open(
        cls,
        desired: Sequence[DesiredShard],
        settings: Settings,
        metrics: Metrics,
        clock: Clock,
        random: Random,
        *,
        agree: Callable[[Shards], Awaitable[None]] | None = None,
        started_at_ms: int | None = None,
        file_limits: Callable[[], Mapping[str, float]] = dict,
        servers: Callable[[str], int] = lambda _: 1,
    ) -> Self:
        """Opens the shards, and creates the parts on them. Raises `Unavailable` if no shard can be opened.

        `agree`: sets the clock by the open shards. `started_at_ms`: when the server began; now if not given. `file_limits`: jobs per second
        by queue, from the limits file. `servers(queue)`: how many servers share the limit of a queue.
        """
        shards = await open_shards(desired, clock, random, settings.sharding)
        try:
            if agree is not None:
                await agree(shards)
            return cls(shards, settings, metrics, started_at_ms, file_limits, servers)
        except BaseException:
            await shards.close()
            raise

    def __init__(
        self,
        shards: Shards,
        settings: Settings,
        metrics: Metrics,
        started_at_ms: int | None,
        file_limits: Callable[[], Mapping[str, float]],
        servers: Callable[[str], int],
    ) -> None:
        clock = shards.clock
        first = next(shard.unguarded for shard in shards if shard.opened)
        self.settings = settings
        self.metrics = metrics
        self.clock = clock
        self.shards = shards
        self.shard_map = Reload(shards)
        self.shard_monitor = ShardMonitor(shards)
        limits = RateLimits(clock, file_limits=file_limits, servers=servers)
        self.dispatcher = Dispatcher(shards, limits, clock, settings.dispatch)
        self.rates = RateSampler(shards, clock)
        self.standstill = Standstill(clock.monotonic, settings.thrift.standstill_s)
        self.passwords = PasswordCheck(settings.admin_password_hash)
        identity = Identity(
            settings.advertised_host or socket.gethostname(),
            settings.thrift.port,
            clock.now_ms() if started_at_ms is None else started_at_ms,
            first.slot,
            shards.random.getrandbits(32),
        )
        self.service = Service(
            shards,
            self.dispatcher,
            self.passwords,
            identity,
            metrics,
            clock,
            settings.jobs,
            self.rates.per_second,
            self.standstill,
            KNOWN_TO_CLIENTS,
        )
        self.sweeps = Sweeps(
            shards,
            self.dispatcher,
            self._times_to_live,
            metrics,
            clock,
            settings.maintenance,
            settings.jobs.quarantine_after,
        )
        for part in (self.rates, self.sweeps, *settings.tables):
            self.service.put(part)
        for feature in FEATURES:
            feature.add(self.service)
        self._connect_shards()
        metrics.labels["store"] = first.capabilities.kind
        show_shards(shards, metrics, self.rates.of_shards)
        metrics.labelled_gauge(
            "dequeue-semaphore-waiters-",
            self.dispatcher.waiting_by_queue,
            prometheus="pinlater_waiting_dequeues",
            label="queue",
            help="Dequeues that wait for a job",
        )

    async def catch_up(self) -> None:
        """Reads the queues, gives each shard what the others have, and learns which shards may hold unique keys; call it before any
        request."""
        await self.service.queue_cache.refresh()
        await self.shard_monitor.bring_all_up_to_date()
        await self.shards.unique.learn(list(self.shards))

    async def change_shards(self, desired: Sequence[DesiredShard]) -> MapChange:
        """Takes over another shard map while requests continue."""
        change = await self.shard_map.replace(desired)
        self.service.body_limit.look()
        await self.shards.unique.learn(list(self.shards))
        return change

    def limits_changed(self) -> None:
        """Computes the limits of the queues again, and wakes waiting dequeues so that they ask again."""
        self.service.queue_cache.limits_changed()
        self.dispatcher.wakeups.look_again()

    async def close(self) -> None:
        """Answers waiting dequeues, then closes the shards."""
        await self.service.close()
        await self.shard_monitor.close()
        await self.dispatcher.close()
        await self.shards.close()
        self.passwords.close()

    def _connect_shards(self) -> None:
        """Connects the shards to the parts that they call: the shards are created first, and import none of these parts."""
        self.dispatcher.connect(self.shards.hooks)
        self.shards.hooks.back = self._shard_is_back
        self.shards.hooks.count = self.metrics.count
        self.shards.hooks.expired = self._count_expired
        self.shards.known_queues = lambda: self.service.queue_cache.queues.values()
        self.shards.partitions.number_of = self._partitions_of
        self.shards.partitions.home_of = self.service.queue_cache.homes.get

    def _partitions_of(self, queue: str) -> int:
        known = self.service.queue_cache.queues.get(queue)
        return 1 if known is None else known.config.partitions or known.auto_partitions

    def _shard_is_back(self) -> None:
        self.service.queue_cache.is_outdated = True
        self.dispatcher.wakeups.look_again()

    def _count_expired(self, queue: str, jobs: int) -> None:
        self.metrics.queue(queue).expired += jobs

    def _times_to_live(self) -> Sequence[TimeToLive]:
        jobs = self.settings.jobs
        return [
            TimeToLive(
                queue.name,
                jobs.succeeded_ttl_ms if queue.config.succeeded_ttl_ms is None else queue.config.succeeded_ttl_ms,
                jobs.failed_ttl_ms if queue.config.failed_ttl_ms is None else queue.config.failed_ttl_ms,
            )
            for queue in self.service.queue_cache.queues.values()
        ]
