"""Whatever names jobs one by one: acks, checkpoints, heartbeats, releases, cancels.

Most acks are plain: a success with nothing to add, of a job tried for the first time. Those go in four statements for the whole call.
The others, and all other words, are loaded as records and decided in the order of the arguments, so that the first of two acks of one
job counts and the second meets what the first left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from pinlater.domain.job import JobState, Outcome
from pinlater.storage import deciding
from pinlater.storage.events import Events
from pinlater.storage.interface import Ack, Acked, Checkpoint, ClaimRef, JobKey
from pinlater.storage.sqlite.changes import Changes
from pinlater.storage.sqlite.ledger import Transaction
from pinlater.storage.sqlite.statements import sql

SUCCEEDED = Acked(Outcome.APPLIED, JobState.SUCCEEDED)

_SELECT_CLAIMS = sql("select_claims")
_FINISH_CLAIMS = sql("finish_claims")
_DELETE_CLAIMS = sql("delete_claims")

Item = TypeVar("Item")


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
        left = [acks[index] for index in others]
        answers = _decide(transaction, left, [ack.key for ack in left], now_ms, deciding.finish)
        for index, answer in zip(others, answers, strict=True):
            results[index] = answer
    return results


def checkpoint(transaction: Transaction, checkpoints: Sequence[Checkpoint], now_ms: int) -> list[Acked]:
    """Progress of jobs in hand."""
    return _decide(transaction, checkpoints, [item.key for item in checkpoints], now_ms, deciding.checkpoint)


def extend(transaction: Transaction, refs: Sequence[ClaimRef], now_ms: int) -> list[Acked]:
    """Heartbeats."""
    return _decide(transaction, refs, [ref.key for ref in refs], now_ms, deciding.extend)


def release(transaction: Transaction, refs: Sequence[ClaimRef], now_ms: int) -> list[Acked]:
    """Claims given back."""
    return _decide(transaction, refs, [ref.key for ref in refs], now_ms, deciding.release)


def cancel(transaction: Transaction, keys: Sequence[JobKey], now_ms: int) -> list[Acked]:
    """Whoever holds them."""
    return _decide(transaction, keys, keys, now_ms, deciding.cancel)


def _decide(
    transaction: Transaction,
    items: Sequence[Item],
    keys: Sequence[JobKey],
    now_ms: int,
    word: Callable[[Events, deciding.Records, Sequence[Item]], list[Acked]],
) -> list[Acked]:
    """Loads the jobs, decides, writes. A job named by the wrong queue or priority is not found."""
    changes = Changes(transaction, now_ms)
    by_id = transaction.ledger.by_id
    loaded = changes.load([key.id for key in keys])
    records = {JobKey(by_id[job.queue_id].name, job.priority, job.id): job for job in loaded}
    answers = word(changes, records, items)
    changes.write()
    return answers
