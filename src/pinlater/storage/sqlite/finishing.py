"""Whatever names jobs one by one: acks, checkpoints, heartbeats, releases, cancels.

Most acks are plain: a success with nothing to add, of a job tried for the first time. Those go in four statements for the whole call.
The others, and all other words, are loaded as records and decided in the order of the arguments, so that the first of two acks of one
job counts and the second meets what the first left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from pinlater.domain.job import JobState, Outcome
from pinlater.storage.interface import Ack, Acked, Checkpoint, ClaimRef, JobKey
from pinlater.storage.sqlite.changes import Changes, Record, acked
from pinlater.storage.sqlite.ledger import Transaction
from pinlater.storage.sqlite.statements import sql

NOT_FOUND = Acked(Outcome.NOT_FOUND)
SUCCEEDED = Acked(Outcome.APPLIED, JobState.SUCCEEDED)

_SELECT_CLAIMS = sql("select_claims")
_FINISH_CLAIMS = sql("finish_claims")
_DELETE_CLAIMS = sql("delete_claims")

Item = TypeVar("Item", Ack, Checkpoint, ClaimRef)


def finish(transaction: Transaction, acks: Sequence[Ack], now_ms: int) -> list[Acked]:
    """The plain successes all at once, then the others."""
    ids = str([ack[0][2] for ack in acks])
    claims = {row[0]: row for row in transaction.execute(_SELECT_CLAIMS, (ids,))}
    queues = transaction.ledger.queues
    results: list[Acked] = []
    plain: list[int] = []
    others: list[int] = []
    tallies: dict[tuple[str, int], int] = {}
    for key, succeeded, token, addition, *_ in acks:
        queue_name, priority, job_id = key
        claim = claims.pop(job_id, None)
        if (
            claim is not None
            and succeeded
            and not addition
            and not claim[3]
            and claim[2] == priority
            and (token is None or token == claim[4])
            and (queue := queues.get(queue_name)) is not None
            and queue.queue_id == claim[1]
        ):
            plain.append(job_id)
            where = (queue_name, priority)
            tallies[where] = tallies.get(where, 0) + 1
        else:
            others.append(len(results))
        results.append(SUCCEEDED)
    if plain:
        if others:
            ids = str(plain)
        transaction.execute(_FINISH_CLAIMS, (now_ms, ids))
        transaction.execute(_DELETE_CLAIMS, (ids,))
    for (queue_name, priority), count in tallies.items():
        counter = transaction.ledger.counter(queues[queue_name], priority)
        counter.in_progress -= count
        counter.succeeded += count
        counter.succeeded_total += count
    if others:
        answers = _decide(
            transaction, [acks[index] for index in others], now_ms, _end_attempt, lambda job, ack: _token_fits(job, ack)
        )
        for index, answer in zip(others, answers, strict=True):
            results[index] = answer
    return results


def checkpoint(transaction: Transaction, checkpoints: Sequence[Checkpoint], now_ms: int) -> list[Acked]:
    """Fenced by the token, or by the source where there is none."""

    def allowed(job: Record, progress: Checkpoint) -> bool:
        if progress.token is not None:
            return bool(job.token == progress.token)
        return bool(job.source == progress.source)

    return _decide(transaction, checkpoints, now_ms, Changes.checkpoint, allowed, renews=True)


def extend(transaction: Transaction, refs: Sequence[ClaimRef], now_ms: int) -> list[Acked]:
    """Heartbeats."""

    def renew(changes: Changes, job: Record, _: ClaimRef) -> None:
        changes.extend(job)

    return _decide(transaction, refs, now_ms, renew, _token_is, renews=True)


def release(transaction: Transaction, refs: Sequence[ClaimRef], now_ms: int) -> list[Acked]:
    """Claims given back."""

    def give_back(changes: Changes, job: Record, ref: ClaimRef) -> None:
        changes.release(job, ref.delay_ms)

    return _decide(transaction, refs, now_ms, give_back, _token_is)


def cancel(transaction: Transaction, keys: Sequence[JobKey], now_ms: int) -> list[Acked]:
    """Whoever holds them; only finished jobs stay as they are."""
    changes = Changes(transaction, now_ms)
    records = _found(transaction, changes, keys)
    results = []
    for key in keys:
        job = records.get(key)
        if job is None:
            results.append(NOT_FOUND)
        elif job.finished:
            results.append(acked(Outcome.ALREADY_FINAL, job))
        else:
            changes.cancel(job)
            results.append(acked(Outcome.APPLIED, job))
    changes.write()
    return results


def _end_attempt(changes: Changes, job: Record, ack: Ack) -> None:
    if ack.succeeded:
        changes.succeed(job, ack)
    else:
        changes.fail(job, ack)


def _token_fits(job: Record, ack: Ack) -> bool:
    return ack.token is None or bool(job.token == ack.token)


def _token_is(job: Record, ref: ClaimRef) -> bool:
    return bool(job.token == ref.token)


def _decide(
    transaction: Transaction,
    items: Sequence[Item],
    now_ms: int,
    act: Callable[[Changes, Record, Item], None],
    allowed: Callable[[Record, Item], bool],
    *,
    renews: bool = False,
) -> list[Acked]:
    """Carries out `act` on each job that is IN_PROGRESS and whose claim `allowed` accepts; says of the others why not."""
    changes = Changes(transaction, now_ms)
    records = _found(transaction, changes, [item.key for item in items])
    results = []
    for item in items:
        job = records.get(item.key)
        if job is None:
            results.append(NOT_FOUND)
        elif job.finished:
            results.append(acked(Outcome.ALREADY_FINAL, job))
        elif job.state is JobState.PENDING:
            results.append(acked(Outcome.STALE_CLAIM, job))
        elif not allowed(job, item):
            refused = acked(Outcome.STALE_CLAIM, job)
            results.append(refused._replace(holder=job.holder, held_since_ms=job.claimed_at_ms))
        else:
            act(changes, job, item)
            applied = acked(Outcome.APPLIED, job)
            renewed = renews and job.state is JobState.IN_PROGRESS
            results.append(applied._replace(deadline_ms=job.deadline_ms) if renewed else applied)
    changes.write()
    return results


def _found(transaction: Transaction, changes: Changes, keys: Sequence[JobKey]) -> dict[JobKey, Record]:
    """The jobs by the whole of their names; a job named by the wrong queue or priority is not found."""
    by_id = transaction.ledger.by_id
    records = changes.load([key.id for key in keys])
    return {JobKey(by_id[job.queue_id].name, job.priority, job.id): job for job in records}
