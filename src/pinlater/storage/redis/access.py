"""What every kind of call works with: a writer, the readers, and the book; and the way of those calls that decide on loaded jobs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from pinlater.domain.errors import ShardRefused
from pinlater.storage.redis.book import Book
from pinlater.storage.redis.changes import Changes
from pinlater.storage.redis.packing import I64
from pinlater.storage.redis.readers import Readers
from pinlater.storage.redis.stats import Stats
from pinlater.storage.redis.writer import Writer

T = TypeVar("T")

# Decided anew so often, where others keep changing the same jobs.
_TRIES = 10


class Access(NamedTuple):
    """For one call."""

    writer: Writer
    readers: Readers
    book: Book
    stats: Stats
    refresh: Callable[[], Awaitable[None]]  # reads the book anew

    async def change(
        self, refs: Sequence[bytes], now_ms: int, decide: Callable[[Changes], T], names: Sequence[str]
    ) -> T:
        """Loads the jobs, decides, writes; anew where one of them has changed in between. `names`: queues that must still be so."""
        for _ in range(_TRIES):
            changes = Changes(now_ms)
            await changes.load(self.readers, refs)
            result = decide(changes)
            if await self.write(changes, now_ms, names) == [0]:
                return result
        raise conflict()

    async def write(self, changes: Changes, now_ms: int, names: Sequence[str], plain: object = False) -> Any:
        """What `change_jobs.lua` answers; {0} without asking where there is nothing to write."""
        request = changes.request(self.book, names, plain)
        if changes.nothing and not plain and not changes.writing.commands():
            return [0]
        answer = await self.writer.run("change_jobs", now_ms, I64.pack(now_ms), request)
        if answer != [0]:
            self.stats.conflicts += 1
        return answer


def conflict() -> ShardRefused:
    return ShardRefused("Others keep changing the same jobs; nothing was changed", retry_after_ms=100)
