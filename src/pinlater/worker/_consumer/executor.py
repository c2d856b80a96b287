"""Executes one queue's jobs, from a free slot to the report of how each attempt ended.

A held job ends in one of: a report, a release, or a lost claim. The executor must never report a job whose claim was lost.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Mapping
from typing import Any

from pinlater.client.values import ClaimedJob
from pinlater.domain.durations import duration_text
from pinlater.worker import envelope
from pinlater.worker._attempts.calling import AttemptInput, AttemptResult
from pinlater.worker._attempts.endings import Ending, Kind, failure
from pinlater.worker._consumer import job_log
from pinlater.worker._consumer.held_jobs import HeldJob, HeldJobs, StopReason
from pinlater.worker._consumer.job_stopper import JobStopper
from pinlater.worker._consumer.runner import AttemptRunner
from pinlater.worker._consumer.worker_run import WorkerRun
from pinlater.worker._reports.reporter import Reporter
from pinlater.worker.context import attempt_number
from pinlater.worker.envelope import Opened
from pinlater.worker.errors import ProcessDied, TimeLimitExceeded
from pinlater.worker.logs import fields_of
from pinlater.worker.retries import RetryPolicy
from pinlater.worker.tasks import RunsIn, Task

_log = logging.getLogger("pinlater.worker")
# A job that has killed this many processes is not retried, whatever attempts it has left.
_CRASHES_MAX = 3
_UNKNOWN_TASKS_REMEMBERED = 100
_UNKNOWN_TASK_LOGGED_EVERY_S = 60.0


class Executor:
    """Belongs to one queue."""

    def __init__(
        self,
        run: WorkerRun,
        tasks: Mapping[str, Task[..., Any]],
        default: Task[..., Any] | None,
        jobs: HeldJobs,
        runner: AttemptRunner,
        reporter: Reporter,
    ) -> None:
        self._run = run
        self._clock = run.clock
        self._queue = jobs.queue
        self._tasks = tasks
        self._default = default
        self._jobs = jobs
        self._runner = runner
        self._reporter = reporter
        self._context = contextvars.copy_context()  # each job runs in a copy, so no job sees another's variables
        self._unknown_logged: dict[str, float] = {}
        self.stopper = JobStopper(
            run, jobs, ended=self._count, abandon=self._abandon, report_time_limit=self._report_time_limit
        )

    def claim_timeout_ms(self, job: ClaimedJob) -> int | None:
        """The claim timeout that the job's task asks for, also for jobs that others enqueue; None if the task has none or is not known."""
        task = self._tasks.get(job.headers.get(envelope.TASK_HEADER, ""), self._default)
        return None if task is None else task.options.claim_timeout_ms

    def start_next(self) -> None:
        """Starts the job that has waited longest; a slot is free."""
        held = self._jobs.start()
        self._run.counts.running += 1
        name, context = f"job {held.job.descriptor}", self._context.copy()
        held.task = asyncio.create_task(self._execute(held), name=name, context=context)

    async def _execute(self, held: HeldJob) -> None:
        try:
            opened = envelope.opened(held.job.body, held.job.headers)
            task = self._tasks.get(opened.task) if opened.task else self._default
            if task is None:
                await self._give_back_unknown(held, opened.task)
            elif self._start(held, task):
                result = await self._run_attempt(held, task, opened)
                if result is not None:
                    await self._report(held, result)
        except Exception:  # noqa: BLE001 - logged as what it is: a fault of ours
            _log.exception("job %s: how it ended can't be reported; its claim times out", held.job.descriptor)
        finally:
            self._finish(held)

    # --- the four steps ---------------------------------------------------------------------------------------------------
    def _start(self, held: HeldJob, task: Task[..., Any]) -> bool:
        """Starts the time limit. False if the heartbeater gave the job back meanwhile."""
        held.in_thread = task.options.runs_in is RunsIn.THREAD
        held.counts = self._run.counts.of_task(self._queue, task.name)
        if not self.stopper.begin_limit(held, task.options.time_limit_ms):
            held.lease, held.stopped = None, StopReason.GIVEN_BACK
            self._run.counts.released += 1
            return False
        held.started_s = self._clock.monotonic()
        held.task_name = task.name
        held.log_level = task.options.log_level
        if _log.isEnabledFor(logging.DEBUG):
            job_log.started(held.job, task.name)
        return True

    async def _run_attempt(self, held: HeldJob, task: Task[..., Any], opened: Opened) -> AttemptResult | None:
        """How the attempt ended; None if there is nothing to report."""
        limit_ms = task.options.time_limit_ms
        deadline_ms = None if limit_ms is None else self._clock.now_ms() + limit_ms
        job = held.job._replace(body=opened.body, headers=opened.headers)
        attempt = AttemptInput(job, opened.content_type, deadline_ms, self._run.retry)
        result: AttemptResult | None = None
        try:
            result = await self._runner.run(task, attempt, held, self.stopper, self._result_of_stop)
            self._jobs.ran(self._clock.monotonic() - held.started_s)
        except asyncio.CancelledError:
            if held.stopped is None:
                raise
        except Exception as error:  # noqa: BLE001 - a fault of the worker itself must not leave the job without an end
            result = self._failed(held.job, error, self._run.retry)
        if held.stopped is None:
            held.reporting = True
            return result
        too_long = held.stopped is StopReason.TIME_LIMIT and not held.abandoned
        return self._too_long(held) if too_long else None

    async def _report(self, held: HeldJob, result: AttemptResult) -> None:
        """Counts and logs how the attempt ended, and hands it to the reporter unless the claim was lost."""
        job, ending = held.job, result.ending
        if held.lease is not None and held.timer is not None:
            self._run.leases.ended(held.lease)
        if self._run.on_end is not None:
            self._run.on_end(job, ending, result.error)
        if isinstance(result.error, ProcessDied):
            ending = await self._blame_for_crashes(job, ending)
        took_s = self._clock.monotonic() - held.started_s
        if held.counts is not None:
            held.counts.note(ending.kind, took_s)
        if ending.kind is Kind.SUCCEEDED:
            self._run.counts.succeeded += 1
        elif ending.kind in (Kind.FAILED, Kind.GIVEN_UP):
            self._run.counts.failed += 1
        elif ending.kind is Kind.LOST:
            self._run.counts.lost += 1
        if ending.kind is not Kind.SUCCEEDED or _log.isEnabledFor(held.log_level):
            job_log.ended(held, held.task_name, ending, result.error, took_s)
        if ending.kind is not Kind.LOST:
            lease, held.lease = held.lease, None  # it now ends when the server has the report
            await self._reporter.end(job, ending, lease, held.counts)

    def _finish(self, held: HeldJob) -> None:
        """Ends the time limit and the lease, and frees the slot."""
        if held.timer is not None:
            held.timer.cancel()
        if held.lease is not None:
            self._run.end_lease(held)
        if held.abandoned:
            self._jobs.abandoned -= 1
        else:
            self._free_slot(held)
        self._jobs.changed.set()

    # --- how attempts end -------------------------------------------------------------------------------------------------
    def _result_of_stop(self, held: HeldJob) -> AttemptResult | None:
        """How an attempt ended that was stopped from outside; None for others."""
        if held.stopped is None:
            return None
        if held.stopped is StopReason.TIME_LIMIT:
            return self._too_long(held)
        return AttemptResult(Ending(Kind.LOST if held.stopped is StopReason.LOST else Kind.GIVEN_BACK))

    def _too_long(self, held: HeldJob) -> AttemptResult:
        task = self._tasks.get(held.task_name)
        limit_s = (task.options.time_limit_ms or 0) / 1000 if task else 0
        error = TimeLimitExceeded(f"ran longer than its time limit of {limit_s:g} s")
        return self._failed(held.job, error, (task.options.retry if task else None) or self._run.retry)

    def _failed(self, job: ClaimedJob, error: Exception, retry: RetryPolicy) -> AttemptResult:
        return AttemptResult(failure(error, attempt_number(job), retry), error)

    async def _blame_for_crashes(self, job: ClaimedJob, ending: Ending) -> Ending:
        """Gives up a job that has killed too many processes, by the attempts in its history."""
        crashes = await self._reporter.crashes_of(job) + 1
        if crashes < _CRASHES_MAX:
            return ending
        text = f"{ending.error_text}; given up: the job ended {crashes} processes"
        return ending._replace(kind=Kind.GIVEN_UP, error_text=text, status=f"{ending.status}; given up")

    async def _report_time_limit(self, held: HeldJob) -> None:
        await self._report(held, self._too_long(held))

    async def _give_back_unknown(self, held: HeldJob, task: str) -> None:
        """A newer producer's task, probably: another worker may know it, or this one after its next deployment."""
        self._run.counts.unknown_tasks += 1
        delay_ms, now = self._run.settings.unknown_task_delay_ms, self._clock.monotonic()
        if now - self._unknown_logged.get(task, -1e9) >= _UNKNOWN_TASK_LOGGED_EVERY_S:
            recent = list(self._unknown_logged.items())[-_UNKNOWN_TASKS_REMEMBERED:]
            self._unknown_logged = {**dict(recent), task: now}
            named = f"no task {task!r} here"
            unnamed = "the job names no task and the queue has no default task"
            known = ", ".join(sorted(self._tasks))
            _log.warning(
                "queue %s: %s (known: %s); such jobs go back for %s, without an attempt, for a worker that knows it",
                self._queue, named if task else unnamed, known, duration_text(delay_ms), extra=fields_of(held.job),
            )  # fmt: skip
        await self._reporter.release([held.hand_over_lease()], delay_ms)

    def _count(self, held: HeldJob, kind: Kind) -> None:
        if held.counts is not None:
            held.counts.note(kind, self._clock.monotonic() - held.started_s)

    # --- slots ------------------------------------------------------------------------------------------------------------
    def _free_slot(self, held: HeldJob) -> None:
        self._jobs.end(held)
        self._run.counts.running -= 1
        self._run.start_waiting()
        self._run.on_slot_freed()

    def _abandon(self, held: HeldJob) -> None:
        self._jobs.abandoned += 1
        self._free_slot(held)
        self._jobs.changed.set()
