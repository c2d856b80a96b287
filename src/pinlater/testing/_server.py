"""A server on the memory store without listeners: put together as `app` does, from request frames inward.

A frame goes through the real decoding, operations, dispatcher and store, and its answer through the real encoding, so what a test
sees here is what a server does. Belongs to the loop that it was opened on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from pinlater.domain.clock import Clock
from pinlater.server.dispatch.dispatcher import Dispatcher
from pinlater.server.dispatch.rate_limits import RateLimits
from pinlater.server.dispatch.settings import DispatchSettings
from pinlater.server.maintenance.settings import MaintenanceSettings
from pinlater.server.maintenance.sweeps import Sweeps
from pinlater.server.operations.identity import Identity
from pinlater.server.operations.passwords import PasswordCheck
from pinlater.server.operations.service import Service
from pinlater.server.operations.settings import ServiceSettings
from pinlater.server.sharding.shards import ShardLanes, Shards
from pinlater.server.storage.memory import MemoryShard
from pinlater.server.storage.values import TimeToLive
from pinlater.server.telemetry.metrics import Metrics
from pinlater.server.thrift.answering import Answering
from pinlater.server.thrift.handlers import HANDLERS, Handler
from pinlater.server.thrift.settings import ThriftSettings

HOST, PORT = "in-process", 1


class MemoryServer:
    """`open`, then `close`."""

    def __init__(
        self,
        clock: Clock,
        settings: ServiceSettings,
        admin_password_hash: str | None = None,
        *,
        handlers: Mapping[str, Handler] = HANDLERS,
    ) -> None:
        self._clock = clock
        self._settings = settings
        self._handlers = handlers
        self._passwords = PasswordCheck(admin_password_hash)
        self.metrics = Metrics()

    async def open(self) -> None:
        """Opens the store and creates the parts of the server."""
        clock, metrics = self._clock, self.metrics
        shard = MemoryShard()
        await shard.open(clock.now_ms())
        self._shards = Shards([ShardLanes(shard, clock)], Random(1))  # noqa: S311 - the same in each run, and guards nothing
        self._dispatcher = Dispatcher(self._shards, RateLimits(clock, file_limits=dict), clock, DispatchSettings())
        identity = Identity(HOST, PORT, clock.now_ms(), shard.slot)
        self.service = Service(
            self._shards, self._dispatcher, self._passwords, identity, metrics, clock, self._settings
        )
        frames = ThriftSettings(max_frame_bytes=self._settings.max_frame_bytes)
        self.answering = Answering(self.service, frames, metrics, clock, handlers=self._handlers)
        every = MaintenanceSettings()
        self._sweeps = Sweeps(self._shards, self._dispatcher, self._times_to_live, metrics, clock, every)

    async def sweep(self) -> None:
        """Does the periodic work of a server: claims time out, jobs expire or become due, old finished ones go."""
        sweeps = self._sweeps
        for sweep in (sweeps.time_out_claims, sweeps.expire_jobs, sweeps.advance_due, sweeps.collect_garbage):
            while await sweep() is not None:
                pass

    def _times_to_live(self) -> Sequence[TimeToLive]:
        settings = self._settings
        return [
            TimeToLive(
                queue.name,
                settings.succeeded_ttl_ms if queue.config.succeeded_ttl_ms is None else queue.config.succeeded_ttl_ms,
                settings.failed_ttl_ms if queue.config.failed_ttl_ms is None else queue.config.failed_ttl_ms,
            )
            for queue in self.service.queue_cache.queues.values()
        ]

    async def close(self) -> None:
        """Answers waiting dequeues, then closes the store."""
        await self._dispatcher.close()
        await self.service.close()
        await self._shards.close()
        self._passwords.close()
