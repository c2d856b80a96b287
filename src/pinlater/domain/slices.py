"""Slices: each shard's queues are divided into a fixed number of them, by name, so that the number of owners does not grow with that of
queues.
"""

from __future__ import annotations

from functools import lru_cache
from zlib import crc32

SLICES = 16


@lru_cache(maxsize=65_536)
def slice_of(queue: str) -> int:
    """The slice of a queue, from 0; the same on every server and shard. Fixed for good: servers of different versions must agree."""
    return crc32(queue.encode("utf-8", "surrogatepass")) % SLICES
