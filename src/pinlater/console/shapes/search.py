"""Searches over all jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from pinlater.console.shapes.fields import AnswerShape, RequestShape, State
from pinlater.console.shapes.jobs import JobItem


class SearchQuery(RequestShape, frozen=True, kw_only=True):
    """What to search for."""

    text: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=200,
            description="A descriptor or a unique key, whole; or a part of a header, an error or a body, ignoring case.",
        ),
    ]
    queue: Annotated[str | None, Meta(description="Only jobs of this queue.")] = None
    limit: Annotated[int, Meta(ge=1, le=200, description="The largest number of jobs.")] = 50


class FoundItem(AnswerShape, frozen=True, kw_only=True):
    """A job with the text in it."""

    where: Annotated[
        str, Meta(description="The first place: `descriptor`, `unique key`, `header NAME`, `error` or `body`.")
    ]
    job: JobItem


class UnreadItem(AnswerShape, frozen=True, kw_only=True):
    """Jobs that were not all read."""

    queue: str
    state: State
    future: Annotated[bool, Meta(description="Pending jobs that are not due yet, instead of those that are.")]
    jobs: Annotated[int, Meta(description="How many there are.")]


class SearchAnswer(AnswerShape, frozen=True, kw_only=True):
    """What was found within the bounds of a search: a number of jobs found and read, and a few seconds."""

    jobs: Sequence[FoundItem]
    unread: Annotated[
        Sequence[UnreadItem], Meta(description="What was not read to its end: these may have more such jobs.")
    ]
    compared: Annotated[int, Meta(description="How many jobs were read.")]
    incomplete: Annotated[bool, Meta(description="A shard was unreachable, or something was not read to its end.")]
    masked: Annotated[
        Sequence[str],
        Meta(description="Queues whose bodies were not searched: they are masked for the roles of the caller."),
    ]
