"""The common part of MySQL and Redis shards: a leased slot, the connections of four writers, and one snapshot for all sweeps."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from pinlater.domain.errors import PinLaterError, ShardConnectionFailed
from pinlater.domain.servers import AboutServer
from pinlater.server.storage import commands
from pinlater.server.storage.connections import Connections, OneConnection, ReaderPool
from pinlater.server.storage.snapshots import MaintenanceSnapshot, Snapshots
from pinlater.server.storage.stats import Stats
from pinlater.server.storage.table import CommandTable, Table, entry_of
from pinlater.server.storage.values import Member, Owners, ShardTime

logger = logging.getLogger(__name__)

T = TypeVar("T")
Link = TypeVar("Link", contravariant=True)
Asked = TypeVar("Asked")
Readers = TypeVar("Readers", bound=ReaderPool[Any])
Writer = TypeVar("Writer", bound=OneConnection[Any])


class Membership(Protocol[Link]):
    """A server's lease of a slot, and its entry among the shard's servers. `Link`: the type of its connections."""

    lost: set[int]
    address: str
    about: AboutServer
    slot: int

    async def announce(self, link: Link, address: str, /) -> str: ...
    async def renew(self, link: Link, time_ms: Callable[[], int] | None = None, /) -> bool: ...
    async def shard_time(self, link: Link, /) -> ShardTime: ...
    async def members(self, link: Link, /) -> Sequence[Member]: ...
    async def owners(self, link: Link, /) -> Owners: ...
    async def change_owners(self, link: Link, known: Owners, new: Owners, /) -> bool: ...


class LeasedShard(CommandTable, ABC, Generic[Readers, Writer, Asked]):
    """The common base of MySQL's and Redis' shards. A store sets `endpoint`, `stats` and `_membership`, which are values of its own
    types."""

    endpoint: object
    stats: Stats
    _membership: Membership[Asked]

    def __init__(self, connections: Connections[Readers, Writer], monotonic: Callable[[], float]) -> None:
        """`monotonic` in seconds."""
        self._connections = connections
        self._monotonic = monotonic
        self._joining = asyncio.Lock()
        self._snapshots = Snapshots(self._look, lambda: self.changes, monotonic)
        self._given_back: set[str] = set()  # queues that got jobs back from claims with an unknown outcome
        self._highest_id = 0
        self._is_open = False

    @abstractmethod
    async def _ask(self, work: Callable[[Asked], Awaitable[T]]) -> T:
        """Runs work of the membership on a connection for reads. Raises an error unless the shard is open."""

    @abstractmethod
    async def _join(self) -> None:
        """Leases a slot."""

    @abstractmethod
    async def _leave_slot(self) -> None:
        """Frees the slot."""

    @abstractmethod
    async def _look(self) -> MaintenanceSnapshot:
        """Queries the data that sweeps need."""

    async def _rejoin(self, lost: int) -> None:
        """Leases another slot after this one was lost, unless another call has done so."""
        async with self._joining:
            if lost == self._membership.slot:
                logger.warning("%s: slot %d was taken over while this server was away", self.endpoint, lost)
                self._membership.lost.add(lost)
                await self._join()

    async def close(self) -> None:
        if self._is_open:
            self._is_open = False
            with contextlib.suppress(PinLaterError):  # the lease lapses by itself
                await self._leave_slot()
        await asyncio.gather(*(writer.close() for writer in self._connections.writers))
        await self._connections.readers.close()
        self._snapshots.forget()

    async def ping(self, now_ms: int | None = None) -> None:
        """Renews this server's lease, which is a write."""
        slot, asked = self._membership.slot, self._monotonic()
        time_ms = None if now_ms is None else lambda: now_ms + round((self._monotonic() - asked) * 1000)
        if not await self._ask(lambda link: self._membership.renew(link, time_ms)):
            self._slot_is_lost(slot)
            await self._rejoin(slot)

    def _slot_is_lost(self, slot: int) -> None:
        """Handles the loss of a slot, which a heartbeat has reported."""

    async def _shard_time(self) -> ShardTime:
        return await self._ask(self._membership.shard_time)

    def register_as(self, address: str) -> None:
        self._membership.address = address

    def introduce(self, about: AboutServer) -> None:
        self._membership.about = about

    async def _announce(self, address: str) -> str:
        return await self._ask(lambda link: self._membership.announce(link, address))

    async def _members(self) -> Sequence[Member]:
        """The servers that use this shard now."""
        return await self._ask(self._membership.members)

    async def _owners(self) -> Owners:
        return await self._ask(self._membership.owners)

    async def _change_owners(self, known: Owners, owners: Owners) -> bool:
        return await self._ask(lambda link: self._membership.change_owners(link, known, owners))

    @property
    def slot(self) -> int:
        return self._membership.slot

    @property
    def highest_id(self) -> int:
        return self._highest_id

    @property
    def changes(self) -> int:
        return self.stats.changes

    def follow(self, others: Callable[[], Hashable | None]) -> None:
        self._snapshots.others = others

    async def _state(self) -> Hashable | None:
        self._check_open()
        return await self._snapshots.state()

    @property
    def _opened(self) -> Connections[Readers, Writer]:
        """The connections, for every method of the protocols; raises an error unless the shard is open."""
        self._check_open()
        return self._connections

    def _check_open(self) -> None:
        if not self._is_open:
            raise ShardConnectionFailed(f"{self.endpoint} is not open")

    table: ClassVar[Table] = dict(
        [
            entry_of(commands.AskShardTime)(_shard_time),
            entry_of(commands.Announce)(_announce),
            entry_of(commands.ListMembers)(_members),
            entry_of(commands.ListOwners)(_owners),
            entry_of(commands.ChangeOwners)(_change_owners),
            entry_of(commands.AskState)(_state),
        ]
    )
