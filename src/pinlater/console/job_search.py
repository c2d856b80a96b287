"""A search for a text in all jobs: their descriptors, unique keys, headers, errors and bodies.

Stores have an index of descriptors, and of the unique keys that jobs hold now. Otherwise, and for a key that is free again, a search
reads jobs. It first reads the parts with the fewest jobs, stops at its bounds, and reports which parts it has not read completely. A part
is the jobs of one queue in one state. Servers search the bodies; the rest is compared here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from pinlater.client import AsyncClient
from pinlater.client._filtered_jobs import PAGE_JOBS, SCAN_END, SCAN_START
from pinlater.client.errors import BodiesMasked, DescriptorInvalid, PinLaterError, QueueNotFound, UnknownMethod
from pinlater.client.values import JobInfo, JobState, QueueStats
from pinlater.domain.body_text import regex_of_text
from pinlater.domain.descriptor import parse_descriptor

DESCRIPTOR, UNIQUE_KEY, ERROR, BODY = "descriptor", "unique key", "error", "body"


class SearchBounds(NamedTuple):
    """Where a search stops: `found` jobs, `compared` jobs read, or `seconds`."""

    found: int = 50
    compared: int = 20_000
    seconds: float = 5.0


class JobPart(NamedTuple):
    """The jobs of a queue in a state. `future`: only pending jobs that are not due. `jobs`: how many, according to the counters."""

    queue: str
    state: JobState
    future: bool
    jobs: int


class FoundJob(NamedTuple):
    """`where`: the first place in which the text is: `unique key`, `header NAME`, `error`, `body` or `descriptor`."""

    job: JobInfo
    where: str


@dataclass(slots=True)
class SearchResult:
    """`unread`: parts that were not read completely. `incomplete`: a shard was unreachable, too. `masked`: queues whose bodies were not
    searched, because they are masked for the caller."""

    jobs: list[FoundJob] = field(default_factory=list)
    unread: list[JobPart] = field(default_factory=list)
    compared: int = 0
    incomplete: bool = False
    masked: set[str] = field(default_factory=set)

    def add(self, job: JobInfo, where: str) -> None:
        if all(found.job.descriptor != job.descriptor for found in self.jobs):
            self.jobs.append(FoundJob(job, where))


class JobSearch:
    """One search. `monotonic`: in seconds."""

    # The errors of servers that cannot search bodies now.
    _NOT_SEARCHED = frozenset({"REGEX_TOO_COSTLY", "REGEX_UNAVAILABLE", "TOO_MANY_WAITING"})

    def __init__(
        self, client: AsyncClient, text: str, queue: str, monotonic: Callable[[], float], bounds: SearchBounds
    ) -> None:
        self._client = client
        self._text = text
        self._folded = text.casefold()
        self._queue = queue
        self._bounds = bounds
        self._monotonic = monotonic
        self._until_s = monotonic() + bounds.seconds
        self._result = SearchResult()

    async def run(self) -> SearchResult:
        """Raises the errors of the servers, except for parts that have gone meanwhile, and for bodies that they can't search now."""
        result = self._result
        queues = [self._queue] if self._queue else []
        stats = await self._client.queue_stats(*queues)
        result.incomplete = any(one.incomplete for one in stats)
        await self._look_up({one.queue for one in stats})
        await self._find_key(queues)
        for part in sorted(parts_of(stats), key=lambda part: part.jobs):
            if self._is_over() or not await self._read(part):
                result.unread.append(part)
        return result

    async def _look_up(self, queues: Set[str]) -> None:
        """Looks only in these queues: the text may name a queue that the caller may not see, which is no reason to refuse the search."""
        try:
            queue = parse_descriptor(self._text).queue
        except DescriptorInvalid:
            return
        if queue not in queues:
            return
        for job in (await self._client.lookup([self._text])).values():
            self._result.add(job, DESCRIPTOR)

    async def _find_key(self, queues: Sequence[str]) -> None:
        try:
            holders = await self._client.find_unique_key(self._text, *queues)
        except (
            UnknownMethod,
            QueueNotFound,
        ):  # an older server, or the queue has gone: one of the read jobs may have the key
            return
        for job in holders.jobs:
            self._result.add(job, UNIQUE_KEY)
        self._result.incomplete |= holders.incomplete

    async def _read(self, part: JobPart) -> bool:
        """Reads the part. Returns whether it was read completely, including bodies unless they are masked. A queue that was deleted
        meanwhile counts as read.
        """
        try:
            return await self._read_all(part, None) and (
                part.queue in self._result.masked or await self._read_all(part, regex_of_text(self._text))
            )
        except QueueNotFound:
            return True
        except BodiesMasked:
            self._result.masked.add(part.queue)
            return True
        except PinLaterError as error:
            if error.detail not in self._NOT_SEARCHED:
                raise
            return False

    async def _read_all(self, part: JobPart, regex: str | None) -> bool:
        """Reads the jobs of the part, or those whose bodies the servers find by the regex. Returns whether these are all."""
        result, after = self._result, SCAN_START
        while not self._is_over():
            limit = PAGE_JOBS if regex is None else self._bounds.found - len(result.jobs)
            page = await self._client.scan(
                part.queue, part.state, future=part.future, regex=regex, limit=limit, continuation=after, paged=True
            )
            for job in page.jobs:
                if where := self._place_in(job) if regex is None else BODY:
                    result.add(job, where)
            result.compared += len(page.jobs) if regex is None else 0
            if page.continuation in (SCAN_END, after):
                return page.continuation == SCAN_END and not page.incomplete
            after = page.continuation
        return False

    def _place_in(self, job: JobInfo) -> str:
        """Returns where the text is; '' if it is nowhere."""
        if job.unique_key == self._text:
            return UNIQUE_KEY
        for name, value in job.headers.items():
            if self._folded in value.casefold():
                return f"header {name}"
        return ERROR if self._folded in f"{job.error_type}: {job.error_text}".casefold() else ""

    def _is_over(self) -> bool:
        result, bounds = self._result, self._bounds
        return (
            len(result.jobs) >= bounds.found or result.compared >= bounds.compared or self._monotonic() >= self._until_s
        )


def parts_of(stats: Sequence[QueueStats]) -> Iterator[JobPart]:
    """The parts that have jobs."""
    for one in stats:
        future = one.total("future")
        counts = (
            (JobState.PENDING, False, one.total("pending") - future),
            (JobState.PENDING, True, future),
            (JobState.IN_PROGRESS, False, one.total("in_progress")),
            (JobState.FAILED, False, one.total("failed")),
            (JobState.SUCCEEDED, False, one.total("succeeded")),
        )
        yield from (JobPart(one.queue, state, later, jobs) for state, later, jobs in counts if jobs > 0)
