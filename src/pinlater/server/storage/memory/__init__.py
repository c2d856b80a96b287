"""The executable specification of a shard: everything in memory, each rule written as plainly as it can be.

Tests compare the other stores with it, and users' own tests run on it. It must never contain an optimisation that hides
a rule. Weakness: nothing survives the process.
"""

from pinlater.server.storage.memory.shard import MemoryShard

__all__ = ["MemoryShard"]
