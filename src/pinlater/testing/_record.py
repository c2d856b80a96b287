"""What was asked of an in-process service: every job that was stored, kept also when the store has long forgotten it."""

from __future__ import annotations

from typing import Any, NamedTuple

from pinlater.domain.calls import Job
from pinlater.domain.clock import Clock
from pinlater.server.features.all import METHODS
from pinlater.server.operations.service import Service
from pinlater.server.thrift.methods.jobs import jobs_to_enqueue


class EnqueuedJob(NamedTuple):
    """A job as it came in."""

    descriptor: str
    queue: str
    job: Job
    at_ms: int


class EnqueuedJobs:
    """Jobs in the order in which they were stored. Those that were there already under their unique key, and resends, are left out."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._stored: dict[str, EnqueuedJob] = {}

    @property
    def stored(self) -> list[EnqueuedJob]:
        return list(self._stored.values())

    def clear(self) -> None:
        """Forgets all; the jobs themselves stay."""
        self._stored.clear()

    async def enqueue_jobs(self, service: Service, call: Any) -> Any:
        """The handler of `enqueueJobs`; keeps what it stores."""
        answer = await METHODS["enqueueJobs"].handle(service, call)
        queue, jobs = call.request.queue, jobs_to_enqueue(call.request.jobs)
        existing = frozenset(answer.existing or ())
        for index, (descriptor, job) in enumerate(zip(answer.descriptors, jobs, strict=True)):
            if index not in existing:
                self._stored.setdefault(descriptor, EnqueuedJob(descriptor, queue, job, self._clock.now_ms()))
        return answer
