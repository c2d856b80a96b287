"""One shard, as the service sees every store. It executes `commands`, whose values are in `values.py`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Hashable, Mapping
from typing import Any, Protocol

from pinlater.domain.servers import AboutServer
from pinlater.server.storage.commands import Answer, Command
from pinlater.server.storage.values import Capabilities
from pinlater.wire.generated.structs import ShardSize


class Store(Protocol):
    """A shard as all code uses it, except for the code that opens and closes it. Every method may be called concurrently."""

    def submit(self, command: Command[Answer]) -> Coroutine[Any, Any, Answer]:
        """Executes a command as one transaction."""

    async def ping(self, now_ms: int | None = None) -> None:
        """Returns if the shard could serve a write now; raises `Unavailable` if not.

        `now_ms`: this server's time; a shared store remembers it for servers that start later (`AskShardTime`).
        """

    async def size(self) -> ShardSize:
        """Returns how much space the store takes, with no `at_ms`. Takes at most two statements; none reads a table of jobs."""


class Shard(Store, Protocol):
    """One shard."""

    name: str
    capabilities: Capabilities

    async def open(self, now_ms: int) -> None:
        """Connects, migrates if needed, takes the lock or the slot that only one server may have. Raises `Unavailable` with a clear text.

        `now_ms`: the time of this machine, by which nothing may be deleted: a server that starts has not yet agreed on a time with the
        others.
        """

    async def close(self) -> None:
        """Finishes the calls under way, then releases its resources. May be called twice."""

    def on_came_first(self, tell: Callable[[str, int], bool]) -> None:
        """Makes the shard call `tell(queue, due_ms)` for each job that this server has made ready because those before it under its
        ordering key have ended; it returns whether a dequeue waits for it here. A store that works in order calls it before it commits, so
        that the claim can share the transaction, the others after that."""
        ...

    @property
    def slot(self) -> int:
        """This server's slot for ids (0..1023), leased in the store by `open`, or 0 if only one server can use the shard.

        It changes if the lease lapsed and another server took the slot. The shard refuses an insert with ids of a lost slot with a
        `ShardConnectionFailed` value. `highest_id` is as of the newest lease.
        """

    @property
    def highest_id(self) -> int:
        """The highest job id that was in the shard when it was opened, or 0 for none."""

    def figures(self) -> Mapping[str, float]:
        """Returns the store's own figures for operators, by the names in `FIGURES`; totals since the start. No I/O."""


class OfSeveralServers(Protocol):
    """The methods of a shard that several servers use at the same time (`Capabilities.shared`).

    Slots: each server leases a slot, and renews the lease with heartbeats (`Shard.ping`). If the lease lapses, another server may take
    the slot. The slot is part of every job id and of the writers' numbers, so no two servers write the same id or number. Leases are
    measured by the store's clock. If that clock jumps, all heartbeats look old until the next ones, and servers may lose their slots to
    others. A server that was suspended may not know that it lost its slot, so the store must refuse its writes.

    Time: due times and the ends of claims use the servers' time, which they took from the store when they started. Heartbeats store how
    far a server's time is ahead of the store's, so that a server that starts after a jump of the store's clock uses the time of the
    running servers. Weakness: in the first seconds after a jump no server has stored it yet. A shard whose clock has jumped by more than
    a lease reports that (`ShardTime.of_servers`): a server that starts meanwhile asks other shards, or takes the wrong time if there are
    none.
    """

    def register_as(self, address: str) -> None:
        """Makes the shard register this server with this address, at `open` and whenever it leases another slot. Makes no call:
        `Announce` tells a shard that is open."""

    def introduce(self, about: AboutServer) -> None:
        """Sets what the shard reports to other servers about this one. Call it before `open`."""
        ...

    @property
    def changes(self) -> int:
        """Increases with each change that this server makes or attempts, once that is over: for the other servers. No I/O."""

    def follow(self, others: Callable[[], Hashable | None]) -> None:
        """Sets how to learn of changes by other servers. `others()` returns another value after each such change, or None while that is
        not known. While it stays the same, the store need not ask the database about others' changes more than twice a minute.
        """


class SharedShard(Shard, OfSeveralServers, Protocol):
    """One shard that several servers use at the same time."""


class BegunBatch(Protocol):
    """A batch that is about to be executed. `claim_follows`: a dequeue waits for its jobs and claims them within the next few turns of
    the loop; it is worth waiting for a transaction that holds both."""

    @property
    def command(self) -> Command[Any]: ...

    @property
    def claim_follows(self) -> bool: ...


class WaitingBatch(Protocol):
    """Calls that wait, and become a command when their transaction begins."""

    def begin(self) -> BegunBatch | None:
        """Takes the calls that wait, and returns their command. Returns None if none waits: then it is not asked again."""

    def done(self, answer: Any) -> bool:
        """Takes the result of the command. Returns whether other calls wait, which are then requested."""

    def failed(self, error: BaseException) -> bool:
        """Called if the command failed, as if it had raised. Returns whether other calls wait."""


class BatchQueue(Protocol):
    """Executes batches: a shard in this process."""

    def join(self, batch: WaitingBatch) -> None:
        """Executes the waiting calls of a batch, command after command until none waits: in later turns of the loop, each in one
        transaction with other calls."""


class InOrderShard(Shard, BatchQueue, Protocol):
    """A shard whose commands see the changes of every earlier command, even before they are committed (`Capabilities.in_order`)."""
