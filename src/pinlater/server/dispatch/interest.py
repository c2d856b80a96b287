"""The queues whose jobs a server hands out, to dequeues that wait or under a limit: other servers wake it for no other queue, and do not
divide the limits of other queues with it.

The servers send each other this set as a filter of 256 bits, one for each hash of a queue's name. So 32 bytes describe ten thousand queues.
Two queues with the same bit cost a useless wake, or a share of a limit that is not used; no bit is missing while a dequeue waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from zlib import crc32

BITS = 256


@lru_cache(maxsize=65_536)
def bit_of(queue: str) -> int:
    """The filter of one queue. Fixed for good: servers of different versions must agree."""
    return 1 << crc32(queue.encode("utf-8", "surrogatepass")) // 16 % BITS


class Interest:
    """The interest of this server in queues. `waiting()`: the queues for which dequeues wait; `changed()` is called when `bits` has
    changed."""

    def __init__(self, waiting: Callable[[], Iterable[str]], changed: Callable[[], None]) -> None:
        self.bits = 0
        self._waiting = waiting
        self._changed = changed
        self._begun = 0  # queues for which a dequeue has begun to wait since the last look

    def begins(self, queue: str) -> None:
        """Notes that a dequeue is about to wait for jobs of this queue."""
        bit = bit_of(queue)
        self._begun |= bit
        if not self.bits & bit:
            self.bits |= bit
            self._changed()

    def look(self) -> None:
        """Call it about once a second: drops queues for which no dequeue has waited since the last call."""
        bits, self._begun = self._begun, 0
        for queue in self._waiting():
            bits |= bit_of(queue)
        if bits != self.bits:
            self.bits = bits
            self._changed()
