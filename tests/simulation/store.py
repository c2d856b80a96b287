"""Shards that several servers share, kept in memory, with the ways in which a database over a network fails its callers.

A `SharedStore` is one database: the memory store's data, the leases of slots, and what servers tell each other through it. A `Session` is
one server's view of it, which is a `storage.interface.SharedShard` as those of MySQL and Redis are: with a slot of its own that it may
lose, claims whose outcome it does not know, and a note of what other servers did. Each call is a message there, a transaction, and a
message back, and each of the three may be late, lost, or come after its caller has given up.

What a call does is the memory store's own code, the executable specification, so a run judges what is above the seam.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Callable, Coroutine, Hashable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple, cast

from pinlater.domain.errors import OutcomeUnknown, PinLaterError, ShardConnectionFailed
from pinlater.domain.ids import SLOTS, slot_of
from pinlater.domain.job import JobState
from pinlater.server.storage.interface import Shard, SharedShard
from pinlater.server.storage.memory import MemoryShard
from pinlater.server.storage.memory.record import MemoryJob
from pinlater.server.storage.snapshots import NEVER_MS, Snapshots
from pinlater.server.storage.values import (
    NO_OWNERS,
    Capabilities,
    ClaimOrder,
    ClaimRef,
    InsertRequest,
    JobKey,
    Member,
    Owners,
    TimeToLive,
)
from tests.simulation.loop import ProcessLoop, Timeline, new_process

_READS = frozenset(
    (
        "ping",
        "time_ms",
        "announce",
        "members",
        "owners",
        "list_queues",
        "find_requests",
        "find_unique",
        "list_unique_queues",
        "list_unique_keys",
        "timed_keys",
        "changed_queues",
        "snapshot",
        "peek_jobs",
        "lookup_jobs",
        "scan_jobs",
        "count_ahead",
        "count_jobs",
    )
)
# `release_tokens` is a part of `time_out_claims`.
_CHANGES = (
    frozenset(name for name, _ in inspect.getmembers(SharedShard, inspect.iscoroutinefunction))
    - _READS
    - {"open", "close"}
) | {"release_tokens"}
# Calls that have a connection of their own, as in MySQL's and Redis' stores; all others share one.
_WRITERS = {"insert_jobs": "inserts", "claim_jobs": "claims", "release_tokens": "claims", "finish_jobs": "ends"}
# Of these the servers that wait elsewhere are told through the store; the first argument of each says which queues.
_MAKES_READY = frozenset({"insert_jobs", "release_jobs", "finish_jobs", "checkpoint_jobs"})


class StoreTrouble(NamedTuple):
    """Shares of calls. `latency_s`: what an ordinary one takes at most; `only`: the methods that it befalls, all where there are none."""

    latency_s: float = 0.002
    refused: float = 0.0  # surely not carried out
    answer_lost: float = 0.0  # carried out, and the caller is told that the outcome is unknown
    lost: float = 0.0  # not carried out, and the caller is told that the outcome is unknown
    late: float = 0.0  # the caller is told that the outcome is unknown, and it is carried out after that
    slow: float = 0.0
    slow_s: float = 0.3  # the mean time of a slow call
    hung: float = 0.0  # takes longer than any caller waits
    late_s: float = 12.0  # the longest time that a hung call takes; a late one takes two thirds of it
    unknown_after_s: float = 3.0  # so long it takes at most until a caller is told that the outcome is unknown
    only: tuple[str, ...] = ()


CALM = StoreTrouble()


class Snapshot(NamedTuple):
    """What the sweeps have to know. `changes`: how many transactions have changed something."""

    first_deadline_ms: int
    first_expiry_ms: int
    first_future_ms: int
    has_garbage: bool  # or may have some
    changes: int


class Fate(NamedTuple):
    """What becomes of one call: when it is carried out and answered, in seconds from now; None where it never is."""

    carried_out_s: float | None
    answered_s: float
    error: type[PinLaterError] | None = None


@dataclass(slots=True)
class Lease:
    """A server's lease of a slot."""

    session: Session
    seen_s: float
    started_at_ms: int
    address: str = ""
    ahead_ms: int | None = None


@dataclass(slots=True)
class CrashPoint:
    """Kills a server at one of its calls: `calls` more from now, before or after it is carried out."""

    loop: ProcessLoop
    calls: int
    after: bool
    kill: Callable[[], None]


@dataclass(slots=True)
class SharedStore:
    """One shard's database. `ahead_ms`: how far its clock is ahead."""

    name: str
    timeline: Timeline
    random: Random
    wall_ms: Callable[[], int]
    lease_s: float
    ahead_ms: int = 0
    trouble: StoreTrouble = CALM
    gone_for: set[str] = field(default_factory=set)  # hosts whose connections are refused
    stands_still: bool = False  # it takes calls and does nothing with them
    data: MemoryShard = field(init=False)
    leases: dict[int, Lease] = field(default_factory=dict)
    owners: Owners = NO_OWNERS
    activity: dict[tuple[str, int], int] = field(default_factory=dict)  # (queue, slot) → changes that made jobs ready
    crash_points: list[CrashPoint] = field(default_factory=list)
    stores: Sequence[SharedStore] = ()  # of the cluster, this one among them
    doubled_keys: list[str] = field(default_factory=list)  # unique keys that two unfinished jobs had at once
    stored_by: dict[int, str] = field(default_factory=dict)  # job id → the process that stored it
    calls: int = 0
    called: Counter[str] = field(default_factory=Counter)  # calls by their method
    changed: int = 0
    fails_until_s: float = 0.0  # when the last error that was drawn so far will have come
    _held: list[Callable[[], None]] = field(default_factory=list)
    _wire: ProcessLoop = field(init=False)

    def __post_init__(self) -> None:
        self.data = MemoryShard(self.name)
        self._wire = new_process(self.timeline, f"store {self.name}", "")

    def session(self) -> Session:
        """A new server's view."""
        return Session(self)

    # --- what goes wrong ----------------------------------------------------------------------------------------------------

    def stand_still(self) -> None:
        """As SIGSTOP of the database: calls arrive and wait."""
        self.stands_still = True

    def go_on(self) -> None:
        """What has arrived is carried out."""
        self.stands_still = False
        held, self._held = self._held, []
        for call in held:
            call()

    def fate(self, method: str, host: str) -> Fate:
        """Draws what becomes of a call from that host."""
        random, trouble = self.random, self.trouble
        there_s = trouble.latency_s * (0.1 + 0.4 * random.random())
        back_s = trouble.latency_s * (0.1 + 0.4 * random.random())
        if host in self.gone_for:
            return Fate(None, there_s + back_s, ShardConnectionFailed)
        if trouble is CALM or (trouble.only and method not in trouble.only):
            return Fate(there_s, there_s + back_s)
        drawn = random.random()
        unknown_s = trouble.unknown_after_s * random.random()
        fates: Sequence[tuple[float, Callable[[], Fate]]] = (
            (trouble.refused, lambda: Fate(None, there_s + back_s, ShardConnectionFailed)),
            (trouble.answer_lost, lambda: Fate(there_s, there_s + unknown_s, OutcomeUnknown)),
            (trouble.lost, lambda: Fate(None, there_s + unknown_s, OutcomeUnknown)),
            (
                trouble.late,
                lambda: Fate(there_s + trouble.late_s * 2 / 3 * random.random(), there_s + back_s, OutcomeUnknown),
            ),
            (trouble.slow, lambda: Fate(there_s + random.expovariate(1 / trouble.slow_s), 0.0)),
            (trouble.slow, lambda: Fate(there_s, there_s + random.expovariate(1 / trouble.slow_s))),
            (trouble.hung, lambda: Fate(there_s + trouble.late_s * random.random(), 0.0)),
        )
        for share, make in fates:
            if drawn < share:
                fate = make()
                break
            drawn -= share
        else:
            return Fate(there_s, there_s + back_s)
        if fate.carried_out_s is not None and fate.error is None and fate.answered_s < fate.carried_out_s:
            fate = fate._replace(answered_s=fate.carried_out_s + back_s)
        if fate.error is OutcomeUnknown and method in _READS:
            fate = fate._replace(error=ShardConnectionFailed)
        return fate

    # --- calls --------------------------------------------------------------------------------------------------------------

    def send(self, session: Session, method: str, act: Callable[[], Any]) -> asyncio.Future[Any]:
        """Sends a call of a session's process there; the future of its answer."""
        self.calls += 1
        self.called[method] += 1
        loop = cast("ProcessLoop", asyncio.get_running_loop())
        answer: asyncio.Future[Any] = loop.create_future()
        fate = self.fate(method, loop.host)
        call = _Call(
            self, session, loop, answer, fate, act, self._crash_point(loop), _WRITERS.get(method, ""), self.calls
        )
        now_s = self.timeline.now_s
        if fate.carried_out_s is not None:
            self._wire.call_at(now_s + fate.carried_out_s, self.take, call.carry_out)
        if fate.error is not None:
            error = fate.error(f"Shard {self.name}: the connection is gone", retry_after_ms=100)
            loop.call_at(now_s + fate.answered_s, call.answer_with, None, error)
            self.fails_until_s = max(self.fails_until_s, now_s + fate.answered_s)
        return answer

    def take(self, carry_out: Callable[[], None]) -> None:
        """A call has arrived."""
        if self.stands_still:
            self._held.append(carry_out)
        else:
            carry_out()

    def answer_later(self, call: _Call, result: Any, error: Exception | None) -> None:
        """The answer is on its way back."""
        back_s = max(0.0, call.fate.answered_s - (call.fate.carried_out_s or 0.0))
        call.loop.call_later(back_s, call.answer_with, result, error)

    def _crash_point(self, loop: ProcessLoop) -> CrashPoint | None:
        for point in self.crash_points:
            if point.loop is loop:
                point.calls -= 1
                if point.calls < 0:
                    self.crash_points.remove(point)
                    return point
        return None

    # --- leases -------------------------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """The database's clock."""
        return self.wall_ms() + self.ahead_ms

    def alive(self, lease: Lease) -> bool:
        """Whether its server has sent a heartbeat lately."""
        return self.timeline.now_s - lease.seen_s < self.lease_s

    def join(self, session: Session) -> int:
        """Takes the lowest free slot."""
        slot = next(
            slot
            for slot in range(SLOTS)
            if slot not in session.lost and (slot not in self.leases or not self.alive(self.leases[slot]))
        )
        self.leases[slot] = Lease(session, self.timeline.now_s, self.wall_ms())
        return slot

    def members(self) -> list[Member]:
        """The servers that use the shard now."""
        return [
            Member(
                slot,
                lease.session.server,
                lease.address,
                lease.started_at_ms,
                round(lease.seen_s * 1000),
                round((self.timeline.now_s - lease.seen_s) * 1000),
            )
            for slot, lease in sorted(self.leases.items())
            if self.alive(lease)
        ]

    def change_owners(self, known: Owners, owners: Owners) -> bool:
        """Unless another server has changed them."""
        if self.owners != known:
            return False
        self.owners = owners
        return True

    def holders_of(self, key: str) -> list[MemoryJob]:
        """The unfinished jobs of all stores that have a unique key now, of which there should be one at most."""
        jobs = [job for store in self.stores for job in store.jobs() if job.finished_at_ms is None]
        return [job for job in jobs if job.unique is not None and job.unique.key == key]

    def snapshot(self) -> Snapshot:
        """Of now."""
        jobs = self.jobs()
        pending = [job for job in jobs if job.state is JobState.PENDING]
        keys = any(queue.unique_keys or queue.requests for queue in self.data._queues.values())
        return Snapshot(
            min([job.claim.deadline_ms for job in jobs if job.claim is not None], default=NEVER_MS),
            min([job.expires_at_ms for job in pending if job.expires_at_ms is not None], default=NEVER_MS),
            min([job.run_after_ms for job in pending], default=NEVER_MS),
            keys or any(job.finished_at_ms is not None for job in jobs),
            self.changed,
        )

    def jobs(self) -> list[MemoryJob]:
        """All jobs, as they are: for verdicts."""
        return [job for name in sorted(self.data._queues) for job in self.data._queues[name].jobs.values()]


class _Call:
    """One call on its way."""

    __slots__ = ("act", "answer", "crash", "fate", "loop", "number", "session", "store", "writer")

    def __init__(
        self,
        store: SharedStore,
        session: Session,
        loop: ProcessLoop,
        answer: asyncio.Future[Any],
        fate: Fate,
        act: Callable[[], Any],
        crash: CrashPoint | None,
        writer: str,
        number: int,
    ) -> None:
        self.writer = writer
        self.number = number
        self.store = store
        self.session = session
        self.loop = loop
        self.answer = answer
        self.fate = fate
        self.act = act
        self.crash = crash

    def carry_out(self) -> None:
        """The transaction. Its process may have died meanwhile, which does not keep a transaction that was sent from being done."""
        if self.crash is not None and not self.crash.after:
            self.crash.kill()
            return
        newest = self.session.newest
        if self.fate.error is OutcomeUnknown and newest.get(self.writer, 0) > self.number:
            return  # a writer's next call ends what its last one had left
        newest[self.writer] = max(self.number, newest.get(self.writer, 0))
        result, error = None, None
        try:
            result = self.act()
        except PinLaterError as failure:
            error = failure
        if self.crash is not None:
            self.crash.kill()
        elif self.fate.error is None:
            self.store.answer_later(self, result, error)

    def answer_with(self, result: Any, error: Exception | None) -> None:
        """Its process learns of it."""
        if self.answer.done():
            return
        if error is not None:
            self.answer.set_exception(error)
        else:
            self.answer.set_result(result)


class Session:
    """Implements `storage.interface.SharedShard`: one server's view of a shared store."""

    capabilities = Capabilities(kind="simulated", shared=True, durable=True)

    def __init__(self, store: SharedStore) -> None:
        self.name = store.name
        self.store = store
        self.server = ""
        self.slot = 0
        self.highest_id = 0
        self.lost: set[int] = set()
        self._open = False
        self.newest: dict[str, int] = {}  # by writer: the newest of its calls that was carried out
        self._outcome_unknown: dict[
            str, None
        ] = {}  # tokens of claims whose outcome is unknown, in the order in which that came
        self._given_back: dict[str, None] = {}
        self._activity: dict[tuple[str, int], int] = {}
        self.changes = 0
        self._snapshots = Snapshots(self._look, lambda: self.changes, lambda: store.timeline.now_s)

    def follow(self, others: Callable[[], Hashable | None]) -> None:
        self._snapshots.others = others

    async def state(self) -> Hashable | None:
        return await self._snapshots.state()

    async def _look(self) -> Snapshot:
        return cast("Snapshot", await self._call("snapshot", self.store.snapshot))

    def as_shard(self) -> Shard:
        """Itself, as what it stands for."""
        return cast("Shard", self)

    # --- calls --------------------------------------------------------------------------------------------------------------

    def __getattr__(self, method: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        if method not in _READS and method not in _CHANGES:
            raise AttributeError(method)
        data = self.store.data

        def call(*args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
            return self._call(method, lambda: at_once(getattr(data, method)(*args, **kwargs)), args)

        setattr(self, method, call)
        return call

    async def _call(self, method: str, act: Callable[[], Any], args: Sequence[Any] = ()) -> Any:
        if not self._open:
            raise ShardConnectionFailed(f"Shard {self.name} is not open")
        if method in _CHANGES:
            try:
                return await self.store.send(self, method, lambda: self._change(method, act, args))
            finally:
                self.changes += 1
        return await self.store.send(self, method, act)

    def _change(self, method: str, act: Callable[[], Any], args: Sequence[Any]) -> Any:
        """A transaction that changes something: where another server has taken the slot it is done with a new one."""
        self._keep_slot()
        result = act()
        self.store.changed += 1
        if method in _MAKES_READY:
            self._note([item.queue if method == "insert_jobs" else item.key.queue for item in args[0]])
        return result

    def _keep_slot(self) -> None:
        lease = self.store.leases.get(self.slot)
        if lease is None or lease.session is not self:
            self.lost.add(self.slot)
            self.slot = self.store.join(self)
            self.highest_id = max([self.highest_id, *(job.id for job in self.store.jobs())])

    def _note(self, queues: Sequence[str]) -> None:
        """That this server may have made jobs ready, for the others."""
        for queue in queues:
            key = (queue, self.slot)
            self.store.activity[key] = self.store.activity.get(key, 0) + 1

    # --- life ---------------------------------------------------------------------------------------------------------------

    async def open(self, now_ms: int) -> None:
        if self._open:
            return

        def join() -> tuple[int, int]:
            return self.store.join(self), max([job.id for job in self.store.jobs()], default=0)

        self.server = cast("ProcessLoop", asyncio.get_running_loop()).name
        self.slot, self.highest_id = await self.store.send(self, "open", join)
        self._open = True

    async def close(self) -> None:
        if self._open:
            self._open = False
            lease = self.store.leases.get(self.slot)
            if lease is not None and lease.session is self:
                del self.store.leases[self.slot]

    async def ping(self, now_ms: int | None = None) -> None:
        asked_s = self.store.timeline.now_s

        def renew() -> None:
            self._keep_slot()
            lease = self.store.leases[self.slot]
            lease.seen_s = self.store.timeline.now_s
            if now_ms is not None:
                there_ms = now_ms + round((self.store.timeline.now_s - asked_s) * 1000)
                lease.ahead_ms = there_ms - self.store.now_ms()

        await self._call("ping", renew)

    def figures(self) -> dict[str, float]:
        return {}

    async def time_ms(self) -> int:
        """The time of the servers that are there; the database's own where they go by it, or there are none."""

        def agreed_ms() -> int:
            others = [
                lease.ahead_ms
                for lease in self.store.leases.values()
                if lease.session is not self and lease.ahead_ms is not None and self.store.alive(lease)
            ]
            ahead = sorted(others)[len(others) // 2] if others else 0
            return self.store.now_ms() + (ahead if abs(ahead) >= 1_000 else 0)

        return cast("int", await self._call("time_ms", agreed_ms))

    async def announce(self, address: str) -> str:
        def note() -> str:
            self._keep_slot()
            self.store.leases[self.slot].address = address
            return f"secret of {self.name}"

        return cast("str", await self._call("announce", note))

    async def members(self) -> Sequence[Member]:
        return cast("Sequence[Member]", await self._call("members", self.store.members))

    async def owners(self) -> Owners:
        return cast("Owners", await self._call("owners", lambda: self.store.owners))

    async def change_owners(self, known: Owners, owners: Owners) -> bool:
        return cast("bool", await self._call("change_owners", lambda: self.store.change_owners(known, owners)))

    async def changed_queues(self) -> Sequence[str]:
        def look() -> list[str]:
            others = {key: count for key, count in self.store.activity.items() if key[1] != self.slot}
            changed = dict.fromkeys(
                queue for (queue, slot), n in others.items() if self._activity.get((queue, slot)) != n
            )
            self._activity = others
            return list(changed)

        given_back, self._given_back = self._given_back, {}
        return list(dict.fromkeys([*given_back, *await self._call("changed_queues", look)]))

    # --- jobs ---------------------------------------------------------------------------------------------------------------

    async def insert_jobs(self, requests: Sequence[InsertRequest], now_ms: int) -> Sequence[Any]:
        """Ids of a slot that was lost are refused, since another server makes the same."""

        def insert() -> list[Any]:
            answers = [
                ShardConnectionFailed("this server's slot was taken over", retry_after_ms=0)
                if any(slot_of(job.id) in self.lost for job in request.jobs)
                else at_once(self.store.data.insert_jobs([request], now_ms))[0]
                for request in requests
            ]
            keys = {job.unique.key for request in requests for job in request.jobs if job.unique is not None}
            self.store.doubled_keys += [key for key in sorted(keys) if len(self.store.holders_of(key)) > 1]
            return answers

        for request in requests:
            self.store.stored_by.update(dict.fromkeys([job.id for job in request.jobs], self.server))

        return cast("Sequence[Any]", await self._call("insert_jobs", insert, [requests]))

    async def claim_jobs(self, orders: Sequence[ClaimOrder], now_ms: int) -> Sequence[Any]:
        """Where the outcome is unknown, what may have been claimed is given back by the next sweep, as MySQL's store does."""
        try:
            claimed = await self._call("claim_jobs", lambda: at_once(self.store.data.claim_jobs(orders, now_ms)))
        except (OutcomeUnknown, asyncio.CancelledError):
            self._outcome_unknown.update(dict.fromkeys(call.holder.token for order in orders for call in order.calls))
            raise
        return cast("Sequence[Any]", claimed)

    async def time_out_claims(self, now_ms: int, limit: int) -> Sequence[Any]:
        if self._outcome_unknown:
            tokens = dict.fromkeys(self._outcome_unknown)
            queues = await self._call("release_tokens", lambda: self._release_tokens(tokens, now_ms))
            for token in tokens:
                self._outcome_unknown.pop(token, None)
            self._given_back.update(queues)
        if limit <= 0 or (await self._snapshots.latest()).first_deadline_ms >= now_ms:
            return []

        def sweep() -> Sequence[Any]:
            swept = at_once(self.store.data.time_out_claims(now_ms, limit))
            self._note([row.queue for row in swept])
            return cast("Sequence[Any]", swept)

        return cast("Sequence[Any]", await self._call("time_out_claims", sweep))

    async def expire_jobs(self, now_ms: int, limit: int) -> Sequence[Any]:
        if limit <= 0 or (await self._snapshots.latest()).first_expiry_ms >= now_ms:
            return []
        return cast("Sequence[Any]", await self._change_data("expire_jobs", now_ms, limit))

    async def advance_due(self, now_ms: int, limit: int) -> int:
        if limit <= 0 or (await self._snapshots.latest()).first_future_ms > now_ms:
            return 0
        return cast("int", await self._change_data("advance_due", now_ms, limit))

    async def collect_garbage(self, ttls: Sequence[TimeToLive], now_ms: int, limit: int) -> Sequence[Any]:
        if limit <= 0 or not (await self._snapshots.latest()).has_garbage:
            return []
        return cast("Sequence[Any]", await self._change_data("collect_garbage", ttls, now_ms, limit))

    async def _change_data(self, method: str, *args: Any) -> Any:
        return await self._call(method, lambda: at_once(getattr(self.store.data, method)(*args)), args)

    def _release_tokens(self, tokens: dict[str, None], now_ms: int) -> dict[str, None]:
        found = [
            (job, job.claim.holder.token)
            for job in self.store.jobs()
            if job.state is JobState.IN_PROGRESS and job.claim is not None and job.claim.holder.token in tokens
        ]
        refs = [ClaimRef(JobKey(job.queue, job.priority, job.id), token) for job, token in found]
        at_once(self.store.data.release_jobs(refs, now_ms))
        self._note([ref.key.queue for ref in refs])
        return dict.fromkeys(job.queue for job, _ in found)


def at_once(call: Coroutine[Any, Any, Any]) -> Any:
    """The result of a call of the memory store, none of which waits for anything."""
    try:
        call.send(None)
    except StopIteration as ended:
        return ended.value
    raise AssertionError("a call of the memory store waited")
