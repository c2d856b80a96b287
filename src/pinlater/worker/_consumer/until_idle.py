"""Consumers that end by themselves: when no queue of the worker has a due job, and none is running.

For batch runs and tests. A claim asks for what is there now instead of waiting for more. A job that ends makes every queue ask again,
since it may have enqueued others. An error of the server ends the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

from pinlater.client.errors import DequeueRateLimited, PinLaterError
from pinlater.client.values import Dequeued
from pinlater.worker._consumer.consumer import Consumer
from pinlater.worker._consumer.held_job import HeldJobs
from pinlater.worker._consumer.worker_run import WorkerRun
from pinlater.worker.settings import WorkerSettings
from pinlater.worker.tasks import RunsIn, Task

# Acks ride on the next claim, which follows at once. One sent separately could make a job due after the last claim.
_NO_FLUSH_MS = 24 * 3_600_000


def settings_until_idle(settings: WorkerSettings) -> WorkerSettings:
    """The same settings, without waiting claims, prefetch and a limit of jobs."""
    return replace(settings, wait_ms=0, prefetch_max=0, ack_flush_ms=_NO_FLUSH_MS, recycle_jobs_max=None)


def in_threads(tasks: Mapping[str, Task[..., Any]]) -> dict[str, Task[..., Any]]:
    """The same tasks; those that run in processes run in threads instead."""
    return {name: _in_thread(task) for name, task in tasks.items()}


def _in_thread(task: Task[..., Any]) -> Task[..., Any]:
    if task.options.runs_in is not RunsIn.PROCESS:
        return task
    moved = copy(task)
    moved.options = task.options._replace(runs_in=RunsIn.THREAD)
    return moved


class Idleness:
    """Which consumers of one run are idle. `failure`: the server's error that ended the run."""

    def __init__(self, run: WorkerRun) -> None:
        self._run = run
        self.consumers: list[Consumer] = []
        self._idle: set[IdlePace] = set()
        self.jobs_ended = 0
        self.failure: PinLaterError | None = None
        run.on_slot_freed = self._job_ended

    def add_consumer(self, queue: str, tasks: Mapping[str, Task[..., Any]], default: Task[..., Any] | None) -> None:
        """Adds a queue to the run."""
        self.consumers.append(Consumer(self._run, queue, tasks, default, partial(IdlePace, self)))

    def found_nothing(self, pace: IdlePace) -> None:
        """A consumer has no job. Ends the run if that is true of all of them."""
        self._idle.add(pace)
        if len(self._idle) == len(self.consumers):
            self._stop()

    def failed(self, error: PinLaterError) -> None:
        """Ends the run."""
        self.failure = error
        self._stop()

    def _job_ended(self) -> None:
        self.jobs_ended += 1
        self._idle.clear()
        self._wake_consumers()

    def _stop(self) -> None:
        self._run.stop.set()
        self._wake_consumers()

    def _wake_consumers(self) -> None:
        for consumer in self.consumers:
            consumer.jobs.changed.set()
        self._run.offer_claims()


class IdlePace:
    """Claims again after a job of any queue has ended."""

    def __init__(self, idleness: Idleness, jobs: HeldJobs) -> None:
        self._idleness = idleness
        self._jobs = jobs
        self._ended_before = 0

    def claiming(self) -> None:
        self._ended_before = self._idleness.jobs_ended

    async def answered(self, dequeued: Dequeued, took_s: float, wait_ms: int | None) -> None:
        del took_s, wait_ms
        if dequeued.jobs or self._ended_before != self._idleness.jobs_ended:
            return
        self._jobs.changed.clear()
        if not self._jobs.waiting and not self._jobs.running:
            self._idleness.found_nothing(self)
        await self._jobs.changed.wait()

    async def failed(self, error: PinLaterError) -> None:
        if isinstance(error, DequeueRateLimited):  # paused, or its limit is used up: as good as empty
            await self.answered(Dequeued(), 0, 0)
        else:
            self._idleness.failed(error)
