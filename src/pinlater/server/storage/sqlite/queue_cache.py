"""Queues and their counters in memory, equal to those in the file.

Only the writer changes them, within a transaction. After a rollback the writer reads the queues that the transaction changed again
(`reload_changed`), and all queues if a transaction finds that another connection has changed the file (`reload`). So every change of
a queue must be marked before the transaction can fail: `add`, `drop`, `counter`, `touch` and `will_change` mark. Counters that a
transaction touched are written once, at its end.

The counters tell a claim which priorities have jobs, so that it reads no others. If they say that nothing is due in a queue, a claim
needs no transaction (`claiming.claim`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from operator import attrgetter

from pinlater.domain.descriptor import I64_MAX
from pinlater.domain.job import JobState
from pinlater.domain.queue import Queue, queue_of
from pinlater.domain.transitions import SUCCEEDED
from pinlater.server.storage.relational.dialect import COUNTED, WaitingJob
from pinlater.server.storage.relational.known_groups import KnownGroups
from pinlater.server.storage.relational.lost_jobs import LostJobs
from pinlater.server.storage.sqlite.last_numbers import LastNumbers
from pinlater.server.storage.sqlite.statements import STATEMENTS, Execute, sql

logger = logging.getLogger(__name__)

NEVER_MS = I64_MAX
# A transaction that changed more queues than this is rolled back by reading all of them.
_CHANGED_MAX = 1_000
_SAVE_COUNTER = sql("save_counter")
row_of: Callable[[Counter], tuple[int, ...]] = attrgetter(*STATEMENTS["save_counter"].parameters)
"""Returns the row of a counter as `save_counter` takes it."""


class Counter:
    """One row of `counters`. Waiting jobs at or before (mark_ms, mark_id) count as due, those behind it as future.

    `future_from_ms` is not stored: no future job is due before it. `future_from_exact`: one is due then, or there is none; False if the
    job that was due then may have gone.
    """

    __slots__ = ("future_from_exact", "future_from_ms", "mark_id", "mark_ms", "priority", "queue_id", *COUNTED)

    def __init__(self, row: tuple[int, ...]) -> None:
        (
            self.queue_id,
            self.priority,
            self.pending,
            self.future,
            self.mark_ms,
            self.mark_id,
            self.in_progress,
            self.succeeded,
            self.failed,
            self.enqueued_total,
            self.claimed_total,
            self.succeeded_total,
            self.failed_total,
            self.retried_total,
        ) = row
        self.future_from_ms = self.mark_ms if self.future else NEVER_MS
        self.future_from_exact = not self.future

    def may_have_due(self, now_ms: int) -> bool:
        """Returns whether a waiting job may be due; False is certain."""
        return self.pending > self.future or (self.future > 0 and self.future_from_ms <= now_ms)

    def count_anew(self, pending: int, future: int, in_progress: int, succeeded: int, failed: int) -> None:
        """Sets the counters from the rows."""
        self.pending, self.future, self.in_progress = pending, future, in_progress
        self.succeeded, self.failed = succeeded, failed
        self.future_from_ms, self.future_from_exact = (self.mark_ms, False) if future else (NEVER_MS, True)

    def move_mark(self, now_ms: int) -> None:
        """Moves the mark to now if that costs nothing: no future job lies between. `AdvanceDue` does the rest."""
        if self.mark_ms < now_ms < self.future_from_ms:
            self.mark_ms, self.mark_id = now_ms, I64_MAX

    def add_waiting(self, run_after_ms: int, job_id: int) -> None:
        self.pending += 1
        if run_after_ms > self.mark_ms or (run_after_ms == self.mark_ms and job_id > self.mark_id):
            self.future += 1
            if run_after_ms <= self.future_from_ms:
                self.future_from_ms, self.future_from_exact = run_after_ms, True

    def take_waiting(self, run_after_ms: int, job_id: int) -> None:
        self.pending -= 1
        if run_after_ms > self.mark_ms or (run_after_ms == self.mark_ms and job_id > self.mark_id):
            self.future -= 1
            if not self.future:
                self.future_from_ms, self.future_from_exact = NEVER_MS, True
            elif run_after_ms == self.future_from_ms:
                self.future_from_exact = False

    def leave_waiting(self, job: WaitingJob) -> None:
        self.take_waiting(job.run_after_ms, job.id)

    def enter_waiting(self, job: WaitingJob, now_ms: int) -> None:
        self.move_mark(now_ms)
        self.add_waiting(job.run_after_ms, job.id)

    def add_finished(self, state: JobState, count: int = 1) -> None:
        if state is SUCCEEDED:
            self.succeeded += count
        else:
            self.failed += count


class QueueEntry:
    """A queue with its counters by priority."""

    __slots__ = ("counters", "known_failures", "name", "queue_id", "settings")

    def __init__(self, queue_id: int, settings: Queue) -> None:
        self.queue_id = queue_id
        self.name = settings.name
        self.settings = settings
        self.counters: dict[int, Counter] = {}
        self.known_failures = KnownGroups()

    def pending(self) -> int:
        return sum(counter.pending for counter in self.counters.values())

    def next_due_ms(self, now_ms: int) -> int | None:
        """Returns when the first waiting job is due, `NEVER_MS` if none waits, or None if one may be due by now, or only the file knows."""
        first_ms = NEVER_MS
        for counter in self.counters.values():
            if counter.may_have_due(now_ms) or (counter.future and not counter.future_from_exact):
                return None
            if counter.future:
                first_ms = min(first_ms, counter.future_from_ms)
        return first_ms


class SqliteQueueCache:
    """Queues by name and by id, the counters that this transaction touched, and lower bounds that save idle sweeps a query.

    `claims`: of one queue each, for any number of calls, that memory alone has answered.
    """

    def __init__(self, shard: str) -> None:
        self.shard = shard
        self.queues: dict[str, QueueEntry] = {}
        self.by_id: dict[int, QueueEntry] = {}
        self.dropped: dict[int, list[Counter]] = {}
        self.highest_id = 0
        self._highest_id_kept = 0
        self._deleted = False
        self.first_expiry_ms = NEVER_MS
        self.first_request_key_ms = NEVER_MS
        self.first_key_until_ms = NEVER_MS
        self._touched: dict[Counter, None] = {}
        self.claims = 0
        self.lost = LostJobs()
        self.last_numbers = LastNumbers()
        self.came_first: Callable[[str, int], bool] = lambda _queue, _due_ms: False
        """Called with a job that is ready as those before it under its ordering key have ended. Returns whether a dequeue waits for it."""
        self.claim_follows = False  # a dequeue was woken by this transaction
        self._changed: set[int] = set()  # queues that this transaction may have changed, besides those of `_touched`

    def begin(self) -> None:
        self._changed.clear()
        self.claim_follows = False

    def reload(self, execute: Execute) -> None:
        """Reads everything from the file."""
        self._touched.clear()
        self.last_numbers.clear()
        self._deleted = False
        rows = execute(sql("list_queues")).fetchall()
        entries = [QueueEntry(row[0], queue_of(row[1], row[3], bool(row[2]))) for row in rows]
        self.queues = {entry.name: entry for entry in entries}
        self.by_id = {entry.queue_id: entry for entry in entries}
        self.dropped = {queue_id: [] for (queue_id,) in execute(sql("list_dropped_queues")).fetchall()}
        for row in execute(sql("load_counters")).fetchall():
            counter = Counter(row)
            if counter.queue_id in self.by_id:
                self.by_id[counter.queue_id].counters[counter.priority] = counter
            elif counter.queue_id in self.dropped:
                self.dropped[counter.queue_id].append(counter)
        self._reload_bounds(execute)
        for (queue_id,) in execute(sql("list_uncounted")).fetchall():
            if queue_id in self.by_id:
                self.recount(execute, self.by_id[queue_id])

    def recount_named(self, execute: Execute, names: Iterable[str]) -> None:
        """Counts the rows of the queues that still exist."""
        for name in names:
            if name in self.queues:
                self.recount(execute, self.queues[name])

    def recount(self, execute: Execute, entry: QueueEntry) -> None:
        """Counts the rows of a queue whose counters are wrong. Totals stay."""
        found = {priority: counts for priority, *counts in execute(sql("count_rows"), (entry.queue_id,)).fetchall()}
        for priority in sorted({*entry.counters, *found}):
            counter = self.counter(entry, priority)
            pending, in_progress, succeeded, failed = found.get(priority, (0, 0, 0, 0))
            where = (counter.queue_id, priority, counter.mark_ms, counter.mark_id, I64_MAX, I64_MAX, I64_MAX)
            [future] = execute(sql("count_ready_between"), where).fetchone()
            counter.count_anew(pending, future, in_progress, succeeded, failed)
        logger.error("queue %s: its counters were wrong, its rows are counted anew", entry.name)

    def reload_changed(self, execute: Execute) -> None:
        """Reads from the file what this transaction may have changed."""
        self._changed.update([counter.queue_id for counter in self._touched])
        if len(self._changed) > _CHANGED_MAX:
            self.reload(execute)
            return
        self._touched.clear()
        self.last_numbers.clear()
        self._deleted = False
        for queue_id in self._changed:
            entry = self.by_id.pop(queue_id, None)
            if entry is not None:
                del self.queues[entry.name]
        for queue_id in self._changed:
            self._reload_queue(execute, queue_id)
        dropped = [queue_id for (queue_id,) in execute(sql("list_dropped_queues")).fetchall()]
        self.dropped = {queue_id: _counters_of(execute, queue_id) for queue_id in dropped}
        self._reload_bounds(execute)

    def _reload_queue(self, execute: Execute, queue_id: int) -> None:
        row = execute(sql("load_queue"), (queue_id,)).fetchone()
        if row is not None:
            entry = QueueEntry(row[0], queue_of(row[1], row[3], bool(row[2])))
            entry.counters = {counter.priority: counter for counter in _counters_of(execute, queue_id)}
            self.queues[entry.name] = self.by_id[queue_id] = entry

    def _reload_bounds(self, execute: Execute) -> None:
        highest_id, self._highest_id_kept = execute(sql("select_highest_id")).fetchone()
        self.highest_id = max(self.highest_id, highest_id, self._highest_id_kept)
        self.reload_expiry(execute)
        self.reload_key_times(execute)

    def reload_expiry(self, execute: Execute) -> None:
        row = execute(sql("select_first_expiry")).fetchone()
        self.first_expiry_ms = row[0] if row else NEVER_MS

    def reload_key_times(self, execute: Execute) -> None:
        seen_ms, until_ms = execute(sql("select_first_key_times")).fetchone()
        self.first_request_key_ms = NEVER_MS if seen_ms is None else seen_ms
        self.first_key_until_ms = NEVER_MS if until_ms is None else until_ms

    def add(self, queue_id: int, queue: Queue) -> None:
        self._changed.add(queue_id)
        self.queues[queue.name] = self.by_id[queue_id] = QueueEntry(queue_id, queue)

    def drop(self, entry: QueueEntry) -> None:
        self._changed.add(entry.queue_id)
        del self.queues[entry.name], self.by_id[entry.queue_id]
        self.dropped[entry.queue_id] = list(entry.counters.values())

    def counter(self, entry: QueueEntry, priority: int) -> Counter:
        """Returns the counter to change, a new one if necessary. It is written when the transaction ends."""
        counter = entry.counters.get(priority)
        if counter is None:
            counter = Counter((entry.queue_id, priority, *[0] * 12))
            entry.counters[priority] = counter
            entry.counters = dict(sorted(entry.counters.items()))
        self._touched[counter] = None
        return counter

    def touch(self, counter: Counter) -> Counter:
        """The same counter, to be written when the transaction ends."""
        self._touched[counter] = None
        return counter

    def will_change(self, entry: QueueEntry) -> None:
        """Notes that the transaction changes its settings."""
        self._changed.add(entry.queue_id)

    def jobs_deleted(self) -> None:
        """Notes that this transaction deletes jobs: the highest id so far must be kept, or a clock set back would give it again."""
        self._deleted = True

    def write(self, execute: Execute) -> None:
        """Writes the changed counters at the end of the transaction, and the highest id if jobs were deleted."""
        if self._deleted:
            self._deleted = False
            if self.highest_id > self._highest_id_kept:
                execute(sql("save_meta"), ("highest_id", str(self.highest_id)))
                self._highest_id_kept = self.highest_id
        for counter in self._touched:
            if counter.queue_id in self.by_id:
                execute(_SAVE_COUNTER, row_of(counter))
            self._changed.add(counter.queue_id)
        self._touched.clear()


def _counters_of(execute: Execute, queue_id: int) -> list[Counter]:
    return [Counter(row) for row in execute(sql("load_counters_of"), (queue_id,))]
