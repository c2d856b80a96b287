"""The decisions that both batchers, async and sync, share: which jobs share a request, and what a refused request says of its jobs.

No I/O, no locks, no event loop: those are in the batchers. `F` is whichever kind of future a caller waits for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from pinlater.client import values
from pinlater.client.errors import CallerError, ClientClosed, QueueNameInvalid, QueueNameTooLong, QueueNotFound
from pinlater.domain.setting_types import check_integer

# Refusals that hold for every job of a request.
_OF_THE_QUEUE = (QueueNotFound, QueueNameInvalid, QueueNameTooLong, ClientClosed)
_JOBS_MAX = 1_000
_OVERHEAD_BYTES = 100  # what a job takes on the wire beside its body, about


class Placed(NamedTuple):
    """The outcome of one job. `existing`: it was stored already under its unique key."""

    descriptor: str
    existing: bool = False


class Promise(Protocol):
    """A future of asyncio's, or of a thread's."""

    def done(self) -> bool: ...

    def set_result(self, result: Any, /) -> None: ...

    def set_exception(self, exception: BaseException, /) -> None: ...


F = TypeVar("F", bound=Promise)


class BatchedJob(NamedTuple, Generic[F]):
    """A job on its way, and what its caller waits for."""

    job: values.Job | bytes
    done: F

    @property
    def size(self) -> int:
        return _OVERHEAD_BYTES + len(self.job.body if isinstance(self.job, values.Job) else self.job)


class Bounds(NamedTuple):
    """The bounds on the size of a request, on the requests of a queue at a time, and on the waiting jobs."""

    jobs_max: int
    bytes_max: int
    in_flight_max: int
    waiting_max: int

    def check(self) -> Bounds:
        """Raises TypeError or ValueError that names the bound."""
        check_integer("jobs_max", self.jobs_max, 1, _JOBS_MAX)
        check_integer("bytes_max", self.bytes_max, 1)
        check_integer("in_flight_max", self.in_flight_max, 1)
        check_integer("waiting_max", self.waiting_max, 1)
        return self

    def another_sender(self, senders: int, waiting: int) -> bool:
        """Whether a job that has just come is reason for one more request at a time: a lone one is, and a full batch."""
        return senders < self.in_flight_max and (not senders or waiting >= self.jobs_max)


class UnsentJobs(Generic[F]):
    """Jobs that no request has taken yet, queue by queue, in order. `wanted` says whether the caller of one still waits for it."""

    def __init__(self, bounds: Bounds, wanted: Callable[[F], bool]) -> None:
        self._bounds = bounds
        self._wanted = wanted
        self._queues: dict[str, deque[BatchedJob[F]]] = {}
        self.count = 0

    def __contains__(self, queue: object) -> bool:
        return queue in self._queues

    def add(self, queue: str, entry: BatchedJob[F]) -> int:
        """How many jobs wait for that queue now."""
        waiting = self._queues.setdefault(queue, deque())
        waiting.append(entry)
        self.count += 1
        return len(waiting)

    def next_batch(self, queue: str) -> list[BatchedJob[F]]:
        """The jobs of the next request; empty if no job waits."""
        waiting = self._queues.get(queue, ())
        batch: list[BatchedJob[F]] = []
        bytes_left = self._bounds.bytes_max
        while waiting and len(batch) < self._bounds.jobs_max and (not batch or waiting[0].size <= bytes_left):
            entry = waiting.popleft()
            self.count -= 1
            if self._wanted(entry.done):
                bytes_left -= entry.size
                batch.append(entry)
        if not waiting:
            self._queues.pop(queue, None)
        return batch


def halves(batch: list[BatchedJob[F]], error: Exception, *, unsent: bool = False) -> list[list[BatchedJob[F]]]:
    """What to send once more: a job that is refused must harm no other, and a refused request has stored nothing.

    Nothing if the error says the same of every job, or of the one that there is. `unsent`: the request could not even be made, so
    that an error of any kind may be one job's.
    """
    if not (unsent or isinstance(error, CallerError)) or isinstance(error, _OF_THE_QUEUE) or len(batch) < 2:
        return []
    middle = len(batch) // 2
    return [batch[:middle], batch[middle:]]


def settle(batch: list[BatchedJob[F]], outcome: values.Enqueued | BaseException) -> None:
    """Gives the outcome to every entry whose caller still waits."""
    if isinstance(outcome, BaseException):
        for entry in batch:
            if not entry.done.done():
                entry.done.set_exception(outcome)
        return
    existing = frozenset(outcome.existing)
    for index, (entry, descriptor) in enumerate(zip(batch, outcome.descriptors, strict=True)):
        if not entry.done.done():
            entry.done.set_result(Placed(descriptor, index in existing))
