"""What queues there are, as this server last saw it. Every script that uses an id says so, and refuses where the queue is another now.

So it may be old, and decides nothing: a call takes its queues by `Access.queues` and `Access.names_of`, which ask Redis for what is
missing here. Its mappings are never changed, only replaced: a call goes on with those that it began with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class QueueCache:
    """Queues by name and by the number that their keys have."""

    def __init__(self) -> None:
        self.queues: Mapping[str, bytes] = {}
        self.names: Mapping[bytes, str] = {}

    def replace(self, queues: Iterable[tuple[str, bytes]]) -> None:
        """All queues."""
        self.queues = dict(queues)
        self.names = {queue: name for name, queue in self.queues.items()}

    def learn(self, found: Iterable[tuple[str, bytes]]) -> None:
        """These are so now, whatever else there is; b"" is the id of a queue that is not there."""
        known = dict(self.queues)
        known.update(found)
        self.replace((name, queue) for name, queue in known.items() if queue)
