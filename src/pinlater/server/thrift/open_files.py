"""How many connections this process can really hold: each takes a file descriptor, and the system bounds those.

Without free descriptors no client can connect, not even to be refused, and stores can't open their files; so the bound on
connections is kept below the system's.
"""

from __future__ import annotations

import resource

RESERVED = 128  # stores, logs, listeners, the event loop's own
CONNECTIONS_MIN = 16


class TooFewOpenFiles(OSError):
    """The system allows this process so few open files that it could not serve."""

    def __init__(self, allowed: int, needed: int) -> None:
        super().__init__(
            f"this process may open {allowed} files, and a server needs at least {needed}: raise the limit (ulimit -n, LimitNOFILE)"
        )


def raise_file_limit(connections: int, others: int = 0) -> int:
    """Raises the process's soft limit of open files, as far as allowed, towards `connections`; returns how many fit.

    `others`: how many descriptors the connections of other listeners may take. Raises `TooFewOpenFiles` if fewer than
    `CONNECTIONS_MIN` connections would fit: with fewer files, clients of one listener would keep those of the others out.
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
    least = min(connections, CONNECTIONS_MIN)
    if soft - reserved < least:
        raise TooFewOpenFiles(soft, reserved + least)
    return min(connections, soft - reserved)
