"""Servers as both halves know them: what a server reports about itself, and which address has which name. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

PEER_VERSION = 10
"""The newest version of the messages between servers that this build speaks."""
PEER_VERSION_UNTOLD = 9
"""The version of a server whose entry in a shard names none, or an older one."""
STORE_COORDINATOR = "store"
"""The coordinator of servers whose owners are stored in the shards."""


class ServerRole(str, Enum):  # noqa: UP042 - also the words of the command line and of files
    """What a server is for. Each accepts every call."""

    ALL = "all"
    ENQUEUE = "enqueue"
    """Owns no queues, and stores enqueues by itself."""
    DEQUEUE = "dequeue"
    """Owns queues for all servers."""


class AboutServer(NamedTuple):
    """What the other servers of its shards must know of a server. `coordinator`: the value of the setting."""

    coordinator: str
    role: ServerRole


USUAL = AboutServer(STORE_COORDINATOR, ServerRole.ALL)
DELETES_QUEUES = "delete-queue"
"""The feature of a server that has an admin password; a server without it deletes no queue."""


class ServerFacts(NamedTuple):
    """The facts that a server reports about itself. `connections`: of clients. `loop_lag_ms`: the longest delay of its event loop in
    this minute and the last. None: it does not report it.
    """

    version: str = ""
    started_at_ms: int | None = None
    connections: int | None = None
    loop_lag_ms: int | None = None


def addresses_by_name(servers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The address of each server, from pairs of name and address. Without an address (''), a server that is starting may be any server with
    its name: a name with several addresses is left out."""
    addresses: dict[str, set[str]] = {}
    for name, address in servers:
        if name and address:
            addresses.setdefault(name, set()).add(address)
    return {name: next(iter(found)) for name, found in addresses.items() if len(found) == 1}
