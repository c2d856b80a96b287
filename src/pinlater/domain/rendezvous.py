"""Placement by rendezvous hashing, so that a key keeps its shard when others come and go."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

# Not at the first use: a child that is forked while another thread imports waits for ever when it imports the same module. Python's own
# `random` imports the part of hashlib that it needs, too, since hashlib loads OpenSSL.
try:
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b


def rendezvous_home(key: str, shards: Sequence[str]) -> str:
    """The shard of the key. Every server computes the same from the same names."""
    if len(shards) == 1:
        return shards[0]
    encoded = key.encode("utf-8", "surrogatepass")
    home, highest = "", b""
    for shard in shards:
        weight = _weight(shard, encoded)
        if weight > highest:
            home, highest = shard, weight
    return home


def rendezvous_order(key: str, shards: Sequence[str]) -> list[str]:
    """Returns the shards in the order of the key, its home first. The order of the others does not change when one comes or goes."""
    encoded = key.encode("utf-8", "surrogatepass")
    return sorted(shards, key=lambda shard: _weight(shard, encoded), reverse=True)


def _weight(shard: str, encoded: bytes) -> bytes:
    hashing = _begun(shard).copy()
    hashing.update(encoded)
    return hashing.digest()


@lru_cache
def _begun(shard: str) -> blake2b:
    """The hash of a shard's name, to be continued with a key."""
    return blake2b(f"{shard}\0".encode("utf-8", "surrogatepass"), digest_size=8)


def covered(coverage: float, shards: int) -> int:
    """Returns how many shards a dequeue with this coverage looks at: rounded half up, at least one, at most all."""
    share = min(1.0, max(0.0, coverage))
    return max(1, min(shards, math.floor(share * shards + 0.5)))
