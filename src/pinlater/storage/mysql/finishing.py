"""Whatever names jobs one by one: acks, checkpoints, heartbeats, releases, cancels.

Most acks are plain: a success with nothing to add, of a job tried for the first time. Those take one round trip for the whole call:
nobody looks whether the claims are as they should be, but unless all are, the database refuses it all, and the call looks first. The
other acks, and all other words, are loaded as records.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from pinlater.domain.errors import PinLaterError
from pinlater.domain.job import JobState, Outcome
from pinlater.storage import deciding
from pinlater.storage.events import Events
from pinlater.storage.interface import Ack, Acked, Checkpoint, ClaimRef, JobKey
from pinlater.storage.mysql.changes import Changes
from pinlater.storage.mysql.errors import BodyTooLong
from pinlater.storage.mysql.statements import Sql, delete_rows, escaped, literal, sql
from pinlater.storage.mysql.transaction import Transaction

SUCCEEDED = Acked(Outcome.APPLIED, JobState.SUCCEEDED)

_LOCK_CLAIMS = sql("lock_claims")
_FINISH_CLAIMS = sql("finish_claims")
_END_CLAIMS = sql("end_claims")
_END_CLAIM = sql("end_claim")
_CLAIMS_OF_TOKENS = sql("select_claims_of_tokens")

# A call that was refused has cost twice; where jobs with a past or with keys are acked all the time, that must stay rare.
_LOOKS_AFTER_SURPRISE = 50

Item = TypeVar("Item")


async def finish(transaction: Transaction, acks: Sequence[Ack], now_ms: int) -> list[Acked]:
    """The plain successes all at once, then the others."""
    if _suppose_plain(transaction, acks):
        return await _finish_supposed(transaction, acks, now_ms)
    return await _finish_looking(transaction, acks, now_ms)


def _suppose_plain(transaction: Transaction, acks: Sequence[Ack]) -> bool:
    """Whether the acks that look plain are worth a try without a look. Where some lately weren't, calls look for a while."""
    book = transaction.book
    if transaction.careful:
        book.surprises = _LOOKS_AFTER_SURPRISE
    elif book.surprises:
        book.surprises -= 1
    else:
        return len({ack[0][2] for ack in acks}) == len(acks) and any(ack.succeeded for ack in acks)
    return False


async def _finish_supposed(transaction: Transaction, acks: Sequence[Ack], now_ms: int) -> list[Acked]:
    """One round trip: the claims end if all are as they should be, or nothing happens at all."""
    queues = transaction.book.queues
    plain: list[tuple[int, int, int, str | None]] = []
    others: list[int] = []
    for index, (key, succeeded, token, addition, *_) in enumerate(acks):
        queue_name, priority, job_id = key
        queue = queues.get(queue_name)
        if succeeded and not addition and queue is not None:
            plain.append((job_id, queue.queue_id, priority, token))
            _count_succeeded(transaction, queue.queue_id, priority)
        else:
            others.append(index)
    if plain:
        plain.sort()
        copied = _FINISH_CLAIMS(now_ms=now_ms, ids=[line[0] for line in plain])
        transaction.suppose(copied, end_claims(plain), rows=len(plain))
    return await _finish_others(transaction, acks, others, [SUCCEEDED] * len(acks), now_ms)


def end_claims(plain: Sequence[tuple[int, int, int, str | None]]) -> bytes:
    """Deletes the claims of these jobs (id, queue id, priority, token or None for any), those that are so and plain."""
    if len(plain) == 1:
        [(job_id, queue_id, priority, token)] = plain
        fence = Sql(b"TRUE" if token is None else b"token = " + literal(token.encode()))
        return _END_CLAIM(id=job_id, queue_id=queue_id, priority=priority, fence=fence)
    lines = [[*line[:3], line[3] is not None, line[3]] for line in plain]
    return _END_CLAIMS(claims=json.dumps(lines, separators=(",", ":")), count=len(plain))


async def _finish_looking(transaction: Transaction, acks: Sequence[Ack], now_ms: int) -> list[Acked]:
    """Two round trips: a look at the claims, then what is to be done."""
    if not acks:
        return []
    [found] = await transaction.select(_LOCK_CLAIMS(ids=sorted({ack[0][2] for ack in acks})))
    claims = {line[0]: line for line in found.rows}
    queues = transaction.book.queues
    plain: list[int] = []
    others: list[int] = []
    for index, (key, succeeded, token, addition, *_) in enumerate(acks):
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
            _count_succeeded(transaction, queue.queue_id, priority)
        else:
            others.append(index)
    if plain:
        plain.sort()
        transaction.change(_FINISH_CLAIMS(now_ms=now_ms, ids=plain))
        transaction.change(delete_rows(b"claims", plain))
    return await _finish_others(transaction, acks, others, [SUCCEEDED] * len(acks), now_ms)


def _count_succeeded(transaction: Transaction, queue_id: int, priority: int) -> None:
    counter = transaction.counters.of(queue_id, priority)
    counter.in_progress -= 1
    counter.succeeded += 1
    counter.succeeded_total += 1


async def _finish_others(
    transaction: Transaction, acks: Sequence[Ack], others: Sequence[int], results: list[Acked], now_ms: int
) -> list[Acked]:
    """The acks at these positions, loaded as records."""
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
            queues.add(job.queue)
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
    loaded = await changes.load([key.id for key in keys])
    records = {JobKey(job.queue, job.priority, job.id): job for job in loaded}
    answers = word(changes, records, items)
    changes.write()
    return answers
