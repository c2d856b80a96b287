"""Searches over all jobs."""

from __future__ import annotations

from time import monotonic

from pinlater.console.endpoint import ApiCall
from pinlater.console.endpoints.forms import job_shown
from pinlater.console.job_search import JobSearch, SearchBounds
from pinlater.console.shapes.fields import Nothing
from pinlater.console.shapes.search import FoundItem, SearchAnswer, SearchQuery, UnreadItem


async def search_jobs(call: ApiCall[SearchQuery, Nothing]) -> SearchAnswer:
    """Searches all jobs for a string. A descriptor, and the job that holds a unique key now, are found by an index. For all else it reads
    jobs: at most some 20,000 in at most 5 s, those of short lists first; it says which it has not read."""
    query = call.query
    bounds = SearchBounds(found=query.limit)
    found = await JobSearch(call.client, query.text, query.queue or "", monotonic, bounds).run()
    return SearchAnswer(
        jobs=[FoundItem(where=one.where, job=job_shown(one.job)) for one in found.jobs[: query.limit]],
        unread=[
            UnreadItem(queue=part.queue, state=part.state.name.lower(), future=part.future, jobs=part.jobs)  # type: ignore[arg-type]
            for part in found.unread
        ],
        compared=found.compared,
        incomplete=found.incomplete or bool(found.unread),
        masked=sorted(found.masked),
    )
