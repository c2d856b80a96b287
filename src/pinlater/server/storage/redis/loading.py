"""Loads jobs as they are stored. A job whose claim or index entry is lost is repaired first, so that no call decides on half a job."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from pinlater.domain.transitions import IN_PROGRESS, PENDING
from pinlater.server.storage.options import options_of
from pinlater.server.storage.record import JobRecord, later
from pinlater.server.storage.redis.arguments import encode
from pinlater.server.storage.redis.keys import parts_of
from pinlater.server.storage.redis.packing import UnpackedClaim, UnpackedJob, read_past
from pinlater.server.storage.redis.readers import Readers

logger = logging.getLogger(__name__)

# The result of `read_claim` for a job that waits.
_WAITS = UnpackedClaim(PENDING, 0, 0)
# The claim that `load_jobs.lua` gives to a job which has none and doesn't wait.
_ODD = b"\0"


async def load_jobs(
    readers: Readers,
    refs: Sequence[bytes],
    *,
    bodies: bool = False,
    keys: Sequence[tuple[bytes, str]] = (),
    queues: Sequence[tuple[str, bytes]] = (),
) -> tuple[list[Any], list[bytes]]:
    """Loads, for each job, the record (without its body, unless `bodies`), size, claim and past, one after the other, and the values of
    the unique keys (queue, key). Raises `StaleQueues` if one of the `queues` has another id now.
    """
    request = encode((refs, int(bodies), keys, [name for name, _ in queues], [queue for _, queue in queues]))
    found, held = await readers.run("load_jobs", request)
    if _ODD in found[2::4]:
        odd = [ref for ref, claim in zip(refs, found[2::4], strict=True) if claim == _ODD]
        _, repaired, *_ = await readers.run("repair_jobs", encode(odd), "0", 0)
        readers.stats.jobs_repaired += repaired
        logger.error("claims or indexes of jobs are gone from Redis: %d jobs put right", repaired)
        found, held = await readers.run("load_jobs", request)
    return found, held


def record_of(
    ref: bytes, stored: UnpackedJob, claim: UnpackedClaim | None, past_bytes: bytes, body: bytes | None = None
) -> JobRecord:
    """The job from its parts."""
    queue, priority, job_id = parts_of(ref)
    options, claim, allowed = options_of(stored.options), claim or _WAITS, stored.attempts_allowed
    at_first = (allowed, allowed, 0, stored.run_after_ms, stored.created_at_ms, options.status, "", "", "[]")
    allowed, remaining, ended, run_after_ms, updated_at_ms, *texts = read_past(past_bytes) or at_first
    status, error_type, error_text, history = texts
    is_held = claim.state is IN_PROGRESS
    return JobRecord(
        job_id,
        int.from_bytes(queue, "big"),
        priority,
        stored.created_at_ms,
        run_after_ms,
        updated_at_ms,
        allowed,
        remaining,
        options,
        claim.state,
        claim.finished_at_ms,
        ended,
        status,
        error_type,
        error_text,
        history,
        claim.claimed_at_ms,
        later(claim.renewed_at_ms or 0, claim.timeout_ms or 0) if is_held else None,
        claim.timeout_ms,
        claim.flags if is_held else 0,
        claim.token,
        claim.source,
        claim.holder,
        bool(past_bytes),
        body=body,
    )
