"""The changes of a transaction to the counters: added to this writer's own rows, so that two servers never wait for each other."""

from __future__ import annotations

from operator import attrgetter

from pinlater.domain.job import JobState
from pinlater.domain.transitions import SUCCEEDED
from pinlater.server.storage.mysql.statements import Sql, sql
from pinlater.server.storage.relational.dialect import COUNTED, WaitingJob

_ADD_TO_COUNTERS = sql("add_to_counters")
_COUNTS = attrgetter(*COUNTED)
_ADDITIONS = [f"{name} = {name} + VALUES({name})".encode() for name in COUNTED]
_ROW = b"(%b)" % b",".join([b"%d"] * (3 + len(COUNTED)))


class Counter:
    """The changes of one queue and priority. `future` counts the waiting jobs whose row marks them as counted so."""

    __slots__ = ("priority", "queue_id", *COUNTED)

    def __init__(self, queue_id: int, priority: int) -> None:
        self.queue_id = queue_id
        self.priority = priority
        self.pending = self.future = self.in_progress = self.succeeded = self.failed = 0
        self.enqueued_total = self.claimed_total = self.succeeded_total = self.failed_total = self.retried_total = 0

    def leave_waiting(self, job: WaitingJob) -> None:
        self.pending -= 1
        self.future -= bool(job.counted_future)

    def enter_waiting(self, job: WaitingJob, now_ms: int) -> None:
        self.pending += 1
        self.future += bool(job.counted_future)

    def add_finished(self, state: JobState, count: int = 1) -> None:
        if state is SUCCEEDED:
            self.succeeded += count
        else:
            self.failed += count

    def correct(self, pending: int, future: int, in_progress: int, succeeded: int, failed: int) -> None:
        """Adds the differences between the rows and the counters."""
        self.pending += pending
        self.future += future
        self.in_progress += in_progress
        self.succeeded += succeeded
        self.failed += failed

    def row(self, writer: int) -> bytes:
        return _ROW % (self.queue_id, self.priority, writer, *_COUNTS(self))


class Counters:
    """All changes of one transaction."""

    def __init__(self) -> None:
        self._changed: dict[tuple[int, int], Counter] = {}

    def of(self, queue_id: int, priority: int) -> Counter:
        """The counter to change."""
        found = self._changed.get((queue_id, priority))
        if found is None:
            found = self._changed[queue_id, priority] = Counter(queue_id, priority)
        return found

    def queue_ids(self) -> set[int]:
        """The queues whose counters change."""
        return {queue_id for queue_id, _ in self._changed}

    def statement(self, writer: int) -> bytes | None:
        """Adds them up in the database. Returns None if nothing was counted. In the order of the key."""
        if not self._changed:
            return None
        changed = [self._changed[key] for key in sorted(self._changed)]
        columns = zip(_ADDITIONS, *[_COUNTS(counter) for counter in changed], strict=True)
        changes = [addition for addition, *differences in columns if any(differences)] or _ADDITIONS
        rows = Sql(b",".join([counter.row(writer) for counter in changed]))
        return _ADD_TO_COUNTERS(rows=rows, changes=Sql(b", ".join(changes)))
