"""What every kind of call works with: a writer, the readers, and the queues; and the procedure of calls that decide on loaded jobs.

A call uses the queue ids that this server remembers, and every script that gets them refuses if one has changed: `StaleQueues`, after
which the call runs again with data from Redis. So an answer never depends on memory alone, least of all that something doesn't exist.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from pinlater.domain.errors import ShardRefused
from pinlater.server.storage.redis.changes import Changes
from pinlater.server.storage.redis.packing import I64
from pinlater.server.storage.redis.queue_cache import RedisQueueCache
from pinlater.server.storage.redis.readers import Readers
from pinlater.server.storage.redis.stats import Stats
from pinlater.server.storage.redis.writer import Writer

T = TypeVar("T")
Queues = Sequence[tuple[str, bytes]]
"""Names and ids, for a script to check."""

# How often a call decides again while others keep changing the same jobs.
TRIES = 10


class Looking(Protocol):
    """What a read of jobs uses: of a call of the store, or of a program that serves no shard."""

    @property
    def shard(self) -> str: ...

    @property
    def readers(self) -> Readers: ...

    @property
    def queues(self) -> Mapping[str, bytes]: ...

    def ids_of(self, names: Iterable[str]) -> Queues: ...


class ReadAccess(NamedTuple):
    """Read access for a program that serves no shard. `queues`: all queues, as they were read."""

    shard: str
    readers: Readers
    queues: Mapping[str, bytes]

    def ids_of(self, names: Iterable[str]) -> Queues:
        """Returns the named queues that exist, with their ids."""
        return _named(self.queues, names)


class Access(NamedTuple):
    """Holds what one call of the store uses."""

    shard: str
    writer: Writer
    readers: Readers
    queue_cache: RedisQueueCache
    queues: Mapping[str, bytes]  # those of the queues that the call names that exist
    stats: Stats
    refresh: Callable[[], Awaitable[None]]  # reads the queue cache again

    def ids_of(self, names: Iterable[str]) -> Queues:
        """Returns the named queues that exist, with their ids, which scripts check."""
        return _named(self.queues, names)

    async def names_of(self, ids: Iterable[bytes]) -> dict[bytes, str]:
        """Returns the names of these queues, from memory or else from Redis. A missing one does not exist."""
        wanted = set(ids)
        if not wanted <= self.queue_cache.names.keys():
            await self.refresh()
        names = self.queue_cache.names
        return {queue: names[queue] for queue in wanted if queue in names}

    async def change(
        self, refs: Sequence[bytes], now_ms: int, decide: Callable[[Changes], T], names: Sequence[str]
    ) -> T:
        """Loads the jobs, decides and writes, and repeats that if one of them has changed meanwhile. `names`: queues that must not have
        changed.
        """
        queues = self.ids_of(names)
        for _ in range(TRIES):
            changes = Changes(now_ms)
            await changes.load(self.readers, refs, queues)
            result = decide(changes)
            if await self.write(changes, now_ms, queues) == [0]:
                return result
        raise conflict()

    async def write(self, changes: Changes, now_ms: int, queues: Queues, plain: object = False) -> Any:
        """Returns the answer of `change_jobs.lua`; {0} without a call if there is nothing to write. `queues` must be unchanged."""
        request = changes.request(queues, plain)
        if not changes.moves() and not plain and not changes.restores and not changes.writing.commands():
            return [0]
        answer = await self.writer.run("change_jobs", now_ms, I64.pack(now_ms), request)
        if answer[0] == 0:
            self.tell_came_first(answer)
            return [0]
        self.stats.conflicts += 1
        return answer

    def tell_came_first(self, answer: Sequence[Any]) -> None:
        """Reports the jobs that a script has made ready, which answers {0, queue, due, ...}."""
        for at in range(1, len(answer), 2):
            name = self.queue_cache.names.get(answer[at])
            if name is not None:
                self.queue_cache.came_first(name, int(answer[at + 1]))


def _named(queues: Mapping[str, bytes], names: Iterable[str]) -> Queues:
    return [(name, queues[name]) for name in dict.fromkeys(names) if name in queues]


def conflict() -> ShardRefused:
    return ShardRefused("Others keep changing the same jobs; nothing was changed", retry_after_ms=100)
