"""One server's view of a simulated store: a `storage.interface.SharedShard` like those of MySQL and Redis.

It has a slot of its own that it may lose, claims whose outcome it does not know, and a record of other servers' changes. Each call is a
message to the store, a transaction, and a message back, and each of the three may be late, lost, or arrive after its caller has given up.

A call executes the code of the store in memory, which answers in the same turn of the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from msgspec.structs import astuple

from pinlater.domain.errors import OutcomeUnknown, ShardConnectionFailed
from pinlater.domain.ids import slot_of
from pinlater.domain.servers import USUAL, AboutServer
from pinlater.server.storage.commands import (
    AdvanceDue,
    Announce,
    Answer,
    AskShardTime,
    AskState,
    ChangeOwners,
    CheckpointJobs,
    ClaimJobs,
    CollectGarbage,
    Command,
    ExpireJobs,
    FinishJobs,
    InsertJobs,
    ListChangedQueues,
    ListMembers,
    ListOwners,
    ListTrail,
    PruneFailures,
    PruneTrail,
    ReleaseJobs,
    TimeOutClaims,
)
from pinlater.server.storage.interface import Shard
from pinlater.server.storage.leases import log_jump, shard_time, time_to_tell
from pinlater.server.storage.snapshots import Snapshots
from pinlater.server.storage.sqlite.dialect import at_once
from pinlater.server.storage.table import CommandTable, Table, entry_of
from pinlater.server.storage.values import (
    Capabilities,
    ClaimOrder,
    InsertRequest,
    Member,
    Owners,
    ShardTime,
    TimeToLive,
)
from pinlater.simulation.loop import ProcessLoop, ProcessState
from pinlater.simulation.store_calls import (
    AskSize,
    CallKind,
    OpenSession,
    Ping,
    ReleaseTokens,
    TakeSnapshot,
    TellTime,
    is_told,
)
from pinlater.wire.generated.structs import ShardSize

if TYPE_CHECKING:
    from pinlater.simulation.store import SimulatedStore, StoreSnapshot, ToldHere

T = TypeVar("T")


class Session(CommandTable):
    """Implements `storage.interface.SharedShard`: one server's view of a shared store."""

    capabilities = Capabilities(kind="simulated", shared=True, durable=True)

    def __init__(self, store: SimulatedStore) -> None:
        self.name = store.name
        self.store = store
        self.server = ""
        self.registered_as = ""
        self.slot = 0
        self.highest_id = 0
        self.lost: set[int] = set()
        self._loop: ProcessLoop | None = None
        self.told_here: list[ToldHere] = []  # each time that the server asked for the time
        self.goes_by_ms: int | None = None  # how far its time is ahead of the simulation's
        store.sessions.append(self)
        self._open = False
        self.newest: dict[str, int] = {}  # by writer: the newest of its calls that was executed
        self._outcome_unknown: dict[str, None] = {}  # tokens of claims, the oldest failure first
        self._given_back: dict[str, None] = {}
        self._activity: dict[tuple[str, int], int] = {}
        self._tell_came_first: Callable[[str, int], object] = lambda _queue, _due_ms: None
        self.changes = 0
        self.about = USUAL
        self._snapshots = Snapshots(self._look, lambda: self.changes, lambda: store.timeline.now_s)

    def introduce(self, about: AboutServer) -> None:
        self.about = about

    def follow(self, others: Callable[[], Hashable | None]) -> None:
        self._snapshots.others = others

    async def _state(self) -> Hashable | None:
        return await self._snapshots.state()

    async def _look(self) -> StoreSnapshot:
        return await self._call(TakeSnapshot, self.store.snapshot)

    def as_shard(self) -> Shard:
        """Returns itself, as the shard that it stands for."""
        return cast("Shard", self)

    @property
    def lives(self) -> bool:
        """Whether its server process exists, running or not."""
        return self._loop is not None and self._loop.state is not ProcessState.DEAD

    # --- calls --------------------------------------------------------------------------------------------------------------

    def submit(self, command: Command[Answer]) -> Coroutine[Any, Any, Answer]:
        return super().submit(command) if type(command) in self.table else self._carry_out(command)

    async def _carry_out(self, command: Command[Answer]) -> Answer:
        """Executes a command like the store in memory."""

        def act() -> Answer:
            answer = at_once(self.store.data.submit(command))
            if isinstance(command, ReleaseJobs | FinishJobs | CheckpointJobs):
                self._note([item.key.queue for item in astuple(command)[0]])
            return answer

        return await self._call(type(command), act)

    async def _call(self, kind: CallKind, act: Callable[[], T]) -> T:
        if not self._open:
            raise ShardConnectionFailed(f"Shard {self.name} is not open")
        if is_told(kind):
            try:
                answer, came_first = await self.store.send(self, kind, lambda: self._change(act))
            finally:
                self.changes += 1
            for queue, due_ms in came_first:
                self._tell_came_first(queue, due_ms)
            return cast("T", answer)
        return cast("T", await self.store.send(self, kind, act))

    def _change(self, act: Callable[[], Any]) -> tuple[Any, Sequence[tuple[str, int]]]:
        """A transaction that changes something: if another server has taken the slot, it is executed with a new one. Returns the result,
        and the jobs that became first of their ordering keys by it."""
        self._keep_slot()
        self.store.came_first.clear()
        result = act()
        self.store.changed += 1
        came_first = list(self.store.came_first)
        self._note([queue for queue, _ in came_first])
        return result, came_first

    def _keep_slot(self) -> bool:
        """Leases another slot if this one is lost. Returns whether it was."""
        lease = self.store.leases.get(self.slot)
        if lease is not None and lease.session is self:
            return False
        self.lost.add(self.slot)
        self.slot = self.store.join(self)
        self.highest_id = max(self.highest_id, self.store.data.highest_id)
        return True

    def _note(self, queues: Sequence[str]) -> None:
        """Tells the other servers that this one may have made jobs ready."""
        for queue in queues:
            key = (queue, self.slot)
            self.store.activity[key] = self.store.activity.get(key, 0) + 1

    # --- life ---------------------------------------------------------------------------------------------------------------

    async def open(self, now_ms: int) -> None:
        if self._open:
            return

        def join() -> tuple[int, int]:
            return self.store.join(self), self.store.data.highest_id

        self._loop = cast("ProcessLoop", asyncio.get_running_loop())
        self.server = self._loop.name
        self.slot, self.highest_id = await self.store.send(self, OpenSession, join)
        self._open = True

    async def close(self) -> None:
        if self._open:
            self._open = False
            lease = self.store.leases.get(self.slot)
            if lease is not None and lease.session is self:
                del self.store.leases[self.slot]

    async def ping(self, now_ms: int | None = None) -> None:
        asked_s = self.store.timeline.now_s
        if now_ms is not None:
            self.goes_by_ms = now_ms - self.store.wall_ms()

        def renew() -> tuple[int, int | None] | None:
            if self._keep_slot():
                return None
            lease = self.store.leases[self.slot]
            lease.seen_ms = self.store.now_ms()
            return lease.seen_ms, lease.ahead_ms

        renewed = await self._call(Ping, renew)
        if now_ms is None or renewed is None:
            return
        store_ms, known_ms = renewed
        answered_ms = now_ms + round((self.store.timeline.now_s - asked_s) * 1000)
        ahead_ms = time_to_tell(known_ms, now_ms, answered_ms, store_ms)
        if ahead_ms is not None:
            log_jump(f"Shard {self.name}: the database's clock", known_ms, ahead_ms)
            await self._call(TellTime, lambda: self._tell_time(ahead_ms))

    def _tell_time(self, ahead_ms: int) -> None:
        lease = self.store.leases.get(self.slot)
        if lease is not None and lease.session is self:
            lease.ahead_ms = ahead_ms

    async def size(self) -> ShardSize:
        return await self._call(AskSize, ShardSize)

    def on_came_first(self, tell: Callable[[str, int], bool]) -> None:
        self._tell_came_first = tell

    def figures(self) -> dict[str, float]:
        return {}

    async def _shard_time(self) -> ShardTime:
        """Returns the time of the present servers, or the database's own if they use it or there are none."""

        def look() -> tuple[ShardTime, ToldHere]:
            return shard_time(self.store.now_ms(), self.store.told_ms(self)), self.store.told_time()

        time, told_here = await self._call(AskShardTime, look)
        self.told_here.append(told_here)
        return time

    def register_as(self, address: str) -> None:
        self.registered_as = address

    async def _announce(self, address: str) -> str:
        self.registered_as = address

        def note() -> str:
            self._keep_slot()
            self.store.leases[self.slot].address = address
            return f"secret of {self.name}"

        return await self._call(Announce, note)

    async def _members(self) -> Sequence[Member]:
        return await self._call(ListMembers, self.store.members)

    async def _owners(self) -> Owners:
        return await self._call(ListOwners, lambda: self.store.owners)

    async def _change_owners(self, known: Owners, owners: Owners) -> bool:
        return await self._call(ChangeOwners, lambda: self.store.change_owners(known, owners))

    async def _list_changed_queues(self) -> Sequence[str]:
        def look() -> list[str]:
            others = {key: count for key, count in self.store.activity.items() if key[1] != self.slot}
            changed = dict.fromkeys(
                queue for (queue, slot), n in others.items() if self._activity.get((queue, slot)) != n
            )
            self._activity = others
            return list(changed)

        given_back, self._given_back = self._given_back, {}
        return list(dict.fromkeys([*given_back, *await self._call(ListChangedQueues, look)]))

    # --- jobs ---------------------------------------------------------------------------------------------------------------

    async def _insert(self, requests: Sequence[InsertRequest], now_ms: int) -> Sequence[Any]:
        """Ids of a slot that was lost are refused, since another server makes the same."""

        def insert() -> list[Any]:
            answers = [
                ShardConnectionFailed("this server's slot was taken over", retry_after_ms=0)
                if any(slot_of(job.id) in self.lost for job in request.jobs)
                else at_once(self.store.data.submit(InsertJobs([request], now_ms)))[0]
                for request in requests
            ]
            self.store.note_stored(requests, answers)
            options = [job.options for request in requests for job in request.jobs if job.options is not None]
            keys = {each.unique.key for each in options if each.unique is not None}
            self._note([request.queue for request in requests])
            self.store.doubled_keys += [key for key in sorted(keys) if len(self.store.holders_of(key)) > 1]
            return answers

        return await self._call(InsertJobs, insert)

    async def _claim(self, orders: Sequence[ClaimOrder], now_ms: int) -> Sequence[Any]:
        """Claims jobs. If the outcome is unknown, the next sweep gives back the jobs that may have been claimed, like MySQL's store."""
        try:
            claimed = await self._call(ClaimJobs, lambda: at_once(self.store.data.submit(ClaimJobs(orders, now_ms))))
        except (OutcomeUnknown, asyncio.CancelledError):
            self._outcome_unknown.update(dict.fromkeys(call.holder.token for order in orders for call in order.calls))
            raise
        return claimed

    async def _time_out_claims(self, now_ms: int, limit: int, quarantine_after: int = 0) -> Sequence[Any]:
        if self._outcome_unknown:
            tokens = dict.fromkeys(self._outcome_unknown)
            queues = await self._call(ReleaseTokens, lambda: self._release_tokens(tokens, now_ms))
            for token in tokens:
                self._outcome_unknown.pop(token, None)
            self._given_back.update(queues)
        if limit <= 0 or (await self._snapshots.latest()).first_deadline_ms >= now_ms:
            return []

        def sweep() -> Sequence[Any]:
            swept = at_once(self.store.data.submit(TimeOutClaims(now_ms, limit, quarantine_after)))
            self._note([row.queue for row in swept])
            return cast("Sequence[Any]", swept)

        return await self._call(TimeOutClaims, sweep)

    async def _expire(self, now_ms: int, limit: int) -> Sequence[Any]:
        if limit <= 0 or (await self._snapshots.latest()).first_expiry_ms >= now_ms:
            return []
        return await self._carry_out(ExpireJobs(now_ms, limit))

    async def _advance_due(self, now_ms: int, limit: int) -> int:
        if limit <= 0 or (await self._snapshots.latest()).first_future_ms > now_ms:
            return 0
        return await self._carry_out(AdvanceDue(now_ms, limit))

    async def _collect_garbage(self, ttls: Sequence[TimeToLive], now_ms: int, limit: int) -> Sequence[Any]:
        if limit <= 0 or not (await self._snapshots.latest()).has_garbage:
            return []
        return await self._carry_out(CollectGarbage(ttls, now_ms, limit))

    async def _prune_trail(self, before: str, limit: int) -> int:
        def look() -> Sequence[Any]:
            return cast("Sequence[Any]", at_once(self.store.data.submit(ListTrail("", before, 1))))

        if limit <= 0 or not await self._call(ListTrail, look):
            return 0
        return await self._carry_out(PruneTrail(before, limit))

    async def _prune_failures(self, before_ms: int, before_hour: int, limit: int) -> int:
        """Finds nothing: a simulation is shorter than failures are kept."""
        del before_ms, before_hour, limit
        return 0

    def _release_tokens(self, tokens: dict[str, None], now_ms: int) -> dict[str, None]:
        refs = [ref for ref in self.store.claims() if ref.token in tokens]
        at_once(self.store.data.submit(ReleaseJobs(refs, now_ms)))
        queues = [ref.key.queue for ref in refs]
        self._note(queues)
        return dict.fromkeys(queues)

    table: ClassVar[Table] = dict(
        [
            entry_of(AskState)(_state),
            entry_of(AskShardTime)(_shard_time),
            entry_of(Announce)(_announce),
            entry_of(ListMembers)(_members),
            entry_of(ListOwners)(_owners),
            entry_of(ChangeOwners)(_change_owners),
            entry_of(ListChangedQueues)(_list_changed_queues),
            entry_of(InsertJobs)(_insert),
            entry_of(ClaimJobs)(_claim),
            entry_of(TimeOutClaims)(_time_out_claims),
            entry_of(ExpireJobs)(_expire),
            entry_of(AdvanceDue)(_advance_due),
            entry_of(CollectGarbage)(_collect_garbage),
            entry_of(PruneTrail)(_prune_trail),
            entry_of(PruneFailures)(_prune_failures),
        ]
    )
