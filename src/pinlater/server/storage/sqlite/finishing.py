"""Acks. Most acks are plain (`relational/plain_acks.py`), which take four statements a call; all others take `relational/in_hand.py`.

Plain acks of jobs with ordering keys take one more statement a call. If the counters show jobs of the queue that are not yet due, such as
those behind others, they take one more, and for the next jobs two plus one a job.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import attrgetter, itemgetter

from pinlater.server.storage.options import BEHIND_MS
from pinlater.server.storage.outcomes import SUCCEEDED
from pinlater.server.storage.relational import bulk, in_hand
from pinlater.server.storage.relational.plain_acks import split
from pinlater.server.storage.sqlite.dialect import SqliteDialect, at_once
from pinlater.server.storage.sqlite.statements import OfIds, sql
from pinlater.server.storage.sqlite.transaction import Transaction
from pinlater.server.storage.sqlite.writer import Work
from pinlater.server.storage.values import Acked, JobAck

_JOB_ID, _FIRST = attrgetter("key.id"), itemgetter(0)
_SELECT_CLAIMS = OfIds("select_claims")
_FINISH_CLAIMS = OfIds("finish_claims")
_DELETE_CLAIMS = OfIds("delete_rows", "claims")
_SELECT_NEXT = OfIds("select_next")
_MOVE_READY = sql("move_ready")
_SET_DUE, _SET_DUE_OF_PROGRESS = [sql("set_due").replace("{table}", table) for table in ("jobs", "progress")]
_DELETE_ORDERED = OfIds("delete_rows", "ordered")


def finish(acks: Sequence[JobAck], now_ms: int) -> Work[Sequence[Acked]]:
    """Returns the work of these acks."""
    return Work(partial(_finish, acks=acks, now_ms=now_ms))


def _finish(transaction: Transaction, acks: Sequence[JobAck], now_ms: int) -> list[Acked]:
    """The plain acks all at once, then the others."""
    execute = transaction.execute
    rows = _SELECT_CLAIMS.run(execute, list(map(_JOB_ID, acks))).fetchall()
    claims = dict(zip(map(_FIRST, rows), rows, strict=True))
    queues = transaction.queue_cache.queues
    plain, counts, others, ordered = split(acks, claims, queues)
    results: list[Acked] = [SUCCEEDED] * len(acks)
    if plain:
        _FINISH_CLAIMS.run(execute, plain, now_ms)
        _DELETE_CLAIMS.run(execute, plain)
    if ordered:
        names = {queue_name for queue_name, _ in counts}
        if any(counter.future for name in names for counter in queues[name].counters.values()):
            if any((queues[name].settings.config.max_in_hand_per_key or 1) > 1 for name in names):
                at_once(bulk.leave_places(SqliteDialect(transaction), ordered, now_ms))
            else:
                _let_next_go(transaction, ordered, now_ms)
        _DELETE_ORDERED.run(execute, ordered)
        transaction.queue_cache.last_numbers.leave(ordered)
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


def _let_next_go(transaction: Transaction, ended: Sequence[int], now_ms: int) -> None:
    """Does the same as `ordering.leave` for jobs that were first, without loading the jobs that become ready. The rows of these change in
    place."""
    found = _SELECT_NEXT.run(transaction.execute, ended, BEHIND_MS).fetchall()
    dialect = SqliteDialect(transaction)
    if any(row[3] is None for row in found):
        at_once(bulk.leave_places(dialect, [row[0] for row in found if row[3] is None], now_ms))
        found = [row for row in found if row[3] is not None]
    if found:
        transaction.executemany(_MOVE_READY, [(*row[2:5], row[1], row[5]) for row in found])
        transaction.executemany(_SET_DUE, [(row[5], row[1]) for row in found])
        transaction.executemany(_SET_DUE_OF_PROGRESS, [(row[5], row[1]) for row in found if row[6]])
        for _, job_id, queue_id, priority, run_after_ms, due_ms, _ in found:
            counter = dialect.counter(queue_id, priority)
            counter.take_waiting(run_after_ms, job_id)
            counter.move_mark(now_ms)
            counter.add_waiting(due_ms, job_id)
            dialect.came_first(queue_id, due_ms)
