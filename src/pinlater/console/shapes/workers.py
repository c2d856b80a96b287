"""Workers, as the servers know them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from msgspec import Meta

from pinlater.console.shapes.fields import AnswerShape, Incomplete, RequestShape


class WorkersQuery(RequestShape, frozen=True, kw_only=True):
    """Says which workers are asked about."""

    queue: Annotated[Sequence[str], Meta(description="A queue; may be repeated. Without it: all queues.")] = ()


class WorkerProcessItem(AnswerShape, frozen=True, kw_only=True):
    """A process of a worker. Clients that say nothing of themselves are one process, although they may be several."""

    process: Annotated[int, Meta(description="A random number that names the process; 0 for clients that say nothing.")]
    library: str
    version: Annotated[str, Meta(description="Empty if it is not known.")]
    host: str
    pid: int | None
    concurrency: int | None
    running: Annotated[int | None, Meta(description="Jobs that it ran when it said so.")]
    started_at_ms: Annotated[int | None, Meta(description="By its own clock.")]
    heard_ms: Annotated[int | None, Meta(description="How long ago it sent a request.")]
    said_ms: Annotated[int | None, Meta(description="How long ago it said the rest of itself.")]
    handed_out: Annotated[int, Meta(description="Jobs that it got in the last hour.")]


class HeldJobItem(AnswerShape, frozen=True, kw_only=True):
    """A job in hand."""

    descriptor: str
    queue: str
    for_ms: Annotated[int, Meta(description="Since its claim or its last checkpoint.")]
    left_ms: Annotated[int | None, Meta(description="Until its claim ends; below 0 after the deadline.")]


class LostClaimItem(AnswerShape, frozen=True, kw_only=True):
    """A claim that ended at its deadline."""

    queue: str
    descriptor: str
    ended_ms: Annotated[int, Meta(description="How long ago.")]


class WorkerItem(AnswerShape, frozen=True, kw_only=True):
    """The workers with one source. Numbers are of the last hour, of the servers that answered."""

    source: str
    trouble: Annotated[
        Literal["stuck", "silent", "slow", "none"],
        Meta(
            description="`stuck`: it is heard, but does not get on; `silent`: it, or a process of it, is heard no more."
        ),
    ]
    reasons: Annotated[Sequence[str], Meta(description="Sentences that say why it needs attention.")]
    heard_ms: Annotated[int | None, Meta(description="How long ago a process of it was heard; null if none was.")]
    queues: Sequence[str]
    waiting: Annotated[Mapping[str, int], Meta(description="Long polls by queue.")]
    holds: Annotated[Mapping[str, int], Meta(description="Jobs in hand by queue, of those that were looked at.")]
    longest: Annotated[HeldJobItem | None, Meta(description="The job that it has held longest.")]
    next_end: Annotated[HeldJobItem | None, Meta(description="The job whose claim ends first.")]
    handed_out: int
    timed_out: Annotated[int, Meta(description="Claims that ended at their deadline.")]
    late: Annotated[
        int,
        Meta(description="Answers that came after their claim had ended, also repeated ones."),
    ]
    lost: Annotated[Sequence[LostClaimItem], Meta(description="The last claims that timed out, the newest first.")]
    processes: Annotated[Sequence[WorkerProcessItem], Meta(description="The last heard first.")]


class WorkersAnswer(AnswerShape, frozen=True, kw_only=True):
    """Workers: stuck ones first, then silent ones, then slow ones, then the others."""

    workers: Sequence[WorkerItem]
    total: Annotated[int, Meta(description="Workers that were found; the answer has the first of them.")]
    running: Annotated[int, Meta(description="Jobs in hand in all queues.")]
    looked_at: Annotated[int, Meta(description="Jobs in hand that were looked at.")]
    counted_ms: Annotated[
        int, Meta(description="How far the numbers go back: an hour, or to the start of the server that started last.")
    ]
    gaps: Annotated[Sequence[str], Meta(description="Sentences that say what is not known.")]
    incomplete: Incomplete
