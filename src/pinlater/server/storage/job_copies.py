"""Copies of deleted jobs, as all stores pack them: the jobs that one call deletes, together. Pure.

A copy has all of a job as it shall come back. One that a worker had comes back as a waiting job that is due when its claim would have
ended, so that no other worker gets it before; its attempts are as they were.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from pinlater.domain.job import JobState, NewJob, UniqueKey, UniqueScope
from pinlater.domain.transitions import IN_PROGRESS, PENDING
from pinlater.server.storage.options import Options, options_of
from pinlater.server.storage.values import SAMPLE_BYTES_MAX

logger = logging.getLogger(__name__)

BATCH_BYTES_MAX = 1024 * 1024
"""Bodies that one call deletes together; a longer one goes alone."""
BATCH_JOBS_MAX = 1_000
RESTORED_MARK = "undone"
"""The name of what stores keep beside the copies of a run whose jobs were restored: an undo."""
_PACKED_BYTES_MAX = 256 * 1024  # longer bodies are kept as they are: to pack one would hold up the event loop
_JOB_BYTES = 200  # what a job takes beside its body, about


class JobCopy(NamedTuple):
    """A deleted job. `state` is a number of `JobState`; `takes_key`: it had its unique key; `options` and `history` as stores keep them."""

    id: int
    queue_id: int
    priority: int
    created_at_ms: int
    run_after_ms: int
    updated_at_ms: int
    attempts_allowed: int
    attempts_remaining: int
    options: str | None
    state: int
    finished_at_ms: int | None
    attempts_ended: int
    custom_status: str
    error_type: str
    error_text: str
    history: str
    holder: str | None
    takes_key: bool
    body: bytes

    @property
    def job_state(self) -> JobState:
        return JobState(self.state)

    @property
    def key_to_take(self) -> UniqueKey | None:
        """The unique key that it needs to come back."""
        return options_of(self.options).unique if self.takes_key else None

    def new_job(self) -> NewJob:
        """The job as at an enqueue, with its newest body."""
        options = options_of(self.options)
        return NewJob(
            self.id,
            self.body,
            self.priority,
            self.run_after_ms,
            self.attempts_allowed,
            options.status,
            options.headers,
            options.unique,
            options.timeout_ms,
            options.expires_ms,
        )


def takes_key(options: Options, state: JobState, attempts_ended: int) -> bool:
    """Whether a job in that state has its unique key, and needs it to come back."""
    unique = options.unique
    if unique is None or unique.scope is UniqueScope.TIME:
        return False
    if unique.scope is UniqueScope.UNFINISHED:
        return state is PENDING or state is IN_PROGRESS
    return state is PENDING and not attempts_ended  # its first claim freed the key


def first_that_fit(sizes: Iterable[int]) -> int:
    """How many of jobs with bodies of these sizes go together: at least one, if there is one."""
    number = together = 0
    for size in sizes:
        together += size + _JOB_BYTES
        if number and (together > BATCH_BYTES_MAX or number >= BATCH_JOBS_MAX):
            break
        number += 1
    return number


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[JobCopy]).decode


def pack_copies(copies: Sequence[JobCopy]) -> bytes:
    longest = max([len(copy.body) for copy in copies], default=0)
    return zlib.compress(_encode(copies), 0 if longest > _PACKED_BYTES_MAX else 1)


def read_copies(packed: bytes) -> list[JobCopy]:
    """Returns none if a part of them is gone."""
    try:
        return _decode(zlib.decompress(packed))
    except (zlib.error, msgspec.DecodeError) as error:
        logger.error("copies of deleted jobs are lost: %s", error)  # noqa: TRY400 no stack needed
        return []


def place_of(at_ms: int, copies: Sequence[JobCopy]) -> str:
    """The name of what one call deleted. Names sort by time, and no two calls of a run have one: it deletes no job twice."""
    return f"{at_ms:015d}.{copies[0].id:019d}"


def pieces_of(place: str, packed: bytes) -> list[tuple[str, bytes]]:
    """As many parts as rows can hold, with their names, which sort in order."""
    starts = range(0, len(packed), SAMPLE_BYTES_MAX)
    return [(f"{place}.{number:06d}", packed[start : start + SAMPLE_BYTES_MAX]) for number, start in enumerate(starts)]
