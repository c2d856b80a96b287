"""A search for a text in the jobs of all queues."""

from __future__ import annotations

from typing import NamedTuple

from pinlater.console.endpoints.fields import RequestShape
from pinlater.console.endpoints.search import SearchQuery, search_jobs
from pinlater.console.pages.listed_job import ListedJob, rows_of
from pinlater.console.pages.page import PageCall, PageView

UNREAD_SHOWN = 20


class SearchPageQuery(RequestShape, frozen=True, kw_only=True):
    """What to search for, and where."""

    text: str = ""
    queue: str = ""


class FoundRow(NamedTuple):
    """A job, and the place in it that has the text."""

    row: ListedJob
    where: str


async def show(call: PageCall) -> PageView:
    """Shows the page. Searches once, unless the text is empty."""
    query = call.read(SearchPageQuery)
    text = query.text.strip()
    if not text:
        return PageView("Search", polls=False, query=query, jobs=None)
    wanted = call.read_as(SearchQuery, {"text": text, "queue": query.queue.strip()})
    found = await call.api.ask(search_jobs, query=wanted)
    rows = rows_of(one.job for one in found.jobs)
    return PageView(
        "Search",
        polls=False,
        query=query,
        jobs=[FoundRow(row, one.where) for row, one in zip(rows, found.jobs, strict=True)],
        compared=found.compared,
        incomplete=found.incomplete,
        masked=found.masked,
        unread=found.unread[:UNREAD_SHOWN],
        unread_lists=len(found.unread),
        unread_jobs=sum(one.jobs for one in found.unread),
    )
