"""Garbage: finished jobs past their time to live, expired keys, and the remains of deleted queues.

Weakness: a query meets all deleted rows that the database has not purged yet, so each kind of finished jobs remembers where its last
collection ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from pinlater.domain.job import JobState
from pinlater.server.storage.counts import SweepCounts
from pinlater.server.storage.mysql.dialect import MysqlDialect
from pinlater.server.storage.mysql.queue_cache import LOWEST_MS
from pinlater.server.storage.mysql.statements import sql
from pinlater.server.storage.mysql.transaction import Transaction
from pinlater.server.storage.relational.bulk import finished, leave_places
from pinlater.server.storage.relational.garbage import (
    DELETE_THE_REST,
    delete_ended_keys,
    free_dropped,
    keys_have_ended,
    past_their_time,
)
from pinlater.server.storage.relational.sweeping import READ_MAX
from pinlater.server.storage.snapshots import NEVER_MS, MaintenanceSnapshot
from pinlater.server.storage.values import Swept, TimeToLive

# Clocks of servers differ a little: a finish may be recorded after a later one was collected.
_LOOK_BEHIND_MS = 60_000
_LOOK_FROM_THE_START_MS = 600_000

_DELETE_THE_REST = (*DELETE_THE_REST, "delete_ordering_keys_of")
_LIST_FINISHED = sql("list_finished")
_LIST_DROPPED_QUEUES = sql("list_dropped_queues")
_DELETE_DROPPED_QUEUE = sql("delete_dropped_queue")

Kind = tuple[int, int, JobState]
"""Queue, priority and state of finished jobs."""


class GarbageMemory:
    """What collections remember between their runs, so that they skip queries that would find nothing."""

    def __init__(self) -> None:
        self.finished_mark: tuple[int, str] | None = None
        self.oldest_finish: dict[Kind, int] = {}
        self.collected_to: dict[Kind, int] = {}
        self.left_out = False  # whether there was a queue whose times to live the caller did not know
        self._from_the_start_at_ms = LOWEST_MS

    def starting_places(self, now_ms: int) -> dict[Kind, int]:
        """Returns where the last collections of each kind ended; sometimes none, to find finished jobs that were recorded late."""
        return {} if now_ms >= self._from_the_start_at_ms else dict(self.collected_to)

    def learn(
        self, now_ms: int, oldest_finish: dict[Kind, int], collected_to: dict[Kind, int], *, left_out: bool
    ) -> None:
        """Stores the results of a collection. Call it only once that is committed: a collection that is rolled back runs again."""
        if now_ms >= self._from_the_start_at_ms:
            self._from_the_start_at_ms = now_ms + _LOOK_FROM_THE_START_MS
        self.oldest_finish, self.collected_to, self.left_out = oldest_finish, collected_to, left_out


def collect_wanted(
    memory: GarbageMemory, snapshot: MaintenanceSnapshot, mark: tuple[int, str], ttls: Sequence[TimeToLive], now_ms: int
) -> bool:
    """Returns whether there can be garbage. The shortest time to live decides for all queues: a useless query costs little."""
    if snapshot.dropped_queues or keys_have_ended(snapshot, now_ms) or mark != memory.finished_mark:
        return True
    shortest_ms = min((min(ttl.succeeded_ms, ttl.failed_ms) for ttl in ttls), default=0)
    return min(memory.oldest_finish.values(), default=NEVER_MS) + shortest_ms < now_ms


async def collect_garbage(
    transaction: Transaction,
    memory: GarbageMemory,
    snapshot: MaintenanceSnapshot,
    ttls: Sequence[TimeToLive],
    now_ms: int,
    limit: int,
) -> list[Swept]:
    """Collects at most about `limit` rows. If there is nothing, nothing is changed: each change makes all servers read again."""
    counts = SweepCounts()
    collection = _Collection(transaction, memory, now_ms, limit, counts)
    await collection.run({ttl.queue: ttl for ttl in ttls})
    left = collection.left
    freed = await delete_ended_keys(MysqlDialect(transaction), snapshot, now_ms, min(left, READ_MAX))
    if snapshot.dropped_queues:
        freed += await _free_dropped(transaction, min(left - freed, READ_MAX))
    counts.freed(freed)
    return counts.result()


class _Collection:
    """A collection of finished jobs past their time to live. Finishes only get later, so the oldest one of each kind is remembered."""

    def __init__(
        self, transaction: Transaction, memory: GarbageMemory, now_ms: int, limit: int, counts: SweepCounts
    ) -> None:
        self._transaction = transaction
        self._dialect = MysqlDialect(transaction)
        self._memory = memory
        self._now_ms = now_ms
        self._counts = counts
        self.left = limit
        self._oldest: dict[Kind, int] = {}
        self._collected_to = memory.starting_places(now_ms)

    async def run(self, ttls: Mapping[str, TimeToLive]) -> None:
        left_out = False
        [counted] = await self._transaction.select(_LIST_FINISHED())
        queues = await self._transaction.queues_of([line[0] for line in counted.rows])
        for queue_id, priority, succeeded, failed in counted.rows:
            queue = queues.get(queue_id)
            ttl = None if queue is None else ttls.get(queue.name)
            if queue is None or ttl is None:
                left_out = True
                continue
            for state, before_ms in past_their_time(ttl, succeeded, failed, self._now_ms):
                await self._collect((queue_id, priority, state), queue.name, before_ms)
        learn = partial(self._memory.learn, self._now_ms, self._oldest, self._collected_to, left_out=left_out)
        self._transaction.after_commit.append(learn)

    async def _collect(self, kind: Kind, queue: str, before_ms: int) -> None:
        """Jobs of one kind that finished at or before that time."""
        queue_id, priority, state = kind
        self._oldest[kind] = self._memory.oldest_finish.get(kind, LOWEST_MS)
        after = (self._collected_to.get(kind, LOWEST_MS), -1)
        while self.left > 0 and self._oldest[kind] <= before_ms:
            limit = min(self.left, READ_MAX)
            found = await finished(self._dialect, queue_id, state, priority, limit, after=after)
            gone = [line for line in found if line[0] <= before_ms]
            kept = [finished_ms for finished_ms, _ in found if finished_ms > before_ms]
            if kept:
                self._oldest[kind] = kept[0]
            elif not found:
                self._oldest[kind] = self._now_ms
            if not gone:
                return
            after = gone[-1]
            self._collected_to[kind] = after[0] - _LOOK_BEHIND_MS
            ids = sorted(job_id for _, job_id in gone)
            self._delete(kind, queue, ids)
            if state is JobState.FAILED:
                await leave_places(self._dialect, ids)

    def _delete(self, kind: Kind, queue: str, ids: Sequence[int]) -> None:
        """The rows in `jobs` stay until their partition is dropped."""
        queue_id, priority, state = kind
        self._dialect.delete("done", ids)
        self._dialect.delete("progress", ids)
        self._dialect.counter(queue_id, priority).add_finished(state, -len(ids))
        self._counts.deleted(queue, priority, state, len(ids))
        self.left -= len(ids)


async def _free_dropped(transaction: Transaction, limit: int) -> int:
    """Deletes rows of deleted queues, at most `limit`. Returns how many. A queue is forgotten once it has no rows.

    Its claims are removed by the sweep of overdue claims.
    """
    if limit <= 0:
        return 0
    [dropped] = await transaction.select(_LIST_DROPPED_QUEUES())
    freed = await free_dropped(
        MysqlDialect(transaction), [queue_id for (queue_id,) in dropped.rows], limit, _DELETE_THE_REST
    )
    for queue_id in freed.queues:
        transaction.change(_DELETE_DROPPED_QUEUE(queue_id=queue_id))
    return freed.rows
