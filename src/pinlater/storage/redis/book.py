"""What queues there are, as this server last saw it. Every script that uses an id says so, and refuses where the queue is another now."""

from __future__ import annotations

from collections.abc import Iterable


class Book:
    """Queues by name and by the number that their keys have."""

    def __init__(self) -> None:
        self.queues: dict[str, bytes] = {}
        self.names: dict[bytes, str] = {}

    def replace(self, queues: Iterable[tuple[str, bytes]]) -> None:
        self.queues = dict(queues)
        self.names = {queue: name for name, queue in self.queues.items()}

    def learn(self, found: Iterable[tuple[str, bytes]]) -> None:
        """These are so now, whatever else there is."""
        for name, queue in found:
            self.names.pop(self.queues.pop(name, b""), None)
            if queue:
                self.queues[name] = queue
                self.names[queue] = name

    def claims_about(self, names: Iterable[str]) -> tuple[list[str], list[bytes]]:
        """Those of the names that are known, with their ids: what scripts are to check."""
        known = [name for name in dict.fromkeys(names) if name in self.queues]
        return known, [self.queues[name] for name in known]
