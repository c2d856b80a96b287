"""Who may start a job: a worker's slots, shared by its queues by weight.

A queue that has jobs gets at least its share of the slots; what others leave over it may use too, until they want it back.
"""

from __future__ import annotations


class Slots:
    """`total` slots; each queue has a weight and a bound of its own."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._weight: dict[str, int] = {}
        self._most: dict[str, int] = {}
        self._taken: dict[str, int] = {}
        self._free = total
        self._wanting: set[str] = set()

    def add(self, queue: str, weight: int, most: int | None) -> None:
        """A queue takes part. `most`: how many slots it may have at once."""
        self._weight[queue] = weight
        self._most[queue] = min(self.total, most or self.total)
        self._taken[queue] = 0
        self._wanting.add(queue)  # as long as it doesn't say otherwise

    def most(self, queue: str) -> int:
        """How many slots the queue may have at once."""
        return self._most[queue]

    def wants(self, queue: str, wants: bool) -> bool:
        """Whether the queue has jobs that wait for a slot: one that has none leaves its share to the others. True where it leaves it."""
        if wants:
            self._wanting.add(queue)
            return False
        leaves = queue in self._wanting
        self._wanting.discard(queue)
        return leaves

    def free_for(self, queue: str) -> int:
        """How many slots the queue may take now."""
        taken = self._taken[queue]
        allowed = self._free
        others = self._wanting - {queue}
        if others:
            whole = sum(self._weight[name] for name in (queue, *others))
            allowed -= sum(
                max(0, min(self._most[name], self._share(name, whole)) - self._taken[name]) for name in others
            )
            if not taken:
                allowed = max(allowed, min(1, self._free))  # nobody starves
        return max(0, min(allowed, self._most[queue] - taken))

    def _share(self, queue: str, whole: int) -> int:
        return max(1, self.total * self._weight[queue] // whole)

    def take(self, queue: str) -> None:
        """A job starts."""
        self._taken[queue] += 1
        self._free -= 1

    def give_back(self, queue: str) -> None:
        """A job ended."""
        self._taken[queue] -= 1
        self._free += 1
