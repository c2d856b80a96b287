"""Failed attempts in groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from pinlater.console.shapes.fields import AnswerShape, Moment, RequestShape
from pinlater.domain.failures import QUEUES_MAX


class FailuresQuery(RequestShape, frozen=True, kw_only=True):
    """The queues."""

    queue: Annotated[
        Sequence[str],
        Meta(
            max_length=QUEUES_MAX,
            description="A queue; may be repeated. Without it: all queues that the caller may see.",
        ),
    ] = ()


class FailureGroupItem(AnswerShape, frozen=True, kw_only=True):
    """Failed attempts that look alike."""

    queue: str
    name: Annotated[
        str, Meta(description="16 hexadecimal digits; only zeros for failures of more groups than are kept.")
    ]
    task: str
    error_type: str
    pattern: Annotated[
        str, Meta(description="The first line of the error, with `…` for numbers, names in quotes and addresses.")
    ]
    failures: Annotated[int, Meta(description="Attempts that failed since `first_ms`.")]
    first_ms: int
    last_ms: int
    sample: Annotated[str, Meta(description="The job that failed last, which may be gone.")]
    hours: Annotated[Sequence[int], Meta(description="Of the last 24 hours, the oldest first.")]
    muted_until_ms: Annotated[int, Meta(description="An operator muted the group until then; 0 if not.")]


class MuteRequest(RequestShape, frozen=True, kw_only=True):
    """What to mute or unmute."""

    group: Annotated[str, Meta(pattern="^[0-9a-f]{16}$", description="The name of the group.")]
    until_ms: Annotated[
        Moment | None,
        Meta(description="At most in 30 days, and so without it. A time that is past, such as 0, ends the mute."),
    ] = None


class FailuresAnswer(AnswerShape, frozen=True, kw_only=True):
    """Groups, those with the most failures of the last 24 hours first, and muted ones last."""

    groups: Sequence[FailureGroupItem]
    left_out: Annotated[int, Meta(description="Groups of all queues beyond the first 1,000.")]
    incomplete: Annotated[bool, Meta(description="A shard was unreachable; its failures are missing.")]
