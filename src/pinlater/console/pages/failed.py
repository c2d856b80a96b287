"""Failed jobs of all queues, with their errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from pinlater.client.errors import UnknownMethod, WorldError
from pinlater.console.endpoints.failures import FailureGroupItem, FailuresQuery, get_failures
from pinlater.console.endpoints.fields import QueuesQuery, RequestShape
from pinlater.console.endpoints.jobs import JobItem, LookupRequest, ScanQuery, lookup_jobs, scan_jobs
from pinlater.console.endpoints.queues import get_stats
from pinlater.console.pages.formats import one_line
from pinlater.console.pages.listed_job import ListedJob, rows_of
from pinlater.console.pages.page import PageCall, PageView, paths
from pinlater.console.pages.queue_figures import QueueFigures, figures_of
from pinlater.domain.failures import OTHERS
from pinlater.domain.link_urls import JobLink, source_link

QUEUES, ROWS, GROUPS = 10, 10, 10  # queues of a page; jobs and groups of a queue


class FailedQuery(RequestShape, frozen=True, kw_only=True):
    """Which queues. `filter`: a part of their names."""

    filter: str = ""
    page: int = 1


class GroupRow(NamedTuple):
    """Failed attempts that look alike. `bars`: of the last 24 hours, each with its place and height in percent. `source`: the link to the
    line of code that raised the error of the job that failed last. `may_have_jobs`: whether some of its jobs may still be failed."""

    group: FailureGroupItem
    text: str
    today: int
    bars: Sequence[tuple[float, float]]
    source: JobLink | None = None
    may_have_jobs: bool = True

    @property
    def muted(self) -> bool:
        """Whether an operator muted the group."""
        return self.group.muted_until_ms > 0


class FailedQueue(NamedTuple):
    """A queue with its groups of failures and its newest failed jobs. `more`: groups that are not shown."""

    queue: QueueFigures
    jobs: Sequence[ListedJob]
    groups: Sequence[GroupRow]
    more: int


async def show(call: PageCall) -> PageView:
    """Shows the page. Makes one call for the counters, one for the groups, and one for each queue of the page, those with the most failed
    jobs first. With links to code, one more for the groups' jobs.
    """
    query = call.read(FailedQuery)
    word = query.filter.lower()
    answer = await call.api.ask(get_stats, query=QueuesQuery())
    failing = [queue for queue in map(figures_of, answer.queues) if queue.failed and word in queue.name.lower()]
    failing.sort(key=lambda queue: (-queue.failed, queue.name))
    pages = max(1, -(-len(failing) // QUEUES))
    page = min(max(1, query.page), pages)
    on_page = failing[(page - 1) * QUEUES : page * QUEUES]
    groups = await _groups(call, [queue.name for queue in on_page])
    jobs = {queue.name: (await call.api.ask(scan_jobs, queue=queue.name, query=_NEWEST)).jobs for queue in on_page}
    samples = [row.group.sample for rows in groups.values() for row in rows[:GROUPS]]
    sources = await _sources(call, samples, chain.from_iterable(jobs.values()))
    shown = []
    for queue in on_page:
        rows = groups.get(queue.name, [])
        may_have_jobs = _has_jobs(queue, jobs[queue.name])
        linked = [
            row._replace(source=sources.get(row.group.sample), may_have_jobs=may_have_jobs(row.group.name))
            for row in rows[:GROUPS]
        ]
        shown.append(FailedQueue(queue, rows_of(jobs[queue.name], call.links), linked, max(0, len(rows) - GROUPS)))
    return PageView(
        "Failed jobs",
        path=paths("/failed", query),
        query=query,
        queues=shown,
        found=len(failing),
        failed=sum(queue.failed for queue in failing),
        page=page,
        pages=pages,
        incomplete=any(stats.incomplete for stats in answer.queues),
    )


async def _groups(call: PageCall, queues: Sequence[str]) -> Mapping[str, list[GroupRow]]:
    """Returns the groups by queue; none from servers that do not count them."""
    found: dict[str, list[GroupRow]] = {}
    if not queues:
        return found
    try:
        answer = await call.api.ask(get_failures, query=FailuresQuery(queue=queues))
    except UnknownMethod:
        return found
    for group in answer.groups:
        found.setdefault(group.queue, []).append(group_row(group))
    return found


def _has_jobs(queue: QueueFigures, newest: Sequence[JobItem]) -> Callable[[str], bool]:
    """Returns a function that tells whether a group of that name may have failed jobs. If the queue has more groups than these, it may."""
    names = {job.failure_group for job in newest}
    return lambda name: queue.failed > len(newest) or name == OTHERS or name in names


async def _sources(call: PageCall, samples: Sequence[str], known: Iterable[JobItem]) -> Mapping[str, JobLink | None]:
    """Returns the links to code of these jobs. Some are already known; jobs that are gone, or can't be read now, have none."""
    if not call.links.source:
        return {}
    found = {job.descriptor: job for job in known}
    missing = [sample for sample in samples if sample not in found]
    if missing:
        try:
            answer = await call.api.ask(lookup_jobs, body=LookupRequest(descriptors=missing))
            found.update({job.descriptor: job for job in answer.jobs})
        except WorldError:  # a shard is unreachable; the page says so
            pass
    return {sample: source_link(call.links, found[sample].error_text) for sample in samples if sample in found}


def group_row(group: FailureGroupItem) -> GroupRow:
    """The group as a row of a table."""
    text = ": ".join(part for part in (one_line(group.error_type), one_line(group.pattern)) if part)
    if group.name == OTHERS:
        text = "Failures of other groups"
    highest = max(group.hours, default=0) or 1
    bars = [(at, 100 * failures / highest) for at, failures in enumerate(group.hours)]
    return GroupRow(group, text or "Without an error", sum(group.hours), bars)


_NEWEST = ScanQuery(state="failed", limit=ROWS)
