"""What an `enqueue_many` that failed has stored, and how to enqueue the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from pinlater.client._client_call import ClientCall
from pinlater.client.batching import Placed
from pinlater.client.values import Enqueued, Job
from pinlater.domain.errors import PinLaterError, adding
from pinlater.domain.wording import counted


class UnknownRequest(NamedTuple):
    """A request that may be stored. `began_s`: when its first try began, by the enqueuer's clock."""

    call: ClientCall[Enqueued]
    began_s: float


class RestOfJobs:
    """The jobs that a failed `enqueue_many` is not known to have stored: those that it had read, then those that its iterable still has.
    Can be read once."""

    def __init__(self, queue: str, read: Sequence[Job], unread: Iterator[Job], unknown: UnknownRequest | None) -> None:
        self.queue = queue
        self.unknown = unknown
        self.may_be_stored = 0 if unknown is None else len(unknown.call.args[0].jobs)
        self._jobs = chain(read, unread)

    def __iter__(self) -> Iterator[Job]:
        return self._jobs

    def __reduce__(self) -> tuple[object, ...]:
        return RestOfJobs, (self.queue, (), _Elsewhere(), None)


class _Elsewhere:
    """In place of jobs whose error has gone to another process."""

    def __iter__(self) -> Iterator[Job]:
        return self

    def __next__(self) -> Job:
        raise RuntimeError("the rest of the jobs is in the process that enqueued the first ones")


@dataclass(frozen=True, slots=True)
class PartlyEnqueued:
    """How far an `enqueue_many` came before its error. `placed`: the outcomes of its first jobs, which are stored. `may_be_stored`: how
    many of the jobs behind these may be stored or not, since their answer is lost. `rest`: the jobs behind `placed`, for another
    `enqueue_many` on the same queue. It sends those that may be stored under their request key again, which stores none twice."""

    placed: Sequence[Placed]
    may_be_stored: int
    rest: Iterable[Job] = field(repr=False)


def telling(error: BaseException, part: PartlyEnqueued) -> BaseException:
    """The error with `part`, and with the number of stored jobs in its text, or in a note of an error that is not the client's."""
    stored = len(part.placed)
    if stored and isinstance(error, PinLaterError):
        verb = "was" if stored == 1 else "were"
        error = adding(error, f"; {counted(stored, 'job')} {verb} stored before")
    if stored or part.may_be_stored > 1:
        unknown = f", and the next {part.may_be_stored:,} may be" if part.may_be_stored else ""
        notes = [  # a list of its own: a copy shares that of the error
            *getattr(error, "__notes__", ()),
            f"Of the jobs, the first {stored:,} are stored{unknown}. pinlater.partly_enqueued(error) has their descriptors, "
            "and the rest for another enqueue_many.",
        ]
        _set(error, "__notes__", notes)
    _set(error, "partly_enqueued", part)
    return error


def _set(error: BaseException, name: str, value: object) -> None:
    """Sets an attribute of any exception: the class of a caller's own may be a frozen dataclass."""
    BaseException.__setattr__(error, name, value)


def partly_enqueued(error: BaseException) -> PartlyEnqueued | None:
    """How far the `enqueue_many` came that raised this error, or its cause. None if no `enqueue_many` of a task did."""
    link: BaseException | None = error
    for _ in range(10):  # a chain of causes may be a circle
        if link is None:
            break
        found = getattr(link, "partly_enqueued", None)
        if isinstance(found, PartlyEnqueued):
            return found
        link = link.__cause__ or _cancelled_by_timeout(link)
    return None


def _cancelled_by_timeout(error: BaseException) -> BaseException | None:
    """Returns the cancellation that became this `TimeoutError`. Early releases of Python 3.11 do not name it as the cause."""
    context = error.__context__
    return context if isinstance(error, TimeoutError) and isinstance(context, asyncio.CancelledError) else None
