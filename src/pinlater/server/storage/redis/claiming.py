"""Hands out due jobs: one script for all orders of a call. Jobs that it met past their expiry are ended right afterwards."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from struct import Struct
from typing import Any, NamedTuple

from pinlater.domain.descriptor import I64_MAX
from pinlater.domain.errors import PinLaterError, QueueNotFound, Unavailable
from pinlater.domain.job import HandedOutJob
from pinlater.server.storage.claim_bytes import BytesTogether
from pinlater.server.storage.decide import Expire
from pinlater.server.storage.options import options_of
from pinlater.server.storage.record import later
from pinlater.server.storage.redis.access import Access
from pinlater.server.storage.redis.arguments import encode
from pinlater.server.storage.redis.changes import Changes
from pinlater.server.storage.redis.keys import line_of
from pinlater.server.storage.redis.packing import HEAD, HEAD_BYTES, I64, pack_holder, read_job, read_past
from pinlater.server.storage.values import Claimed, ClaimOrder

logger = logging.getLogger(__name__)

_ENTRY = Struct(">Bq?")
REF_BYTES = 13
_CUT_SHORT = 2
_ALL_PRIORITIES = 255


class FoundJobs(NamedTuple):
    """The answer to an order. `next_due_ms`, `head`: of the jobs that stay, even if each call got as many as it requested. `is_cut`:
    there were jobs that are neither handed out nor stay, or the script stopped at a bound."""

    claimed: Claimed
    next_due_ms: int | None
    head: tuple[int, int] | None
    is_cut: bool


async def claim(
    access: Access, orders: Sequence[ClaimOrder], now_ms: int, unknown_claims: list[tuple[bytes, str]]
) -> list[FoundJobs | PinLaterError]:
    """Executes all orders at once. `unknown_claims` gets the claims (ref, token) that were made although the call failed."""
    queues = access.queues
    known = [order for order in orders if order.queue in queues]
    answers: list[Any] = []
    records: list[bytes] = []
    if known:
        checked = access.ids_of([order.queue for order in known])
        place_of = {name: place + 1 for place, (name, _) in enumerate(checked)}
        packed = [_packed(place_of[order.queue], order) for order in known]

        def made_after_all(answer: Any) -> None:
            for order, [shares, *_] in zip(known, answer[0] if len(answer) == 2 else answer, strict=True):
                for call, share in zip(order.calls, shares, strict=True):
                    for priority, job_id, _ in _ENTRY.iter_unpack(share):
                        unknown_claims.append(
                            (line_of(queues[order.queue], priority) + I64.pack(job_id), call.holder.token)
                        )

        bytes_max = BytesTogether(known).left
        request = encode(([name for name, _ in checked], [queue for _, queue in checked], packed, bytes_max))
        answers, records = await access.writer.run(
            "claim_jobs",
            now_ms,
            I64.pack(now_ms),
            request,
            if_answered=made_after_all,
            has_changed=lambda answer: any(any(shares) or lost for shares, _, _, _, lost, _ in answer[0]),
        )
    results: list[FoundJobs | PinLaterError] = []
    found = iter(answers)
    values = iter(records)
    for order in orders:
        if order.queue not in queues:
            results.append(QueueNotFound.of(order.queue))
            continue
        shares, due, expired, cut, lost, head = next(found)
        jobs = [_jobs(share, values, now_ms, order.claim_timeout_ms) if share else [] for share in shares]
        if lost:
            access.stats.jobs_lost += lost
            logger.error("jobs are gone from Redis: %d of queue %s that waited", lost, order.queue)
        ended = await _expire(access, expired, now_ms) if expired else 0
        next_due_ms, first = _time(due), _head(head)
        lacks_jobs = cut or any([len(got) < call.limit for got, call in zip(jobs, order.calls, strict=True)])  # noqa: C419 a list is quicker
        left = (next_due_ms, ended, cut == _CUT_SHORT, first) if lacks_jobs else (None, ended)
        results.append(FoundJobs(Claimed(jobs, *left), next_due_ms, first, bool(cut or expired)))
    return results


def _packed(place: int, order: ClaimOrder) -> tuple[Any, ...]:
    timeout_ms = max(-I64_MAX - 1, min(order.claim_timeout_ms, I64_MAX))
    calls = [
        (max(0, call.limit), call.max_bytes, pack_holder(call.holder.token, call.holder.descriptor, call.holder.source))
        for call in order.calls
    ]
    through = _ALL_PRIORITIES if order.through_priority is None else order.through_priority
    return place, b"%d" % timeout_ms, I64.pack(timeout_ms), calls, through


def _jobs(share: bytes, values: Any, now_ms: int, timeout_ms: int) -> list[HandedOutJob]:
    """The hot loop: one iteration per job."""
    until_ms = later(now_ms, timeout_ms)
    jobs = []
    make = tuple.__new__
    unpack = HEAD.unpack_from
    for priority, job_id, has_past in _ENTRY.iter_unpack(share):
        record = next(values)
        if has_past or record[:1] != b"\0":
            past = next(values) if has_past else b""
            if record:
                jobs.append(_special(priority, job_id, record, past, now_ms, timeout_ms))
            continue
        _, allowed, run_after_ms, created_ms = unpack(record)
        body = record[HEAD_BYTES:]
        jobs.append(
            make(
                HandedOutJob,
                (job_id, priority, body, allowed, allowed, 1, None, created_ms, run_after_ms, until_ms),
            )
        )
    return jobs


def _special(priority: int, job_id: int, record: bytes, past: bytes, now_ms: int, timeout_ms: int) -> HandedOutJob:
    """A job with options or a past."""
    until_ms = later(now_ms, timeout_ms)
    return handed_out(priority, job_id, record, past, until_ms, now_ms)


def handed_out(
    priority: int, job_id: int, record: bytes, past_bytes: bytes, until_ms: int, now_ms: int | None = None
) -> HandedOutJob:
    """Returns a job in the form that a claim returns. With `now_ms`, the deadline uses the job's own claim timeout."""
    stored = read_job(record)
    options = options_of(stored.options)
    allowed = stored.attempts_allowed
    allowed, remaining, ended, run_after_ms, *_ = read_past(past_bytes) or (allowed, allowed, 0, stored.run_after_ms)
    if now_ms is not None and options.timeout_ms is not None:
        until_ms = later(now_ms, options.timeout_ms)
    return HandedOutJob(
        job_id,
        priority,
        record[stored.body_at :],
        allowed,
        remaining,
        ended + 1,
        options.headers,
        stored.created_at_ms,
        run_after_ms,
        until_ms,
    )


async def _expire(access: Access, refs: bytes, now_ms: int) -> int:
    """Returns how many became FAILED. The claim was made, so a failure here is left to the sweep."""
    expired = [refs[at : at + REF_BYTES] for at in range(0, len(refs), REF_BYTES)]

    def decide(changes: Changes) -> int:
        return sum(changes.apply(job, Expire()) is not None for job in changes.jobs())

    try:
        return await access.change(expired, now_ms, decide, ())
    except Unavailable as error:
        logger.warning("jobs past their expiry could not be ended yet: %s", error)
        return 0


def _head(found: bytes) -> tuple[int, int] | None:
    """Returns the head from a byte for the priority and a score."""
    return (found[0], time_of(found[1:])) if found else None


def _time(score: bytes) -> int | None:
    return max(-I64_MAX, min(time_of(score), I64_MAX)) if score else None


def time_of(score: bytes) -> int:
    """Returns a score as a time. Beyond the exact range of a double it is approximate, and may not fit into 63 bits."""
    try:
        return int(score)
    except ValueError:
        return int(float(score))
