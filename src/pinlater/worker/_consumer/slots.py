"""A worker's slots, shared among its queues by weight. A job needs a slot to run.

A queue with jobs may use its share of the slots, and what the other queues leave of theirs until they need it.
"""

from __future__ import annotations


class Slots:
    """`total` slots; each queue has a weight and a maximum."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._weight: dict[str, int] = {}
        self._most: dict[str, int] = {}
        self._taken: dict[str, int] = {}
        self._free = total
        self._wanting: set[str] = set()

    def add(self, queue: str, weight: int, most: int | None) -> None:
        """Adds a queue, which may have `most` slots at once. It counts as one with jobs until it says otherwise."""
        self._weight[queue] = weight
        self._most[queue] = min(self.total, most or self.total)
        self._taken[queue] = 0
        self._wanting.add(queue)

    def most(self, queue: str) -> int:
        """How many slots the queue may have at once."""
        return self._most[queue]

    def wants(self, queue: str, wants: bool) -> bool:
        """Sets whether the queue has jobs that need slots. True if it had and no longer has, so that others may use its share."""
        if wants:
            self._wanting.add(queue)
            return False
        leaves = queue in self._wanting
        self._wanting.discard(queue)
        return leaves

    def free_for(self, queue: str) -> int:
        """How many slots the queue may take now: at least one if it has none and any is free."""
        taken = self._taken[queue]
        allowed = self._free
        others = self._wanting - {queue}
        if others:
            weights = sum(self._weight[name] for name in (queue, *others))
            allowed -= sum(
                max(0, min(self._most[name], self._share(name, weights)) - self._taken[name]) for name in others
            )
            if not taken:
                allowed = max(allowed, min(1, self._free))
        return max(0, min(allowed, self._most[queue] - taken))

    def _share(self, queue: str, weights: int) -> int:
        return max(1, self.total * self._weight[queue] // weights)

    def take(self, queue: str) -> None:
        """A job starts."""
        self._taken[queue] += 1
        self._free -= 1

    def give_back(self, queue: str) -> None:
        """A job ended."""
        self._taken[queue] -= 1
        self._free += 1
