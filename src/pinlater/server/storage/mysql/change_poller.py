"""Finds the queues that other servers have changed since the last look."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pinlater.server.storage.mysql.queue_cache import MysqlQueueCache
from pinlater.server.storage.mysql.readers import Readers
from pinlater.server.storage.mysql.statements import sql

_LIST_ACTIVITY = sql("list_activity")


class MysqlChangePoller:
    """Compares the counts of other servers' writers in each queue. `own`: this server's first and last writer."""

    def __init__(
        self,
        readers: Readers,
        queue_cache: MysqlQueueCache,
        refresh: Callable[[], Awaitable[None]],
        own: Callable[[], tuple[int, int]],
    ) -> None:
        self._readers = readers
        self._queue_cache = queue_cache
        self._refresh = refresh
        self._own = own
        self._seen = ""
        self._activity: dict[tuple[int, int], tuple[int, ...]] = {}

    async def changed(self, others: str) -> set[str]:
        """The queues' names. `others`: as in `MaintenanceSnapshot`; while it stays the same, nothing is queried."""
        if others == self._seen:
            return set()
        first, last = self._own()
        [found] = await self._readers.read(lambda c: c.run([_LIST_ACTIVITY(own_first=first, own_last=last)]))
        activity = {line[:2]: line[2:] for line in found.rows}
        changed = [kind for kind, figures in activity.items() if self._activity.get(kind) != figures]
        if any(queue_id not in self._queue_cache.by_id for queue_id, _ in changed):
            await self._refresh()
        self._activity, self._seen = activity, others
        return self._names(changed)

    def _names(self, changed: list[tuple[int, int]]) -> set[str]:
        """Returns the names of the queues, and notes the priorities that other servers used. A queue that is missing was deleted
        meanwhile.
        """
        names = set()
        for queue_id, priority in changed:
            queue = self._queue_cache.by_id.get(queue_id)
            if queue is not None:
                queue.add_priority(priority)
                queue.ready.forget()
                names.add(queue.name)
        return names
