"""Jobs that are deleted with copies, and brought back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

import msgspec

from pinlater.domain.job import Attempt, JobState
from pinlater.server.storage.job_copies import (
    JobCopy,
    first_that_fit,
    pack_copies,
    pieces_of,
    place_of,
    read_copies,
    takes_key,
)
from pinlater.server.storage.memory.queue_state import KeyHold, QueueState
from pinlater.server.storage.memory.record import MemoryJob
from pinlater.server.storage.memory.samples import MemorySamples
from pinlater.server.storage.options import Options, text_of
from pinlater.server.storage.values import (
    COPIES_STEP_S,
    UNDONE_STEP_S,
    CopiesOf,
    DeletedWithCopies,
    JobKey,
    Restored,
    RestoreOrder,
    SampleRange,
    StoredSample,
)

_MARK = "undone"
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[Attempt]).decode


def delete(
    queues: Mapping[str, QueueState],
    samples: MemorySamples,
    keys: Sequence[JobKey],
    state: JobState,
    of: CopiesOf,
    now_ms: int,
) -> DeletedWithCopies:
    """The first of those that are there in that state."""
    if samples.list(SampleRange(UNDONE_STEP_S, of.started_ms, of.started_ms + 1, [of.run])):
        return DeletedWithCopies(len(keys))
    chosen: dict[int, tuple[int, QueueState, MemoryJob]] = {}
    for place, key in enumerate(keys):
        queue = queues.get(key.queue)
        job = queue.find(key) if queue else None
        if queue is not None and job is not None and job.state is state:
            chosen.setdefault(job.id, (place, queue, job))
    found = list(chosen.values())
    number = first_that_fit(len(job.body) for _, _, job in found)
    handled = len(keys) if number == len(found) else found[number][0]
    copies = [_copy_of(queue, job) for _, queue, job in found[:number]]
    if not copies:
        return DeletedWithCopies(handled)
    packed = pack_copies(copies)
    _save(samples, of.run, now_ms, place_of(now_ms, copies), packed)
    for _, queue, job in found[:number]:
        queue.drop(job)
    return DeletedWithCopies(handled, number, len(packed))


def restore(queues: Mapping[str, QueueState], samples: MemorySamples, order: RestoreOrder, now_ms: int) -> Restored:
    """The next batch behind the place."""
    run = order.copies.run
    samples.save([StoredSample(UNDONE_STEP_S, order.copies.started_ms, run, _MARK, b"")])
    rows = [row for row in samples.list(SampleRange(COPIES_STEP_S, 0, 2**63, [run])) if _place(row) > order.after]
    if not rows:
        return Restored(None)
    place, pieces = next(groupby(rows, _place))
    batch = list(pieces)
    packed = b"".join([row.data for row in batch])
    copies = read_copies(packed)
    queue = queues.get(order.queue)
    if queue is None or queue.number != copies[0].queue_id:
        return Restored(place, queue_gone=len(copies))
    kept = [copy for copy in copies if not _bring_back(queue, copy, now_ms)]
    samples.drop(batch)
    left = pack_copies(kept) if kept else b""
    _save(samples, run, batch[0].at_ms, place, left)
    back = [copy for copy in copies if copy not in kept]
    due = [copy.run_after_ms for copy in back if copy.job_state is JobState.PENDING]
    return Restored(
        place,
        len(back),
        len(kept),
        freed_bytes=len(packed) - len(left),
        due=sum(run_after_ms <= now_ms for run_after_ms in due),
        next_due_ms=min([run_after_ms for run_after_ms in due if run_after_ms > now_ms], default=None),
    )


def _place(row: StoredSample) -> str:
    return row.origin.rpartition(".")[0]


def _save(samples: MemorySamples, run: str, at_ms: int, place: str, packed: bytes) -> None:
    samples.save([StoredSample(COPIES_STEP_S, at_ms, run, origin, piece) for origin, piece in pieces_of(place, packed)])


def _bring_back(queue: QueueState, copy: JobCopy, now_ms: int) -> bool:
    """False if another job has its key."""
    unique = copy.key_to_take
    if unique is not None:
        if queue.key_holder(unique.key, now_ms) is not None:
            return False
        queue.unique_keys[unique.key] = KeyHold(copy.id, copy.priority, unique.scope, 0)
    new = copy.new_job()
    job = MemoryJob.of(queue.settings.name, new, copy.created_at_ms, queue.status_rule)
    job.attempts_remaining = copy.attempts_remaining
    job.custom_status = copy.custom_status
    job.updated_at_ms = copy.updated_at_ms
    job.state = copy.job_state
    job.last_claim_descriptor = copy.holder
    job.finished_at_ms = copy.finished_at_ms
    job.error_type, job.error_text = copy.error_type, copy.error_text
    job.attempts_ended = copy.attempts_ended
    job.attempts = _decode(copy.history)
    queue.add(job)
    return True


def _copy_of(queue: QueueState, job: MemoryJob) -> JobCopy:
    options = Options("", job.headers, job.unique, job.claim_timeout_ms, job.expires_at_ms)
    claim = job.claim
    return JobCopy(
        job.id,
        queue.number,
        job.priority,
        job.created_at_ms,
        job.run_after_ms if claim is None else max(job.run_after_ms, claim.deadline_ms),
        job.updated_at_ms,
        job.attempts_allowed,
        job.attempts_remaining,
        text_of(options),
        int(job.state if claim is None else JobState.PENDING),
        job.finished_at_ms,
        job.attempts_ended,
        job.custom_status,
        job.error_type,
        job.error_text,
        _encode(job.attempts).decode(),
        job.last_claim_descriptor if claim is None else None,
        takes_key(options, job.state, job.attempts_ended),
        job.body,
    )
