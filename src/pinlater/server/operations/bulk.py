"""Many jobs at once: retrying failed ones, deleting by state, by regex or by name. A limit of 0 does nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pinlater.domain.descriptor import parse_descriptor
from pinlater.domain.durations import due_fault
from pinlater.domain.errors import InvalidArgument
from pinlater.domain.job import ATTEMPTS_ALLOWED_MAX, JobState, Outcome
from pinlater.domain.job_filter import JobFilter
from pinlater.server.operations.addressing import (
    OnShard,
    ack_results,
    find_jobs,
    in_pieces,
    on_each_shard,
    one_after_another,
)
from pinlater.server.operations.job_queries import check_priority, check_state
from pinlater.server.operations.long_lists import pairs_in_turns
from pinlater.server.sharding.shards import ShardLanes
from pinlater.server.storage.commands import (
    DeleteJobs,
    DeleteWithCopies,
    MoveJobs,
    PurgeJobs,
    RequeueFailedJobs,
    RestoreJobs,
    RunJobs,
)
from pinlater.server.storage.values import (
    NOT_FOUND,
    Acked,
    CopiesOf,
    DeletedWithCopies,
    Position,
    Purge,
    Requeue,
    Restored,
    RestoreOrder,
    RunOrder,
    raise_error,
)
from pinlater.wire.generated.structs import (
    AckResult,
    ChangePriorityRequest,
    DeleteRequest,
    MovedJob,
    RetryRequest,
    RunJobsRequest,
)

if TYPE_CHECKING:
    from pinlater.server.operations.service import Service

_ROWS_A_TRANSACTION = 1_000


class _Step(NamedTuple):
    """How many jobs of a shard a transaction changed, and whether it found all that there are."""

    done: int
    is_last: bool


class CopyLog(Protocol):
    """Counts the copies of deleted jobs."""

    def check(self, shard: str) -> None:
        """Raises `InvalidArgument` if there is no space for more copies on that shard."""

    def note(self, shard: str, done: DeletedWithCopies) -> None:
        """Called when some jobs were deleted."""


class Bulk:
    """The bulk operations, each in transactions of at most a thousand jobs."""

    def __init__(self, service: Service) -> None:
        self._shards = service.shards
        self._queue_cache = service.queue_cache
        self._inspect = service.job_queries
        self._dispatcher = service.dispatcher
        self._metrics = service.metrics
        self._clock = service.clock
        self._settings = service.settings

    async def retry_failed(self, request: RetryRequest) -> int:
        """FAILED → PENDING; returns how many. Skips expired jobs, those whose unique key is taken, and, on request, cancelled ones."""
        queue, skip_cancelled = request.queue, bool(request.skip_cancelled)
        _check_limit(request.limit)
        check_priority(request.priority, self._settings)
        check_attempts(request.attempts)
        await self._queue_cache.require(queue)
        now_ms = self._clock.now_ms()
        due_at_ms = _due_at_ms(request.run_after_ms, now_ms)

        stopped_at: dict[str, Position | None] = {}  # by shard

        async def requeue(shard: ShardLanes, rows: int) -> _Step:
            after = stopped_at.get(shard.name)
            order = Requeue(queue, request.priority, request.attempts, due_at_ms, rows, skip_cancelled, after)
            requeued = raise_error(await shard.store.submit(RequeueFailedJobs(order, self._clock.now_ms())))
            stopped_at[shard.name] = requeued.stopped_at
            return _Step(requeued.done, is_last=requeued.stopped_at is None)

        done = await self._in_steps("retryFailedJobs", request.limit, requeue)
        if done:
            due = due_at_ms <= now_ms
            self._dispatcher.wakeups.jobs_ready(queue, done if due else 0, None if due else due_at_ms, past_owner=True)
        return done

    async def run_jobs(self, request: RunJobsRequest) -> Sequence[AckResult]:
        """Makes these jobs due: failed ones with the new attempts, waiting ones as they are, unless the request is for failed ones only.

        Returns the outcome for each.
        """
        queue, descriptors, attempts = request.queue, request.descriptors, request.attempts
        check_attempts(attempts)
        parts = await find_jobs(self._shards, queue, descriptors, self._settings.max_descriptors_per_request)
        await self._queue_cache.require(queue)
        now_ms = self._clock.now_ms()
        due_at_ms = _due_at_ms(request.run_after_ms, now_ms)

        async def act(part: OnShard) -> Sequence[Acked]:
            orders = [RunOrder(key, attempts, due_at_ms, bool(request.only_failed)) for key in part.keys]
            return await part.shard.store.submit(RunJobs(orders, self._clock.now_ms()))

        answers = await on_each_shard(parts, act, [NOT_FOUND] * len(descriptors))
        done = sum(acked.outcome is Outcome.APPLIED for acked in answers)
        if done:
            due = due_at_ms <= now_ms
            self._dispatcher.wakeups.jobs_ready(queue, done if due else 0, None if due else due_at_ms, past_owner=True)
        return await ack_results(descriptors, answers)

    async def change_priority(self, request: ChangePriorityRequest) -> Sequence[MovedJob]:
        """Gives waiting and failed jobs that priority, which changes their descriptor. Raises `PriorityNotSupported`.

        Returns the outcome for each.
        """
        queue, descriptors, priority = request.queue, request.descriptors, request.priority
        check_priority(priority, self._settings)
        parts = await find_jobs(self._shards, queue, descriptors, self._settings.max_descriptors_per_request)
        await self._queue_cache.require(queue)

        async def act(part: OnShard) -> Sequence[Acked]:
            return await part.shard.store.submit(MoveJobs(part.keys, priority, self._clock.now_ms()))

        answers = await on_each_shard(parts, act, [NOT_FOUND] * len(descriptors))
        self._wake_for_moved(queue, [acked.due_at_ms for acked in answers if acked.due_at_ms is not None])
        return await pairs_in_turns(
            descriptors, answers, lambda names, acked: list(map(partial(_moved_job, priority), names, acked))
        )

    def _wake_for_moved(self, queue: str, due_ms: Sequence[int]) -> None:
        """A claim at the moment of the move may have passed over these jobs. `due_ms`: when they are due."""
        now_ms = self._clock.now_ms()
        later = [at_ms for at_ms in due_ms if at_ms > now_ms]
        if due_ms:
            due = len(due_ms) - len(later)
            self._dispatcher.wakeups.jobs_ready(queue, due, min(later, default=None), past_owner=True)

    async def delete_jobs(self, request: DeleteRequest) -> int:
        """Deletes jobs in that state and priority, optionally those whose body matches. Returns how many."""
        check_state(request.state)
        _check_limit(request.limit)
        check_priority(request.priority, self._settings)
        await self._queue_cache.require(request.queue)
        done = await (self._purge(request) if request.regex is None else self._delete_matching(request))
        self._metrics.queue(request.queue).deleted += done
        return done

    async def _purge(self, request: DeleteRequest) -> int:
        async def purge(shard: ShardLanes, rows: int) -> _Step:
            order = Purge(request.queue, JobState(request.state), request.priority, rows)
            done = raise_error(await shard.store.submit(PurgeJobs(order)))
            return _Step(done, is_last=done < rows)

        return await self._in_steps("deleteJobs", request.limit, purge)

    async def _in_steps(self, method: str, limit: int, act: Callable[[ShardLanes, int], Awaitable[_Step]]) -> int:
        """Works shard by shard until `limit` jobs are done, a thousand a transaction; what was deleted counts, even if a later
        transaction fails."""
        left = limit

        async def on_shard(shard: ShardLanes) -> int:
            nonlocal left
            while left > 0:
                step = await act(shard, min(left, _ROWS_A_TRANSACTION))
                left -= step.done
                if step.is_last:
                    break
            return 0

        await one_after_another(self._shards, self._metrics, method, on_shard)
        return limit - left

    async def _delete_matching(self, request: DeleteRequest) -> int:
        state = JobState(request.state)
        due = await self._inspect.search_for(request.queue, JobFilter(state, request.priority, request.regex))
        chosen = await self._inspect.matching_jobs(due, request.limit)
        if state is JobState.PENDING:  # a delete covers waiting jobs, due or not
            later = due._replace(future=True)
            chosen += await self._inspect.matching_jobs(later, request.limit - len(chosen))

        async def delete(shard: ShardLanes) -> int:
            keys, done = [key for home, key in chosen if home == shard.name], 0
            for start in range(0, len(keys), _ROWS_A_TRANSACTION):
                done += await shard.store.submit(DeleteJobs(keys[start : start + _ROWS_A_TRANSACTION], state))
            return done

        return await one_after_another(self._shards, self._metrics, "deleteJobs", delete)

    async def delete_jobs_by_descriptor(
        self, queue: str, descriptors: Sequence[str], state: JobState | None = None
    ) -> int:
        """Deletes these jobs of this queue, those in `state` or all for None; returns how many there were."""
        parts = await find_jobs(self._shards, queue, descriptors, self._settings.max_descriptors_per_request)
        await self._queue_cache.require(queue)
        done = 0

        async def delete(part: OnShard) -> Sequence[None]:
            nonlocal done
            done += await part.shard.store.submit(DeleteJobs(part.keys, state))
            return ()

        results = await asyncio.gather(*(in_pieces(part, delete) for part in parts), return_exceptions=True)
        self._metrics.queue(queue).deleted += done
        for result in results:
            if isinstance(result, BaseException):
                raise result  # deletes of others remain, and repeating is safe
        return done

    async def delete_with_copies(
        self, queue: str, descriptors: Sequence[str], state: JobState, of: CopiesOf, log: CopyLog
    ) -> None:
        """Deletes those of these jobs that are in that state, and keeps copies of them. The counts in `log` remain, even after an error."""
        parts = await find_jobs(self._shards, queue, descriptors, self._settings.max_descriptors_per_request)
        await self._queue_cache.require(queue)

        async def delete(part: OnShard) -> None:
            keys = part.keys
            while keys:
                log.check(part.shard.name)
                done = await part.shard.store.submit(DeleteWithCopies(keys, state, of, self._clock.now_ms()))
                self._metrics.queue(queue).deleted += done.deleted
                log.note(part.shard.name, done)
                keys = keys[done.handled :]

        results = await asyncio.gather(*map(delete, parts), return_exceptions=True)
        for result in results:
            if result is not None:
                raise result

    async def restore(self, shard: ShardLanes, order: RestoreOrder) -> Restored:
        """Restores the jobs of one call. Dequeues that wait get them."""
        await self._queue_cache.require(order.queue)
        answer = await shard.store.submit(RestoreJobs(order, self._clock.now_ms()))
        if answer.restored:
            self._dispatcher.wakeups.jobs_ready(order.queue, answer.due, answer.next_due_ms, past_owner=True)
        return answer


def _moved_job(priority: int, descriptor: str, acked: Acked) -> MovedJob:
    moved_to = None
    if acked.outcome is Outcome.APPLIED:
        moved_to = str(parse_descriptor(descriptor)._replace(priority=priority))
    return MovedJob(descriptor, acked.outcome, moved_to, acked.holder or None, acked.held_since_ms)


def check_attempts(attempts: int) -> None:
    """Raises `InvalidArgument` if a job that goes back to the queue would get no attempts."""
    if not 1 <= attempts <= ATTEMPTS_ALLOWED_MAX:
        raise InvalidArgument(f"attemptsToAllow must be from 1 to {ATTEMPTS_ALLOWED_MAX}, not {attempts}")


def _due_at_ms(run_after_ms: int | None, now_ms: int) -> int:
    """When jobs that go back to the queue are due: `run_after_ms`, or now. Raises `InvalidArgument` for more than a year ahead."""
    if run_after_ms is None:
        return now_ms
    if fault := due_fault(run_after_ms, now_ms):
        raise InvalidArgument(f"runAfterTimestampMillis {run_after_ms} {fault}")
    return run_after_ms


def _check_limit(limit: int) -> None:
    if limit < 0:
        raise InvalidArgument(f"limit must not be negative, not {limit}")
