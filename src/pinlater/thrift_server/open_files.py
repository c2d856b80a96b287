"""How many connections this process may really hold: each takes a file descriptor, and the system sets a bound on those.

Without descriptors left nobody can connect any more, not even to be refused, and stores can't open their files; so the bound on
connections is kept below the system's.
"""

from __future__ import annotations

import resource

RESERVED = 128  # stores, logs, listeners, the event loop's own


def make_room(connections: int, others: int = 0) -> int:
    """Raises the process's soft limit of open files, as far as it may, towards `connections`; returns how many fit.

    `others`: how many descriptors the connections of other listeners may take.
    """
    reserved = RESERVED + others
    wanted = connections + reserved
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return connections
    possible = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft < possible:
        soft = possible
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return min(connections, max(1, soft - reserved))
