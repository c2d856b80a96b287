"""Jobs that are deleted with copies, and restored: rows of the history hold the copies, and are written and deleted in the jobs'
transactions.

A row says that jobs of a run were restored on the shard. A server that stood still deletes nothing more for the run afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from pinlater.domain.job import JobState
from pinlater.domain.transitions import PENDING
from pinlater.server.storage.job_copies import (
    RESTORED_MARK,
    JobCopy,
    brought_back,
    copy_of,
    first_that_fit,
    pack_copies,
    pieces_of,
    place_of,
    read_copies,
)
from pinlater.server.storage.options import options_text
from pinlater.server.storage.record import JobRecord
from pinlater.server.storage.relational import ordering
from pinlater.server.storage.relational.bulk import delete_ids, key_is_held
from pinlater.server.storage.relational.dialect import Dialect
from pinlater.server.storage.relational.rows import done_row, progress_row, text_of
from pinlater.server.storage.values import (
    COPIES_STEP_S,
    RESTORED_STEP_S,
    CopiesOf,
    DeletedWithCopies,
    JobKey,
    Restored,
    RestoreOrder,
)

_BEHIND = "~"  # higher than every character of an origin


async def delete(
    dialect: Dialect, keys: Sequence[JobKey], state: JobState, of: CopiesOf, now_ms: int
) -> DeletedWithCopies:
    if await _rows(dialect, RESTORED_STEP_S, of.started_ms, of.run, "") is not None:
        return DeletedWithCopies(len(keys))
    chosen = await _chosen(dialect, keys, state)
    number = first_that_fit(job.body_bytes for _, job in chosen)
    handled = len(keys) if number == len(chosen) else chosen[number][0]
    jobs = [job for _, job in chosen[:number]]
    if not jobs:
        return DeletedWithCopies(handled)
    bodies: dict[int, bytes] = dict(await dialect.select_jobs("load_bodies", [job.id for job in jobs]))
    due_ms = await ordering.own_due_ms(dialect, jobs)
    jobs = [replace(job, run_after_ms=due_ms[job.id]) if job.id in due_ms else job for job in jobs]
    copied = [copy_of(job, bodies[job.id]) for job in jobs]
    packed = pack_copies(copied)
    _save(dialect, now_ms, of.run, place_of(now_ms, copied), packed)
    deleted = await delete_ids(dialect, [job.id for job in jobs], state=state)
    return DeletedWithCopies(handled, len(deleted), len(packed))


async def _chosen(dialect: Dialect, keys: Sequence[JobKey], state: JobState) -> list[tuple[int, JobRecord]]:
    """Returns the jobs that exist in that state, each once, with the places of their keys."""
    queues = await dialect.queues_named([key.queue for key in keys])
    wanted: dict[tuple[int, int, int], int] = {}
    for place, key in enumerate(keys):
        if key.queue in queues:
            wanted.setdefault((queues[key.queue].queue_id, key.priority, key.id), place)
    chosen: list[tuple[int, JobRecord]] = []
    for job in await dialect.load_jobs(sorted({job_id for _, _, job_id in wanted})):
        at = wanted.get((job.queue_id, job.priority, job.id))
        if at is not None and job.state is state:
            chosen.append((at, job))
    return sorted(chosen, key=lambda found: found[0])


async def restore(dialect: Dialect, order: RestoreOrder, now_ms: int) -> Restored:
    run = order.copies.run
    dialect.insert("save_copies", [(RESTORED_STEP_S, order.copies.started_ms, run, RESTORED_MARK, b"")])
    found = await _next(dialect, run, order.after)
    if found is None:
        return Restored(None)
    at_ms, place = found
    packed = await _rows(dialect, COPIES_STEP_S, at_ms, run, place)
    if packed is None:
        return Restored(place)  # another server has restored them
    copies = read_copies(packed, now_ms)
    if not copies:
        return Restored(place)
    queue = (await dialect.queues_named([order.queue])).get(order.queue)
    if queue is None or queue.queue_id != copies[0].job.queue_id:
        return Restored(place, queue_gone=len(copies))
    back, kept = await _decide(dialect, copies, now_ms)
    if len(kept) == len(copies):
        return Restored(place, key_taken=len(kept))
    await dialect.change_now(
        "delete_copies", step_s=COPIES_STEP_S, at_ms=at_ms, run=run, first=place, last=place + _BEHIND
    )
    left = pack_copies(kept) if kept else b""
    _save(dialect, at_ms, run, place, left)
    await _store(dialect, back, now_ms)
    return brought_back(place, back, len(kept), len(packed) - len(left), now_ms)


async def _next(dialect: Dialect, run: str, after: str) -> tuple[int, str] | None:
    """The time and the place of the first copies after a place, or None at the end."""
    at_ms: int | None = int(after.partition(".")[0]) if after else -1
    behind = after + _BEHIND if after else ""
    while at_ms is not None:
        rows = await dialect.select("find_copies", step_s=COPIES_STEP_S, at_ms=at_ms, run=run, after=behind)
        if rows:
            return at_ms, text_of(rows[0][0]).rpartition(".")[0]
        [(at_ms,)] = await dialect.select("next_copies", step_s=COPIES_STEP_S, run=run, after_ms=at_ms)
        behind = ""
    return None


async def _decide(dialect: Dialect, copies: Sequence[JobCopy], now_ms: int) -> tuple[list[JobCopy], list[JobCopy]]:
    """The jobs that are restored, with their keys taken, and those whose key another job or another shard has. A job that already exists is
    neither."""
    there = {row[0] for row in await dialect.select_jobs("load_states", sorted(job.id for job, _ in copies))}
    away = await ordering.away(dialect, [job for job, _ in copies if not job.finished])
    back: list[JobCopy] = []
    kept: list[JobCopy] = []
    for copy in copies:
        if copy.job.id not in there:
            comes_back = copy.job.id not in away and await _take_key(dialect, copy, now_ms)
            (back if comes_back else kept).append(copy)
    return back, kept


async def _take_key(dialect: Dialect, copy: JobCopy, now_ms: int) -> bool:
    """Takes the key again. Returns False if another job has it."""
    job, unique = copy.job, copy.key_to_take
    if unique is None:
        return True
    if await key_is_held(dialect, job.queue_id, unique.key, now_ms):
        return False
    dialect.save_key(job.queue_id, unique.key, int(unique.scope), job)
    return True


async def _store(dialect: Dialect, copies: Sequence[JobCopy], now_ms: int) -> None:
    """Stores the jobs as they were, except that a body of a checkpoint becomes the job's own. Not counted as enqueued."""
    jobs = [job for job, _ in copies if job.finished]
    jobs += await ordering.placed(dialect, [job for job, _ in copies if not job.finished], now_ms)
    dialect.insert("insert_jobs", [_job_row(job) for job in jobs])
    dialect.insert("save_progress", [progress_row(job) for job in jobs])
    dialect.enter_ready([job for job in jobs if job.state is PENDING])
    dialect.insert("insert_done", [done_row(job) for job in jobs if job.finished])
    for job in jobs:
        counter = dialect.counter(job.queue_id, job.priority)
        if job.state is PENDING:
            counter.enter_waiting(job, now_ms)
        else:
            counter.add_finished(job.state)


def _job_row(job: JobRecord) -> tuple[object, ...]:
    """Returns the parameters of `insert_jobs`."""
    first = (job.id, job.queue_id, job.priority, job.run_after_ms, job.attempts_allowed, job.created_at_ms)
    return (*first, options_text(job.options), job.body)


def _save(dialect: Dialect, at_ms: int, run: str, place: str, packed: bytes) -> None:
    dialect.insert(
        "save_copies", [(COPIES_STEP_S, at_ms, run, origin, piece) for origin, piece in pieces_of(place, packed)]
    )


async def _rows(dialect: Dialect, step_s: int, at_ms: int, run: str, place: str) -> bytes | None:
    """Returns the joint content of the rows of a place, or None if there are none. They are locked."""
    found = await dialect.select("load_copies", step_s=step_s, at_ms=at_ms, run=run, first=place, last=place + _BEHIND)
    return b"".join(bytes(data) for (data,) in found) if found else None
