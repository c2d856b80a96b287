"""The wire reference: the same Thrift server in front of operations that keep nothing and answer at once.

What it can't leave out is what any answer needs: descriptors, and jobs to hand out. `python -m bench.wire_stub` prints its port.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import Sequence
from typing import cast

import uvloop

from bench.load import BODY_BYTES
from pinlater.domain.clock import SystemClock
from pinlater.domain.descriptor import descriptor_prefix
from pinlater.domain.job import HandedOutJob, Outcome
from pinlater.server.dispatch.claiming import FromShard
from pinlater.server.features.all import METHODS
from pinlater.server.operations.service import Service
from pinlater.server.operations.values import Caller, DequeueResult
from pinlater.server.telemetry.metrics import Metrics
from pinlater.server.thrift.server import ThriftServer
from pinlater.server.thrift.settings import ThriftSettings
from pinlater.wire.generated.structs import AckBatch, AckResult, DequeueRequest, Enqueued, EnqueueRequest

_BODY = b"x" * BODY_BYTES
_NOW_MS = 1_767_225_600_000
_FIRST_ID = 10**17  # as many digits as a real one


class StubOperations:
    """The operations that the load calls; any other is an error."""

    def __init__(self) -> None:
        self._ids = itertools.count(_FIRST_ID)
        self.queues = self.enqueuing = self.dequeuing = self.claimed_jobs = self

    async def create_queue(self, name: str) -> None:
        """Nothing to make."""

    async def enqueue(self, asked: EnqueueRequest, arrived_s: float | None = None) -> Enqueued:
        """New descriptors."""
        prefix = descriptor_prefix(asked.queue, "1")
        return Enqueued([f"{prefix}{job.priority}:{next(self._ids)}" for job in asked.jobs])

    async def dequeue(self, caller: Caller, command: DequeueRequest) -> DequeueResult:
        """As many jobs as asked for, always."""
        return DequeueResult([FromShard("1", [self._job() for _ in range(command.limit)], "0123456789abcdef")])

    def _job(self) -> HandedOutJob:
        return HandedOutJob(next(self._ids), 1, _BODY, 2, 2, 1, None, _NOW_MS, _NOW_MS, _NOW_MS)

    async def acknowledge(self, caller: Caller, batch: AckBatch, *, answered: bool = True) -> Sequence[AckResult]:
        """Everything applied."""
        return [AckResult(item.descriptor, Outcome.APPLIED) for item in batch.succeeded or ()] if answered else ()


async def serve() -> None:
    """Until SIGTERM."""
    server = ThriftServer(cast(Service, StubOperations()), ThriftSettings(port=0), Metrics(), SystemClock(), METHODS)
    await server.start()
    print(f"ready thrift_port={server.port}", flush=True)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    await server.drain(1.0)


if __name__ == "__main__":
    uvloop.run(serve())
