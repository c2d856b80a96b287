"""The job that runs, for the code that runs it: `current_job()`, or a parameter of the type `JobContext`.

What asks the server has two forms: the plain one for plain functions, in threads and processes, and one that ends in `_async` for
coroutines.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from pinlater.client.errors import PinLaterError
from pinlater.client.values import AckResult, Checkpoint, ClaimedJob
from pinlater.domain.job import PROGRESS_MARK
from pinlater.worker.errors import ClaimLost

Encode = Callable[[Any], bytes]


class Channel(NamedTuple):
    """How a context reaches the server from where its job runs; None where that form can't be used."""

    now_ms: Callable[[], int]
    checkpoint: Callable[[Checkpoint], AckResult] | None = None
    checkpoint_async: Callable[[Checkpoint], Awaitable[AckResult]] | None = None


class Rescheduling(NamedTuple):
    """What `reschedule` asked for."""

    at_ms: int
    body: bytes | None


class JobContext:
    """A job in hand."""

    __slots__ = ("_channel", "_encode", "deadline_ms", "job", "rescheduling", "task")

    def __init__(
        self, job: ClaimedJob, task: str, channel: Channel, encode: Encode, deadline_ms: int | None = None
    ) -> None:
        self.job = job
        self.task = task
        self.deadline_ms = deadline_ms
        self.rescheduling: Rescheduling | None = None
        self._channel = channel
        self._encode = encode

    @property
    def descriptor(self) -> str:
        """Names the job."""
        return self.job.descriptor

    @property
    def queue(self) -> str:
        """Where it came from."""
        return self.job.queue

    @property
    def attempt(self) -> int:
        """Counts from 1."""
        return max(1, self.job.attempt or self.job.attempts_allowed - self.job.attempts_remaining + 1)

    @property
    def attempts_remaining(self) -> int:
        """Before this one ends."""
        return self.job.attempts_remaining

    @property
    def headers(self) -> Mapping[str, str]:
        """What the producer sent beside the body."""
        return self.job.headers

    @property
    def time_left_ms(self) -> int | None:
        """Until the time limit; None without one."""
        return None if self.deadline_ms is None else self.deadline_ms - self._channel.now_ms()

    # --- saving progress ----------------------------------------------------------------------------------------------
    def checkpoint(self, body: Any = None) -> None:
        """Saves `body` as what the next attempt starts from (bytes, or arguments for the handler's codec) and renews the claim.

        While the server is away it waits, as long as the job may run. Raises `ClaimLost` where another worker or nobody has the job by
        now, and what the client raises where the server refuses the body.
        """
        self._send(Checkpoint(self.descriptor, self.job.token, new_body=self._as_body(body)))

    async def checkpoint_async(self, body: Any = None) -> None:
        """`checkpoint`, for coroutines."""
        await self._send_async(Checkpoint(self.descriptor, self.job.token, new_body=self._as_body(body)))

    def progress(self, done: float, note: str = "") -> None:
        """Shows how far it is (0 to 1) with a note in the job's status, in place of the line before, and renews the claim."""
        self._send(Checkpoint(self.descriptor, self.job.token, prepend_status=_status(done, note)))

    async def progress_async(self, done: float, note: str = "") -> None:
        """`progress`, for coroutines."""
        await self._send_async(Checkpoint(self.descriptor, self.job.token, prepend_status=_status(done, note)))

    def reschedule(self, at: datetime | timedelta | int, body: Any = None) -> None:
        """Runs the job once more at that time (or after that, or at those milliseconds since the epoch) without spending an attempt.

        Takes effect when the handler returns; where it raises, the failure counts.
        """
        self.rescheduling = Rescheduling(as_time_ms(at, self._channel.now_ms()), self._as_body(body))

    def _as_body(self, body: Any) -> bytes | None:
        return body if body is None or isinstance(body, bytes) else self._encode(body)

    def _send(self, item: Checkpoint) -> None:
        if self._channel.checkpoint is None:
            raise RuntimeError("this would block the event loop: await the form that ends in _async")
        try:
            result = self._channel.checkpoint(item)
        except PinLaterError as error:
            raise error.with_traceback(None) from None  # its way through the client tells the handler's author nothing
        _check(result)

    async def _send_async(self, item: Checkpoint) -> None:
        if self._channel.checkpoint_async is None:
            raise RuntimeError("there is no event loop here: use the form without _async")
        try:
            result = await self._channel.checkpoint_async(item)
        except PinLaterError as error:
            raise error.with_traceback(None) from None
        _check(result)


def _check(result: AckResult) -> None:
    if not result.applied:
        raise ClaimLost(f"{result.descriptor}: {result.outcome.name} {result.holder}".rstrip())


def _status(done: float, note: str) -> str:
    if not 0 <= done <= 1:
        raise ValueError(f"done must be from 0 to 1, not {done}")
    return f"{PROGRESS_MARK}{round(done * 100)} % {' '.join(note.split())}".rstrip() + "\n"


def as_time_ms(at: datetime | timedelta | int, now_ms: int) -> int:
    """Milliseconds since the epoch; a datetime must say its time zone."""
    if isinstance(at, timedelta):
        return now_ms + round(at.total_seconds() * 1000)
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise ValueError(f"{at} says no time zone; use datetime.now(timezone.utc) and the like")
        return round(at.timestamp() * 1000)
    return at


_CURRENT: ContextVar[JobContext] = ContextVar("pinlater_current_job")


def current_job() -> JobContext:
    """The job that this code runs for. Raises RuntimeError outside of one."""
    context = _CURRENT.get(None)
    if context is None:
        raise RuntimeError("no job runs here")
    return context


def job_at_hand() -> JobContext | None:
    """`current_job`, or None outside of one."""
    return _CURRENT.get(None)


def set_current(context: JobContext) -> None:
    """For whoever runs jobs."""
    _CURRENT.set(context)
