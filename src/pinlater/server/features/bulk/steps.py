"""The progress of a server with a bulk run. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.domain.bulk import BulkAction, BulkState
from pinlater.domain.errors import OutcomeUnknown, PinLaterError
from pinlater.domain.job import JobState
from pinlater.server.features.bulk.records import KeptRun, RunProgress
from pinlater.server.operations.merged_rows import END, START
from pinlater.server.storage.values import Restored
from pinlater.wire.generated.structs import JobInfo

PAGE_JOBS = 500
STALE_MS = 30_000
"""A run whose progress is older is continued by the next server that looks."""
_PROGRESS_MS = 1_000
_UNCOUNTED = "some changes may be missing in the number: a server or a shard stopped before they were counted"


class BulkSteps:
    """The progress of this server with a run."""

    def __init__(self, run: KeptRun, server: str, now_ms: int) -> None:
        self.run = run
        self.server = server
        self.progress = _page_again(run.progress._replace(server=server))
        self._told = self.progress.changed
        self._told_ms = now_ms
        self._is_counted = self.progress.to_look_at is not None

    @property
    def goes_on(self) -> bool:
        """Whether this server executes it."""
        return self.progress.state is BulkState.RUNNING

    def has_news(self, now_ms: int) -> bool:
        """Returns whether to report progress: once a second, and after a page, so that a crash leaves few changes uncounted."""
        now = self.progress
        return now_ms - now.news_ms >= _PROGRESS_MS or now.changed - self._told >= PAGE_JOBS

    def news(self, now_ms: int) -> RunProgress:
        """Returns the progress to report now."""
        now = self.progress
        return now._replace(news_ms=now_ms, busy_ms=now.busy_ms + max(0, now_ms - self._told_ms))

    def told(self, progress: RunProgress) -> None:
        """Notes the progress that is stored now."""
        self.progress, self._told, self._told_ms = progress, progress.changed, progress.news_ms

    @property
    def is_to_count(self) -> bool:
        """Whether a look begins whose jobs are not counted yet. A run that restores knows their number from the run that deleted them."""
        now = self.progress
        return (
            not self._is_counted
            and self.run.order.action is not BulkAction.RESTORE
            and now.after == START
            and now.due is now.due_first
        )

    def note_count(self, jobs: int | None) -> None:
        """Notes the number of jobs for the look that begins; None if a shard could not be asked."""
        self._is_counted = True
        order, now = self.run.order, self.progress
        if jobs is not None and order.filter._replace(skip_cancelled=False).is_plain:
            most = now.changed + jobs
            now = now._replace(expected=most if order.max_jobs is None else min(most, order.max_jobs))
        self.progress = now._replace(to_look_at=jobs)

    @property
    def jobs_left(self) -> int | None:
        """How many more jobs the run may change; None if its order sets no limit."""
        most = self.run.order.max_jobs
        return None if most is None else max(0, most - self.progress.changed)

    def is_others(self, kept: KeptRun, now_ms: int) -> bool:
        """Returns whether another server executes the run: one that began later, or, of two that began at once, the one with the lower
        name.
        """
        other = kept.progress
        if other.term != self.progress.term:
            return other.term > self.progress.term
        return "" < other.server < self.server and now_ms - other.news_ms <= STALE_MS

    def is_own_end(self, kept: KeptRun) -> bool:
        """Returns whether this server has ended the run although the answer was lost."""
        return (kept.progress.server, kept.progress.ended_ms) == (self.server, self.progress.ended_ms)

    def chosen(self, jobs: Sequence[JobInfo]) -> list[str]:
        """The jobs that match, of those that were there when the run began."""
        fits = self.run.order.filter.fits
        return [job.descriptor for job in jobs if self._was_there(job) and fits(job)]

    def _was_there(self, job: JobInfo) -> bool:
        """Returns whether it is a job from before the run; if the scan may meet jobs that were retried, also whether it had failed before
        the run.
        """
        began_ms, order = self.run.started_ms, self.run.order
        if order.action is BulkAction.RETRY and self.progress.again and (job.finished_at_ms or 0) > began_ms:
            return False
        return job.created_at_ms <= began_ms

    def note(self, *, changed: int = 0, detail: str = "") -> None:
        """Adds to the next report."""
        now = self.progress
        self.progress = now._replace(changed=now.changed + changed, detail=detail or now.detail)

    def failed(self, error: PinLaterError) -> None:
        """A page failed and is retried; some of its changes may be done."""
        self.note(detail=waits_for(error))
        unknown = isinstance(error, OutcomeUnknown)
        now = _page_again(self.progress)
        self.progress = now._replace(again=True, uncounted=now.uncounted or unknown)

    def note_copies(self, shard: str, size: int) -> None:
        """Adds the size of the copies of some jobs on that shard."""
        sizes = self.progress.copy_bytes
        self.progress = self.progress._replace(copy_bytes={**sizes, shard: sizes.get(shard, 0) + size})

    def note_restored(self, shard: str, answer: Restored) -> None:
        """Adds the jobs that one call restored."""
        now = self.progress
        looked = answer.restored + answer.key_taken + answer.queue_gone
        self.progress = now._replace(
            looked=now.looked + looked,
            passed=now.passed + looked,
            changed=now.changed + answer.restored,
            key_taken=now.key_taken + answer.key_taken,
            queue_gone=now.queue_gone + answer.queue_gone,
            detail="",
        )
        self.note_copies(shard, -answer.freed_bytes)

    def to_place(self, after: str, *, unseen: bool = False) -> None:
        """Moves on to another position of a run that restores."""
        self.progress = self.progress._replace(after=after, unseen=self.progress.unseen or unseen)

    def note_in_page(self, passed: int) -> None:
        """Notes how many jobs of the page that it is changing are done."""
        self.progress = self.progress._replace(in_page=passed)

    def to_next_page(self, looked: int, after: str, *, unseen: bool) -> None:
        """Goes to the next page. Waiting jobs that are not due come first, then the others; a limited run looks at due ones before both."""
        now = self.progress
        now = now._replace(looked=now.looked + looked, passed=now.passed + looked, in_page=0)
        now = now._replace(after=after, unseen=now.unseen or unseen, detail="")
        if after == END and self.run.order.filter.state is JobState.PENDING and now.due is now.due_first:
            now = now._replace(after=START, due=not now.due, due_first=False)
        self.progress = now

    def scan_again(self) -> None:
        """Begins again at the first job. Jobs that could not be restored are counted again, since their copies are still there."""
        now = self.progress
        restored = now.passed - now.key_taken - now.queue_gone  # since the look began, if it restores
        restores = self.run.order.action is BulkAction.RESTORE
        to_look_at = max(0, now.to_look_at - restored) if restores and now.to_look_at is not None else None
        self._is_counted = False
        first = self.run.takes_due_first
        now = now._replace(after=START, due=first, due_first=first, unseen=False, again=True, detail="")
        self.progress = now._replace(key_taken=0, queue_gone=0, to_look_at=to_look_at, passed=0, in_page=0, busy_ms=0)

    def end(self, state: BulkState, now_ms: int, detail: str) -> None:
        """Makes the next report the final one."""
        if self.progress.uncounted:
            detail = f"{detail}; {_UNCOUNTED}" if detail else _UNCOUNTED
        self.progress = self.progress._replace(state=state, ended_ms=now_ms, detail=detail)

    def hand_over(self) -> None:
        """This server stops: the next one that looks continues the run without waiting."""
        self.progress = self.progress._replace(server="")

    def leave(self) -> None:
        """Stops reporting, since another server executes the run."""
        self.progress = self.progress._replace(state=BulkState.STOPPED)


def _page_again(progress: RunProgress) -> RunProgress:
    """Prepares a second read of the page: most of its jobs that were passed are in another state now, and no longer in it."""
    return progress._replace(passed=progress.passed + progress.in_page, in_page=0)


def waits_for(error: PinLaterError) -> str:
    """Returns what a run reports while it waits because of this error."""
    return f"waits: {error.message}"
