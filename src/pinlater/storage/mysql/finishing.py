"""Whatever names jobs one by one: acks, checkpoints, heartbeats, releases, cancels.

Most acks are plain: a success with nothing to add, of a job tried for the first time. Those take two round trips for the whole call;
the others, and all other words, are loaded as records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from pinlater.domain.errors import PinLaterError
from pinlater.domain.job import JobState, Outcome
from pinlater.storage import deciding
from pinlater.storage.events import Events
from pinlater.storage.interface import Ack, Acked, Checkpoint, ClaimRef, JobKey
from pinlater.storage.mysql.changes import Changes
from pinlater.storage.mysql.errors import BodyTooLong
from pinlater.storage.mysql.statements import delete_rows, escaped, sql
from pinlater.storage.mysql.transaction import Transaction

SUCCEEDED = Acked(Outcome.APPLIED, JobState.SUCCEEDED)

_LOCK_CLAIMS = sql("lock_claims")
_FINISH_CLAIMS = sql("finish_claims")
_CLAIMS_OF_TOKENS = sql("select_claims_of_tokens")

Item = TypeVar("Item")


async def finish(transaction: Transaction, acks: Sequence[Ack], now_ms: int) -> list[Acked]:
    """The plain successes all at once, then the others."""
    if not acks:
        return []
    [found] = await transaction.select(_LOCK_CLAIMS(ids=sorted({ack[0][2] for ack in acks})))
    claims = {line[0]: line for line in found.rows}
    queues = transaction.book.queues
    results: list[Acked] = []
    plain: list[int] = []
    others: list[int] = []
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
            counter = transaction.counters.of(queue.queue_id, priority)
            counter.in_progress -= 1
            counter.succeeded += 1
            counter.succeeded_total += 1
        else:
            others.append(len(results))
        results.append(SUCCEEDED)
    if plain:
        plain.sort()
        transaction.change(_FINISH_CLAIMS(now_ms=now_ms, ids=plain))
        transaction.change(delete_rows(b"claims", plain))
    if others:
        left = [acks[index] for index in others]
        answers = await _decide(transaction, left, [ack.key for ack in left], now_ms, deciding.finish)
        for index, answer in zip(others, answers, strict=True):
            results[index] = answer
    return results


async def checkpoint(
    transaction: Transaction, checkpoints: Sequence[Checkpoint], now_ms: int
) -> list[Acked | PinLaterError]:
    """Progress of jobs in hand."""
    fitting: list[Checkpoint] = []
    answers: list[Acked | PinLaterError] = []
    most = transaction.row_bytes_max
    for index, item in enumerate(checkpoints):
        size_bytes = 0 if item.new_body is None else len(escaped(item.new_body))
        if size_bytes > most:
            answers.append(BodyTooLong(transaction.endpoint, index, size_bytes, most))
        else:
            answers.append(SUCCEEDED)
            fitting.append(item)
    done = iter(await _decide(transaction, fitting, [item.key for item in fitting], now_ms, deciding.checkpoint))
    return [next(done) if answer is SUCCEEDED else answer for answer in answers]


async def extend(transaction: Transaction, refs: Sequence[ClaimRef], now_ms: int) -> list[Acked]:
    """Heartbeats."""
    return await _decide(transaction, refs, [ref.key for ref in refs], now_ms, deciding.extend)


async def release(transaction: Transaction, refs: Sequence[ClaimRef], now_ms: int) -> list[Acked]:
    """Claims given back."""
    return await _decide(transaction, refs, [ref.key for ref in refs], now_ms, deciding.release)


async def release_tokens(transaction: Transaction, tokens: Collection[str], now_ms: int) -> set[str]:
    """Gives back the claims with these tokens, which nobody ever got; the queues that they are of."""
    [found] = await transaction.select(_CLAIMS_OF_TOKENS(tokens=sorted(tokens)))
    changes = Changes(transaction, now_ms)
    queues = set()
    for job in await changes.load([job_id for (job_id,) in found.rows]):
        if job.state is JobState.IN_PROGRESS and job.token in tokens:
            changes.release(job, 0)
            queues.add(transaction.book.by_id[job.queue_id].name)
    changes.write()
    return queues


async def cancel(transaction: Transaction, keys: Sequence[JobKey], now_ms: int) -> list[Acked]:
    """Whoever holds them."""
    return await _decide(transaction, keys, keys, now_ms, deciding.cancel)


async def _decide(
    transaction: Transaction,
    items: Sequence[Item],
    keys: Sequence[JobKey],
    now_ms: int,
    word: Callable[[Events, deciding.Records, Sequence[Item]], list[Acked]],
) -> list[Acked]:
    """Loads the jobs, decides, writes. A job named by the wrong queue or priority is not found."""
    changes = Changes(transaction, now_ms)
    by_id = transaction.book.by_id
    loaded = await changes.load([key.id for key in keys])
    records = {JobKey(by_id[job.queue_id].name, job.priority, job.id): job for job in loaded}
    answers = word(changes, records, items)
    changes.write()
    return answers
