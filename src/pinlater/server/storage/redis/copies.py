"""Jobs that are deleted with copies, and restored: a hash for each run has the copies, by the name of the call that deleted them.

`cr` has the runs by the time of their newest copies, for the sweep: a key that expires could be evicted. A field of the hash says that
jobs of the run were restored.
"""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.domain.job import JobState, UniqueKey
from pinlater.domain.transitions import PENDING
from pinlater.server.storage.job_copies import (
    RESTORED_MARK,
    JobCopy,
    brought_back,
    copy_of,
    first_that_fit,
    pack_copies,
    place_of,
    read_copies,
)
from pinlater.server.storage.redis.access import TRIES, Access, conflict
from pinlater.server.storage.redis.changes import Changes, LoadedJob
from pinlater.server.storage.redis.keys import (
    INDEX_OF,
    WAITING,
    line_of,
    may_exist,
    packed_id,
    ref_of,
)
from pinlater.server.storage.redis.loading import load_jobs
from pinlater.server.storage.redis.packing import HAS_PAST, pack_finished, pack_job, pack_past
from pinlater.server.storage.redis.queues import takes_order
from pinlater.server.storage.redis.readers import Readers
from pinlater.server.storage.redis.reading import is_held
from pinlater.server.storage.values import (
    CopiesOf,
    DeletedWithCopies,
    JobKey,
    NewJob,
    Restored,
    RestoreOrder,
)

_RUNS = b"cr"


async def delete(
    access: Access, keys: Sequence[JobKey], state: JobState, of: CopiesOf, now_ms: int
) -> DeletedWithCopies:
    queues = access.queues
    places: dict[bytes, int] = {}
    for place, key in enumerate(keys):
        if key.queue in queues and may_exist(key):
            places.setdefault(ref_of(queues[key.queue], key.priority, key.id), place)
    for _ in range(TRIES):
        changes = Changes(now_ms)
        names = access.ids_of([key.queue for key in keys])
        loaded = await changes.load(access.readers, list(places), names)
        found = [changes.found(job) for job in loaded if job.state is state]
        number = first_that_fit(one.size - len(one.front) for one in found)
        handled = len(keys) if number == len(found) else places[found[number].ref]
        if not number:
            return DeletedWithCopies(handled)
        packed = await _take_out(access, changes, found[:number], of, now_ms)
        for other in found[number:]:
            del changes.loaded[other.ref]
        changes.marks.append((_key(of), RESTORED_MARK, 0))
        answer = await access.write(changes, now_ms, names)
        if answer == [0]:
            return DeletedWithCopies(handled, number, len(packed))
        if answer == [3]:
            return DeletedWithCopies(len(keys))
    raise conflict()


async def _take_out(access: Access, changes: Changes, found: Sequence[LoadedJob], of: CopiesOf, now_ms: int) -> bytes:
    """Deletes these jobs, and adds their copies, which it returns. The bodies are those of the claims and pasts that were loaded; if
    these have changed, the script detects it."""
    whole, _ = await load_jobs(access.readers, [one.ref for one in found], bodies=True)
    copies = [copy_of(one.record, whole[4 * at][len(one.front) :]) for at, one in enumerate(found)]
    place, packed = place_of(now_ms, copies), pack_copies(copies)
    for one in found:
        changes.delete(one.record)
    changes.writing.enter("HSET", _key(of), place, packed)
    changes.writing.enter("ZADD", _index(of), 0, place)
    changes.writing.enter("ZADD", _RUNS, now_ms, of.run)
    return packed


async def restore(access: Access, order: RestoreOrder, now_ms: int) -> Restored:
    for _ in range(TRIES):
        found = await access.readers.run("next_copies", order.copies.run, order.after)
        changes = Changes(now_ms)
        changes.restores = order.copies.run, RESTORED_MARK
        if not found:
            await access.write(changes, now_ms, ())
            return Restored(None)
        place, packed = found[0].decode(), found[1]
        if not packed:
            return Restored(place)
        copies, queue = read_copies(packed, now_ms), access.queues.get(order.queue)
        if not copies:
            return Restored(place)
        if queue is None or int.from_bytes(queue, "big") != copies[0].job.queue_id:
            return Restored(place, queue_gone=len(copies))
        back, kept = await _decide(access, changes, order.queue, queue, copies)
        if len(kept) == len(copies):
            return Restored(place, key_taken=len(kept))
        left = pack_copies(kept) if kept else b""
        _replace(changes, order.copies, place, left)
        for copy in back:
            _store(changes, queue, copy)
        answer = await access.write(changes, now_ms, access.ids_of([order.queue]))
        if answer == [0]:
            return brought_back(place, back, len(kept), len(packed) - len(left), now_ms)
        if answer == [3]:
            return Restored(place)  # another server has restored them
    raise conflict()


async def _decide(
    access: Access, changes: Changes, name: str, queue: bytes, copies: Sequence[JobCopy]
) -> tuple[list[JobCopy], list[JobCopy]]:
    """The jobs that are restored, and those whose key another job or another shard has. A job that already exists is neither."""
    refs = [ref_of(queue, job.priority, job.id) for job, _ in copies]
    wanted = [(queue, unique.key) for copy in copies if (unique := copy.key_to_take) is not None]
    there, held = await load_jobs(access.readers, refs, keys=wanted)
    changes.held_keys.update(zip(wanted, held, strict=True))
    keyed = any(job.options.ordering_key is not None for job, _ in copies)
    takes = not keyed or await takes_order(access.readers, access.shard, name)
    back: list[JobCopy] = []
    kept: list[JobCopy] = []
    for at, copy in enumerate(copies):
        if not there[4 * at]:
            has_place = takes or copy.job.finished or copy.job.options.ordering_key is None
            (back if has_place and _is_free(changes, queue, copy.key_to_take) else kept).append(copy)
    return back, kept


def _is_free(changes: Changes, queue: bytes, unique: UniqueKey | None) -> bool:
    if unique is None:
        return True
    place = (queue, unique.key)
    if place in changes.taken_keys or is_held(changes.held_keys[place], changes.now_ms):
        return False
    changes.taken_keys.add(place)
    return True


def _replace(changes: Changes, of: CopiesOf, place: str, left: bytes) -> None:
    """Deletes the copies of restored jobs."""
    changes.marks.append((_key(of), place, 1))
    if left:
        changes.writing.enter("HSET", _key(of), place, left)
    else:
        changes.writing.leave("HDEL", _key(of), place)
        changes.writing.leave("ZREM", _index(of), place)


def _store(changes: Changes, queue: bytes, copy: JobCopy) -> None:
    """Stores the job as it was, except that a body of a checkpoint becomes the job's own."""
    enter, job = changes.writing.enter, copy.job
    line, ref = line_of(queue, job.priority), ref_of(queue, job.priority, job.id)
    new_job = NewJob(job.id, job.body or b"", job.priority, job.run_after_ms, job.attempts_allowed, job.options)
    record = pack_job(new_job, job.created_at_ms)
    changes.writing.single("SET", b"j" + ref, bytes((record[0] | HAS_PAST,)) + record[1:])
    enter("HSET", b"p", ref, pack_past(job))
    unique = copy.key_to_take
    if unique is not None:
        held = bytes((unique.scope, job.priority)) + packed_id(job.id)
        changes.writing.single("HSET", b"u" + queue, unique.key, held)
    if job.state is PENDING:
        if job.options.ordering_key is None:
            enter("ZADD", WAITING + line, job.run_after_ms, packed_id(job.id))
        else:
            changes.enter_key(queue, job)
        if job.options.expires_ms is not None:
            enter("ZADD", b"e", job.options.expires_ms, ref)
        enter("READY", queue)
        return
    finished_ms = job.finished_at_ms or 0
    enter("HSET", b"h", ref, pack_finished(job.state, len(record), finished_ms, job.holder))
    enter("ZADD", INDEX_OF[job.state] + line, finished_ms, packed_id(job.id))
    changes.note_finished(len(record))


def _key(of: CopiesOf) -> bytes:
    return b"b" + of.run.encode()


def _index(of: CopiesOf) -> bytes:
    return b"l" + of.run.encode()


async def trim(readers: Readers, before_ms: int, limit: int) -> int:
    """Deletes the copies of runs whose newest ones are older; of at most `limit` runs."""
    return int(await readers.run("trim_copies", before_ms, limit))
