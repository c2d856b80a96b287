"""One queue's part of a worker: claims its jobs, runs them, reports them, keeps their claims alive.

What to do is decided in `_decisions` and `_slots`; this module acts. Every job claimed ends in one of: a report, a release, or a
claim that was lost. It must never report on a job whose claim it lost.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import random
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any

from pinlater.client.async_client import AsyncClient
from pinlater.client.errors import DequeueRateLimited, PinLaterError, UnknownMethod
from pinlater.client.values import AckResult, ClaimedJob, Dequeued
from pinlater.domain.clock import Clock
from pinlater.worker import _decisions, envelope
from pinlater.worker._calling import Attempt, Ended
from pinlater.worker._delivery import Report
from pinlater.worker._endings import Ending, Kind, failure
from pinlater.worker._heart import ORIGINAL_CLAIM_MS, Beat, Heart
from pinlater.worker._processes import ChildSetup, Processes
from pinlater.worker._recycling import Recycling
from pinlater.worker._reports import Reports
from pinlater.worker._running import Runner
from pinlater.worker._slots import Slots
from pinlater.worker.counts import Tally, WorkerCounts
from pinlater.worker.errors import ProcessDied, TimeLimitExceeded
from pinlater.worker.logs import fields_of
from pinlater.worker.middleware import Middleware
from pinlater.worker.retries import RetryPolicy, delay_of
from pinlater.worker.settings import WorkerSettings
from pinlater.worker.tasks import Place, Task

_log = logging.getLogger("pinlater.worker")
# How long a claim under way at a stop may still answer: a busy queue's does, an idle one's long poll not.
_BUSY_CLAIM_S = 0.25
# How long the server may take to end a long poll that was hung up.
_HANG_UP_S = 1.0
# How long a handler that was cancelled may take to end before its slot goes to the next job.
_CANCEL_S = 1.0
# How long what has ended may take to be reported at a stop.
_REPORT_S = 6.0
# A job that killed its process so often is not tried again, whatever attempts it has left.
_CRASHES_MAX = 3


class Stopped(Enum):
    """Why a running job was stopped from outside."""

    LOST = "its claim was lost"
    GIVEN_BACK = "the worker stops"
    TIME_LIMIT = "it ran too long"


class InHand:
    """A claim in hand. Equal to itself only: a job may come a second time while its first, lost claim still runs."""

    __slots__ = ("abandoned", "beat", "began", "in_thread", "job", "stopped", "tally", "task", "timer")

    def __init__(self, job: ClaimedJob) -> None:
        self.job = job
        self.beat: int | None = None
        self.stopped: Stopped | None = None
        self.abandoned = False
        self.in_thread = False
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.began = 0.0  # by the monotonic clock
        self.tally: Tally | None = None  # from when it is known which task it is for


class Team:
    """What the consumers of one worker share."""

    def __init__(
        self,
        client: AsyncClient,
        settings: WorkerSettings,
        clock: Clock,
        heart: Heart,
        middleware: Sequence[Middleware],
        retry: RetryPolicy,
        counts: WorkerCounts,
        child_setups: Sequence[ChildSetup] = (),
    ) -> None:
        self.client = client
        self.settings = settings
        self.clock = clock
        self.heart = heart
        self.middleware = middleware
        self.retry = retry
        self.counts = counts
        self.recycling = Recycling()
        self.child_setups = tuple(child_setups)
        self.recycled = ""  # why the worker makes room for another
        self.slots = Slots(settings.concurrency)
        self.stop = asyncio.Event()
        self.hurry = asyncio.Event()
        self.consumers: list[Consumer] = []

    def recycle(self, reason: str) -> None:
        """Stops as at a signal, and says why."""
        if not self.stop.is_set():
            self.recycled = reason
            _log.info("the worker ends so that another takes its place: %s", reason)
            self.stop.set()

    def slot_freed(self) -> None:
        """A job ended: whoever waits for a slot may have it."""
        for consumer in self.consumers:
            consumer.slot_freed()


class Consumer:
    """Runs one queue's jobs until the team stops; then `run` ends after the grace time at the latest, a few seconds of reporting on top."""

    def __init__(
        self, team: Team, queue: str, tasks: Mapping[str, Task[..., Any]], default: Task[..., Any] | None
    ) -> None:
        self._team = team
        self._client = team.client
        self._settings = team.settings
        self._clock = team.clock
        self._slots = team.slots
        self._counts = team.counts
        self.queue = queue
        self._tasks = tasks
        self._default = default
        self._reports = Reports(team.client, queue, team.settings, team.counts, team.clock, team.heart.drop_all)
        processes = Processes(
            jobs_max=team.settings.child_jobs_max,
            memory_max=team.settings.child_memory_bytes_max,
            setups=team.child_setups,
        )
        # Each job starts from a copy of it: what one leaves in context variables is not for the next.
        self._context = contextvars.copy_context()
        self._runner = Runner(queue, self._reports.checkpoint, team.middleware, processes, team.clock)
        self._stock: deque[InHand] = deque()
        self._running: set[InHand] = set()
        self._abandoned = 0
        self._unowned: set[asyncio.Task[None]] = set()
        self._room = asyncio.Event()
        self._mean_ms: float | None = None
        self._server_ahead_ms: int | None = None
        self._failures = 0
        self._early_answers = 0
        self._asked = False
        self._reporting: set[InHand] = set()  # their handlers have ended: nothing is to be stopped any more
        self._unknown_told: dict[str, float] = {}
        self.held_back_since: float | None = None  # by the monotonic clock; functions left behind hold all its slots
        self._backlogged = True  # until a claim gets less than it asked for

    @property
    def left_behind(self) -> int:
        """Functions that still run although their jobs were given up: in threads, or deaf to cancellation."""
        at_work = sum([claim.in_thread and claim.stopped is None for claim in self._running])
        return self._abandoned + max(0, self._runner.threads.busy - at_work)

    @property
    def answered(self) -> bool:
        """Whether the server answered when this queue's jobs were last asked for; False before the first time."""
        return self._server_ahead_ms is not None

    async def run(self) -> None:
        """Claims and runs jobs until stopped. Ends without an error unless the worker itself has a bug.

        Cancelling it takes its handlers with it and reports nothing more: their claims time out.
        """
        self._runner.threads.ended = self._room.set  # it may have been one that was left behind
        try:
            async with asyncio.TaskGroup() as group:
                flushing = group.create_task(self._reports.flush_until_cancelled())
                await self._claim_until_stopped(group.create_task(self._claim_for_ever()))
                await self._finish(flushing)
        finally:
            for claim in [*self._stock, *self._running]:
                claim.stopped = claim.stopped or Stopped.GIVEN_BACK
                self._drop_beat(claim)
                if claim.task is not None:
                    claim.task.cancel()
            self._stock.clear()
            self._runner.close()

    # --- claiming ---------------------------------------------------------------------------------------------------------
    async def _claim_until_stopped(self, claiming: asyncio.Task[None]) -> None:
        await _first_of(self._team.stop.wait(), asyncio.wait({claiming}))
        await asyncio.wait({claiming}, timeout=_BUSY_CLAIM_S)
        self._client.hang_up()
        await asyncio.wait({claiming}, timeout=_HANG_UP_S)
        claiming.cancel()
        await asyncio.wait({claiming})

    async def _claim_for_ever(self) -> None:
        while not self._team.stop.is_set():
            limit = self._claim_limit()
            left = self._team.recycling.jobs_left(self._counts.claimed)
            if left == 0:
                self._team.recycle(f"{self._counts.claimed} jobs claimed")
            elif limit:
                await self._claim(limit if left is None else min(limit, left))
            else:
                self._room.clear()
                await self._room.wait()

    def _claim_limit(self) -> int:
        if self.left_behind >= self._slots.most(self.queue):
            if self.held_back_since is None:
                self.held_back_since = self._clock.monotonic()
                _log.error("queue %s: %d functions don't end; no more jobs until they do", self.queue, self.left_behind)
            return 0
        self.held_back_since = None
        allowed = len(self._running) + self._slots.free_for(self.queue)
        prefetch = _decisions.prefetch_count(self._mean_ms, allowed, self._settings.prefetch_max)
        limit = _decisions.claim_limit(len(self._running) + len(self._stock), allowed, prefetch)
        if not limit:
            self._slots.wants(self.queue, True)
        return limit

    async def _claim(self, limit: int) -> None:
        acks = self._reports.take()
        started = self._clock.monotonic()
        try:
            dequeued = await self._dequeue(limit, acks)
        except PinLaterError as error:
            self._reports.undelivered(acks, error)
            self._counts.claim_errors += 1
            if not acks or not _says_nothing_of_the_claim(error):
                await self._stay_away(error)
            return
        except (
            asyncio.CancelledError
        ):  # stopped while waiting: whether the acks arrived is unknown, and repeating them is safe
            self._reports.undelivered(acks)
            raise
        if self._failures:
            _log.info("queue %s: the server answers again", self.queue)
            self._failures = 0
        self._reports.delivered(acks, dequeued.ack_results)
        self._backlogged = len(dequeued.jobs) >= limit
        self._take_in(dequeued.jobs)
        if dequeued.jobs and not self._backlogged:
            # Handlers begin before the next claim is made, and what is quick is reported with it.
            await asyncio.sleep(0)
        await self._pace(dequeued, self._clock.monotonic() - started)

    async def _pace(self, dequeued: Dequeued, took_s: float) -> None:
        """Where an empty answer came too early, waits before asking again: a server that drains does that, and an original one always."""
        if dequeued.jobs or took_s * 2000 >= self._settings.wait_ms > 0:
            self._early_answers = 0
            return
        self._early_answers += 1
        await asyncio.sleep(self._backoff_ms(self._early_answers) / 1000)

    async def _dequeue(self, limit: int, acks: Sequence[Report]) -> Dequeued:
        if self._server_ahead_ms is None:
            await self._ask_clock()
        # Until it is known whether this queue has jobs, its share of the slots is kept from the others: not for a whole long poll.
        first, self._asked = not self._asked, True
        wait_ms = 0 if first and len(self._team.consumers) > 1 else self._settings.wait_ms
        return await self._client.dequeue(self.queue, limit, wait_ms=wait_ms, acks=self._reports.riding(acks))

    async def _ask_clock(self) -> None:
        try:
            info = await self._client.server_info()
        except UnknownMethod:
            self._server_ahead_ms = 0
            self._reports.original_server = True
        else:
            # Counted from a clock that nobody sets: a step of this machine's time must not make claims look longer than they are.
            self._server_ahead_ms = info.now_ms - round(self._clock.monotonic() * 1000)
            self._reports.original_server = False

    async def _stay_away(self, error: PinLaterError) -> None:
        self._failures += 1
        self._server_ahead_ms = None
        if self._failures == 1:
            _log.warning("queue %s: can't claim, trying again: %s", self.queue, error)
        delay_ms = max(self._backoff_ms(self._failures), error.retry_after_ms or 0)
        await _first_of(self._team.stop.wait(), asyncio.sleep(delay_ms / 1000))

    def _backoff_ms(self, failures: int) -> int:
        settings = self._settings
        return _decisions.backoff_ms(failures, settings.backoff_first_ms, settings.backoff_max_ms, _spread())

    def _take_in(self, jobs: Sequence[ClaimedJob]) -> None:
        now_ms = round(self._clock.monotonic() * 1000) + (self._server_ahead_ms or 0)
        for job in jobs:
            claim = InHand(job)
            length_ms = ORIGINAL_CLAIM_MS if job.claim_deadline_ms is None else job.claim_deadline_ms - now_ms
            if job.token or self._reports.original_server:
                beat = Beat(job, self._when_lost(claim), self._when_returned(claim))
                claim.beat = self._team.heart.keep(beat, max(1, length_ms))
                if claim.beat is None:  # it came while the loop was blocked, and was given back
                    self._counts.released += 1
                    continue
            self._stock.append(claim)
        self._counts.claimed += len(jobs)
        self._start_more()
        if self._slots.wants(self.queue, self._backlogged or bool(self._stock)) and len(self._team.consumers) > 1:
            self._team.slot_freed()

    # --- running ----------------------------------------------------------------------------------------------------------
    def slot_freed(self) -> None:
        """A slot may be had again."""
        if self._stock:
            self._start_more()
        self._room.set()

    def _start_more(self) -> None:
        while self._stock and not self._team.stop.is_set() and self._slots.free_for(self.queue):
            claim = self._stock.popleft()
            self._running.add(claim)
            self._slots.take(self.queue)
            self._counts.running += 1
            claim.task = asyncio.create_task(
                self._run_job(claim), name=f"job {claim.job.descriptor}", context=self._context.copy()
            )

    async def _run_job(self, claim: InHand) -> None:
        ended: Ended | None = None
        try:
            try:
                ended = await self._attempt(claim)
            except asyncio.CancelledError:
                if claim.stopped is None:
                    raise
            except Exception as error:  # noqa: BLE001 - a fault of the worker's own must not leave the job without an end
                self._reporting.add(claim)
                ended = self._failed(claim.job, error, self._team.retry)
            if claim.stopped is None and ended is not None:
                self._count(claim, ended.ending.kind)
                await self._report(claim, ended)
            elif claim.stopped is Stopped.TIME_LIMIT and not claim.abandoned:
                await self._report_too_long(claim)
        except Exception:  # noqa: BLE001 - logged as what it is: a fault of ours
            _log.exception("job %s: how it ended can't be reported; its claim times out", claim.job.descriptor)
        finally:
            self._end(claim)

    async def _attempt(self, claim: InHand) -> Ended | None:
        job = claim.job
        opened = envelope.opened(job.body, job.headers)
        task = self._tasks.get(opened.task) if opened.task else self._default
        if task is None:
            await self._give_back_unknown(claim, opened.task)
            return None
        claim.in_thread = task.options.place is Place.THREAD
        claim.tally = self._counts.tally(self.queue, task.name)
        limit_ms = task.options.time_limit_ms
        until = None if limit_ms is None else self._clock.monotonic() + limit_ms / 1000 + _CANCEL_S + 1
        if claim.beat is not None and not self._team.heart.begin(claim.beat, until):
            claim.beat, claim.stopped = None, Stopped.GIVEN_BACK
            self._counts.released += 1
            return None
        deadline_ms = None if limit_ms is None else self._clock.now_ms() + limit_ms
        if limit_ms is not None:
            claim.timer = asyncio.get_running_loop().call_later(
                limit_ms / 1000, self._stop_job, claim, Stopped.TIME_LIMIT
            )
        opened_job = job._replace(body=opened.body, headers=opened.headers)
        started = claim.began = self._clock.monotonic()
        attempt = Attempt(opened_job, opened.content_type, deadline_ms, self._team.retry)
        ended = await self._runner.run(task, attempt, partial(self._stopped, claim))
        self._mean_ms = _decisions.smoothed_ms(self._mean_ms, (self._clock.monotonic() - started) * 1000)
        if claim.stopped is None:
            self._reporting.add(claim)
        return ended

    def _stopped(self, claim: InHand) -> Ended | None:
        """How an attempt ended that was stopped from outside."""
        if claim.stopped is None:
            return None
        if claim.stopped is Stopped.TIME_LIMIT:
            return self._too_long(claim)
        return Ended(Ending(Kind.LOST if claim.stopped is Stopped.LOST else Kind.GIVEN_BACK))

    def _count(self, claim: InHand, kind: Kind) -> None:
        if claim.tally is not None:
            claim.tally.note(kind, self._clock.monotonic() - claim.began)

    async def _give_back_unknown(self, claim: InHand, task: str) -> None:
        """A newer producer's, most likely: another worker may know it, or this one after its next deployment."""
        self._counts.unknown_tasks += 1
        now = self._clock.monotonic()
        if now - self._unknown_told.get(task, -1e9) >= self._settings.unknown_task_delay_ms / 1000:
            self._unknown_told = {**dict(list(self._unknown_told.items())[-100:]), task: now}
            what = (
                f"task {task!r} is not known here"
                if task
                else "the job names no task and the queue has no default handler"
            )
            _log.warning("queue %s: %s; such jobs are given back", self.queue, what)
        await self._reports.release([_handed_over(claim)], self._settings.unknown_task_delay_ms)

    async def _report(self, claim: InHand, ended: Ended) -> None:
        job, ending = claim.job, ended.ending
        if claim.beat is not None and claim.timer is not None:
            self._team.heart.ended(claim.beat)
        if isinstance(ended.error, ProcessDied):
            ending = await self._attribute_crash(job, ending)
        if ending.kind is Kind.SUCCEEDED:
            self._counts.succeeded += 1
        elif ending.kind in (Kind.FAILED, Kind.GIVEN_UP):
            self._counts.failed += 1
            of_ours = isinstance(
                ended.error, ProcessDied | TimeLimitExceeded
            )  # whose trace tells nothing of the handler
            _log.warning(
                "queue %s: job %s failed: %s", self.queue, job.descriptor, ending.status,
                exc_info=None if of_ours else ended.error, extra={**fields_of(job), "attempt": _decisions.attempts_so_far(job)},
            )  # fmt: skip
        await self._reports.end(job, ending, _handed_over(claim)[1])

    async def _attribute_crash(self, job: ClaimedJob, ending: Ending) -> Ending:
        """Gives a job up that has killed its process too often. The count is the job's own history."""
        before = await self._reports.crashes_of(job)
        if before + 1 < _CRASHES_MAX:
            return ending
        text = f"{ending.error_text}; set aside, since it was the {before + 1}th process that ended under this job"
        return ending._replace(kind=Kind.GIVEN_UP, error_text=text, status=f"{ending.status}; set aside")

    async def _report_too_long(self, claim: InHand) -> None:
        ended = self._too_long(claim)
        self._count(claim, ended.ending.kind)
        await self._report(claim, ended)

    def _too_long(self, claim: InHand) -> Ended:
        task = self._task_of(claim.job)
        limit_s = (task.options.time_limit_ms or 0) / 1000 if task else 0
        error = TimeLimitExceeded(f"ran longer than its time limit of {limit_s:g} s")
        retry = (task.options.retry if task else None) or self._team.retry
        return self._failed(claim.job, error, retry)

    def _failed(self, job: ClaimedJob, error: Exception, retry: RetryPolicy) -> Ended:
        delay_ms = delay_of(retry, _decisions.attempts_so_far(job), error, _spread())
        return Ended(failure(error, delay_ms), error)

    def _task_of(self, job: ClaimedJob) -> Task[..., Any] | None:
        name = envelope.opened(job.body, job.headers).task
        return self._tasks.get(name) if name else self._default

    def _end(self, claim: InHand) -> None:
        if claim.timer is not None:
            claim.timer.cancel()
        self._reporting.discard(claim)
        self._drop_beat(claim)
        if claim.abandoned:
            self._abandoned -= 1
        else:
            self._free_slot(claim)
        self._room.set()

    def _free_slot(self, claim: InHand) -> None:
        self._running.discard(claim)
        self._slots.give_back(self.queue)
        self._counts.running -= 1
        self._start_more()
        self._slots.wants(self.queue, self._backlogged or bool(self._stock))
        if len(self._team.consumers) > 1:
            self._team.slot_freed()

    # --- stopping a job ---------------------------------------------------------------------------------------------------
    def _when_lost(self, claim: InHand) -> Callable[[AckResult], None]:
        loop = asyncio.get_running_loop()

        def lost(result: AckResult) -> None:  # in the heart's thread
            loop.call_soon_threadsafe(self._lose, claim, result)

        return lost

    def _when_returned(self, claim: InHand) -> Callable[[], object]:
        return partial(asyncio.get_running_loop().call_soon_threadsafe, self._was_returned, claim)

    def _was_returned(self, claim: InHand) -> None:
        """The heart gave it back while the loop was blocked. One whose task is there already finds out as it begins."""
        if claim in self._stock:
            self._stock.remove(claim)
            self._drop_beat(claim)
            self._counts.released += 1
            self._room.set()

    def _lose(self, claim: InHand, result: AckResult) -> None:
        """The claim is gone: the job is no longer ours to run or to report."""
        if claim in self._stock:
            self._stock.remove(claim)
        elif claim not in self._running or claim.stopped is not None or claim in self._reporting:
            return
        _log.warning(
            "job %s: claim lost (%s %s)", result.descriptor, result.outcome.name, result.holder,
            extra=fields_of(claim.job),
        )  # fmt: skip
        self._counts.lost += 1
        claim.beat = None
        if claim.task is not None:
            self._stop_job(claim, Stopped.LOST)

    def _stop_job(self, claim: InHand, why: Stopped) -> None:
        if claim.stopped is not None or claim in self._reporting or claim.task is None or claim.task.done():
            return
        claim.stopped = why
        if why is not Stopped.TIME_LIMIT:
            self._count(claim, Kind.LOST if why is Stopped.LOST else Kind.GIVEN_BACK)
        claim.task.cancel()
        asyncio.get_running_loop().call_later(_CANCEL_S, self._abandon, claim)

    def _abandon(self, claim: InHand) -> None:
        """A handler that is deaf to its cancellation goes on by itself; its slot goes to the next job."""
        if claim not in self._running:
            return
        claim.abandoned = True
        self._abandoned += 1
        _log.error(
            "job %s: its handler does not end although it was cancelled (%s)", claim.job.descriptor, claim.stopped,
            extra=fields_of(claim.job),
        )  # fmt: skip
        self._free_slot(claim)
        self._room.set()
        if claim.stopped is Stopped.TIME_LIMIT:
            reporting = asyncio.create_task(self._report_too_long(claim))
            self._unowned.add(reporting)
            reporting.add_done_callback(self._unowned.discard)

    # --- stopping the worker ----------------------------------------------------------------------------------------------
    async def _finish(self, flushing: asyncio.Task[None]) -> None:
        """Gives back what has not begun, lets what runs finish within the grace time, gives back the rest, reports all."""
        grace_s = self._settings.grace_ms / 1000
        until = self._clock.monotonic() + grace_s
        unstarted = [_handed_over(claim) for claim in self._stock]
        self._stock.clear()
        await asyncio.gather(self._reports.release(unstarted), self._drain(grace_s))
        left = [claim for claim in self._running if claim.stopped is None and claim not in self._reporting]
        if left:
            _log.warning("queue %s: %d jobs did not finish in time and are given back", self.queue, len(left))
            given_back = [_handed_over(claim) for claim in left]  # their claims are kept until the server has them back
            for claim in left:
                self._stop_job(claim, Stopped.GIVEN_BACK)
            await asyncio.wait([claim.task for claim in left if claim.task is not None], timeout=_CANCEL_S)
            await self._reports.release(given_back)
        last = [*self._unowned, *(claim.task for claim in self._reporting if claim.task is not None)]
        if last:
            await asyncio.wait(last, timeout=_REPORT_S)
        flushing.cancel()  # it may have acks in hand: it keeps them
        await asyncio.wait({flushing})
        patience_s = max(_REPORT_S, until - self._clock.monotonic())
        await _first_of(self._reports.flush_the_rest(patience_s), self._hurried())

    async def _hurried(self) -> None:
        """Returns a little after the worker was told to hurry."""
        await self._team.hurry.wait()
        await asyncio.sleep(_REPORT_S)

    async def _drain(self, grace_s: float) -> None:
        tasks = [claim.task for claim in self._running if claim.task is not None]
        if tasks:
            await _first_of(self._team.hurry.wait(), asyncio.wait(tasks), timeout_s=grace_s)

    def _drop_beat(self, claim: InHand) -> None:
        if claim.beat is not None:
            self._team.heart.drop(claim.beat)
            claim.beat = None


def _handed_over(claim: InHand) -> tuple[ClaimedJob, int | None]:
    """For a report: from now on the claim's heartbeat ends when that has arrived, and not with the job."""
    beat, claim.beat = claim.beat, None
    return claim.job, beat


def _says_nothing_of_the_claim(error: PinLaterError) -> bool:
    """Whether a server that knows no errors of single acks may have refused the claim for the riding acks' sake alone.

    Those go by themselves now, so that the claim may be made again at once.
    """
    return error.code is not None and error.retryable and not isinstance(error, DequeueRateLimited)


def _spread() -> float:
    return random.random()  # noqa: S311 - spreads reconnects, guards nothing


async def _first_of(*waits: Coroutine[Any, Any, Any], timeout_s: float | None = None) -> None:
    """Returns when the first of these is done, or the time is over; the others are cancelled."""
    tasks = {asyncio.create_task(wait) for wait in waits}
    try:
        await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
