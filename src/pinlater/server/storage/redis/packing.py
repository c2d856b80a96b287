"""The packed records of jobs, claims and pasts. Scripts read the same bytes: a change here needs a change there.

A job (`j`): flags (1: has options, 2: has a past), attempts allowed, run-after, created; then, with options, flags for them (1: a claim
timeout, 2: an expiry, 4: something that the end of an attempt has to read), timeout, expiry, lengths of the options' text and of the key
that the first claim frees; the text; that key; and the body, to the end.

A claim (`h`): state, flags (1: a plain success needs no look at the job, 2: it was claimed), size of the job, claimed at, timeout,
renewed at, lengths of token and descriptor, token, descriptor, source. Of a finished job: state, flags, size, finished at, descriptor.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

import msgspec

from pinlater.domain.job import JobState, UniqueScope
from pinlater.domain.transitions import IN_PROGRESS, REDIS_STATUS
from pinlater.server.storage.options import options_of, options_text
from pinlater.server.storage.record import JobRecord, progress_of
from pinlater.server.storage.values import NewJob

HAS_OPTIONS, HAS_PAST = 1, 2
_STATES = tuple(JobState)
_TIMEOUT, _EXPIRES, _NOT_SIMPLE, _ORDERED = 1, 2, 4, 8
SIMPLE, HAD_HOLDER, ORDERED = 1, 2, 4

HEAD = Struct(">BIqq")
_OPTIONS = Struct(">BqqII")
_CLAIM = Struct(">BBIqqqHH")
_DONE = Struct(">BBIq")
HEAD_BYTES = HEAD.size
I64 = Struct(">q")


class UnpackedJob(NamedTuple):
    """A job's record except for its body; `front` is the record up to the body."""

    flags: int
    attempts_allowed: int
    run_after_ms: int
    created_at_ms: int
    options: str | None
    body_at: int


class UnpackedClaim(NamedTuple):
    """The state of a job that doesn't wait. `claimed_at_ms` None: finished, at `finished_at_ms`."""

    state: JobState
    flags: int
    size: int
    claimed_at_ms: int | None = None
    timeout_ms: int | None = None
    renewed_at_ms: int | None = None
    token: str | None = None
    holder: str | None = None
    source: str | None = None
    finished_at_ms: int | None = None


def pack_job(job: NewJob, now_ms: int) -> bytes:
    """Returns the record of a new job."""
    options, text = job.options, options_text(job.options, REDIS_STATUS)
    if options is None or text is None:
        return HEAD.pack(0, job.attempts_allowed, job.run_after_ms, now_ms) + job.body
    packed_options = text.encode()
    bits, key = 0, b""
    if options.timeout_ms is not None:
        bits |= _TIMEOUT
    if options.expires_ms is not None:
        bits |= _EXPIRES
    if options.status:
        bits |= _NOT_SIMPLE
    if (unique := options.unique) is not None:
        if unique.scope is UniqueScope.PENDING:
            key = unique.key.encode()
        elif unique.scope is UniqueScope.UNFINISHED:
            bits |= _NOT_SIMPLE
    if options.ordering_key is not None:
        bits |= _ORDERED
    return b"".join(
        (
            HEAD.pack(HAS_OPTIONS, job.attempts_allowed, job.run_after_ms, now_ms),
            _OPTIONS.pack(bits, options.timeout_ms or 0, options.expires_ms or 0, len(packed_options), len(key)),
            packed_options,
            key,
            job.body,
        )
    )


def read_job(record: bytes) -> UnpackedJob:
    """A record, or the part of it before the body."""
    flags, attempts, run_after_ms, created_at_ms = HEAD.unpack_from(record)
    if not flags & HAS_OPTIONS:
        return UnpackedJob(flags, attempts, run_after_ms, created_at_ms, None, HEAD_BYTES)
    _, _, _, text_bytes, key_bytes = _OPTIONS.unpack_from(record, HEAD_BYTES)
    begin = HEAD_BYTES + _OPTIONS.size
    text = record[begin : begin + text_bytes].decode()
    return UnpackedJob(flags, attempts, run_after_ms, created_at_ms, text, begin + text_bytes + key_bytes)


def is_simple(job: UnpackedJob) -> bool:
    """Returns whether a plain success needs only the job's place under its ordering key, and not the job."""
    if job.flags & HAS_PAST:
        return False
    if not job.flags & HAS_OPTIONS:
        return True
    options = options_of(job.options)
    if options.status:
        return False
    return options.unique is None or options.unique.scope is not UniqueScope.UNFINISHED


def pack_holder(token: str, descriptor: str, source: str) -> bytes:
    """The part of a claim behind its times."""
    packed_token, packed_descriptor = token.encode(), descriptor.encode()
    lengths = len(packed_token).to_bytes(2, "big") + len(packed_descriptor).to_bytes(2, "big")
    return b"".join((lengths, packed_token, packed_descriptor, source.encode()))


def pack_claim(claim: UnpackedClaim) -> bytes:
    """A claim of a job in progress."""
    return _CLAIM.pack(
        IN_PROGRESS,
        claim.flags,
        claim.size,
        claim.claimed_at_ms,
        claim.timeout_ms,
        claim.renewed_at_ms,
        0,
        0,
    )[:-4] + pack_holder(claim.token or "", claim.holder or "", claim.source or "")


def pack_finished(state: JobState, size: int, finished_at_ms: int, holder: str | None) -> bytes:
    flags = 0 if holder is None else HAD_HOLDER
    return _DONE.pack(state, flags, size, finished_at_ms) + (holder or "").encode()


def read_claim(packed: bytes) -> UnpackedClaim | None:
    """Returns the claim, or None for a job that waits."""
    if not packed:
        return None
    state = _STATES[packed[0]]
    if state is not IN_PROGRESS:
        _, flags, size, finished_at_ms = _DONE.unpack_from(packed)
        holder = packed[_DONE.size :].decode() if flags & HAD_HOLDER else None
        return UnpackedClaim(state, flags, size, holder=holder, finished_at_ms=finished_at_ms)
    _, flags, size, claimed_ms, timeout_ms, renewed_ms, token_bytes, holder_bytes = _CLAIM.unpack_from(packed)
    token_end = _CLAIM.size + token_bytes
    holder_end = token_end + holder_bytes
    return UnpackedClaim(
        state,
        flags,
        size,
        claimed_ms,
        timeout_ms,
        renewed_ms,
        packed[_CLAIM.size : token_end].decode(),
        packed[token_end:holder_end].decode(),
        packed[holder_end:].decode(),
    )


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[int, int, int, int, int, str, str, str, str]).decode


def pack_past(job: JobRecord) -> bytes:
    """Returns the data that the first change of a job adds."""
    return _encode(progress_of(job))


def read_past(packed: bytes) -> tuple[int, int, int, int, int, str, str, str, str] | None:
    """The values of `progress_of`, or None for a job that never changed."""
    return _decode(packed) if packed else None
