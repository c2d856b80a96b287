"""One shard with its lanes and its health.

A lane joins calls of one kind into one command, whatever the store: inserts into one set of rows, claims of a queue into one order whose
result is distributed again. On a store whose commands are transactions of their own, the lanes do nothing else. Without lanes in front of
SQLite's writer, each of thirty concurrent calls would have its own statements, which takes 1.7 times the instructions of an enqueue, 2.4
of a claim, 2.1 of an ack and 2 of a release.

A store in this process whose commands see what earlier ones made, before it is committed, declares `in_order`. There the lanes have no
tasks: the writer takes the waiting items of each lane when its transaction begins, so that commands of different kinds share it
(`writer_lane.py`). A lane wakes waiting dequeues before its inserts are executed there, and tells the writer that their claim follows.

The lanes are for calls that come by the thousand: enqueues, claims, and those of holders about claimed jobs. Everything else goes through
`store`, which has time limits of its own where other servers share the store. An embedded store is trusted: no limits, no health.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar, cast

from pinlater.domain.clock import Clock
from pinlater.domain.errors import Draining, PinLaterError, RequestTooOld, StoreFull
from pinlater.domain.ids import IdMaker
from pinlater.domain.slices import SLICES, slice_of
from pinlater.server.sharding.failure_kind import failure_kind
from pinlater.server.sharding.fullness import Fullness
from pinlater.server.sharding.guarded import GuardedShard, shard_unreachable, slow_to_answer, too_late
from pinlater.server.sharding.health import ShardHealth, speaks_of_shard
from pinlater.server.sharding.hooks import Hooks
from pinlater.server.sharding.job_lanes import JobLanes
from pinlater.server.sharding.joined import JoinedItems, LaneResults
from pinlater.server.sharding.joined_claims import ClaimRequest, orders_of, share_out
from pinlater.server.sharding.lane import Lane
from pinlater.server.sharding.lane_queue import LaneQueue, Result
from pinlater.server.sharding.settings import ShardingSettings
from pinlater.server.sharding.writer_lane import WriterLane
from pinlater.server.storage.commands import (
    CheckpointJobs,
    ClaimJobs,
    Command,
    ExtendClaims,
    FinishJobs,
    InsertJobs,
    ReleaseJobs,
)
from pinlater.server.storage.interface import InOrderShard, OfSeveralServers, Shard, SharedShard, Store
from pinlater.server.storage.values import (
    Acked,
    Claimed,
    ClaimRef,
    Inserted,
    InsertRequest,
    JobAck,
    JobCheckpoint,
)

logger = logging.getLogger(__name__)

Item = TypeVar("Item")

# A waiting claim costs nothing until it gets jobs: ten thousand that ask for a thousand jobs each may all ask again at once.
_CLAIMS_WAITING_MAX = 10_000_000
# If one call took all waiting requests, the store's process and this one would only wait for each other. So this many requests share one.
WHOLE_UP_TO_ELSEWHERE = 24
# This many bytes of bodies count as one more job, so that a batch of large ones does not become a transaction of gigabytes.
_BYTES_A_JOB = 4096


class ShardLanes:
    """One shard in use. `opened`: whether the shard was opened; one that wasn't is out of use until a probe has opened it."""

    def __init__(
        self,
        shard: Shard,
        clock: Clock,
        *,
        takes_enqueues: bool = True,
        settings: ShardingSettings | None = None,
        spread: Callable[[], float] = lambda: 0.5,
        opened: bool = True,
    ) -> None:
        self.name = shard.name
        # The store itself: for the lanes, which have limits of their own, and for probes.
        self.unguarded = shard
        self.clock = clock
        self.settings = settings or ShardingSettings()
        self.takes_enqueues = takes_enqueues
        self.closed_to_enqueues_at = None if takes_enqueues else clock.monotonic()
        self.was_home_s = -math.inf  # when this server last heard that a queue has its home elsewhere now
        self.health = ShardHealth(self.settings, clock.monotonic, spread)
        self.healthy = True
        self.stalled = False  # a call has been under way for longer than it should
        self.opened = opened
        self.opening: asyncio.Future[None] | None = None
        self.address = ""  # equal name and address mean the same shard
        self.shown_address = ""
        self.leaving = False  # out of the map as soon as it is empty
        self.lost = False  # then also if it can't be asked
        self.moved = False  # at a new address, and not reached there yet
        self.is_new = not opened  # was never used by this server
        self.is_behind = False  # came back while no other shard could be asked for the queues
        self.trusted = not shard.capabilities.shared
        guard = None if self.trusted else GuardedShard(shard, self.settings, lambda: self.healthy, self._observe)
        # The store for every other call: within a time limit, refused while the shard is unreachable.
        self.store: Store = guard or shard
        self.shared: OfSeveralServers | None = None if self.trusted else cast(SharedShard, shard)
        self._in_order = cast(InOrderShard, shard) if shard.capabilities.in_order else None
        self.hooks = Hooks()
        shard.on_came_first(lambda queue, due_ms: self.hooks.came_first(queue, due_ms, not self.owns(queue)))
        self.fullness = Fullness(shard.name, clock.monotonic)
        self._reason_logged = ""
        self._ids = IdMaker(clock, shard.slot, shard.highest_id) if opened else IdMaker(clock, 0)
        self.insert: LaneQueue[InsertRequest, Inserted] = self._lane(
            "insert", self._join_inserts, weigh=_weight_of_insert
        )
        self.claim: LaneQueue[ClaimRequest, Claimed] = self._lane(
            "claim",
            self._join_claims,
            waiting_max=_CLAIMS_WAITING_MAX,
            weigh=attrgetter("call.limit"),
            orphaned=self._give_back,
        )
        self.finish: LaneQueue[Sequence[JobAck], Sequence[Acked]] = self._lane_of_lists("finish", FinishJobs)
        self.extend: LaneQueue[Sequence[ClaimRef], Sequence[Acked]] = self._lane_of_lists("extend", ExtendClaims)
        self.checkpoint: LaneQueue[Sequence[JobCheckpoint], Sequence[Acked | PinLaterError]] = self._lane_of_lists(
            "checkpoint", CheckpointJobs
        )
        self.release: LaneQueue[Sequence[ClaimRef], Sequence[Acked]] = self._lane_of_lists("release", ReleaseJobs)
        in_hand = (self.finish, self.extend, self.checkpoint, self.release)
        self.lanes: tuple[LaneQueue[Any, Any], ...] = (self.insert, self.claim, *in_hand)
        self._ways: Sequence[JobLanes] = [self] * SLICES
        self._owned: Sequence[bool] = [True] * SLICES
        self.work_by_slice = [0] * SLICES
        """Jobs stored, and twice those claimed, since this object was made; of shards that several servers share."""
        if not opened:
            self.put_out_of_use("not opened yet")
            self.health.suspect()

    def _lane(self, name: str, join: Callable[[list[Any]], JoinedItems[Any]], **options: Any) -> LaneQueue[Any, Any]:
        """A lane whose items are one command when `join` has joined them."""
        options |= {"monotonic": self.clock.monotonic}
        if self._in_order is not None:
            return WriterLane(f"{name} {self.name}", join, self._in_order, **options)
        elsewhere = self.unguarded.capabilities.shared
        return Lane(
            f"{name} {self.name}",
            partial(self._carry_out, join),
            whole_up_to=WHOLE_UP_TO_ELSEWHERE if elsewhere else None,
            observe=None if self.trusted else self._observe,
            reads_on=elsewhere,
            **options,
        )

    async def _carry_out(
        self, join: Callable[[list[Item]], JoinedItems[Result]], items: list[Item]
    ) -> LaneResults[Result]:
        joined = join(items)
        if joined.command is None:
            return joined.results(())
        try:
            return joined.results(await self.unguarded.submit(joined.command))
        except PinLaterError as error:
            if joined.failed is not None:
                joined.failed(error)
            raise

    def _lane_of_lists(
        self, name: str, command: Callable[[Sequence[Item], int], Command[Sequence[Result]]]
    ) -> LaneQueue[Sequence[Item], Sequence[Result]]:
        """A lane whose items are lists, joined into one list for each `command`."""

        def join(lists: list[Sequence[Item]]) -> JoinedItems[Sequence[Result]]:
            if len(lists) == 1:
                return JoinedItems(command(lists[0], self.clock.now_ms()), lambda results: [results])
            together = [item for items in lists for item in items]
            return JoinedItems(command(together, self.clock.now_ms()), partial(_parts, lists))

        return self._lane(name, join, weigh=len)

    @property
    def ids(self) -> IdMaker:
        """Makes the ids of new jobs here, always with the current slot of this server: a store may have had to take another."""
        if self.opened and self._ids.slot != self.unguarded.slot:
            self._renew_ids()
        return self._ids

    @property
    def usable(self) -> bool:
        """Whether new enqueues and claims go here while there are others."""
        return self.healthy and not self.stalled

    @property
    def takes_more(self) -> bool:
        """Whether new enqueues go here while there are other shards: this one accepts them, and is reachable, quick and not full."""
        quick = self.takes_enqueues and self.healthy and not self.stalled
        return quick and not (self.fullness.reason and self.fullness.full)

    # --- routes -----------------------------------------------------------------------------------------------------------

    def lanes_of(self, queue: str) -> JobLanes:
        """Its own lanes, or those to the server that owns the queue on this shard. Call it again for each call."""
        return self._ways[slice_of(queue)]

    def owns(self, queue: str) -> bool:
        """Returns whether this server owns the queue on this shard."""
        return self._owned[slice_of(queue)]

    def route(self, ways: Sequence[JobLanes | None], owned: Sequence[bool]) -> None:
        """Sets the route of each slice from now on: the lanes (None: its own), and whether this server owns it."""
        self._ways = [way or self for way in ways]
        self._owned = owned

    # --- the hot calls ------------------------------------------------------------------------------------------------------

    def _join_inserts(self, requests: list[InsertRequest]) -> JoinedItems[Inserted]:
        now_ms = self.clock.now_ms()
        for request in requests:
            if request.begin_by_ms < now_ms:
                return self._join_in_time(requests, now_ms)
        claim_follows = self._in_order is not None and self._wake_waiters(requests, now_ms)
        return JoinedItems(
            InsertJobs(requests, now_ms), partial(self._inserted, requests, now_ms), self._refused, claim_follows
        )

    def _join_in_time(self, requests: list[InsertRequest], now_ms: int) -> JoinedItems[Inserted]:
        """Joins the items except those that have waited for too long: a repeat may have been answered, and its key may be forgotten."""
        in_time = [request for request in requests if request.begin_by_ms >= now_ms]
        joined: JoinedItems[Inserted] = self._join_inserts(in_time) if in_time else JoinedItems(None, list)

        def results(answer: Sequence[Inserted | PinLaterError]) -> LaneResults[Inserted]:
            stored = iter(joined.results(answer))
            return [RequestTooOld() if request.begin_by_ms < now_ms else next(stored) for request in requests]

        return joined._replace(results=results)

    def _inserted(
        self, requests: list[InsertRequest], now_ms: int, answers: Sequence[Inserted | PinLaterError]
    ) -> Sequence[Inserted | PinLaterError]:
        if self._in_order is None:
            self._wake_waiters(requests, now_ms)
            for request in requests:
                self.work_by_slice[slice_of(request.queue)] += len(request.jobs)
        if self.fullness.reason:
            self.fullness.answered(answers)
        return answers

    def _refused(self, error: PinLaterError) -> None:
        if isinstance(error, StoreFull):
            self.fullness.refused(error.message)

    def _wake_waiters(self, requests: list[InsertRequest], now_ms: int) -> bool:
        """Wakes the dequeues that wait for these jobs. Returns whether there are any."""
        inserting = self.hooks.inserting  # `Wakeups.inserting` of the dispatcher
        return inserting is not None and inserting(self.name, requests, now_ms, self.owns)

    def _join_claims(self, requests: list[ClaimRequest]) -> JoinedItems[Claimed]:
        indices_by_queue, orders = orders_of(requests, self.owns)
        return JoinedItems(ClaimJobs(orders, self.clock.now_ms()), partial(self._claimed, requests, indices_by_queue))

    def _claimed(
        self,
        requests: list[ClaimRequest],
        indices_by_queue: dict[str, list[int]],
        results: Sequence[Claimed | PinLaterError],
    ) -> LaneResults[Claimed]:
        if self.shared is not None:
            for queue, result in zip(indices_by_queue, results, strict=True):
                if not isinstance(result, PinLaterError):
                    self.work_by_slice[slice_of(queue)] += 2 * sum([len(jobs) for jobs in result.jobs])
        return share_out(requests, indices_by_queue, results, self.hooks.expired)

    def _give_back(self, request: ClaimRequest, claimed: Claimed) -> None:
        if self.hooks.undelivered is not None:
            self.hooks.undelivered(self.name, request, claimed)

    # --- health -------------------------------------------------------------------------------------------------------------

    @property
    def slow(self) -> bool:
        """Whether claims take longer than they should just now."""
        return self.claim.busy_for() >= self.settings.slow_ms / 1000

    def _observe(self, error: PinLaterError | None, timed_out: bool = False) -> None:
        """Records the outcome of a call."""
        if error is None:
            self.health.succeeded()
        elif speaks_of_shard(error):
            self.hooks.count(f"shard_connection_failed_{self.name}")
            kind = failure_kind(error, timed_out=timed_out)
            self.health.failed(error.message, kind, timed_out=timed_out)
            self.follow_health()

    def look_at_calls(self) -> bool:
        """Gives up calls that have taken too long. Returns whether the shard has just stalled."""
        if self.trusted:
            return False
        limit_s = self.settings.call_timeout_ms / 1000
        longest_s = 0.0
        for lane in self.lanes:
            busy_s = lane.busy_for()
            if busy_s >= limit_s:
                error = too_late(self.name, limit_s)
                lane.give_up(error)
                self._observe(error, timed_out=True)
            longest_s = max(longest_s, busy_s)
        before, self.stalled = self.stalled, longest_s >= self.settings.stall_ms / 1000
        if before and not self.stalled:
            self.hooks.back()
        if before or not self.stalled:
            return False
        self.hooks.count(f"shard_stalled_{self.name}")
        logger.info("a shard is slow to answer", extra={"shard": self.name, "seconds": round(longest_s, 1)})
        self.health.suspect()
        return True

    def forgive(self, seconds: float) -> None:
        """Moves the deadlines of all calls after a standstill of this process, during which no call could end."""
        for lane in self.lanes:
            lane.forgive(seconds)

    def refuse_waiting_inserts(self) -> None:
        """Refuses inserts whose call hasn't begun, so that their callers go to another shard. A dequeue continues by itself, and may take
        the jobs of its late claim."""
        self.insert.fail_waiting(slow_to_answer(self.name))

    def follow_health(self) -> None:
        """Applies a decision of `health`."""
        if self.healthy and not self.health.healthy:
            self.put_out_of_use(self.health.reason)
            self.hooks.count(f"shard_unhealthy_{self.name}")
            logger.error("a shard is unreachable", extra={"shard": self.name, "reason": self.health.reason})
        elif not self.healthy and not self.health.healthy:
            self._log_new_reason()
        elif not self.healthy and self.health.healthy:
            self.healthy = True
            self.hooks.count(f"shard_recovered_{self.name}")
            logger.info("a shard is reachable again", extra={"shard": self.name})
            self.hooks.back()

    def _log_new_reason(self) -> None:
        """Logs a new cause, which may need another remedy: a restarted database may refuse the login."""
        reason = self.health.reason
        if reason != self._reason_logged:
            self._reason_logged = reason
            logger.error(
                "a shard is still unreachable, for another reason", extra={"shard": self.name, "reason": reason}
            )

    def put_out_of_use(self, reason: str) -> None:
        """Stops using the shard. Calls that have not begun are answered at once; those under way have their time limit.

        The caller logs `reason`, which is not logged again.
        """
        self.healthy = self.health.healthy = False
        self._reason_logged = reason
        self.health.reason = reason
        for lane in self.lanes:
            lane.fail_waiting(shard_unreachable(self.name))

    def close_to_enqueues(self) -> None:
        """Lets the shard only drain from now on."""
        if self.takes_enqueues:
            self.takes_enqueues = False
            self.closed_to_enqueues_at = self.clock.monotonic()
            self.fullness.forget()

    def open_to_enqueues(self) -> None:
        self.takes_enqueues = True
        self.closed_to_enqueues_at = None

    def closed_to_enqueues_for(self, seconds: float) -> bool:
        """Returns whether the shard has had no enqueue for this long: it was not a home of a queue, either, as far as this server knows."""
        at = self.closed_to_enqueues_at
        return at is not None and self.clock.monotonic() - max(at, self.was_home_s) >= seconds

    # --- life ---------------------------------------------------------------------------------------------------------------

    def now_open(self) -> None:
        """Puts the shard to use, after it was opened."""
        self.opened = True
        self._renew_ids()

    def _renew_ids(self) -> None:
        before, self._ids = self._ids, IdMaker(self.clock, self.unguarded.slot, self.unguarded.highest_id)
        self._ids.raise_floor(before.highest)

    def hand_over(self, successor: ShardLanes) -> None:
        """The shard of this name has a new address: calls that have not begun, and calls that still come here, go to `successor`."""
        successor.ids.raise_floor(self.ids.highest)
        if not successor.healthy:
            self.put_out_of_use(successor.health.reason)
        for old, new in zip(self.lanes, successor.lanes, strict=True):
            old.hand_over(new)
        if isinstance(self.store, GuardedShard):
            self.store.redirect(successor.unguarded)
        self.healthy = successor.healthy  # for callers that still have this object

    async def end_claims(self) -> None:
        """Refuses claims from now on, and waits for the present ones; on a shard that hangs, no longer than a call may take."""
        ending = asyncio.ensure_future(self.claim.close())
        await asyncio.wait({ending}, timeout=None if self.trusted else self.settings.call_timeout_ms / 1000)

    async def close(self) -> None:
        """Finishes the items in the lanes, then closes the shard. Waits a bounded time for a shard that hangs."""
        if self.trusted:
            await asyncio.gather(*(lane.close() for lane in self.lanes))
            await self.unguarded.close()
            return
        seconds = self.settings.close_timeout_ms / 1000
        if self.opening is not None:
            self.opening.cancel()
        closing = [asyncio.ensure_future(lane.close()) for lane in self.lanes]
        _, late = await asyncio.wait(closing, timeout=seconds)
        if late:
            await asyncio.gather(*(lane.abandon(Draining()) for lane in self.lanes))
        closed = asyncio.ensure_future(self.unguarded.close())
        done, _ = await asyncio.wait({closed}, timeout=seconds)
        if not done:
            closed.cancel()
            logger.warning("a shard could not be closed in time", extra={"shard": self.name})
        elif (error := closed.exception()) is not None:
            raise error


def _weight_of_insert(request: InsertRequest) -> int:
    """Returns what a request counts against the bounds of its lane, in jobs of ordinary size."""
    jobs = request.jobs
    if len(jobs) == 1:  # most requests
        return 1 + len(jobs[0].body) // _BYTES_A_JOB
    return len(jobs) + sum([len(job.body) for job in jobs]) // _BYTES_A_JOB


def _parts(lists: Sequence[Sequence[Any]], results: Sequence[Result]) -> list[Sequence[Result]]:
    """Splits the results of all lists into those of each list."""
    parts, start = [], 0
    for items in lists:
        parts.append(results[start : start + len(items)])
        start += len(items)
    return parts
