"""The common part of the memberships of all shared stores: slots, their leases, and the time on which the servers of a shard agree.

`interface.OfSeveralServers` defines what a lease promises.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterable, Sequence

from pinlater.domain.clock import CLOCK_JUMP_MS
from pinlater.domain.errors import EnqueueRejected, ShardConnectionFailed
from pinlater.domain.ids import SLOTS
from pinlater.domain.servers import PEER_VERSION, PEER_VERSION_UNTOLD, USUAL, AboutServer, ServerRole
from pinlater.server.storage.values import Member, ShardTime

logger = logging.getLogger(__name__)

_MARK = "/"  # in no name of a host
COMPARED_WITHIN_MS = 500
"""A heartbeat that takes longer says too little about the difference between the server's clock and the store's."""


class SlotLost(ShardConnectionFailed):
    """This server did not renew its lease in time, and another server has its slot. Nothing was changed."""

    def __init__(self, endpoint: object, slot: int) -> None:
        super().__init__(f"{endpoint}: this server's slot was taken over while it was away", retry_after_ms=100)
        self.slot = slot


class LeasedSlot:
    """One server's lease of a slot in a shard, and its entry among the shard's servers."""

    def __init__(self, lease_ms: int, writers: int) -> None:
        """`writers`: how many the server has."""
        self._lease_ms = lease_ms
        self._writers = writers
        self.lost: set[int] = set()  # earlier slots of this server: ids were made with them
        self.name = f"{socket.gethostname()}-{os.getpid()}"
        self.about = USUAL
        self.address = ""
        self.slot = 0
        self.keeps_order = False
        """Whether it is known that no server of a version before ordering keys uses the shard."""

    @property
    def entry(self) -> str:
        """Its name, its coordinator and role unless they are the defaults, and the versions that it speaks.

        Servers of all versions read and write this text: no other place in a shard could hold it without a new schema. Servers of the
        previous version look for the number behind the last mark.
        """
        more = () if self.about == USUAL else self.about
        return _MARK.join([self.name, *more, str(PEER_VERSION)])


def is_alive(seen_ms: int, now_ms: int, lease_ms: int) -> bool:
    """Returns whether the lease still holds. A heartbeat with a time in the future is from before the clock was set back."""
    return abs(now_ms - seen_ms) < lease_ms


def member_of(slot: int, entry: str, address: str, started_ms: int, seen_ms: int, now_ms: int) -> Member:
    """Returns the server that is stored as `entry`."""
    name, *told = entry.split(_MARK)
    version = int(told[-1]) if told else PEER_VERSION_UNTOLD
    about = AboutServer(told[0], _role_of(told[1])) if len(told) > 2 else USUAL
    return Member(slot, name, address, started_ms, seen_ms, abs(now_ms - seen_ms), version, about)


def _role_of(word: str) -> ServerRole:
    """Returns the role. A role that only a later version knows counts as `all`, or this server could not start beside it."""
    return ServerRole(word) if word in list(ServerRole) else ServerRole.ALL


def no_free_slot() -> ShardConnectionFailed:
    """The error of a server that finds every slot leased."""
    return ShardConnectionFailed(f"All {SLOTS} slots for servers are taken; wait until those that are gone lapse")


def older_servers(endpoint: object, servers: Sequence[tuple[str, str]]) -> EnqueueRejected:
    """Returns the refusal of jobs with ordering keys while these servers (entry and address) use the shard."""
    names = [f"{entry.partition(_MARK)[0]} {address}".rstrip() for entry, address in servers]
    return EnqueueRejected(
        f"{endpoint}: jobs with ordering keys are refused while servers of the version before use this shard ({', '.join(names)}), since "
        "they would let no next job of a key go; upgrade them"
    )


def each_once(alive: Iterable[Member]) -> list[Member]:
    """Returns each server once, by slot: after a failover a server has two slots until the lease of the old one lapses."""
    # A server without an address may be any of them.
    newest = {(one.name, one.address or one.slot): one for one in sorted(alive, key=lambda one: one.started_at_ms)}
    return sorted(newest.values(), key=lambda one: one.slot)


def shard_time(now_ms: int, ahead_ms: Iterable[int]) -> ShardTime:
    """Returns the time of the servers, which is `ahead_ms` ahead of the store's time `now_ms`, or `now_ms` if there are none or they
    agree with it.
    """
    ahead = sorted(ahead_ms)
    middle_ms = ahead[len(ahead) // 2] if ahead else 0
    return ShardTime(now_ms if abs(middle_ms) < CLOCK_JUMP_MS else now_ms + middle_ms, bool(ahead))


def time_to_tell(known_ms: int | None, asked_ms: int, answered_ms: int, store_ms: int) -> int | None:
    """Returns how far a server's time is ahead of the store's, if the store needs to be told.

    The server sent a heartbeat and got its answer at `asked_ms` and `answered_ms` of its own time; the store executed it at `store_ms`,
    and knew `known_ms` then: None if it was told nothing under this lease. None if the store knows it, or the heartbeat took too long to
    compare clocks.
    """
    took_ms = answered_ms - asked_ms
    ahead_ms = asked_ms + took_ms // 2 - store_ms
    if took_ms >= COMPARED_WITHIN_MS or (known_ms is not None and abs(ahead_ms - known_ms) < CLOCK_JUMP_MS // 2):
        return None
    return ahead_ms


def log_jump(clock: str, known_ms: int | None, ahead_ms: int) -> None:
    """Logs that the clock of a store has jumped if the new difference is too far from the known one. `clock`: its name."""
    if known_ms is not None and abs(ahead_ms - known_ms) >= CLOCK_JUMP_MS:
        logger.warning(
            "%s jumped; the servers go on by the time that they had",
            clock,
            extra={"jump_ms": known_ms - ahead_ms, "servers_ahead_ms": ahead_ms},
        )
