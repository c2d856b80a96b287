"""Shards that several servers share, kept in memory, with the ways in which calls of a database over a network fail.

A `SimulatedStore` is one database: the data of the store in memory, the leases of slots, and the data that servers share through it.
Each server has a session with it (`store_session.py`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple, cast

from pinlater.domain.clock import CLOCK_JUMP_MS
from pinlater.domain.descriptor import I64_MAX
from pinlater.domain.errors import OutcomeUnknown, PinLaterError
from pinlater.domain.ids import SLOTS
from pinlater.domain.job import JobState
from pinlater.domain.servers import AboutServer
from pinlater.server.storage.commands import CountJobs, ScanJobs
from pinlater.server.storage.interface import Shard
from pinlater.server.storage.leases import each_once, is_alive, shard_time
from pinlater.server.storage.snapshots import NEVER_MS
from pinlater.server.storage.sqlite.dialect import at_once
from pinlater.server.storage.sqlite.memory import MemoryShard
from pinlater.server.storage.sqlite.queue_cache import Counter as JobCounter
from pinlater.server.storage.values import (
    NO_OWNERS,
    ClaimRef,
    Inserted,
    InsertRequest,
    JobKey,
    Member,
    Owners,
    Page,
    PageRow,
)
from pinlater.simulation.enqueue_tries import EnqueueTry
from pinlater.simulation.loop import ProcessLoop, Timeline, new_process
from pinlater.simulation.store_calls import WRITERS, CallKind
from pinlater.simulation.store_session import Session
from pinlater.simulation.store_trouble import CALM, Fate, StoreTrouble, draw_fate

_UNFINISHED = (JobState.PENDING, JobState.IN_PROGRESS)
_ALL = I64_MAX
_CLAIMS = "SELECT name, priority, id, token FROM claims JOIN queues USING (queue_id) ORDER BY id"
# Clocks of servers that agreed on a time differ by less from the simulation's time; faults move clocks by more.
AGREED_WITHIN_MS = 10_000


class StoreSnapshot(NamedTuple):
    """The data that sweeps need. `changes`: how many transactions have changed something."""

    first_deadline_ms: int
    first_expiry_ms: int
    first_future_ms: int
    has_garbage: bool  # or may have some
    changes: int


class ToldHere(NamedTuple):
    """The time that a store gives a starting server: whether it is that of running servers, and whether servers use it."""

    of_servers: bool
    is_right: bool


def misleads(told: Collection[ToldHere]) -> bool:
    """Returns whether a server that got this from the stores can't know which time the servers use.

    So it is briefly after a jump, before a running server has reported its time, and while no server runs: then an operator starts none
    (docs/how-to/operate-mysql.md).
    """
    if all(one.is_right for one in told):
        return False
    return any(one.of_servers and not one.is_right for one in told) or not any(one.of_servers for one in told)


@dataclass(slots=True)
class SlotLease:
    """A server's lease of a slot."""

    session: Session
    seen_ms: int  # by the store's clock, as `started_at_ms`
    started_at_ms: int
    address: str = ""
    ahead_ms: int | None = None  # how far the server reports its time to be ahead of the store's


@dataclass(slots=True)
class CrashPoint:
    """Kills a server at one of its calls: `calls` more from now, before or after it is executed."""

    loop: ProcessLoop
    calls: int
    after: bool
    kill: Callable[[], None]


@dataclass(slots=True)
class SimulatedStore:
    """One shard's database. `ahead_ms`: how far its clock is ahead of the simulation's; the clock jumps when that changes."""

    name: str
    timeline: Timeline
    random: Random
    wall_ms: Callable[[], int]
    lease_s: float
    ahead_ms: int = 0
    calm: StoreTrouble = CALM  # its ordinary state
    trouble: StoreTrouble = field(init=False)
    gone_for: set[str] = field(default_factory=set)  # hosts whose connections are refused
    stands_still: bool = False  # it accepts calls and does not execute them
    data: MemoryShard = field(init=False)
    leases: dict[int, SlotLease] = field(default_factory=dict)
    owners: Owners = NO_OWNERS
    activity: dict[tuple[str, int], int] = field(default_factory=dict)  # (queue, slot) → changes that made jobs ready
    crash_points: list[CrashPoint] = field(default_factory=list)
    stores: Sequence[SimulatedStore] = ()  # all stores of the cluster, including this one
    came_first: list[tuple[str, int]] = field(default_factory=list)  # queues and due times, in the present call
    doubled_keys: list[str] = field(default_factory=list)  # unique keys that two unfinished jobs had at once
    # If there are other stores: by job id, and, for requests with keys, by body.
    stored_at_s: dict[int, float] = field(default_factory=dict)
    tries: dict[bytes, list[EnqueueTry]] = field(default_factory=dict)
    sessions: list[Session] = field(default_factory=list)  # of all servers that there were
    calls: int = 0
    called: Counter[CallKind] = field(default_factory=Counter)  # calls by their kind
    changed: int = 0
    fails_until_s: float = 0.0  # when the last error that was drawn so far will have happened
    _held: list[Callable[[], None]] = field(default_factory=list)
    _wire: ProcessLoop = field(init=False)

    def __post_init__(self) -> None:
        self.trouble = self.calm
        self.data = MemoryShard(self.name)
        self.data.on_came_first(self._note_first)
        self._wire = new_process(self.timeline, f"store {self.name}", "")

    def _note_first(self, queue: str, due_ms: int) -> bool:
        """Keeps it for the session whose command made the job ready: on a shared store, no claim joins the transaction."""
        self.came_first.append((queue, due_ms))
        return False

    def session(self) -> Session:
        """A new server's view."""
        return Session(self)

    def shard(self, about: AboutServer) -> Shard:
        """The same, for a server that says this of itself."""
        session = self.session()
        session.introduce(about)
        return session.as_shard()

    # --- faults -------------------------------------------------------------------------------------------------------------

    def stand_still(self) -> None:
        """Suspends the database as SIGSTOP does: calls arrive and wait."""
        self.stands_still = True

    def go_on(self) -> None:
        """Executes the calls that have arrived."""
        self.stands_still = False
        held, self._held = self._held, []
        for call in held:
            call()

    def fate(self, kind: CallKind, host: str) -> Fate:
        """Draws the fate of a call from that host."""
        calm, reachable = self.trouble is self.calm, host not in self.gone_for
        return draw_fate(self.random, self.trouble, kind, calm=calm, reachable=reachable)

    # --- calls --------------------------------------------------------------------------------------------------------------

    def send(self, session: Session, kind: CallKind, act: Callable[[], Any]) -> asyncio.Future[Any]:
        """Sends a call of a session's process there. Returns the future of its answer."""
        self.calls += 1
        self.called[kind] += 1
        loop = cast("ProcessLoop", asyncio.get_running_loop())
        answer: asyncio.Future[Any] = loop.create_future()
        fate = self.fate(kind, loop.host)
        call = _StoreCall(
            self, session, loop, answer, fate, act, self._crash_point(loop), WRITERS.get(kind, ""), self.calls
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
        if self.stands_still:
            self._held.append(carry_out)
        else:
            carry_out()

    def answer_later(self, call: _StoreCall, result: Any, error: Exception | None) -> None:
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

    def alive(self, lease: SlotLease) -> bool:
        """Returns whether its server has sent a heartbeat recently, by the database's clock."""
        return is_alive(lease.seen_ms, self.now_ms(), round(self.lease_s * 1000))

    def told_ms(self, asking: Session | None = None) -> list[int]:
        """Returns how far servers report their time to be ahead of this clock: those that are alive, except for the one that asks."""
        return [
            lease.ahead_ms
            for lease in self.leases.values()
            if lease.session is not asking and lease.ahead_ms is not None and self.alive(lease)
        ]

    def told_time(self) -> ToldHere:
        """Returns the time that a starting server gets."""
        told = shard_time(self.now_ms(), self.told_ms())
        error_ms = told.ms - self.wall_ms()
        sessions = [session for store in self.stores or [self] for session in store.sessions if session.lives]
        servers_ms = [session.goes_by_ms for session in sessions if session.goes_by_ms is not None]
        if servers_ms:
            return ToldHere(told.of_servers, any(abs(error_ms - one) < CLOCK_JUMP_MS for one in servers_ms))
        return ToldHere(told.of_servers, abs(error_ms) < AGREED_WITHIN_MS)

    def join(self, session: Session) -> int:
        """Takes the lowest free slot."""
        slot = next(
            slot
            for slot in range(SLOTS)
            if slot not in session.lost and (slot not in self.leases or not self.alive(self.leases[slot]))
        )
        self.leases[slot] = SlotLease(session, self.now_ms(), self.now_ms(), session.registered_as)
        return slot

    def members(self) -> list[Member]:
        """The servers that use the shard now."""
        now_ms = self.now_ms()
        return each_once(
            Member(
                slot,
                lease.session.server,
                lease.address,
                lease.started_at_ms,
                lease.seen_ms,
                abs(now_ms - lease.seen_ms),
                about=lease.session.about,
            )
            for slot, lease in self.leases.items()
            if self.alive(lease)
        )

    def change_owners(self, known: Owners, owners: Owners) -> bool:
        """Changes nothing if another server has changed them."""
        if self.owners != known:
            return False
        self.owners = owners
        return True

    def note_stored(self, requests: Sequence[InsertRequest], answers: Sequence[Any]) -> None:
        """Notes when the jobs of requests were stored."""
        if len(self.stores) > 1:
            for request, answer in zip(requests, answers, strict=True):
                if isinstance(answer, Inserted) and not answer.repeated:
                    for job in request.jobs:
                        self.stored_at_s.setdefault(job.id, self.timeline.now_s)

    def holders_of(self, key: str) -> list[JobKey]:
        """Returns the unfinished jobs of all stores that hold a unique key now. There should be at most one."""
        return [row.key for store in self.stores for row in store.jobs(*_UNFINISHED) if row.job.unique_key == key]

    def snapshot(self) -> StoreSnapshot:
        """Returns the snapshot of now. Reads no jobs: there may be a million."""
        data, counters = self.data._open, self.counters()
        known = data.queue_cache
        [deadline_ms] = data.connection.execute("SELECT min(deadline_ms) FROM claims").fetchone()
        keys = min(known.first_request_key_ms, known.first_key_until_ms) != NEVER_MS
        return StoreSnapshot(
            NEVER_MS if deadline_ms is None else deadline_ms,
            known.first_expiry_ms,
            min((counter.future_from_ms for counter in counters), default=NEVER_MS),
            keys or bool(known.dropped) or any(counter.succeeded or counter.failed for counter in counters),
            self.changed,
        )

    def counters(self) -> list[JobCounter]:
        """Returns how many jobs there are, by queue and priority."""
        queues = self.data._open.queue_cache.queues.values()
        return [counter for queue in queues for counter in queue.counters.values()]

    def unfinished(self) -> int:
        """Returns how many jobs have not ended."""
        return sum(counter.pending + counter.in_progress for counter in self.counters())

    def jobs(self, *states: JobState) -> list[PageRow]:
        """Returns all jobs, or those in these states, by queue and id, with their bodies: for verdicts."""
        pages = [
            Page(count.queue, state, [count.counts.priority], _ALL, due_by_ms=_ALL, bodies=True, max_bytes=_ALL)
            for count in at_once(self.data.submit(CountJobs()))
            for state in states or JobState
        ]
        rows = [row for page in pages for row in cast("Sequence[PageRow]", at_once(self.data.submit(ScanJobs(page))))]
        return sorted(rows, key=lambda row: (row.key.queue, row.key.id))

    def claims(self) -> list[ClaimRef]:
        """Returns all claims, by the ids of their jobs."""
        rows = self.data._open.connection.execute(_CLAIMS)
        return [ClaimRef(JobKey(queue, priority, job_id), token) for queue, priority, job_id, token in rows]


@dataclass(slots=True)
class _StoreCall:
    """One call on its way."""

    store: SimulatedStore
    session: Session
    loop: ProcessLoop
    answer: asyncio.Future[Any]
    fate: Fate
    act: Callable[[], Any]
    crash: CrashPoint | None
    writer: str
    number: int

    def carry_out(self) -> None:
        """The transaction. Its process may have died meanwhile, which does not prevent a transaction that was sent."""
        if self.crash is not None and not self.crash.after:
            self.crash.kill()
            return
        newest = self.session.newest
        if self.fate.error is OutcomeUnknown and newest.get(self.writer, 0) > self.number:
            return  # a writer's next call ends the rest of its last one
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
        """Tells the process about it."""
        if self.answer.done():
            return
        if error is not None:
            self.answer.set_exception(error)
        else:
            self.answer.set_result(result)
