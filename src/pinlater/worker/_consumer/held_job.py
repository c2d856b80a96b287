"""A job that a worker has in hand: one attempt, from its claim to the message that ends the claim.

The worker's event loop alone moves it on: it waits for a slot, runs, is stopped early or ends by itself, and is then told to the server by
the outbox, which renews its claim meanwhile. It ends in one of: an ack or a new run time, a release, or a lost claim; a job whose claim was
lost is never reported.

A coroutine that is stopped is cancelled, and a child process killed; a thread continues. A function that ignores this is abandoned after a
second: its slot goes to the next job, and it counts as abandoned until it ends.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
from collections import deque
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from pinlater.client.errors import PinLaterError
from pinlater.client.values import AckResult, ClaimedJob
from pinlater.domain.durations import duration_text
from pinlater.worker import envelope
from pinlater.worker._attempts.calling import AttemptInput, AttemptResult, call_async
from pinlater.worker._attempts.endings import Ending, Kind, failure, type_name
from pinlater.worker._consumer import job_log
from pinlater.worker._consumer.places import Places
from pinlater.worker._consumer.worker_run import WorkerRun
from pinlater.worker._outbox.leases import Lease
from pinlater.worker._outbox.outbox import Outbox
from pinlater.worker.context import RUNNING, attempt_number, why_lost
from pinlater.worker.envelope import Opened
from pinlater.worker.errors import ProcessDied, TimeLimitExceeded
from pinlater.worker.logs import fields_of
from pinlater.worker.retries import RetryPolicy
from pinlater.worker.tasks import RunsIn, Task

_log = logging.getLogger("pinlater.worker")
# How long a cancelled function may take to end before it is abandoned.
CANCEL_S = 1.0
# The default of an original server, which doesn't say how long its claims last.
_ORIGINAL_CLAIM_MS = 180_000
# A heartbeat comes whenever a third of a claim has passed, so that two may get lost.
_HEARTBEATS_A_CLAIM = 3
_INTERVAL_MIN_S = 0.1
_CRASHES_MAX = 3
# The log lines of unknown tasks: how often for each, and how many names are remembered.
_LOGGED_EVERY_S = 60.0
_NAMES_MAX = 100


class HeldState(Enum):
    """How far a job is. In `REPORTING`, its function has ended and the worker no longer stops it."""

    WAITING = "waiting"
    RUNNING = "running"
    STOPPING = "stopping"
    REPORTING = "reporting"
    ENDED = "ended"


class StopReason(Enum):
    """Why the worker stopped a running job."""

    LOST = "its claim was lost"
    GIVEN_BACK = "the worker stops"
    TIME_LIMIT = "it ran too long"


class HeldJobs:
    """The jobs of one queue that wait for a slot, those that run, and what they have in common."""

    def __init__(
        self,
        run: WorkerRun,
        queue: str,
        tasks: Mapping[str, Task[..., Any]],
        default: Task[..., Any] | None,
        outbox: Outbox,
        places: Places,
    ) -> None:
        self.run = run
        self.queue = queue
        self.tasks = tasks
        self.default = default
        self.outbox = outbox
        self.places = places
        self.share = run.slots.share(queue)
        self.unknown_tasks: dict[str, float] = {}  # their names, and when the log had each (monotonic)
        self.context = contextvars.copy_context()  # each job runs in a copy, so no job sees another's variables
        self.waiting: deque[HeldJob] = deque()
        self.running: set[HeldJob] = set()
        self.late_reports: set[asyncio.Task[None]] = set()  # of abandoned jobs
        self.abandoned = 0
        self.changed = asyncio.Event()  # set when a function has ended

    @property
    def abandoned_functions(self) -> int:
        """Functions that still run although the worker gave up their jobs: in threads, or coroutines that ignore cancellation."""
        at_work = sum([held.is_in_thread and held.stopped is None for held in self.running])
        return self.abandoned + max(0, self.places.threads.busy - at_work)

    def start_next(self) -> None:
        """Starts the job that has waited longest; a slot is free."""
        self.waiting.popleft().start()

    def drop(self, held: HeldJob) -> None:
        """A waiting job is held no longer."""
        self.waiting.remove(held)
        held.state = HeldState.ENDED
        self.run.slots.withdraw(self.share)

    def drop_waiting(self) -> list[HeldJob]:
        """All waiting jobs are held no longer. Returns them."""
        dropped = list(self.waiting)
        for held in dropped:
            self.drop(held)
        return dropped

    def pop_newest(self, jobs: int) -> list[HeldJob]:
        """Waiting jobs that were claimed last, and that the slots count no longer, are held no longer. Returns them."""
        popped = [self.waiting.pop() for _ in range(jobs)]
        for held in popped:
            held.state = HeldState.ENDED
        return popped


class HeldJob(Lease):
    """A claimed job. Its lease ends with the job, or with the message about its end (`handed_over`)."""

    state = HeldState.WAITING
    stopped: StopReason | None = None
    is_abandoned = False  # its function ignores cancellation
    of_task: Task[..., Any] | None = None  # once it is known
    is_in_thread = False
    has_begun = False  # otherwise a cancellation of its task runs no line of it
    running: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle | None = None  # of its time limit
    slot_since_ms = 0.0  # by the time of the slots
    started_s = 0.0  # monotonic

    def __init__(self, jobs: HeldJobs, job: ClaimedJob, server_now_ms: int) -> None:
        self.job = job
        self._jobs = jobs
        self._run = jobs.run
        deadline_ms = job.claim_deadline_ms
        length_ms = _ORIGINAL_CLAIM_MS if deadline_ms is None else deadline_ms - server_now_ms
        task = jobs.tasks.get(job.headers.get(envelope.TASK_HEADER, ""), jobs.default)
        if task is not None and task.options.claim_timeout_ms is not None:  # also for jobs that others enqueue
            length_ms = min(length_ms, task.options.claim_timeout_ms)
        self.interval_s = max(_INTERVAL_MIN_S, length_ms / (_HEARTBEATS_A_CLAIM * 1000))

    # --- from a slot to the report ----------------------------------------------------------------------------------------
    def start(self) -> None:
        """A slot is free."""
        jobs, run = self._jobs, self._run
        self.state = HeldState.RUNNING
        self.slot_since_ms = run.slots.start(jobs.share)
        jobs.running.add(self)
        run.counts.running += 1
        name = f"job {self.job.descriptor}"
        self.running = asyncio.create_task(self._execute(), name=name, context=jobs.context.copy())

    async def _execute(self) -> None:
        self.has_begun = True
        try:
            opened = envelope.opened(self.job.body, self.job.headers)
            task = self._jobs.tasks.get(opened.task) if opened.task else self._jobs.default
            if task is None:
                await self._give_back_unknown(opened.task)
            elif self._begin(task):
                result = await self._attempt(task, opened)
                if result is not None:
                    await self._report(result)
        except Exception:  # noqa: BLE001 - logged as what it is: a fault of ours
            _log.exception("job %s: how it ended can't be reported; its claim times out", self.job.descriptor)
        finally:
            self._finish()

    def _begin(self, task: Task[..., Any]) -> bool:
        """Starts the time limit. False if the heartbeat thread gave the job back meanwhile."""
        self.of_task, self.is_in_thread = task, task.options.runs_in is RunsIn.THREAD
        self.counts = self._run.counts.of_task(self._jobs.queue, task.name)
        if not self.begin_limit():
            self.is_renewed, self.stopped, self.state = False, StopReason.GIVEN_BACK, HeldState.STOPPING
            self._run.counts.released += 1
            return False
        self.started_s = self._run.clock.monotonic()
        if _log.isEnabledFor(logging.DEBUG):
            job_log.started(self.job, task.name)
        return True

    async def _attempt(self, task: Task[..., Any], opened: Opened) -> AttemptResult | None:
        """How the attempt ended; None if there is nothing to report."""
        run, limit_ms = self._run, task.options.time_limit_ms
        deadline_ms = None if limit_ms is None else run.clock.now_ms() + limit_ms
        job = self.job._replace(body=opened.body, headers=opened.headers)
        attempt = AttemptInput(job, opened.content_type, deadline_ms, run.retry)
        result: AttemptResult | None = None
        try:
            result = await self._call(task, attempt)
            run.slots.ran(self._jobs.share, (run.clock.monotonic() - self.started_s) * 1000)
        except asyncio.CancelledError:
            if self.stopped is None:
                raise
        except Exception as error:  # noqa: BLE001 - a fault of the worker itself must not leave the job without an end
            result = self._failed(error, run.retry)
        if self.stopped is StopReason.TIME_LIMIT and not self.is_abandoned:
            result = self._too_long()
        elif self.stopped is not None:
            return None
        self.state = HeldState.REPORTING
        return result

    async def _call(self, task: Task[..., Any], attempt: AttemptInput) -> AttemptResult:
        """How the attempt ended. What the worker stopped ends as the stop says, whatever the function makes of it."""
        places, on_loop = self._jobs.places, task.options.runs_in is RunsIn.LOOP
        context = attempt.context_of(task, places.calls_on_loop if on_loop else places.calls_from_a_thread())
        RUNNING.set(context)
        result: AttemptResult | None = None
        try:
            if places.middleware:
                result = await places.call_start_hooks(task, attempt, context)
            if result is None:
                elsewhere = None if on_loop else places.call(task, attempt, context, self)
                result = await (elsewhere or call_async(task, attempt, context))
        except asyncio.CancelledError:
            if self.stopped is None:
                raise
        finally:
            context.is_over = True
        if result is None or self.stopped is not None:
            result = self._result_of_stop()
        if places.middleware:
            await places.call_end_hooks(context, result)
        return result

    async def _report(self, result: AttemptResult) -> None:
        """Counts and logs how the attempt ended, and puts it into the outbox unless the claim was lost."""
        job, ending, run, task = self.job, result.ending, self._run, self.of_task
        assert task is not None  # noqa: S101 - it has run
        assert self.counts is not None  # noqa: S101 - the same
        if self.is_renewed and self.timer is not None:
            self.keep_until_s = math.inf  # it has ended in time
        if run.on_end is not None:
            run.on_end(job, ending, result.error)
        if isinstance(result.error, ProcessDied):
            ending = await self._blamed(ending)
        took_s = run.clock.monotonic() - self.started_s
        self.counts.note(ending.kind, took_s)
        if ending.kind is Kind.SUCCEEDED:
            run.counts.succeeded += 1
        elif ending.kind in (Kind.FAILED, Kind.GIVEN_UP):
            run.counts.failed += 1
        elif ending.kind is Kind.LOST:
            run.counts.lost += 1
        if ending.kind is not Kind.SUCCEEDED or _log.isEnabledFor(task.options.log_level):
            job_log.ended(job, task, ending, result.error, took_s)
        if ending.kind is not Kind.LOST:
            self.is_renewed = False  # until the server has the report
            await self._jobs.outbox.end(self, ending)

    def _finish(self) -> None:
        """Ends the time limit and the renewal, and frees the slot."""
        if self.timer is not None:
            self.timer.cancel()
        if self.is_renewed:
            self._end_renewal()
        if self.is_abandoned:
            self._jobs.abandoned -= 1
        else:
            self._free_slot()
        self.state, self.running = HeldState.ENDED, None  # the task keeps the context variables of the job
        self._jobs.changed.set()

    def _free_slot(self) -> None:
        run = self._run
        self._jobs.running.discard(self)
        run.slots.end(self._jobs.share, self.slot_since_ms)
        run.counts.running -= 1
        run.start_waiting()
        run.on_slot_freed()

    # --- how attempts end -------------------------------------------------------------------------------------------------
    def _result_of_stop(self) -> AttemptResult:
        """How an attempt ended that was stopped from outside."""
        if self.stopped is StopReason.TIME_LIMIT:
            return self._too_long()
        return AttemptResult(Ending(Kind.LOST if self.stopped is StopReason.LOST else Kind.GIVEN_BACK))

    def _too_long(self) -> AttemptResult:
        task = self.of_task
        limit_s = (task.options.time_limit_ms or 0) / 1000 if task else 0
        error = TimeLimitExceeded(f"ran longer than its time limit of {limit_s:g} s")
        return self._failed(error, (task.options.retry if task else None) or self._run.retry)

    def _failed(self, error: Exception, retry: RetryPolicy) -> AttemptResult:
        return AttemptResult(failure(error, attempt_number(self.job), retry), error)

    async def _give_back_unknown(self, task: str) -> None:
        """A newer producer's task, probably: another worker may know it, or this one after its next deployment."""
        run = self._run
        self.state = HeldState.REPORTING  # it goes back after its delay; a stop must not give it back again, at once
        run.counts.unknown_tasks += 1
        delay_ms = run.settings.unknown_task_delay_ms
        self._log_unknown(task, delay_ms)
        await self._jobs.outbox.release(handed_over([self]), delay_ms)

    def _log_unknown(self, task: str, delay_ms: int) -> None:
        """Once a minute for each name. `task`: '' if the job names none."""
        jobs, now_s = self._jobs, self._run.clock.monotonic()
        if now_s - jobs.unknown_tasks.get(task, -math.inf) < _LOGGED_EVERY_S:
            return
        jobs.unknown_tasks = {**dict(list(jobs.unknown_tasks.items())[-_NAMES_MAX:]), task: now_s}
        named, unnamed = f"no task {task!r} here", "the job names no task and the queue has no default task"
        _log.warning(
            "queue %s: %s (known: %s); such jobs go back for %s, without an attempt, for a worker that knows it",
            jobs.queue, named if task else unnamed, ", ".join(sorted(jobs.tasks)), duration_text(delay_ms),
            extra=fields_of(self.job),
        )  # fmt: skip

    async def _blamed(self, ending: Ending) -> Ending:
        """How an attempt ended whose process has died. A job that has ended too many is given up, whatever attempts it has left."""
        crashes = await self._earlier_crashes() + 1
        if crashes < _CRASHES_MAX:
            return ending
        text = f"{ending.error_text}; given up: the job ended {crashes} processes"
        return ending._replace(kind=Kind.GIVEN_UP, error_text=text, status=f"{ending.status}; given up")

    async def _earlier_crashes(self) -> int:
        """How many processes died while they ran this job, by its history; 0 if the server doesn't answer."""
        job, died = self.job, type_name(ProcessDied)
        try:
            info = (await self._run.client.lookup([job.descriptor])).get(job.descriptor)
        except PinLaterError as error:
            _log.warning("queue %s: can't read the history of job %s: %s", job.queue, job.descriptor, error)
            return 0
        if info is None:
            return 0
        return sum(attempt.error_type == died for attempt in info.attempts) or info.custom_status.count(f"{died}:")

    # --- stopped from outside ---------------------------------------------------------------------------------------------
    def begin_limit(self) -> bool:
        """Starts the job's time limit, anew if it runs. It also bounds how long the claim is renewed: a job that blocks the event loop
        can't be stopped at its limit, and must not be kept from other workers for ever. False if the job was given back before it started.
        """
        limit_ms = None if self.of_task is None else self.of_task.options.time_limit_ms
        if self.is_renewed and not self._renew_for(limit_ms):
            return False
        if limit_ms is not None:
            if self.timer is not None:
                self.timer.cancel()
            later = asyncio.get_running_loop().call_later
            self.timer = later(limit_ms / 1000, self.stop, StopReason.TIME_LIMIT)
        return True

    def suspend_limit(self, start_ms: int) -> None:
        """Until `begin_limit`, which follows within `start_ms` unless the attempt ends: the start of a process does not count."""
        if self.timer is not None:
            self.timer.cancel()
        if self.is_renewed:
            self._renew_for(None if self.timer is None else start_ms)

    def _renew_for(self, length_ms: int | None) -> bool:
        """And for the time that a cancellation takes."""
        until_s = math.inf if length_ms is None else self._run.clock.monotonic() + length_ms / 1000 + CANCEL_S + 1
        with self._run.leases.lock:
            if not self.was_given_back:
                self.keep_until_s = until_s
        return not self.was_given_back

    def stop(self, why: StopReason) -> None:
        """Cancels the job's task. Does nothing if its function has ended or was stopped before."""
        if self.state is not HeldState.RUNNING or self.running is None or self.running.done():
            return
        self.state, self.stopped = HeldState.STOPPING, why
        if why is not StopReason.TIME_LIMIT and self.counts is not None:
            kind = Kind.LOST if why is StopReason.LOST else Kind.GIVEN_BACK
            self.counts.note(kind, self._run.clock.monotonic() - self.started_s)
        self.running.cancel()
        if self.has_begun:
            asyncio.get_running_loop().call_later(CANCEL_S, self._abandon)
        else:
            self._finish()

    def _abandon(self) -> None:
        if self.state is not HeldState.STOPPING:
            return
        self.is_abandoned = True
        _log.error(
            "job %s: its function does not end although it was cancelled (%s)", self.job.descriptor, self.stopped,
            extra=fields_of(self.job),
        )  # fmt: skip
        self._jobs.abandoned += 1
        self._free_slot()
        self._jobs.changed.set()
        if self.stopped is StopReason.TIME_LIMIT:
            reporting = asyncio.create_task(self._report(self._too_long()))
            self._jobs.late_reports.add(reporting)
            reporting.add_done_callback(self._jobs.late_reports.discard)

    def cancel(self) -> None:
        """Cancels its task without an abandonment."""
        self.stopped = self.stopped or StopReason.GIVEN_BACK
        self._end_renewal()
        if self.running is not None:
            self.running.cancel()

    def _end_renewal(self) -> None:
        if self.is_renewed:
            self.is_renewed = False
            self._run.leases.drop([self])

    # --- called by the heartbeat thread -----------------------------------------------------------------------------------
    def lost(self, result: AckResult) -> None:
        """The claim has ended."""
        self._run.loop.call_soon_threadsafe(self._lose, result)

    def given_back(self) -> None:
        """The thread gave the job back because the event loop was blocked."""
        self._run.loop.call_soon_threadsafe(self._forget_given_back)

    def _lose(self, result: AckResult) -> None:
        """This worker must neither run nor report the job any more."""
        if self.state is HeldState.WAITING:
            self._jobs.drop(self)
        elif self.state is not HeldState.RUNNING:
            return
        _log.warning("job %s: claim lost: %s", result.descriptor, why_lost(result), extra=fields_of(self.job))
        self._run.counts.lost += 1
        self.is_renewed = False
        self.stop(StopReason.LOST)

    def _forget_given_back(self) -> None:
        """A job with a task finds out as it starts."""
        if self.state is HeldState.WAITING:
            self._jobs.drop(self)
            self._end_renewal()
            self._run.counts.released += 1
            self._run.offer_claims()


def handed_over(held: Sequence[HeldJob]) -> Sequence[HeldJob]:
    """These jobs, whose claims are now renewed until the server has their messages, and not until they end."""
    for each in held:
        each.is_renewed = False
    return held
