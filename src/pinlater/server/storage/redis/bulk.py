"""Operators' orders on many jobs: retry what failed, delete named jobs, delete the oldest.

In pieces of at most a thousand jobs, because Redis serves no other client meanwhile; each piece is atomic. If a piece
after the first one fails, the caller gets the number of jobs done so far; if its outcome is unknown, the caller gets that error.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pinlater.domain.errors import OutcomeUnknown, PinLaterError, QueueNotFound, Unavailable
from pinlater.domain.job import JobState, UniqueScope
from pinlater.domain.queue import IN_HAND_PER_KEY_MAX
from pinlater.server.storage import outcomes
from pinlater.server.storage.decide import RetryFailed, stays_failed
from pinlater.server.storage.record import JobRecord
from pinlater.server.storage.redis.access import TRIES, Access, conflict
from pinlater.server.storage.redis.arguments import encode
from pinlater.server.storage.redis.changes import Changes
from pinlater.server.storage.redis.keys import FAILED, INDEX_OF, LINE_BYTES, PRIORITY_MAX, line_of, may_exist, ref_of
from pinlater.server.storage.redis.loading import load_jobs
from pinlater.server.storage.redis.queues import takes_order
from pinlater.server.storage.redis.reading import is_held
from pinlater.server.storage.values import PASSED_OVER_MAX, Acked, JobKey, Purge, Requeue, Requeued, RunOrder

logger = logging.getLogger(__name__)

_READ_MAX = 1_000
_STOPPED = 2  # the answer of `find_behind.lua` for a job that has stopped its key
_READ_LEAST = 250  # also for a smaller limit, once it has passed over a job


async def requeue(access: Access, order: Requeue, now_ms: int) -> Requeued | PinLaterError:
    """Requeues jobs, the oldest finish first. The position is the number of jobs at the start of the index that it read and left."""
    queue = access.queues.get(order.queue)
    if queue is None:
        return QueueNotFound.of(order.queue)
    if not 0 <= order.priority <= PRIORITY_MAX:
        return Requeued(0)
    done = 0
    passed = begin = order.after[0] if order.after else 0
    while done < order.limit and passed - begin < PASSED_OVER_MAX:
        with _after(done) as trouble:
            seen, requeued = await _requeue_some(access, order, queue, passed, order.limit - done, now_ms)
        if trouble or not seen:
            return Requeued(done)
        done += requeued
        passed += seen - requeued
    return Requeued(done, (passed,))


async def run(access: Access, orders: Sequence[RunOrder], now_ms: int) -> list[Acked]:
    """Makes waiting jobs due, and returns failed ones to the queue unless another job has their key."""
    queues = access.ids_of([order.key.queue for order in orders])
    ids = dict(queues)
    refs = [
        ref_of(ids[key.queue], key.priority, key.id)
        for key in (order.key for order in orders)
        if key.queue in ids and may_exist(key)
    ]
    for _ in range(TRIES):
        changes = Changes(now_ms)
        await changes.load(access.readers, refs, queues)
        await changes.find_behind(access.readers)
        failed = outcomes.failed_of(changes, orders)
        await _load_keys(access, changes, failed)
        barred = await _away(access, changes, failed)
        barred |= {job.id for job in failed if job.id not in barred and not _retake_key(changes, job, now_ms)}
        answers = outcomes.run(changes, orders, barred)
        if await access.write(changes, now_ms, queues) == [0]:
            return answers
    raise conflict()


async def unblock(access: Access, queue: str, ordering_key: str, now_ms: int) -> int | PinLaterError:
    """Takes the places of the jobs that stopped the key."""
    del now_ms  # a job that becomes ready is due at the time in its record
    queue_id = access.queues.get(queue)
    if queue_id is None:
        return QueueNotFound.of(queue)
    unblocked, came = await access.writer.run("unblock_key", queue, queue_id, ordering_key, IN_HAND_PER_KEY_MAX)
    access.tell_came_first(came)
    return int(unblocked)


async def lift_barrier(access: Access, queue: str, after: str, limit: int, now_ms: int) -> str | PinLaterError | None:
    """One seek in an index for each key, however many jobs it has."""
    del now_ms  # a job that becomes ready is due at the time in its record
    queue_id = access.queues.get(queue)
    if queue_id is None:
        return QueueNotFound.of(queue)
    last, came = await access.writer.run("lift_barrier", queue, queue_id, after, limit)
    access.tell_came_first(came)
    return last.decode() or None


async def _requeue_some(
    access: Access, order: Requeue, queue: bytes, passed: int, most: int, now_ms: int
) -> tuple[int, int]:
    """Puts back at most `most` jobs after the first `passed`. Returns how many it read, and how many of them it put back."""
    line = line_of(queue, order.priority)
    limit = max(_READ_LEAST if passed else 0, min(most, _READ_MAX))
    for _ in range(TRIES):
        ids = await access.readers.run("select_first", FAILED + line, "+inf", limit, passed)
        changes = Changes(now_ms)
        queues = access.ids_of([order.queue])
        loaded = await changes.load(access.readers, [line + job_id for job_id in ids], queues)
        failed = [job for job in loaded if job.state is JobState.FAILED and not stays_failed(order, job, now_ms)]
        await _load_keys(access, changes, failed)
        away = await _away(access, changes, failed)
        requeued = 0
        for job in failed:
            if requeued < most and job.id not in away and _retake_key(changes, job, now_ms):
                requeued += changes.apply(job, RetryFailed(order.attempts, order.run_after_ms)) is not None
        if await access.write(changes, now_ms, queues) == [0]:
            return len(ids), requeued
    raise conflict()


async def _load_keys(access: Access, changes: Changes, jobs: Sequence[JobRecord]) -> None:
    """The holders of the keys that these jobs would have to take again."""
    keys = {
        (changes.found(job).queue, unique.key): b""
        for job in jobs
        if (unique := job.options.unique) is not None and unique.scope is UniqueScope.UNFINISHED
    }
    if keys:
        _, held = await load_jobs(access.readers, (), keys=list(keys))
        changes.held_keys.update(zip(keys, held, strict=True))


async def _away(access: Access, changes: Changes, failed: Sequence[JobRecord]) -> set[int]:
    """Returns the ids of those of these jobs that can't take a place again: another shard takes the jobs with ordering keys of their queue
    now. A job that has stopped its key still has its place."""
    keyed = [job for job in failed if job.options.ordering_key is not None]
    if not keyed:
        return set()
    names = {changes.queue_of(job) for job in keyed}
    taken = {name for name in names if await takes_order(access.readers, access.shard, name)}
    places = await access.readers.run("find_behind", encode([changes.found(job).ref for job in keyed]))
    return {
        job.id
        for job, place in zip(keyed, places, strict=True)
        if place != _STOPPED and changes.queue_of(job) not in taken
    }


def _retake_key(changes: Changes, job: JobRecord, now_ms: int) -> bool:
    """Takes an UNFINISHED key again. Returns False if another job has it."""
    unique = job.options.unique
    if unique is None or unique.scope is not UniqueScope.UNFINISHED:
        return True
    found = changes.found(job)
    place = (found.queue, unique.key)
    if place in changes.taken_keys or is_held(changes.held_keys[place], now_ms):
        return False
    changes.taken_keys.add(place)
    held = bytes((unique.scope, job.priority)) + found.ref[LINE_BYTES:]
    changes.writing.single("HSET", b"u" + found.queue, unique.key, held)
    return True


async def purge(access: Access, order: Purge) -> int | PinLaterError:
    """Deletes jobs, oldest first, by the time that orders the state."""
    queue = access.queues.get(order.queue)
    if queue is None:
        return QueueNotFound.of(order.queue)
    if not 0 <= order.priority <= PRIORITY_MAX:
        return 0
    line = line_of(queue, order.priority)
    deleted = 0
    while deleted < order.limit:
        limit = min(order.limit - deleted, _READ_MAX)
        with _after(deleted) as trouble:
            ids = await access.readers.run("select_first", INDEX_OF[order.state] + line, "+inf", limit)
            refs = [line + job_id for job_id in ids]
            deleted += await _delete(access, refs, order.state, [order.queue], indexed=True)
        if trouble or len(ids) < limit:
            break
    return deleted


async def delete_named(access: Access, keys: Sequence[JobKey], state: JobState | None = None) -> int:
    """Deletes the jobs that exist, and are in that state if one is named. Returns how many."""
    queues = access.queues
    refs = list(
        dict.fromkeys(
            ref_of(queues[key.queue], key.priority, key.id) for key in keys if key.queue in queues and may_exist(key)
        )
    )
    names = [key.queue for key in keys]
    deleted = 0
    for start in range(0, len(refs), _READ_MAX):
        with _after(deleted) as trouble:
            deleted += await _delete(access, refs[start : start + _READ_MAX], state, names)
        if trouble:
            break
    return deleted


@contextmanager
def _after(done: int) -> Iterator[list[Unavailable]]:
    """Catches an error that came after some pieces were done and that is known to have changed nothing more."""
    trouble: list[Unavailable] = []
    try:
        yield trouble
    except OutcomeUnknown:
        raise
    except Unavailable as error:
        if not done:
            raise
        logger.warning("%d jobs were done before this: %s", done, error)
        trouble.append(error)


async def _delete(
    access: Access,
    refs: Sequence[bytes],
    state: JobState | None,
    names: Sequence[str],
    *,
    indexed: bool = False,
) -> int:
    """Returns how many were deleted. `indexed`: the refs are an index's; entries there without a job are deleted too, uncounted."""

    def decide(changes: Changes) -> int:
        chosen = [job for job in changes.jobs() if state is None or job.state is state]
        for job in chosen:
            changes.delete(job)
        if indexed and state is not None:
            changes.delete_missing()
            for found in changes.loaded.values():
                if found.record.state is not state:
                    changes.writing.leave("ZREM", INDEX_OF[state] + found.line, found.ref[LINE_BYTES:])
        return len(chosen)

    return await access.change(refs, 0, decide, names)
