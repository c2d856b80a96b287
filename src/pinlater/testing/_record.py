"""Records every job that an in-process service stored, and keeps it after the store has deleted it."""

from __future__ import annotations

from typing import Any, NamedTuple

from pinlater.client.jobs import Job
from pinlater.domain.clock import Clock
from pinlater.domain.job import UniqueKey, UniqueScope
from pinlater.server.features.all import METHODS
from pinlater.server.operations.service import Service
from pinlater.wire.generated import structs


class EnqueuedJob(NamedTuple):
    """A job as it came in."""

    descriptor: str
    queue: str
    job: Job
    at_ms: int


class EnqueuedJobs:
    """Jobs in the order in which they were stored. Jobs that already existed under their unique key, and resends, are left out."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._stored: dict[str, EnqueuedJob] = {}

    @property
    def stored(self) -> list[EnqueuedJob]:
        return list(self._stored.values())

    def clear(self) -> None:
        """Forgets all records; the jobs themselves stay."""
        self._stored.clear()

    async def enqueue_jobs(self, service: Service, call: Any) -> Any:
        """The handler of `enqueueJobs`; records the jobs that it stores."""
        answer = await METHODS["enqueueJobs"].handle(service, call)
        queue, jobs = call.request.queue, map(_as_described, call.request.jobs)
        existing = frozenset(answer.existing or ())
        for index, (descriptor, job) in enumerate(zip(answer.descriptors, jobs, strict=True)):
            if index not in existing:
                self._stored.setdefault(descriptor, EnqueuedJob(descriptor, queue, job, self._clock.now_ms()))
        return answer


def _as_described(job: structs.Job) -> Job:
    """The job as its producer described it."""
    unique = None
    if job.unique_key:
        unique = UniqueKey(job.unique_key, UniqueScope(job.unique_scope), job.unique_for_ms or 0)
    return Job(
        job.body,
        job.priority,
        job.run_after_ms,
        job.attempts_allowed,
        job.custom_status,
        job.headers or None,
        unique,
        job.claim_timeout_ms,
        job.expires_at_ms,
        job.ordering_key,
    )
