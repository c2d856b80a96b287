"""What the heartbeat thread does about a task that blocks the worker's event loop: it warns with the task's name and line, and gives back
the jobs that the loop can't start, so that other workers run them.

What goes back is what was claimed and has not started, also by a long poll whose answer the loop has not read. Weaknesses: a blocked loop
is noticed after a second. Code that holds the interpreter's lock stops the heartbeat thread too. An asyncio task that a task starts does
not say for which job it runs. Unread jobs without tokens (of an original server) are left to their claims' timeout.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, NamedTuple

from pinlater.client.async_client import AsyncClient
from pinlater.client.errors import PinLaterError
from pinlater.client.values import ClaimedJob
from pinlater.domain.durations import duration_text
from pinlater.worker._outbox.heartbeat_log import log_apart
from pinlater.worker._outbox.leases import Leases, QueueShard, shard_of_job
from pinlater.worker._outbox.renewals import CLAIMS_PER_REQUEST_MAX, Renewals
from pinlater.worker.context import JobContext

_log = logging.getLogger("pinlater.worker")
# A logger of its own: lines of attempts would make the filter of repeated warnings show the next one.
_warnings = logging.getLogger("pinlater.worker.event_loop")
# One block is told when it has lasted this long. The texts are equal, so that the filter can count them.
_WARN_S = (3, 30, 300)
# After the process was stopped for a time, the loop has run by the next look.
_LOOKS_MIN = 4
# What runs a loop; the program's own code is above it.
_RUNS_THE_LOOP = ("asyncio.base_events", "asyncio.events", "asyncio.runners", "pinlater.worker._process.event_loop")

# How often the watchdog is asked, and for how long the loop may be blocked.
_CHECK_S = 0.25
_BLOCKED_S = 1.0
_REQUEST_S = 5.0
# How long a release is retried; then the claims time out.
_RETRY_S = 30.0


class LoopWatchdog:
    """Schedules a callback on the loop, and the next one after it ran. `lock` guards what the caller decides by the answer.

    Must be made on the loop's thread.
    A loop that is no longer blocked runs the callback before it handles anything that arrived meanwhile: the callback is queued already.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, lock: threading.Lock, now: Callable[[], float]) -> None:
        self._loop = loop
        self._lock = lock
        self._now = now
        self._waiting_since: float | None = None
        self.thread_id = threading.get_ident()

    def blocked_s(self) -> float:
        """How long the callback has been waiting; 0 if it ran, and then schedules the next one."""
        with self._lock:
            if self._waiting_since is not None:
                return self._now() - self._waiting_since
            self._waiting_since = self._now()
        try:
            self._loop.call_soon_threadsafe(self._called)
        except RuntimeError:  # closed
            self._waiting_since = None
        return 0.0

    def _called(self) -> None:
        with self._lock:
            self._waiting_since = None

    @property
    def is_closed(self) -> bool:
        """Whether the loop has ended for good; a callback that waited then never runs."""
        return self._loop.is_closed()

    @property
    def still_waiting(self) -> bool:
        """Whether the callback has not run yet. The caller holds the lock, so it can't run meanwhile."""
        return self._waiting_since is not None


class _Blocker(NamedTuple):
    """What runs on the loop's thread: its job, if that is known, and the line in the task's function."""

    job: JobContext | None
    at: str


class BlockedLoopWarnings:
    """Belongs to the event loop that runs on this thread."""

    def __init__(self, thread_id: int) -> None:
        self._thread_id = thread_id
        self._looks = 0  # that found the loop blocked, without a break
        self._told = 0  # how many of the lengths

    def looked(self, blocked_s: float) -> None:
        """For how long the loop has been blocked by now; 0 if it runs."""
        if not blocked_s:
            self._looks = self._told = 0
            return
        self._looks += 1
        reached = sum(blocked_s >= length_s for length_s in _WARN_S)
        if reached > self._told and self._looks >= _LOOKS_MIN:
            self._told = reached
            _warn(_blocker_on(self._thread_id), _WARN_S[reached - 1])


def _warn(blocker: _Blocker, length_s: int) -> None:
    job = blocker.job
    log_apart(
        _warnings, logging.WARNING,
        "the event loop has been blocked for %s, now by %s; other coroutines of this worker wait. Make the task a plain function "
        "(`def`), which runs in a thread, or await asyncio.to_thread(...) around what blocks",
        duration_text(length_s * 1000), "some task" if job is None else f"task {job.task} of queue {job.queue}",
        extra={"at": blocker.at} if blocker.at else {},
    )  # fmt: skip


def _blocker_on(thread_id: int) -> _Blocker:
    """From the innermost frame outwards: the task's function is the last one before those of the worker."""
    frame: FrameType | None = sys._current_frames().get(thread_id)  # noqa: SLF001 - documented
    at = ""
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module in _RUNS_THE_LOOP:
            break
        if module.startswith("pinlater.worker."):
            context = frame.f_locals.get("context")
            if isinstance(context, JobContext):
                return _Blocker(context, at)
        elif not module.startswith("asyncio."):
            at = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return _Blocker(None, at)


class UnstartedJobs:
    """Watches one event loop. `unread` returns the answers that have arrived and that the loop has not read."""

    def __init__(
        self, leases: Leases, renewals: Renewals, watchdog: LoopWatchdog, unread: Callable[[], list[Any]]
    ) -> None:
        self._leases = leases
        self._renewals = renewals
        self._watchdog = watchdog
        self._blocked_loop = BlockedLoopWarnings(watchdog.thread_id)
        self._unread = unread
        self._unsent: deque[tuple[float, ClaimedJob]] = deque()  # until when (monotonic) to try

    async def give_back_until_cancelled(self, client: AsyncClient) -> None:
        """Looks four times a second."""
        while True:
            await asyncio.sleep(_CHECK_S)
            try:
                blocked_s = self._watchdog.blocked_s()
                self._blocked_loop.looked(0 if self._watchdog.is_closed else blocked_s)
                if blocked_s >= _BLOCKED_S:
                    self._take()
                await self._send(client)
            except Exception as error:  # noqa: BLE001 - logged as what it is: a fault of ours
                self._renewals.errors += 1
                text = "jobs that a blocked event loop has not started can't be given back"
                log_apart(_log, logging.ERROR, text, exc_info=error)

    def _take(self) -> None:
        unread = [job for dequeued in self._unread() for job in dequeued.jobs if job.token]
        leases, jobs = self._leases.take_unstarted(unread, lambda: self._watchdog.still_waiting)
        until = time.monotonic() + _RETRY_S
        self._unsent.extend((until, job) for job in [*(lease.job for lease in leases), *jobs])
        for lease in leases:
            with contextlib.suppress(RuntimeError):  # the worker's loop is closed
                lease.given_back()
        if leases or jobs:
            count = len(leases) + len(jobs)
            text = "the event loop is blocked: %d waiting jobs are given back to other workers"
            log_apart(_log, logging.WARNING, text, count)

    async def _send(self, client: AsyncClient) -> None:
        while self._unsent and self._unsent[0][0] < time.monotonic():
            _, job = self._unsent.popleft()
            log_apart(_log, logging.WARNING, "job %s could not be given back; its claim times out", job.descriptor)
        batch = [self._unsent.popleft() for _ in range(min(len(self._unsent), CLAIMS_PER_REQUEST_MAX))]
        parts: dict[QueueShard, list[tuple[float, ClaimedJob]]] = {}
        for until, job in batch:
            parts.setdefault(shard_of_job(job), []).append((until, job))
        await asyncio.gather(*(self._send_part(client, queue, part) for (queue, _), part in parts.items()))

    async def _send_part(self, client: AsyncClient, queue: str, part: Sequence[tuple[float, ClaimedJob]]) -> None:
        try:
            async with asyncio.timeout(_REQUEST_S):
                await self._renewals.release(client, queue, [job for _, job in part])
        except (PinLaterError, TimeoutError) as error:
            log_apart(_log, logging.DEBUG, "queue %s: %d jobs can't be given back yet: %s", queue, len(part), error)
            self._unsent.extend(part)
