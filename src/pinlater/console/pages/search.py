"""A search for a text in the jobs of all queues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pinlater.console.endpoints.search import search_jobs
from pinlater.console.pages.listed_job import ListedJob, rows_of
from pinlater.console.pages.page import PageCall, PageView
from pinlater.console.shapes.fields import RequestShape
from pinlater.console.shapes.search import SearchQuery, UnreadItem

UNREAD_SHOWN = 20


class SearchPageQuery(RequestShape, frozen=True, kw_only=True):
    """What to search for, and where."""

    text: str = ""
    queue: str = ""


class FoundRow(NamedTuple):
    """A job, and the place in it that has the text."""

    row: ListedJob
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchView(PageView):
    """`jobs`: None before a search. `compared`: how many jobs were read. `unread`: the first few parts that were not read completely;
    `unread_jobs`: the jobs of all of them. `masked`: queues whose bodies were not searched."""

    query: SearchPageQuery
    jobs: Sequence[FoundRow] | None = None
    compared: int = 0
    incomplete: bool = False
    masked: Sequence[str] = ()
    unread: Sequence[UnreadItem] = ()
    unread_lists: int = 0
    unread_jobs: int = 0


async def show(call: PageCall) -> SearchView:
    """Shows the page. Searches once, unless the text is empty."""
    query = call.read(SearchPageQuery)
    text = query.text.strip()
    if not text:
        return SearchView(title="Search", polls=False, query=query)
    wanted = call.read_as(SearchQuery, {"text": text, "queue": query.queue.strip()})
    found = await call.api.ask(search_jobs, query=wanted)
    rows = rows_of(one.job for one in found.jobs)
    return SearchView(
        title="Search",
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
