"""Searches over all jobs."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import Annotated

from pinlater.client._filtered_jobs import PAGE_JOBS
from pinlater.console import costs
from pinlater.console.endpoint import ApiCall, endpoint
from pinlater.console.endpoints.fields import AnswerShape, Future, Nothing, RequestShape, State, doc
from pinlater.console.endpoints.forms import like
from pinlater.console.endpoints.jobs import JobItem, job_shown
from pinlater.console.job_search import JobSearch, SearchBounds


class SearchQuery(RequestShape, frozen=True, kw_only=True):
    """What to search for."""

    text: Annotated[
        str,
        doc(
            "A whole descriptor or unique key, or a part of a header, an error or a body, ignoring case.",
            min_length=1,
            max_length=200,
        ),
    ]
    queue: Annotated[str | None, doc("Only jobs of this queue.")] = None
    limit: Annotated[int, doc("The largest number of jobs.", ge=1, le=200)] = 50


class FoundItem(AnswerShape, frozen=True, kw_only=True):
    """A job that contains the text."""

    where: Annotated[
        str,
        doc("The first place that contains the text: `descriptor`, `unique key`, `header NAME`, `error` or `body`."),
    ]
    job: JobItem


class UnreadItem(AnswerShape, frozen=True, kw_only=True):
    """Jobs that were not all searched."""

    queue: str
    state: State
    future: Future
    jobs: Annotated[int, doc("The number of these jobs.")]


class SearchAnswer(AnswerShape, frozen=True, kw_only=True):
    """What a search found within its bounds: a number of jobs found and read, and a few seconds."""

    jobs: Sequence[FoundItem]
    unread: Annotated[
        Sequence[UnreadItem], doc("Lists of jobs that were not searched completely; they may contain more such jobs.")
    ]
    compared: Annotated[int, doc("The number of jobs that were read.")]
    incomplete: Annotated[bool, doc("A shard was unreachable, or a list was not searched completely.")]
    masked: Annotated[
        Sequence[str], doc("Queues whose bodies were not searched: they are masked for the roles of the caller.")
    ]


@endpoint(
    "GET",
    "/v1/search",
    calls="lookup, queue_stats, find_unique_key, scan",
    cost=lambda call: costs.of_jobs(call.query.limit + PAGE_JOBS),
)
async def search_jobs(call: ApiCall[SearchQuery, Nothing]) -> SearchAnswer:
    """Searches all jobs for a string. A descriptor, and the job that holds a unique key now, are found by an index. For everything else it
    reads jobs: at most about 20,000, for at most 5 s, shortest lists first. The answer says which lists it has not searched completely.
    """
    query = call.query
    bounds = SearchBounds(found=query.limit)
    found = await JobSearch(call.client, query.text, query.queue or "", monotonic, bounds).run()
    return like(
        SearchAnswer,
        found,
        jobs=[FoundItem(where=one.where, job=job_shown(one.job)) for one in found.jobs[: query.limit]],
        incomplete=found.incomplete or bool(found.unread),
        masked=sorted(found.masked),
    )
