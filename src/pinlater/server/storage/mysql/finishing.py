"""Acks, and the bound on a checkpoint's body.

Most acks are plain: a success without a status, of a job at its first attempt. Those take one round trip a call: the call assumes that
the claims match the acks; if one does not, the database refuses the transaction, and the call runs again with a read first. This path is
measured and specific to MySQL; all other acks take `relational/in_hand.py`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from pinlater.domain.errors import PinLaterError
from pinlater.server.storage.changes import Changes
from pinlater.server.storage.mysql.dialect import MysqlDialect
from pinlater.server.storage.mysql.errors import BodyTooLong
from pinlater.server.storage.mysql.statements import Sql, delete_rows, escaped, literal, sql
from pinlater.server.storage.mysql.transaction import Transaction
from pinlater.server.storage.outcomes import SUCCEEDED
from pinlater.server.storage.relational import in_hand
from pinlater.server.storage.relational.changes import write
from pinlater.server.storage.relational.ordering import EndedJob, leave
from pinlater.server.storage.relational.plain_acks import split
from pinlater.server.storage.values import Acked, JobAck, JobCheckpoint

_LOCK_CLAIMS = sql("lock_claims")
_FINISH_CLAIMS = sql("finish_claims")
_END_CLAIMS = sql("end_claims")
_END_CLAIM = sql("end_claim")

# A refused call costs twice. If workers ack retried or keyed jobs all the time, this many calls in a row read first.
_CAREFUL_ACKS = 50


async def finish(transaction: Transaction, acks: Sequence[JobAck], now_ms: int) -> list[Acked]:
    """The plain acks all at once, then the others."""
    if _suppose_plain(transaction, acks):
        return await _finish_supposed(transaction, acks, now_ms)
    return await _finish_looking(transaction, acks, now_ms)


def _suppose_plain(transaction: Transaction, acks: Sequence[JobAck]) -> bool:
    """Returns whether the call sends plain acks without reading first. After a refused call, calls read first for a while."""
    queue_cache = transaction.queue_cache
    if transaction.careful:
        queue_cache.careful_acks_left = _CAREFUL_ACKS
    elif queue_cache.careful_acks_left:
        queue_cache.careful_acks_left -= 1
    else:
        return len({ack.key.id for ack in acks}) == len(acks) and any(ack.succeeded for ack in acks)
    return False


async def _finish_supposed(transaction: Transaction, acks: Sequence[JobAck], now_ms: int) -> list[Acked]:
    """Ends the claims in one round trip if all are as expected; otherwise changes nothing."""
    queues = transaction.queue_cache.queues
    plain: list[tuple[int, int, int, str | None]] = []
    others: list[int] = []
    for index, (key, succeeded, token, addition, *_) in enumerate(acks):
        queue_name, priority, job_id = key
        queue = queues.get(queue_name)
        if succeeded and not addition and queue is not None:
            plain.append((job_id, queue.queue_id, priority, token))
            _count_succeeded(transaction, queue.queue_id, priority, 1)
        else:
            others.append(index)
    if plain:
        plain.sort()
        copied = _FINISH_CLAIMS(now_ms=now_ms, ids=[line[0] for line in plain])
        transaction.suppose(copied, end_claims(plain), rows=len(plain))
    return await _finish_others(transaction, acks, others, [SUCCEEDED] * len(acks), now_ms)


def end_claims(plain: Sequence[tuple[int, int, int, str | None]]) -> bytes:
    """Deletes the claims of these jobs (id, queue id, priority, token or None for any), if they match and are plain."""
    if len(plain) == 1:
        [(job_id, queue_id, priority, token)] = plain
        fence = Sql(b"TRUE" if token is None else b"token = " + literal(token.encode()))
        return _END_CLAIM(id=job_id, queue_id=queue_id, priority=priority, fence=fence)
    lines = [[*line[:3], line[3] is not None, line[3]] for line in plain]
    return _END_CLAIMS(claims=json.dumps(lines, separators=(",", ":")), count=len(plain))


async def _finish_looking(transaction: Transaction, acks: Sequence[JobAck], now_ms: int) -> list[Acked]:
    """Finishes jobs in two round trips: one to read the claims, one to change them. Jobs with ordering keys take one more, and so do
    the next jobs of these keys.
    """
    if not acks:
        return []
    [found] = await transaction.select(_LOCK_CLAIMS(ids=sorted({ack.key.id for ack in acks})))
    claims = {line[0]: line[:5] for line in found.rows}
    queues = transaction.queue_cache.queues
    plain, counts, others, ordered = split(acks, claims, queues)
    for (queue_name, priority), count in counts.items():
        _count_succeeded(transaction, queues[queue_name].queue_id, priority, count)
    if plain:
        plain.sort()
        transaction.change(_FINISH_CLAIMS(now_ms=now_ms, ids=plain))
        transaction.change(delete_rows(b"claims", plain))
    if ordered:
        key_of = {line[0]: (line[1], line[5].decode()) for line in found.rows if line[5] is not None}
        ended = [EndedJob(job_id, key_of[job_id], behind=False) for job_id in ordered if job_id in key_of]
        dialect, changes = MysqlDialect(transaction), Changes(now_ms)
        await leave(dialect, changes, ended)
        await write(dialect, changes)
    return await _finish_others(transaction, acks, others, [SUCCEEDED] * len(acks), now_ms)


def _count_succeeded(transaction: Transaction, queue_id: int, priority: int, jobs: int) -> None:
    counter = transaction.counters.of(queue_id, priority)
    counter.in_progress -= jobs
    counter.succeeded += jobs
    counter.succeeded_total += jobs


async def _finish_others(
    transaction: Transaction, acks: Sequence[JobAck], others: Sequence[int], results: list[Acked], now_ms: int
) -> list[Acked]:
    """The acks at these positions, on loaded jobs."""
    if others:
        left = [acks[index] for index in others]
        answers = await in_hand.finish(MysqlDialect(transaction), left, now_ms)
        for index, answer in zip(others, answers, strict=True):
            results[index] = answer
    return results


async def checkpoint(
    transaction: Transaction, checkpoints: Sequence[JobCheckpoint], now_ms: int
) -> list[Acked | PinLaterError]:
    """Saves the progress of claimed jobs. Refuses a body that is too long for a statement of the database."""
    fitting: list[JobCheckpoint] = []
    answers: list[Acked | PinLaterError] = []
    most = transaction.row_bytes_max
    for index, item in enumerate(checkpoints):
        size_bytes = 0 if item.new_body is None else len(escaped(item.new_body))
        if size_bytes > most:
            answers.append(BodyTooLong(transaction.endpoint, index, size_bytes, most))
        else:
            answers.append(SUCCEEDED)
            fitting.append(item)
    done = iter(await in_hand.checkpoint(MysqlDialect(transaction), fitting, now_ms))
    return [next(done) if answer is SUCCEEDED else answer for answer in answers]
