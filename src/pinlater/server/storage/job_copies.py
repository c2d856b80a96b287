"""Copies of deleted jobs, as all stores pack them: one for the jobs that one call deletes together. Pure.

A copy has everything that a restored job needs. A job that was claimed is restored as a waiting job that is due when its claim would have
ended, so that no other worker gets it before; its attempts are as they were.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import astuple, replace

from pinlater.domain.job import JobState, UniqueKey, UniqueScope
from pinlater.domain.transitions import IN_PROGRESS, PENDING
from pinlater.server.storage.options import Options, options_text
from pinlater.server.storage.record import JobRecord, record_of
from pinlater.server.storage.values import SAMPLE_BYTES_MAX, Restored

logger = logging.getLogger(__name__)

BATCH_BYTES_MAX = 1024 * 1024
"""Bytes of bodies that one call deletes together; a job with a longer body is deleted alone."""
BATCH_JOBS_MAX = 1_000
RESTORED_MARK = "undone"
"""The name of the marker that stores keep beside the copies of a run whose jobs were restored: an undo."""
_PACKED_BYTES_MAX = 256 * 1024  # longer bodies are stored uncompressed: packing one would block the event loop
_JOB_BYTES = 200  # approximate size of a job beside its body


class JobCopy(NamedTuple):
    """A deleted job with its body, in the form in which it is restored. `takes_key`: it had its unique key, and needs it."""

    job: JobRecord
    takes_key: bool

    @property
    def key_to_take(self) -> UniqueKey | None:
        """The unique key that it needs to be restored."""
        return self.job.options.unique if self.takes_key else None


def copy_of(job: JobRecord, body: bytes) -> JobCopy:
    """A job that is about to be deleted."""
    took_key = takes_key(job.options, job.state, job.attempts_ended)
    if not job.finished:
        due_ms = max(job.run_after_ms, job.deadline_ms or 0) if job.state is IN_PROGRESS else job.run_after_ms
        job = replace(job, run_after_ms=due_ms, state=PENDING, finished_at_ms=None, holder=None)
    return JobCopy(replace(job, body=body), took_key)


def takes_key(options: Options, state: JobState, attempts_ended: int) -> bool:
    """Returns whether a job in that state has its unique key, and needs it to be restored."""
    unique = options.unique
    if unique is None or unique.scope is UniqueScope.TIME:
        return False
    if unique.scope is UniqueScope.UNFINISHED:
        return state is PENDING or state is IN_PROGRESS
    return state is PENDING and not attempts_ended  # its first claim freed the key


def first_that_fit(sizes: Iterable[int]) -> int:
    """Returns how many jobs with bodies of these sizes fit together: at least one, if there is one."""
    number = together = 0
    for size in sizes:
        together += size + _JOB_BYTES
        if number and (together > BATCH_BYTES_MAX or number >= BATCH_JOBS_MAX):
            break
        number += 1
    return number


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[tuple[Any, ...]]).decode


def pack_copies(copies: Sequence[JobCopy]) -> bytes:
    longest = max([len(copy.job.body or b"") for copy in copies], default=0)
    return zlib.compress(_encode([_values(copy) for copy in copies]), 0 if longest > _PACKED_BYTES_MAX else 1)


def _values(copy: JobCopy) -> tuple[object, ...]:
    """The fields of the record up to its history, as `record_of` reads them; then holder, key and body."""
    job = copy.job
    fields = astuple(job)
    return (*fields[:8], options_text(job.options), *fields[9:16], job.holder, copy.takes_key, job.body)


def read_copies(packed: bytes, now_ms: int) -> list[JobCopy]:
    """Returns the copies, or none if a part of them is gone."""
    try:
        return [_copy(values, now_ms) for values in _decode(zlib.decompress(packed))]
    except (zlib.error, msgspec.DecodeError) as error:
        logger.error("copies of deleted jobs are lost: %s", error)  # noqa: TRY400 no stack needed
        return []


def _copy(values: Sequence[Any], now_ms: int) -> JobCopy:
    *fields, holder, took_key, body = values
    job = record_of(fields)
    is_future = job.state is PENDING and job.run_after_ms > now_ms
    stored = {"has_progress": True, "counted_future": is_future, "body_bytes": len(body), "body": body, "changed": True}
    return JobCopy(replace(job, holder=holder, **stored), took_key)


def brought_back(place: str, copies: Sequence[JobCopy], kept: int, freed_bytes: int, now_ms: int) -> Restored:
    """Returns the answer to `RestoreJobs` once these jobs are restored. `kept`: how many are not restored because their keys are taken."""
    due = [job.run_after_ms for job, _ in copies if job.state is PENDING]
    return Restored(
        place,
        len(copies),
        kept,
        freed_bytes=freed_bytes,
        due=sum(run_after_ms <= now_ms for run_after_ms in due),
        next_due_ms=min([run_after_ms for run_after_ms in due if run_after_ms > now_ms], default=None),
    )


def place_of(at_ms: int, copies: Sequence[JobCopy]) -> str:
    """The name for the deletions of one call. Names sort by time, and no two calls of a run have the same: it deletes no job twice."""
    return f"{at_ms:015d}.{copies[0].job.id:019d}"


def pieces_of(place: str, packed: bytes) -> list[tuple[str, bytes]]:
    """Returns parts small enough for a row, with their names, which sort in order."""
    starts = range(0, len(packed), SAMPLE_BYTES_MAX)
    return [(f"{place}.{number:06d}", packed[start : start + SAMPLE_BYTES_MAX]) for number, start in enumerate(starts)]
