"""The executable specification of a shard: everything in memory, each rule written as plainly as it can be.

It is what other stores are compared with, and what users' own tests run against. It must never grow a trick for speed that
hides a rule. Weakness: nothing survives the process.
"""

from pinlater.server.storage.memory.shard import MemoryShard

__all__ = ["MemoryShard"]
