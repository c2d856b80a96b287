"""Acks, checkpoints, heartbeats, releases and cancels: loads the jobs, decides in the order of the arguments, writes.

Plain acks (a success at the first attempt, without a status) take a shorter path in each store.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from pinlater.domain.errors import PinLaterError
from pinlater.domain.job import JobState
from pinlater.domain.transitions import IN_PROGRESS
from pinlater.server.storage import outcomes
from pinlater.server.storage.changes import Changes
from pinlater.server.storage.decide import Release, renewed_deadline_ms
from pinlater.server.storage.relational.changes import write
from pinlater.server.storage.relational.dialect import Dialect
from pinlater.server.storage.relational.loading import load
from pinlater.server.storage.relational.rows import ClaimRow
from pinlater.server.storage.values import NOT_FOUND, Acked, ClaimRef, JobAck, JobCheckpoint, JobKey

Item = TypeVar("Item")


async def finish(dialect: Dialect, acks: Sequence[JobAck], now_ms: int) -> list[Acked]:
    """Ends of attempts that are not plain acks."""
    return await _decide(dialect, acks, [ack.key for ack in acks], now_ms, outcomes.finish)


async def checkpoint(
    dialect: Dialect, checkpoints: Sequence[JobCheckpoint], now_ms: int
) -> Sequence[Acked | PinLaterError]:
    """Progress of claimed jobs."""
    return await _decide(dialect, checkpoints, [item.key for item in checkpoints], now_ms, outcomes.checkpoint)


async def extend(dialect: Dialect, claims: Sequence[ClaimRef], now_ms: int) -> list[Acked]:
    """Renews claims, for heartbeats. A heartbeat of the holder changes only the claim's deadline: jobs are loaded only for refusals."""
    rows = await dialect.select_of("load_claims", sorted({claim.key.id for claim in claims}))
    found = {row[0]: ClaimRow._make(row) for row in rows}
    queues = await dialect.queues_of({row.queue_id for row in found.values()})
    renewed: dict[int, tuple[int, int, int]] = {}
    others: list[int] = []
    answers: list[Acked] = []
    for index, ((queue_name, priority, job_id), token, *_) in enumerate(claims):
        claim = found.get(job_id)
        queue = None if claim is None else queues.get(claim.queue_id)
        if claim is None or queue is None or (queue.name, claim.priority, claim.token) != (queue_name, priority, token):
            others.append(index)
            answers.append(NOT_FOUND)
            continue
        deadline_ms = renewed_deadline_ms(claim.deadline_ms, claim.timeout_ms, now_ms)
        renewed[job_id] = (job_id, deadline_ms, claim.flags)
        answers.append(Acked(outcomes.APPLIED, IN_PROGRESS, deadline_ms=deadline_ms))
    dialect.for_each("renew_claims", list(renewed.values()))
    if others:
        left = [claims[index] for index in others]
        refused = await _decide(dialect, left, [ref.key for ref in left], now_ms, outcomes.extend)
        for index, answer in zip(others, refused, strict=True):
            answers[index] = answer
    return answers


async def release(dialect: Dialect, claims: Sequence[ClaimRef], now_ms: int) -> list[Acked]:
    """Releases claims."""
    return await _decide(dialect, claims, [claim.key for claim in claims], now_ms, outcomes.release)


async def cancel(
    dialect: Dialect, keys: Sequence[JobKey], now_ms: int, only_state: JobState | None = None
) -> list[Acked]:
    """Cancels jobs that wait, are claimed, or both. A claim ends whichever worker holds it."""
    return await _decide(
        dialect, keys, keys, now_ms, lambda changes, items: outcomes.cancel(changes, items, only_state)
    )


async def release_tokens(dialect: Dialect, tokens: Collection[str], now_ms: int) -> set[str]:
    """Gives back the claims with these tokens, which no worker knows. Returns the names of their queues."""
    found = await dialect.select("claims_of_tokens", tokens=sorted(tokens))
    changes = Changes(now_ms)
    jobs, _ = await load(dialect, changes, [job_id for (job_id,) in found])
    held = [job for job in jobs if job.token in tokens]
    released = {changes.queue_of(job) for job in held if changes.apply(job, Release()) is not None}
    await write(dialect, changes)
    return released


async def _decide(
    dialect: Dialect,
    items: Sequence[Item],
    keys: Sequence[JobKey],
    now_ms: int,
    decide_all: Callable[[Changes, Sequence[Item]], list[Acked]],
) -> list[Acked]:
    """A job that is named by the wrong queue or priority is not found."""
    changes = Changes(now_ms)
    await load(dialect, changes, [key.id for key in keys])
    answers = decide_all(changes, items)
    await write(dialect, changes)
    return answers
