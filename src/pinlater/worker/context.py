"""The running job, for the code of its task: `current_job()`, or a parameter of the type `JobContext`.

Methods that call the server have two forms: a plain one for functions in threads and processes, and one that ends in `_async` for
coroutines.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from pinlater.client.errors import PinLaterError
from pinlater.client.values import AckResult, Checkpoint, ClaimedJob
from pinlater.domain.job import PROGRESS_MARK, Outcome
from pinlater.worker.durations import as_delay_ms, as_time_ms
from pinlater.worker.envelope import CRON_TIME_HEADER, cron_time_of
from pinlater.worker.errors import ClaimLost

# Makes the body of the next attempt of a value, for the method of that name. Raises TypeError if the task can't be called with it.
NextBody = Callable[[Any, str], bytes]


class ServerCalls(NamedTuple):
    """How a context reaches the server from where its job runs; None for a form that can't be used there."""

    now_ms: Callable[[], int]
    checkpoint: Callable[[Checkpoint], AckResult] | None = None
    checkpoint_async: Callable[[Checkpoint], Awaitable[AckResult]] | None = None


class Rescheduling(NamedTuple):
    """The arguments of `reschedule`."""

    at_ms: int
    body: bytes | None


class JobContext:
    """A running job."""

    __slots__ = ("_next_body", "_server", "deadline_ms", "is_over", "job", "rescheduling", "task", "why_lost")

    def __init__(
        self, job: ClaimedJob, task: str, server: ServerCalls, next_body: NextBody, deadline_ms: int | None = None
    ) -> None:
        self.job = job
        self.task = task
        self.deadline_ms = deadline_ms
        self.rescheduling: Rescheduling | None = None
        self.is_over = False  # once its attempt has ended, or the worker has given it up while its thread continues
        self.why_lost = ""  # once one of its calls has found that the claim has ended
        self._server = server
        self._next_body = next_body

    def __repr__(self) -> str:
        return f"<job {self.descriptor} of task {self.task}, attempt {self.attempt}>"

    @property
    def descriptor(self) -> str:
        """The job's name on the server."""
        return self.job.descriptor

    @property
    def queue(self) -> str:
        """The job's queue."""
        return self.job.queue

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return attempt_number(self.job)

    @property
    def attempts_remaining(self) -> int:
        """Attempts left, this one included."""
        return self.job.attempts_remaining

    @property
    def headers(self) -> Mapping[str, str]:
        """The producer's headers."""
        return self.job.headers

    @property
    def cron_time(self) -> datetime | None:
        """The planned time of the firing that enqueued the job, in the zone of its cron entry; None if no entry enqueued it.

        It stays the same if the firing was enqueued late, and in each attempt.
        """
        text = self.headers.get(CRON_TIME_HEADER)
        return None if text is None else cron_time_of(text)

    @property
    def time_left_ms(self) -> int | None:
        """How long until the time limit; None without one."""
        return None if self.deadline_ms is None else self.deadline_ms - self._server.now_ms()

    # --- saving progress ----------------------------------------------------------------------------------------------
    def checkpoint(self, body: Any = None) -> None:
        """Saves `body` (bytes, or a value for the task's codec) as the body of the next attempt, and renews the claim.

        Raises TypeError if the task can't be called with that body: use the names of its parameters as keys.
        While no server can be reached it waits, as long as the job may run. Raises `ClaimLost` if the claim has ended, and the errors
        of a client's call if the server refuses the body.
        """
        self._send(Checkpoint(self.descriptor, self.job.token, new_body=self._as_body(body, "checkpoint")))

    async def checkpoint_async(self, body: Any = None) -> None:
        """`checkpoint`, for coroutines."""
        new_body = self._as_body(body, "checkpoint_async")
        await self._send_async(Checkpoint(self.descriptor, self.job.token, new_body=new_body))

    def progress(self, done: float, note: str = "") -> None:
        """Shows progress (0 to 1) and a note in the job's status, in place of the line before, and renews the claim."""
        self._send(Checkpoint(self.descriptor, self.job.token, prepend_status=_status(done, note)))

    async def progress_async(self, done: float, note: str = "") -> None:
        """`progress`, for coroutines."""
        await self._send_async(Checkpoint(self.descriptor, self.job.token, prepend_status=_status(done, note)))

    def reschedule(self, at: datetime | timedelta | str | int, body: Any = None) -> None:
        """Runs the job again at a time (datetime or milliseconds since the epoch) or after a duration (timedelta or text such as `5m`);
        it keeps its attempts.

        Takes effect when the function returns; if it raises, the attempt fails as usual. Raises TypeError like `checkpoint`, and TypeError
        or ValueError if `at` is not a time. A time that is more than a year ahead makes the attempt fail.
        """
        new_body = self._as_body(body, "reschedule")
        argument = f"task {self.task}: reschedule: at"
        if isinstance(at, timedelta | str):
            at_ms = self._server.now_ms() + as_delay_ms(at, argument)
        else:
            at_ms = as_time_ms(at, argument, "a duration is a timedelta or text such as '5m'")
        self.rescheduling = Rescheduling(at_ms, new_body)

    def _as_body(self, body: Any, method: str) -> bytes | None:
        return None if body is None else self._next_body(body, method)

    def _send(self, item: Checkpoint) -> None:
        if self._server.checkpoint is None:
            raise RuntimeError("this would block the event loop: await the form that ends in _async")
        try:
            result = self._server.checkpoint(item)
        except PinLaterError as error:
            raise error.with_traceback(None) from None  # frames of the client say nothing to the task's author
        self._check(result)

    async def _send_async(self, item: Checkpoint) -> None:
        if self._server.checkpoint_async is None:
            raise RuntimeError("there is no event loop here: use the form without _async")
        try:
            result = await self._server.checkpoint_async(item)
        except PinLaterError as error:
            raise error.with_traceback(None) from None
        self._check(result)

    def _check(self, result: AckResult) -> None:
        if not result.applied:
            self.why_lost = why_lost(result)
            raise ClaimLost(f"{result.descriptor}: {self.why_lost}")


def why_lost(result: AckResult) -> str:
    """Why the claim has ended of which the server says this, for people."""
    if result.outcome is Outcome.ALREADY_FINAL:
        return (
            "the job has ended: it was cancelled, its claim timed out in its last attempt, or another worker ended it"
        )
    if result.outcome is Outcome.NOT_FOUND:
        return "the server knows no such job: it was deleted, or its shard is gone"
    return f"{result.holder} holds the job now" if result.holder else "it timed out"


def _status(done: float, note: str) -> str:
    if not isinstance(done, int | float):
        raise TypeError(f"progress takes the part that is done, from 0 to 1, and then a note; not {done!r}")
    if not 0 <= done <= 1:
        raise ValueError(f"done must be from 0 to 1, not {done}")
    return f"{PROGRESS_MARK}{round(done * 100)} % {' '.join(note.split())}".rstrip() + "\n"


def attempt_number(job: ClaimedJob) -> int:
    """The number of this attempt, from 1. An original server tells only how many attempts remain."""
    return max(1, job.attempt or job.attempts_allowed - job.attempts_remaining + 1)


def is_last_attempt(job: ClaimedJob) -> bool:
    """Whether the job becomes FAILED if this attempt fails. False if that is unknown."""
    return job.attempts_allowed > 0 and job.attempts_remaining <= 1


RUNNING: ContextVar[JobContext | None] = ContextVar("pinlater_current_job", default=None)
"""The job that this code runs for; None outside of a job."""


def current_job() -> JobContext:
    """The job that this code runs for. Raises RuntimeError outside of a job."""
    context = RUNNING.get()
    if context is None:
        raise RuntimeError(
            "this code does not run in a job; in a test, enqueue the task and run it with run_until_idle() of "
            "pinlater.testing.InProcessService, or declare a parameter of type JobContext and pass a mock"
        )
    return context
