"""A service on the memory store with a clock that the test turns."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest_asyncio

from pinlater.domain.clock import ManualClock
from pinlater.server.dispatch.dispatcher import Dispatcher
from pinlater.server.dispatch.settings import DispatchSettings
from pinlater.server.operations.job_settings import JobSettings
from pinlater.server.operations.service import Service
from pinlater.server.operations.standstill import Standstill
from pinlater.server.operations.values import Caller
from pinlater.server.storage.sqlite.memory import MemoryShard
from pinlater.server.telemetry.metrics import Metrics
from pinlater.wire.generated.structs import DequeueRequest, EnqueueRequest, Job
from tests.assembly import open_core
from tests.handed_out import DequeuedJobs, answer_of
from tests.quick_hash import quick_hash

CALLER = Caller("tests")
HASH = quick_hash("open sesame")


@dataclass
class ServiceUnderTest:
    """The service and all a test wants to turn or look at."""

    clock: ManualClock
    service: Service
    dispatcher: Dispatcher
    metrics: Metrics
    standstill: Standstill
    file_limits: dict[str, float] = field(default_factory=dict)

    async def enqueue(self, *bodies: bytes, queue: str = "q", **more: object) -> list[str]:
        """Descriptors of new jobs with these bodies."""
        jobs = [Job(body, **more) for body in bodies]  # type: ignore[arg-type]
        return list((await self.service.enqueuing.enqueue(EnqueueRequest(queue, jobs))).descriptors)

    async def dequeue(self, limit: int = 10, *, queue: str = "q", **more: object) -> DequeuedJobs:
        """What a dequeue gives."""
        command = DequeueRequest(queue, limit, **more)  # type: ignore[arg-type]
        return answer_of(queue, await self.service.dequeuing.dequeue(CALLER, command))


@pytest_asyncio.fixture
async def world() -> AsyncIterator[ServiceUnderTest]:
    clock, file_limits = ManualClock(), dict[str, float]()
    core = await open_core(
        MemoryShard(),
        clock=clock,
        file_limits=lambda: file_limits,
        admin_password_hash=HASH,
        jobs=JobSettings(max_body_bytes=1000),
        dispatch=DispatchSettings(max_waiting_dequeues=5),
    )
    await core.service.queues.create_queue("q")
    yield ServiceUnderTest(clock, core.service, core.dispatcher, core.metrics, core.standstill, file_limits)
    await core.close()
