"""What was asked of an in-process service: every job that was stored, kept also when the store has long forgotten it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pinlater.domain.clock import Clock
from pinlater.server.operations.service import Service
from pinlater.server.operations.values import Caller, Enqueued, JobToEnqueue


class Stored(NamedTuple):
    """A job as it came in."""

    descriptor: str
    queue: str
    job: JobToEnqueue
    at_ms: int


class Record:
    """Jobs in the order in which they were stored. Those that were there already under their unique key, and resends, are left out."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._stored: dict[str, Stored] = {}

    @property
    def stored(self) -> list[Stored]:
        return list(self._stored.values())

    def clear(self) -> None:
        """Forgets all; the jobs themselves stay."""
        self._stored.clear()

    def watch(self, service: Service) -> None:
        """From now on keeps what `service` stores."""
        enqueue = service.enqueue

        async def recorded_enqueue(
            caller: Caller,
            queue: str,
            jobs: Sequence[JobToEnqueue],
            *,
            request_key: str | None = None,
            repeat: bool = False,
        ) -> Enqueued:
            enqueued = await enqueue(caller, queue, jobs, request_key=request_key, repeat=repeat)
            existing = frozenset(enqueued.existing)
            for index, (descriptor, job) in enumerate(zip(enqueued.descriptors, jobs, strict=True)):
                if index not in existing:
                    self._stored.setdefault(descriptor, Stored(descriptor, queue, job, self._clock.now_ms()))
            return enqueued

        service.enqueue = recorded_enqueue
