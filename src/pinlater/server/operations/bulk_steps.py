"""How far a server is with a bulk run. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.domain.bulk_runs import BulkState
from pinlater.domain.job import JobInfo, JobState
from pinlater.server.operations.bulk_records import KeptRun
from pinlater.server.operations.merged_rows import END, START
from pinlater.server.storage.values import Restored


class BulkSteps:
    """How far this server is with a run."""

    def __init__(self, run: KeptRun, server: str) -> None:
        self.run = run
        self.server = server
        self.progress = run.progress._replace(server=server)

    @property
    def goes_on(self) -> bool:
        """Whether this server carries it out."""
        return self.progress.state is BulkState.RUNNING

    def chosen(self, jobs: Sequence[JobInfo]) -> list[str]:
        """Those that fit, of the jobs that were there when the run began."""
        fits, began_ms = self.run.order.criteria.fits, self.run.started_ms
        return [job.descriptor for job in jobs if job.created_at_ms <= began_ms and fits(job)]

    def note(self, *, changed: int = 0, news_ms: int | None = None, detail: str = "") -> None:
        """Adds to what is told next."""
        now = self.progress
        self.progress = now._replace(
            changed=now.changed + changed,
            news_ms=now.news_ms if news_ms is None else news_ms,
            detail=detail or now.detail,
        )

    def note_copies(self, shard: str, size: int) -> None:
        """Adds what the copies of some jobs take there."""
        sizes = self.progress.copy_bytes
        self.progress = self.progress._replace(copy_bytes={**sizes, shard: sizes.get(shard, 0) + size})

    def note_restored(self, shard: str, answer: Restored) -> None:
        """Adds what one call brought back, and goes on behind it."""
        now = self.progress
        self.progress = now._replace(
            looked=now.looked + answer.restored + answer.key_taken + answer.queue_gone,
            changed=now.changed + answer.restored,
            key_taken=now.key_taken + answer.key_taken,
            queue_gone=now.queue_gone + answer.queue_gone,
            detail="",
        )
        self.note_copies(shard, -answer.freed_bytes)

    def to_place(self, after: str, *, unseen: bool = False) -> None:
        """Of a run that restores."""
        self.progress = self.progress._replace(after=after, unseen=self.progress.unseen or unseen)

    def to_next_page(self, looked: int, after: str, *, unseen: bool) -> None:
        """Of waiting jobs those that are not due come first, then the others."""
        now = self.progress
        now = now._replace(looked=now.looked + looked, after=after, unseen=now.unseen or unseen, detail="")
        if after == END and self.run.order.state is JobState.PENDING and not now.due:
            now = now._replace(after=START, due=True)
        self.progress = now

    def end(self, state: BulkState, now_ms: int, detail: str) -> None:
        self.progress = self.progress._replace(state=state, ended_ms=now_ms, detail=detail)

    def leave(self) -> None:
        """Another server carries it out: this one tells nothing more."""
        self.progress = self.progress._replace(state=BulkState.STOPPED)
