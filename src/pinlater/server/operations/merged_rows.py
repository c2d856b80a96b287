"""Rows of several shards in one order, newest first: read page by page, and compared with a filter."""

from __future__ import annotations

import asyncio
import heapq
import re
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from pinlater.domain.descriptor import I64_MAX
from pinlater.domain.errors import ContinuationInvalid, InvalidArgument, Unavailable
from pinlater.domain.job_filter import JobFilter
from pinlater.server.operations.addressing import left_out, reachable
from pinlater.server.operations.job_settings import PAGES_BYTES_MAX
from pinlater.server.operations.long_lists import in_turns
from pinlater.server.operations.regex import BodyRegex
from pinlater.server.sharding.guarded import shard_unreachable
from pinlater.server.sharding.shards import ShardLanes, Shards
from pinlater.server.storage.commands import ScanJobs
from pinlater.server.storage.values import Page, PageRow, raise_error
from pinlater.server.telemetry.metrics import Metrics

START, END = "0", "-1"
PAGE_ROWS = 1_000
_COMPARED_A_TURN = 100  # computing a group of failures takes some 50 µs
_PAGE_BYTES_MIN = 256 * 1024
# Without a shard if there is only one, and from servers that did not name it.
_CONTINUATION = re.compile(r"(-?[0-9]{1,19})\.([0-9]{1,19})(?:\.(.{1,100}))?", re.ASCII)


class ScannedRow(NamedTuple):
    """A row of a scan, the shard it came from, and whether it matches the filter."""

    shard: str
    row: PageRow
    matches: bool


class ScanPosition(NamedTuple):
    """Where a page of a scan ended. A scan is in the order of time and id, both descending, then of the shard's name: ids of different
    shards can be equal. `shard` None: not known, so that rows with this time and id may be returned twice rather than not at all."""

    sort_ms: int
    id: int
    shard: str | None

    def on(self, shard: str, *, alone: bool) -> tuple[int, int] | None:
        """The row (time, id) after which the next page of this shard begins; None: with the first. `alone`: there is no other shard."""
        if alone or (self.shard is not None and shard <= self.shard):
            return self.sort_ms, self.id
        if self.id < I64_MAX:
            return self.sort_ms, self.id + 1
        return (self.sort_ms + 1, 0) if self.sort_ms < I64_MAX else None


class RowSearch(NamedTuple):
    """Which jobs a scan looks for, which half of the waiting ones if they wait, and the compiled regex of the filter."""

    queue: str
    filter: JobFilter
    future: bool
    regex: BodyRegex | None

    def page(
        self, priorities: Sequence[int], after: tuple[int, int] | None, limit: int, now_ms: int, *, bodies: bool
    ) -> Page:
        """Returns the first page, or the one after a row."""
        bodies = bodies or self.regex is not None
        state = self.filter.state
        return Page(self.queue, state, priorities, limit, after, now_ms, self.future, bodies, PAGES_BYTES_MAX)

    async def matches(self, rows: Sequence[PageRow]) -> list[bool]:
        """Returns for each row whether it matches. If a budget of the regex ends meanwhile, only the rows before it are in the result."""
        fitting = [True] * len(rows)
        if self.filter.compares:
            fits = self.filter.fits
            fitting = await in_turns(rows, lambda some: [fits(row.job) for row in some], _COMPARED_A_TURN)
        if self.regex is None:
            return fitting
        places = [place for place, fit in enumerate(fitting) if fit]
        found = await self.regex.found([rows[place] for place in places])
        for place, match in zip(places, found, strict=False):
            fitting[place] = match
        return fitting if len(found) == len(places) else fitting[: places[len(found)]]

    @property
    def exhausted(self) -> bool:
        """Whether a budget of the regex is used up."""
        return self.regex is not None and self.regex.exhausted

    def too_costly(self, seen: int) -> InvalidArgument:
        """The error for a budget of the regex that is used up after that many rows."""
        return InvalidArgument("") if self.regex is None else self.regex.too_costly(seen)


class _Stream:
    """The rows of one shard, page by page, compared a page at a time."""

    def __init__(self, shard: ShardLanes, first: Page, search: RowSearch) -> None:
        self.shard = shard
        self._first = first
        self._search = search
        self._after = first.after
        self._unsearched: list[PageRow] = []
        self._found: deque[ScannedRow] = deque()
        self._ended = False

    async def next(self) -> ScannedRow | None:
        """The next row; None if there is none. Raises `_BudgetEnded` for a row that could no longer be searched."""
        while not self._found:
            if not self._unsearched and not await self._read():
                return None
            await self._compare()
        return self._found.popleft()

    async def _read(self) -> bool:
        if self._ended:
            return False
        page = self._first._replace(after=self._after)
        self._unsearched = list(raise_error(await self.shard.store.submit(ScanJobs(page))))
        rows = self._unsearched
        self._ended = not rows or (len(rows) < page.limit and not page.bodies)
        if rows:
            self._after = (rows[-1].sort_ms, rows[-1].key.id)
        return bool(rows)

    async def _compare(self) -> None:
        rows = self._unsearched
        matches = await self._search.matches(rows)
        if not matches:
            raise _BudgetEnded
        for row, match in zip(rows, matches, strict=False):
            if not match:
                row.job.body = None
            self._found.append(ScannedRow(self.shard.name, row, match))
        self._unsearched = rows[len(matches) :]


class _BudgetEnded(Exception):
    """A budget of the regex ended before the next row was searched."""


class MergedRows:
    """All shards' rows in one order, newest first, read page by page. A shard that fails is left out from then on. `only`: no other shard
    is read; raises `ShardConnectionFailed` if it is unreachable."""

    def __init__(
        self,
        shards: Shards,
        metrics: Metrics,
        method: str,
        search: RowSearch,
        priorities: Sequence[int],
        after: ScanPosition | None,
        limit: int,
        now_ms: int,
        *,
        bodies: bool,
        only: ShardLanes | None = None,
    ) -> None:
        if only is not None and not only.healthy:
            raise shard_unreachable(only.name)
        self._metrics, self._method = metrics, method
        found = reachable(shards, self._metrics, method) if only is None else [only]
        self.cut = only is None and len(found) < len(shards)
        self.unsearched = False  # whether a budget of the regex ended before all rows were searched
        self._failures: dict[str, Unavailable] = {}
        self._shards = len(found)
        self._alone = len(shards) == 1
        page = search.page(priorities, None, min(limit, PAGE_ROWS), now_ms, bodies=bodies)._replace(
            max_bytes=max(PAGES_BYTES_MAX // max(1, len(found)), _PAGE_BYTES_MIN)
        )
        begins = [None if after is None else after.on(shard.name, alone=self._alone) for shard in found]
        self._streams = [
            _Stream(shard, page._replace(after=begin), search) for shard, begin in zip(found, begins, strict=True)
        ]
        self._heap: list[tuple[int, int, str, int, ScannedRow]] = []

    def continuation(self, last: ScannedRow | None) -> str:
        """The continuation that a caller sends to continue after this row. For a single shard, it has a format that older servers can
        read, too."""
        if last is None:
            return START
        place = f"{last.row.sort_ms}.{last.row.key.id}"
        return place if self._alone else f"{place}.{last.shard}"

    async def rows(self) -> AsyncIterator[ScannedRow]:
        """Ends early if a budget of the regex ends. Raises `Unavailable` if every shard fails."""
        await asyncio.gather(*(self._push(number) for number in range(len(self._streams))))
        while self._heap and not self.unsearched:
            _, _, _, number, found = heapq.heappop(self._heap)
            yield found
            await self._push(number)

    async def _push(self, number: int) -> None:
        shard = self._streams[number].shard.name
        if shard in self._failures:
            return
        try:
            found = await self._streams[number].next()
        except _BudgetEnded:
            self.unsearched = True
            return
        except Unavailable as error:
            if shard not in self._failures:
                self._failures[shard] = error
                left_out(self._metrics, self._method, [shard], error.message)
            self.cut = True
            if len(self._failures) == self._shards:
                raise
            return
        if found is not None:
            heapq.heappush(self._heap, (-found.row.sort_ms, -found.row.key.id, shard, number, found))


def parse_continuation(continuation: str, *, paged: bool) -> ScanPosition | None:
    """Where a scan continues; None: at its beginning. Raises `ContinuationInvalid`."""
    if continuation == START:
        return None
    match = _CONTINUATION.fullmatch(continuation) if paged else None
    if match is None:
        raise ContinuationInvalid.of(continuation)
    sort_ms, job_id = int(match[1]), int(match[2])
    if not -I64_MAX - 1 <= sort_ms <= I64_MAX or job_id > I64_MAX:  # no store has such a number
        raise ContinuationInvalid.of(continuation)
    return ScanPosition(sort_ms, job_id, match[3])
