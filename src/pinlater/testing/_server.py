"""A server on the store in memory without listeners: the parts of a server in production, from request frames inward.

A frame goes through the real decoding, operations, dispatcher and store, and its answer through the real encoding, so a test sees here
what a server does. Belongs to the loop that it was opened on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from random import Random

from pinlater.domain.clock import Clock
from pinlater.server.config.settings import Settings
from pinlater.server.features.all import METHODS
from pinlater.server.main.core import Core
from pinlater.server.operations.job_settings import JobSettings
from pinlater.server.sharding.reload import DesiredShard
from pinlater.server.storage.sqlite.memory import MemoryShard
from pinlater.server.telemetry.metrics import Metrics
from pinlater.server.thrift.answering import Answering
from pinlater.server.thrift.methods.record import ServedMethod
from pinlater.server.thrift.settings import ThriftSettings

HOST, PORT = "in-process", 1


class MemoryServer:
    """A server in memory. Call `open`, then `close`."""

    def __init__(
        self,
        clock: Clock,
        jobs: JobSettings,
        admin_password_hash: str | None = None,
        *,
        methods: Mapping[str, ServedMethod] = METHODS,
    ) -> None:
        self._clock = clock
        # A clock that a test moves looks like a server that stood still.
        thrift = ThriftSettings(
            port=PORT,
            max_frame_bytes=jobs.max_frame_bytes,
            max_body_bytes=jobs.max_body_bytes,
            standstill_s=math.inf,
        )
        self._settings = Settings(
            advertised_host=HOST, admin_password_hash=admin_password_hash, jobs=jobs, thrift=thrift
        )
        self._methods = methods

    async def open(self) -> None:
        """Opens the store and creates the parts of the server."""
        random = Random(1)  # noqa: S311 - the same in each run, and guards nothing
        shards = [DesiredShard("1", MemoryShard)]
        self._core = core = await Core.open(shards, self._settings, Metrics(), self._clock, random)
        self.answering = Answering(core.service, self._settings.thrift, core.metrics, self._clock, self._methods)

    async def sweep(self) -> None:
        """Does the periodic work of a server: claims time out, jobs expire or become due, old finished ones are deleted."""
        sweeps = self._core.sweeps
        for sweep in (sweeps.time_out_claims, sweeps.expire_jobs, sweeps.advance_due, sweeps.collect_garbage):
            while await sweep() is not None:
                pass

    async def close(self) -> None:
        """Answers waiting dequeues, then closes the store."""
        await self._core.close()
