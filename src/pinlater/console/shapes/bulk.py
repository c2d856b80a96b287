"""Changes of many jobs in the background."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta

from pinlater.console.shapes.fields import AnswerShape, Attempts, RequestShape, State
from pinlater.console.shapes.filters import FilterItem, JobsFilter
from pinlater.console.shapes.jobs import JobItem
from pinlater.domain.bulk import EXPECTED_MAX, RATE_MAX, RATE_MIN

ActionName = Literal["retry", "delete", "cancel"]
JobsPerSecond = Annotated[
    Annotated[float, Meta(ge=RATE_MIN, le=RATE_MAX)] | None,
    Meta(description="The most changes a second; without it as many as go."),
]


class BulkPreviewQuery(JobsFilter, frozen=True, kw_only=True):
    """Which jobs of the queue."""

    state: State = "failed"


class BulkRequest(JobsFilter, frozen=True, kw_only=True):
    """What to do, and with which jobs of the queue."""

    state: Annotated[
        State | None, Meta(description="Needed for `delete` and `cancel`; `retry` changes failed jobs only.")
    ] = None
    action: Annotated[
        ActionName,
        Meta(description="`retry` changes failed jobs, `cancel` pending and running ones, `delete` jobs of any state."),
    ]
    attempts: Attempts = 1
    cancelled: Annotated[bool, Meta(description="Retries cancelled jobs too.")] = False
    jobs_per_second: JobsPerSecond = None
    for_good: Annotated[
        bool, Meta(description="Deletes without copies: frees space at once, and cannot be undone.")
    ] = False
    expected: Annotated[
        Annotated[int, Meta(ge=0, le=EXPECTED_MAX)] | None,
        Meta(description="How many jobs fit, as a preview tells. Shown with the progress; decides nothing."),
    ] = None


class UndoBulkRequest(RequestShape, frozen=True, kw_only=True):
    """The run whose deleted jobs are to come back."""

    run: str
    jobs_per_second: JobsPerSecond = None


class StopBulkRequest(RequestShape, frozen=True, kw_only=True):
    """The run to stop."""

    run: str


class BulkRunsQuery(RequestShape, frozen=True, kw_only=True):
    """The queues whose runs are wanted."""

    queue: Annotated[Sequence[str], Meta(description="A queue; may be repeated. All without it.")] = ()


class BulkRunItem(AnswerShape, frozen=True, kw_only=True):
    """A change of many jobs, under way or ended."""

    id: str
    queue: str
    action: Annotated[
        Literal["retry", "delete", "cancel", "restore"], Meta(description="`restore`: an undo of the run `undoes`.")
    ]
    filter: FilterItem
    attempts: int
    jobs_per_second: float | None
    for_good: Annotated[bool, Meta(description="No copies of deleted jobs are kept.")]
    undoes: str | None
    started_by: Annotated[str, Meta(description="The source of the caller.")]
    started_ms: int
    state: Literal["running", "stopped", "done", "failed"]
    looked: Annotated[int, Meta(description="Jobs that were compared.")]
    changed: int
    news_ms: Annotated[int, Meta(description="When its progress was told last.")]
    ended_ms: int | None
    detail: Annotated[str, Meta(description="What it waits for, why it failed, or what it could not do.")]
    undo_until_ms: Annotated[
        int | None,
        Meta(description="Until then all that it has deleted can be restored; null if there is nothing to restore."),
    ]
    to_look_at: Annotated[
        int | None, Meta(description="About how many jobs its look compares; null while a shard could not be asked.")
    ]
    expected: Annotated[int | None, Meta(description="About how many jobs it changes in all; null if not known.")]
    percent: Annotated[
        Annotated[int, Meta(ge=0, le=100)] | None,
        Meta(description="How far it is: at most 99 until it is done; null if not known."),
    ]
    left_ms: Annotated[
        int | None,
        Meta(
            description="About how long it takes yet, at its speed so far; null for a run that has ended, stops, waits or stands still."
        ),
    ]


class BulkRunsAnswer(AnswerShape, frozen=True, kw_only=True):
    """The newest first."""

    runs: Sequence[BulkRunItem]
    incomplete: Annotated[bool, Meta(description="A shard could not be asked: runs that it keeps may be missing.")]
    missing_shards: Annotated[Sequence[str], Meta(description="The names of these shards.")]


class BulkPreviewAnswer(AnswerShape, frozen=True, kw_only=True):
    """What a run would change now."""

    jobs: int
    more: Annotated[bool, Meta(description="Not all jobs were compared, so that there may be more.")]
    samples: Annotated[Sequence[JobItem], Meta(description="The newest ten.")]
