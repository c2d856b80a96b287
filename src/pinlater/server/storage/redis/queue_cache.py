"""The queues of one shard, as this server last read them. Every script checks the ids that it is given, and refuses an old one.

So the cache may be old, and decides nothing: a call takes its queues by `Access.queues` and `Access.names_of`, which ask Redis for queues
that are missing here. Its mappings are replaced, never changed: a call continues with those with which it began.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping


class RedisQueueCache:
    """Queues by name and by the number that their keys have."""

    def __init__(self) -> None:
        self.queues: Mapping[str, bytes] = {}
        self.names: Mapping[bytes, str] = {}
        self.came_first: Callable[[str, int], object] = lambda _queue, _due_ms: None
        """Called with a job that is ready because those before it under its ordering key have ended."""

    def replace(self, queues: Iterable[tuple[str, bytes]]) -> None:
        self.queues = dict(queues)
        self.names = {queue: name for name, queue in self.queues.items()}

    def learn(self, found: Iterable[tuple[str, bytes]]) -> None:
        """Remembers these queues besides those that it knows; b"" is the id of a missing queue."""
        known = dict(self.queues)
        known.update(found)
        self.replace((name, queue) for name, queue in known.items() if queue)
