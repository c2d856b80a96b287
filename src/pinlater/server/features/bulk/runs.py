"""Bulk changes in the background: stored in a shard, executed by one server, and continued by another if that one dies.

While the shard that keeps a run is unreachable, the run waits. A server that stops leaves its runs to the others at once; a run whose
progress is old is continued by the next server that looks. If its server only stood still, it leaves the run when it sees that another
server executes it; until then both may execute it. That changes no job twice: the state of a job decides, in the transaction of each
change. But changes that a server made after its last progress are not in the numbers, and neither are changes whose answer was lost; the
run reports that.

A run changes only jobs that were enqueued before it began: so it ends, and leaves the jobs of a new queue of the same name alone. If a
shard was unreachable meanwhile, the run waits for it and looks at all jobs again.

Whatever the number of runs, a server reads and changes two pages at a time, and searches one with a regex. So runs delay
requests no more than two busy clients do.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby

from pinlater.domain.bulk import (
    BULK_RUNNING_MAX,
    BULKS_KEPT_MAX,
    BULKS_OF_QUEUE_MAX,
    BULKS_SHOWN_MAX,
    EXPECTED_MAX,
    RATE_MAX,
    RATE_MIN,
    RESTORABLE_MS,
    STATES_OF,
    BulkAction,
    BulkOrder,
    BulkState,
)
from pinlater.domain.caller_names import WITHOUT_TOKEN, NamedCaller
from pinlater.domain.descriptor import parse_descriptor
from pinlater.domain.errors import (
    InvalidArgument,
    OutcomeUnknown,
    PinLaterError,
    ShardConnectionFailed,
    StoreFull,
    WorldError,
)
from pinlater.domain.history import QUEUES_MAX
from pinlater.domain.job import JobState, Outcome
from pinlater.server.dispatch.identity import SOURCE_CHARS_MAX
from pinlater.server.features.bulk.records import WHO_CHARS_MAX, BulkRecords, KeptRun, RunProgress
from pinlater.server.features.bulk.steps import PAGE_JOBS, STALE_MS, BulkSteps, waits_for
from pinlater.server.features.bulk.undo import (
    BulkRestore,
    CopySpace,
    RunCopies,
    jobs_to_restore,
    left_out,
    order_to_undo,
)
from pinlater.server.operations.bulk import check_attempts
from pinlater.server.operations.changes import AdministrativeChange, ChangeOutcome
from pinlater.server.operations.job_queries import check_priority
from pinlater.server.operations.job_settings import JobSettings
from pinlater.server.operations.long_lists import in_turns
from pinlater.server.operations.merged_rows import END
from pinlater.server.operations.service import Service
from pinlater.server.storage.values import CopiesOf
from pinlater.wire.generated.structs import BulkRun, BulkRunsResponse, CountRequest, RunJobsRequest, ScanRequest

logger = logging.getLogger(__name__)

_PAGE_JOBS_MIN = 10  # however slow: most jobs of a page may not fit
_LOOK_MS = 60_000  # the previous look saw no run under way
_RETRY_FIRST_S, _RETRY_MAX_S = 1.0, 10.0
_REGEX_FAILURES_MAX = 5  # in a row: a search may also take too long because others search
_PAGES_AT_ONCE = 2
_JOBS_A_TURN = 100
_SLEEP_MAX_S = 1.0
_CLOSE_S_MAX = 2.5
_TELLS_MAX = 60


class BulkRuns:
    """The bulk changes in the background. `server`: the unique name of this server."""

    def __init__(
        self,
        service: Service,
        settings: JobSettings,
        server: Callable[[], str],
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._shards = service.shards
        self._queue_cache = service.queue_cache
        self._job_queries = service.job_queries
        self._bulk = service.bulk
        self._claimed_jobs = service.claimed_jobs
        self._clock = service.clock
        self._settings = settings
        self._server = server
        self._tell_end = service.changed
        self._records = BulkRecords(service.shards, service.metrics, service.clock)
        self._space = CopySpace(self._records, service.clock, settings.max_undo_bytes)
        self._undo = BulkRestore(service.shards, service.bulk)
        self._sleep = sleep
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._is_closing = False
        self._looks_ms = 0  # nothing is read before this
        self._starting = asyncio.Lock()
        self._pages = asyncio.Semaphore(_PAGES_AT_ONCE)
        self._searches = asyncio.Semaphore(1)

    # --- operations -----------------------------------------------------------------------------------------------------------
    async def start(self, order: BulkOrder, who: str, source: str = "", caller: NamedCaller = WITHOUT_TOKEN) -> BulkRun:
        """Stores the order and begins the run. Raises `InvalidArgument`, also if there are too many runs, and `QueueNotFound`.

        `who`: who starts it, as displayed; `source`, `caller`: the same for listeners to its end.
        """
        self._check(order)
        await self._queue_cache.require(order.queue)
        await self._job_queries.compiled(order.filter.regex)
        self._records.check_size(order)
        async with self._starting:
            await self._check_number(order)
            now_ms, copied_ms = self._clock.now_ms(), 0
            progress = RunProgress(server=self._server(), news_ms=now_ms)
            if order.undoes is not None:
                undone, of_queue = await self._find(order.queue, order.undoes)
                order, copied_ms = order_to_undo(of_queue, undone, order, now_ms), undone.started_ms
                jobs = jobs_to_restore(of_queue, undone)
                progress = progress._replace(to_look_at=jobs, expected=jobs)
            shard, run_id = self._records.roomiest(), secrets.token_hex(8)
            who, source = who[:WHO_CHARS_MAX], source[:SOURCE_CHARS_MAX]
            run = KeptRun(shard, run_id, now_ms, order, who, progress, False, copied_ms, source, caller)
            if run.takes_due_first:
                run = run._replace(progress=progress._replace(due=True, due_first=True))
            await self._records.add(run)
            self._begin(run)
        return run.shown(now_ms)

    async def _check_number(self, order: BulkOrder) -> None:
        """Checks how many runs there are. Undos count separately, so that the runs which they undo do not block them. Limited runs count
        separately, too, and only those of the last day, since programs start these again and again."""
        every, _ = await self._records.all()
        running = sum(run.is_running for run in every)
        if max(running, len(self._under_way)) >= BULK_RUNNING_MAX:
            raise InvalidArgument(f"{BULK_RUNNING_MAX} bulk runs are under way already", detail="TOO_MANY")
        span, from_ms = ("30 days", 0) if order.max_jobs is None else ("day", self._clock.now_ms() - RESTORABLE_MS)
        found = [run for run in every if _kind(run.order) == _kind(order) and run.started_ms > from_ms]
        of_queue = sum(run.order.queue == order.queue for run in found)
        if of_queue >= BULKS_OF_QUEUE_MAX or len(found) >= BULKS_KEPT_MAX:
            raise InvalidArgument(
                f"{of_queue} such bulk runs of the queue and {len(found)} in all began in the last {span}; at most "
                f"{BULKS_OF_QUEUE_MAX} and {BULKS_KEPT_MAX} are possible",
                detail="TOO_MANY",
            )

    async def stop(self, queue: str, run_id: str) -> BulkRun:
        """Stops a run; one that has ended stays as it is. Raises `InvalidArgument` if there is none of that queue, and `QueueNotFound`."""
        await self._queue_cache.require(queue)
        run, _ = await self._find(queue, run_id)
        if run.is_running:
            await self._records.save_stop(run)
            run = run._replace(stop=True)
        return run.shown(self._clock.now_ms())

    async def _find(self, queue: str, run_id: str) -> tuple[KeptRun, list[KeptRun]]:
        """The run, and all of its queue. Raises `InvalidArgument` if there is none, `ShardConnectionFailed` if a shard is missing."""
        found, incomplete = await self._records.all([queue])
        run = next((run for run in found if run.id == run_id), None)
        if run is not None:
            return run, found
        if incomplete:
            raise ShardConnectionFailed("A shard is unreachable, and may keep the run")
        raise InvalidArgument(f"Queue {queue} has no bulk run {run_id[:50]!r}", detail="NO_SUCH_RUN")

    async def runs(self, queues: Sequence[str] | None = None) -> Sequence[BulkRun]:
        """Returns the runs as `list_runs` does, without naming shards that could not be asked."""
        return (await self.list_runs(queues)).runs

    async def list_runs(self, queues: Sequence[str] | None = None) -> BulkRunsResponse:
        """The runs of the last 30 days, the newest first, 500 at most; of these queues, up to a hundred, or of all. For an unreachable
        shard, those that this server has seen before, as they were then. Raises `QueueNotFound` for a queue that neither exists nor has
        runs."""
        if queues is not None and len(queues) > QUEUES_MAX:
            raise InvalidArgument(f"Up to {QUEUES_MAX} queues in one request, not {len(queues)}", detail="TOO_MANY")
        found, missing = await self._records.shown(queues)
        if not missing:
            known = {run.order.queue for run in found}
            for name in queues or ():
                if name not in known:
                    await self._queue_cache.require(name)
        now_ms = self._clock.now_ms()
        return BulkRunsResponse(
            [run.shown(now_ms) for run in found[:BULKS_SHOWN_MAX]], bool(missing) or None, missing or None
        )

    def _check(self, order: BulkOrder) -> None:
        check_priority(order.filter.priority, self._settings)
        order.filter.check()
        check_attempts(order.attempts)
        if (order.action is BulkAction.RESTORE) is (order.undoes is None):
            raise InvalidArgument("A run that restores names the run that it undoes, and no other run does")
        if order.for_good and order.action is not BulkAction.DELETE:
            raise InvalidArgument("Only a run that deletes can do so for good")
        if order.undoes is None and order.filter.state not in STATES_OF[order.action]:
            raise InvalidArgument(f"No {order.filter.state.name} job can be changed by {order.action.value}")
        if order.expected is not None and not 0 <= order.expected <= EXPECTED_MAX:
            raise InvalidArgument(f"expectedJobs must be from 0 to {EXPECTED_MAX:,}")
        if order.max_jobs is not None and not 1 <= order.max_jobs <= EXPECTED_MAX:
            raise InvalidArgument(f"maxJobs must be from 1 to {EXPECTED_MAX:,}")
        rate = order.jobs_per_second
        if rate is not None and not RATE_MIN <= rate <= RATE_MAX:
            raise InvalidArgument(f"jobsPerSecond must be from {RATE_MIN} to {RATE_MAX:,.0f}")

    # --- execution ------------------------------------------------------------------------------------------------------------
    async def look(self) -> None:
        """Continues runs that no server executes, and ends those that are to stop. Call it every few seconds; it reads once a minute
        while there is no run.
        """
        now_ms = self._clock.now_ms()
        if now_ms < self._looks_ms or self._is_closing:
            return
        found, _ = await self._records.all()
        running = [run for run in found if run.is_running]
        self._looks_ms = 0 if running else now_ms + _LOOK_MS
        for run in running:
            last = run.progress
            left = not last.server
            if (left or now_ms - last.news_ms > STALE_MS) and run.id not in self._under_way and not self._is_closing:
                logger.info("a bulk run is continued", extra={"queue": run.order.queue, "run": run.id})
                progress = last._replace(term=last.term + 1, again=True, uncounted=last.uncounted or not left)
                self._begin(run._replace(progress=progress))

    async def close(self) -> None:
        """Leaves its runs to the next server, or to this one after its restart."""
        self._is_closing = True
        tasks = list(self._under_way.values())
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE_S_MAX)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, run: KeptRun) -> None:
        task = asyncio.create_task(self._carry_out(run), name=f"bulk run {run.id}")
        self._under_way[run.id] = task
        task.add_done_callback(lambda _: self._under_way.pop(run.id, None))

    async def _carry_out(self, run: KeptRun) -> None:
        """Executes the run until it has ended, another server executes it, or this one stops."""
        steps = BulkSteps(run, self._server(), self._clock.now_ms())
        if run.stop:
            await self._finish(steps, BulkState.STOPPED, "")
        failures = 0
        while steps.goes_on:
            try:
                await self._step(steps)
                failures = 0
            except PinLaterError as error:
                failures += 1
                if not _passes(error, failures):
                    await self._finish(steps, BulkState.FAILED, error.message)
                    break
                steps.failed(error)
                await self._wait(steps, min(_RETRY_MAX_S, _RETRY_FIRST_S * 2.0 ** min(failures - 1, 5)))
            except Exception:
                logger.exception("a bulk run failed by a bug", extra={"run": run.id})
                await self._end(steps, BulkState.FAILED, "internal error; the log of the server has it")

    async def _step(self, steps: BulkSteps) -> None:
        """Processes one page: compares its jobs, changes those that match, and reports the progress."""
        if steps.progress.after == END:
            await self._scan_again(steps)
            return
        order = steps.run.order
        if order.undoes is not None:
            await self._restore(steps)
            return
        if steps.is_to_count:
            steps.note_count(await self._jobs_to_look_at(order))
        now, state, regex = steps.progress, order.filter.state, order.filter.regex
        future = state is JobState.PENDING and not now.due
        most = min(PAGE_JOBS, self._settings.max_descriptors_per_request)
        size = most if order.jobs_per_second is None else max(1, min(most, int(order.jobs_per_second)))
        turns = self._pages if regex is None else self._searches
        if not await self._turn(steps, turns):
            return
        try:
            began_s, missing = self._clock.monotonic(), not self._reaches_all
            limit = min(most, max(size, _PAGE_JOBS_MIN))  # small if it is slow: a page becomes outdated
            page = await self._job_queries.scan_page(
                ScanRequest(order.queue, state, order.filter.priority, future, now.after, limit, regex, paged=True)
            )
            names = await in_turns(page.jobs, steps.chosen, _JOBS_A_TURN)
        finally:
            turns.release()
        looked, after = page.looked, page.continuation
        missing = missing or (page.incomplete and (after == END or not self._reaches_all))
        del page  # its jobs may be large
        if regex is not None and not await self._wait(steps, self._clock.monotonic() - began_s):
            return  # others can search in the pause
        for start in range(0, len(names), size):
            part = names[start : start + size][: steps.jobs_left]
            if not await self._turn(steps, self._pages):
                return
            try:
                await self._change(steps, part)
            finally:
                self._pages.release()
            if steps.jobs_left == 0:
                await self._finish(steps, BulkState.DONE, "")
                return
            steps.note_in_page(looked * (start + len(part)) // len(names))
            if not await self._wait(steps, _pause_s(order, len(part))):
                return
        steps.to_next_page(looked, after, unseen=missing)
        if steps.progress.after == END and not steps.progress.unseen:
            await self._finish(steps, BulkState.DONE, "")

    async def _jobs_to_look_at(self, order: BulkOrder) -> int | None:
        """How many jobs a look compares, according to counters; None if a shard can't be asked. Raises `Unavailable`."""
        found, state, priority = 0, order.filter.state, order.filter.priority
        for future in (False, True) if state is JobState.PENDING else (False,):
            counted = await self._job_queries.count_jobs(CountRequest(order.queue, state, priority, future))
            if counted.incomplete:
                return None
            found += counted.jobs
        return found

    async def _restore(self, steps: BulkSteps) -> None:
        """Restores the jobs that one call has deleted."""
        if not await self._turn(steps, self._pages):
            return
        try:
            restored = await self._undo.step(steps)
        finally:
            self._pages.release()
        if not await self._wait(steps, _pause_s(steps.run.order, restored)):
            return
        if steps.progress.after == END and not steps.progress.unseen:
            await self._finish(steps, BulkState.DONE, left_out(steps, self._clock.now_ms()))

    @property
    def _reaches_all(self) -> bool:
        return len(self._shards.in_reach()) == len(self._shards)

    async def _scan_again(self, steps: BulkSteps) -> None:
        """Called when a shard was unreachable for a time. Raises `ShardConnectionFailed` while a shard is unreachable; later looks at all
        jobs again."""
        if not self._reaches_all:
            names = ", ".join(shard.name for shard in self._shards if not shard.healthy)
            raise ShardConnectionFailed(f"Shard {names} is unreachable")
        if await self._wait(steps, _RETRY_MAX_S):
            steps.scan_again()

    async def _turn(self, steps: BulkSteps, turns: asyncio.Semaphore) -> bool:
        """Waits for a turn, and reports the progress meanwhile. Returns whether the run continues; if so, it has the turn."""
        while await self._goes_on(steps):
            try:
                async with asyncio.timeout(_SLEEP_MAX_S):
                    await turns.acquire()
            except TimeoutError:
                continue
            return True
        return False

    async def _wait(self, steps: BulkSteps, seconds: float) -> bool:
        """Pauses, and reports the progress meanwhile. Returns whether the run continues."""
        while seconds > 0:
            await self._sleep(min(seconds, _SLEEP_MAX_S))
            seconds -= _SLEEP_MAX_S
            if not await self._goes_on(steps):
                return False
        return steps.goes_on

    async def _goes_on(self, steps: BulkSteps, *, is_last: bool = False) -> bool:
        """Reports the progress, if that is due, and returns whether the run continues: unless it is to stop, another server executes it,
        or this one stops. `is_last`: the report before its end, which must not overwrite that of another server.

        Waits while its shard is unreachable: a request to stop it may be there.
        """
        while steps.goes_on and (is_last or self._is_closing or steps.has_news(self._clock.now_ms())):
            try:
                await self._compare(steps)
                is_last = False
            except WorldError as error:
                if self._is_closing:
                    steps.leave()
                    break
                steps.note(detail=waits_for(error))
                await self._sleep(_RETRY_FIRST_S)
        return steps.goes_on

    async def _compare(self, steps: BulkSteps) -> None:
        """Compares the run with the record on its shard. Raises `Unavailable`."""
        kept = await self._records.read_again(steps.run)
        if kept is None:
            await self._end(steps, BulkState.FAILED, "its record is gone: with its shard, or after 30 days")
        elif not kept.is_running or steps.is_others(kept, self._clock.now_ms()):
            steps.leave()
        elif kept.stop:
            await self._end(steps, BulkState.STOPPED, "")
        elif self._is_closing:
            steps.hand_over()
            await self._tell(steps)
            steps.leave()
        else:
            await self._tell(steps)

    async def _finish(self, steps: BulkSteps, state: BulkState, detail: str) -> None:
        """Ends the run unless another server has ended or executes it because this one stood still."""
        if await self._goes_on(steps, is_last=True):
            await self._end(steps, state, detail)

    async def _end(self, steps: BulkSteps, state: BulkState, detail: str) -> None:
        """Ends the run, and then reports it. If the end can't be stored, the next server that looks ends the run."""
        steps.end(state, self._clock.now_ms(), detail)
        if not await self._keep_end(steps):
            return
        now, order = steps.progress, steps.run.order
        about = {
            "run": steps.run.id,
            "action": order.action.value,
            "state": order.filter.state.name,
            "ended": state.value,
        }
        if order.undoes is not None:
            about["undoes"] = order.undoes
        logger.info("a bulk run has ended", extra={"queue": order.queue, **about, "changed": now.changed})
        self._tell_end(
            AdministrativeChange(
                "bulkRun",
                order.queue,
                about,
                steps.run.caller,
                steps.run.source,
                outcome=ChangeOutcome.FAILED if state is BulkState.FAILED else ChangeOutcome.OK,
                detail=now.detail[:WHO_CHARS_MAX],
                jobs=now.changed,
            )
        )

    async def _keep_end(self, steps: BulkSteps) -> bool:
        """Returns whether this server is the one that has ended the run. Retries while the shard is unreachable."""
        for tries in range(_TELLS_MAX):
            try:
                kept = await self._records.read_again(steps.run) if tries else None
                if kept is not None and not kept.is_running:
                    return steps.is_own_end(kept)
                if kept is not None and steps.is_others(kept, self._clock.now_ms()):
                    return False
                await self._tell(steps)
            except WorldError:
                if not self._records.has_shard(steps.run):
                    return True
                await self._sleep(_RETRY_FIRST_S)
            else:
                return True
        return False

    async def _tell(self, steps: BulkSteps) -> None:
        progress = steps.news(self._clock.now_ms())
        await self._records.save_progress(steps.run, progress)
        steps.told(progress)

    async def _change(self, steps: BulkSteps, names: Sequence[str]) -> None:
        """Changes these jobs, and counts the changed ones: on each shard, even if another one fails. Raises that failure.

        A job whose state has changed meanwhile stays as it is.
        """
        if steps.run.order.action is BulkAction.DELETE:
            await self._space.refresh()
        parts = [list(part) for _, part in groupby(sorted(names, key=_shard_of), key=_shard_of)]
        results = await asyncio.gather(*(self._change_some(steps, part) for part in parts), return_exceptions=True)
        failures = [result for result in results if result is not None]
        if failures:
            raise next((failure for failure in failures if isinstance(failure, OutcomeUnknown)), failures[0])

    async def _change_some(self, steps: BulkSteps, names: Sequence[str]) -> None:
        """Changes the jobs of one shard."""
        order = steps.run.order
        if order.action is not BulkAction.DELETE:
            steps.note(changed=await self._cancel_or_retry(order, names))
        elif order.for_good:
            steps.note(changed=await self._bulk.delete_jobs_by_descriptor(order.queue, names, order.filter.state))
        else:
            await self._delete(steps, names)

    async def _delete(self, steps: BulkSteps, names: Sequence[str]) -> None:
        """Deletes jobs and keeps copies."""
        run, copies = steps.run, RunCopies(self._space, steps)
        try:
            await self._bulk.delete_with_copies(
                run.order.queue, names, run.order.filter.state, CopiesOf(run.id, run.started_ms), copies
            )
        except StoreFull as error:
            raise InvalidArgument(
                f"{error.message}. There is no space for copies of deleted jobs; delete for good to keep none"
            ) from error

    async def _cancel_or_retry(self, order: BulkOrder, names: Sequence[str]) -> int:
        """Returns how many of these jobs were changed."""
        if order.action is BulkAction.CANCEL:
            results = await self._claimed_jobs.cancel(order.queue, names, order.filter.state)
        else:
            request = RunJobsRequest(order.queue, names, attempts=order.attempts, only_failed=True)
            results = await self._bulk.run_jobs(request)
        return sum(result.outcome is Outcome.APPLIED for result in results)


def _pause_s(order: BulkOrder, jobs: int) -> float:
    """Returns the pause after that number of changes."""
    return 0.0 if order.jobs_per_second is None else jobs / order.jobs_per_second


def _shard_of(descriptor: str) -> str:
    return parse_descriptor(descriptor).shard


def _kind(order: BulkOrder) -> tuple[bool, bool]:
    """Returns whether it undoes a run, and whether it changes a limited number of jobs."""
    return order.undoes is not None, order.max_jobs is not None


def _passes(error: PinLaterError, failures: int) -> bool:
    """Returns whether to retry."""
    if error.detail == "REGEX_TOO_COSTLY":
        return failures < _REGEX_FAILURES_MAX
    return isinstance(error, WorldError) or error.retryable
