"""Acks. Most are plain (`relational/plain_acks.py`), which take four statements a call; all others go through `relational/in_hand.py`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import attrgetter, itemgetter

from pinlater.server.storage.outcomes import SUCCEEDED
from pinlater.server.storage.relational import in_hand
from pinlater.server.storage.relational.plain_acks import split
from pinlater.server.storage.sqlite.dialect import SqliteDialect, at_once
from pinlater.server.storage.sqlite.statements import OfIds
from pinlater.server.storage.sqlite.transaction import Transaction
from pinlater.server.storage.sqlite.writer import Work
from pinlater.server.storage.values import Acked, JobAck

_JOB_ID, _FIRST = attrgetter("key.id"), itemgetter(0)
_SELECT_CLAIMS = OfIds("select_claims")
_FINISH_CLAIMS = OfIds("finish_claims")
_DELETE_CLAIMS = OfIds("delete_rows", "claims")


def finish(acks: Sequence[JobAck], now_ms: int) -> Work[Sequence[Acked]]:
    """Returns the work of these acks."""
    return Work(partial(_finish, acks=acks, now_ms=now_ms))


def _finish(transaction: Transaction, acks: Sequence[JobAck], now_ms: int) -> list[Acked]:
    """The plain acks all at once, then the others."""
    execute = transaction.execute
    rows = _SELECT_CLAIMS.run(execute, list(map(_JOB_ID, acks))).fetchall()
    claims = dict(zip(map(_FIRST, rows), rows, strict=True))
    queues = transaction.queue_cache.queues
    plain, counts, others = split(acks, claims, queues)
    results: list[Acked] = [SUCCEEDED] * len(acks)
    if plain:
        _FINISH_CLAIMS.run(execute, plain, now_ms)
        _DELETE_CLAIMS.run(execute, plain)
    for (queue_name, priority), count in counts.items():
        counter = transaction.queue_cache.counter(queues[queue_name], priority)
        counter.in_progress -= count
        counter.succeeded += count
        counter.succeeded_total += count
    if others:
        left = [acks[index] for index in others]
        answers = at_once(in_hand.finish(SqliteDialect(transaction), left, now_ms))
        for index, answer in zip(others, answers, strict=True):
            results[index] = answer
    return results
