"""Shares a worker's slots among its queues: whose job starts next, which queue may claim how many jobs, and which jobs are too many.

A job needs a slot to run. The measure of a share is slot time: how long a queue's jobs have had slots, divided by its weight. The queue
that has had the least is the next to start a job and the next to claim, with what it runs and holds counted at its expected length. A
queue that had no jobs for a while competes at the level of the others: it saves up nothing.

All claims share one allowance, the work of the next 50 ms of the slots that are free by then. So long jobs are claimed for free slots
only, and short ones ahead. A claim of a queue that seems to have jobs takes its part of the allowance when it is sent. A queue that
seems to be empty has a long poll, which can be answered at any time and takes no part: what is too much by then goes back.

Weakness: the expected length of a job is the mean of its queue. Where it fails, `look` gives back what waits behind jobs that last.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from math import inf, sqrt
from typing import NamedTuple

LOOK_AHEAD_MS = 50.0
# A job that would wait for a slot so long goes back. A queue of whose jobs none has ended for so long has long ones.
LASTING_MS = 1_000.0
_SMOOTHING = 0.1
_SHORTEST_MS = 0.01


class QueueShare:
    """What one queue has of the slots.

    `used_ms`: the slot time of its ended jobs, divided by its weight, and at least what others had when it began to compete.
    `mean_ms`: moving mean of how long its jobs run; None until one has ended.
    `asked`: jobs that its claim under way may bring, as far as they take a part of the allowance.
    `backlogged`: whether the queue seems to have more jobs at the server; True until a claim tells.
    `ended`: jobs that have given their slots back.
    `start_next`, `claim`, `give_back_newest`: start the job that has waited longest, begin the claim that the queue has asked for, and give
    back that many of the waiting jobs that were claimed last.
    """

    __slots__ = (
        "_starts_ms", "asked", "backlogged", "claim", "ended", "ended_before", "give_back_newest", "mean_ms", "most", "queue",
        "running", "start_next", "used_ms", "waiting", "weight",
    )  # fmt: skip

    def __init__(self, queue: str, weight: int, most: int) -> None:
        self.queue = queue
        self.weight = weight
        self.most = most
        self.start_next: Callable[[], None]
        self.claim: Callable[[int], None]
        self.give_back_newest: Callable[[int], None]
        self.used_ms = 0.0
        self.mean_ms: float | None = None
        self.running = self.waiting = self.asked = 0
        self.backlogged = True
        self.ended = self.ended_before = 0
        self._starts_ms = 0.0  # the sum of when the running jobs started

    @property
    def is_short(self) -> bool:
        """Whether its jobs take so little time that they are claimed ahead."""
        return self.mean_ms is not None and self.mean_ms < LOOK_AHEAD_MS

    @property
    def cost_ms(self) -> float:
        """What one of its jobs takes of the allowance: its expected length, or a whole slot."""
        return max(self.mean_ms, _SHORTEST_MS) if self.mean_ms is not None and self.is_short else LOOK_AHEAD_MS

    @property
    def waits_ms(self) -> float:
        """Slot time that its waiting jobs need within a second; a long one needs a slot."""
        return self.waiting * (self.cost_ms if self.is_short else LASTING_MS)

    @property
    def ahead(self) -> int:
        """Its jobs without a slot."""
        return self.waiting + self.asked

    @property
    def has_most(self) -> bool:
        """Whether it has as many slots as it may."""
        return self.running >= self.most

    def soon(self, soon: int) -> int:
        """How many of the slots that are free `soon` its waiting jobs may have."""
        return max(0, min(soon, self.most - (0 if self.is_short else self.running)))

    def start(self, now_ms: float) -> None:
        """A waiting job gets a slot."""
        self.waiting -= 1
        self.running += 1
        self._starts_ms += now_ms

    def end(self, started_ms: float, now_ms: float) -> None:
        """A job gives back its slot."""
        self.running -= 1
        self.ended += 1
        self._starts_ms = self._starts_ms - started_ms if self.running else 0.0
        self.used_ms += (now_ms - started_ms) / self.weight

    def had_ms(self, now_ms: float) -> float:
        """Slot time until now, by weight."""
        return self.used_ms + (self.running * now_ms - self._starts_ms) / self.weight

    def will_have_ms(self, now_ms: float, expected_ms: float, *, ahead: int = 0) -> float:
        """Slot time when its running jobs, and `ahead` others, have ended. `expected_ms`: of a job, as long as none has ended."""
        expected_ms = self.mean_ms or expected_ms
        running_ms = max(self.running * expected_ms, self.running * now_ms - self._starts_ms)
        return self.used_ms + (running_ms + ahead * expected_ms) / self.weight


class _Allowance(NamedTuple):
    """`soon`: slots that are free, or will be within the look-ahead. `left_ms`: the part of their time that is not taken."""

    soon: int
    left_ms: float


class Slots:
    """`total` slots; at most `prefetch_max` jobs are claimed ahead of free ones. `monotonic` returns seconds."""

    def __init__(self, total: int, prefetch_max: int, monotonic: Callable[[], float]) -> None:
        self.total = total
        self.prefetch_max = prefetch_max
        self._monotonic = monotonic
        self.is_shared = False  # there are several queues
        self.running = self.waiting = 0
        self._asked = 0
        self._shares: dict[str, QueueShare] = {}
        self._competing: dict[QueueShare, None] = {}  # those that wait for slots, or would if they could claim
        self._ready: dict[QueueShare, None] = {}  # those with waiting jobs
        self._claiming: dict[QueueShare, None] = {}  # those that want to claim
        self._asking: dict[QueueShare, None] = {}  # those whose claims under way take a part of the allowance
        self._mean_ms: float | None = None
        self._running: dict[QueueShare, None] = {}  # those with running jobs
        self._last_ms = 0.0  # monotonic
        self._now_ms = 0.0  # without the time for which the process stood still
        self._level_ms = 0.0  # slot time of a queue that begins to compete, as long as no other does
        self._highest_ms = 0.0

    def add(self, queue: str, weight: int, most: int | None) -> QueueShare:
        """Adds a queue, which may have `most` slots at once."""
        share = self._shares[queue] = QueueShare(queue, weight, min(self.total, most or self.total))
        self._competing[share] = None
        self.is_shared = len(self._shares) > 1
        return share

    def share(self, queue: str) -> QueueShare:
        """A queue's share."""
        return self._shares[queue]

    def end_claiming(self) -> None:
        """The worker stops: no queue waits for a claim any longer."""
        for share in self._shares.values():
            share.claim(0)

    # --- jobs -------------------------------------------------------------------------------------------------------------
    def add_waiting(self, share: QueueShare, jobs: int) -> None:
        """The queue's claim has brought jobs."""
        self._tick()
        if jobs:
            self._compete(share)
            share.waiting += jobs
            self.waiting += jobs
            self._ready[share] = None

    def next_start(self) -> QueueShare | None:
        """The queue whose job gets the next free slot."""
        if self.running >= self.total:
            return None
        ready = [share for share in self._ready if share.running < share.most]
        if len(ready) > 1:
            return min(ready, key=self._order)
        return ready[0] if ready else None

    def start(self, share: QueueShare) -> float:
        """Its waiting job gets a slot. Returns what `end` wants."""
        if self.is_shared:
            self._tick()
            self._level_ms = max(self._level_ms, share.had_ms(self._now_ms))
        share.start(self._now_ms)
        self.running += 1
        self._running[share] = None
        self._no_longer_waiting(share, 1)
        if self.is_shared and share.has_most and share.most < self.total:
            self._competing.pop(share, None)
        return self._now_ms

    def withdraw(self, share: QueueShare, jobs: int = 1) -> None:
        """Waiting jobs are given back, or lost."""
        share.waiting -= jobs
        self._no_longer_waiting(share, jobs)

    def _no_longer_waiting(self, share: QueueShare, jobs: int) -> None:
        self.waiting -= jobs
        if not share.waiting:
            del self._ready[share]
            if not share.backlogged:
                self._competing.pop(share, None)

    def end(self, share: QueueShare, started_ms: float) -> None:
        """A job gives back its slot."""
        had_most = share.running >= share.most
        self.running -= 1
        if self.is_shared:
            self._tick()
        share.end(started_ms, self._now_ms)
        if not share.running:
            del self._running[share]
        if not self.is_shared:
            return
        if had_most and (share.waiting or share.backlogged):
            self._compete(share)
        self._highest_ms = max(self._highest_ms, share.used_ms)
        if not self.running and not self.waiting:  # all begin anew
            self._level_ms = self._highest_ms

    def ran(self, share: QueueShare, took_ms: float) -> None:
        """A job's function ran so long."""
        share.mean_ms = smoothed_ms(share.mean_ms, took_ms)
        if self.is_shared:
            self._mean_ms = smoothed_ms(self._mean_ms, took_ms)

    def _tick(self) -> None:
        """Time passes, but not much longer than the shortest job that runs should take: a busy machine stops the process for many times the
        length of a short job, which must not be charged to the queues that happen to have slots then."""
        now_ms = self._monotonic() * 1000
        passed_ms, self._last_ms = now_ms - self._last_ms, now_ms
        expected_ms = min([share.mean_ms or inf for share in self._running], default=0.0)
        self._now_ms += min(passed_ms, 2 * expected_ms)

    def _compete(self, share: QueueShare) -> None:
        if share not in self._competing:
            level_ms = min([other.had_ms(self._now_ms) for other in self._competing], default=self._level_ms)
            share.used_ms += max(0.0, level_ms - share.had_ms(self._now_ms))
            self._competing[share] = None

    def _order(self, share: QueueShare) -> float:
        return share.will_have_ms(self._now_ms, self._mean_ms or 1.0)

    def _order_ahead(self, share: QueueShare) -> float:
        return share.will_have_ms(self._now_ms, self._mean_ms or 1.0, ahead=share.ahead)

    # --- claims -----------------------------------------------------------------------------------------------------------
    def want_claim(self, share: QueueShare) -> None:
        """The queue has no claim under way and may make one."""
        self._claiming[share] = None

    def claims(self) -> list[tuple[QueueShare, int]]:
        """The claims to begin now, with their limits."""
        if not self._claiming:
            return []
        self._tick()
        allowance = self._allowance()
        claims = self._claims_of_backlogged(allowance)
        claims.update(self._polls(self._allowance() if claims else allowance))
        for share in claims:
            del self._claiming[share]
        return list(claims.items())

    def claim_ended(self, share: QueueShare, *, backlogged: bool) -> None:
        """The claim has been answered, has failed, or takes too long. `backlogged`: whether the queue seems to have more jobs."""
        self._ask(share, -share.asked)
        share.backlogged = backlogged
        if backlogged:
            self._compete(share)
        elif not share.waiting:
            self._competing.pop(share, None)

    def _ask(self, share: QueueShare, jobs: int) -> None:
        share.asked += jobs
        self._asked += jobs
        if share.asked:
            self._asking[share] = None
        else:
            self._asking.pop(share, None)

    def _claims_of_backlogged(self, allowance: _Allowance) -> dict[QueueShare, int]:
        """Hands out the allowance, in the order of slot time."""
        claims: dict[QueueShare, int] = {}
        soon, left_ms = allowance
        queues = len(self._competing)
        if left_ms < LOOK_AHEAD_MS and left_ms < soon * LOOK_AHEAD_MS / sqrt(max(1, queues)) / 2:
            return claims  # too few for any, so don't ask hundreds
        claiming = [
            (self._order_ahead(share), place, share) for place, share in enumerate(self._claiming) if share.backlogged
        ]
        heapify(claiming)
        while claiming:
            _, place, share = heappop(claiming)
            most = self._limit(share, soon)
            batch = self._batch(share, soon, queues)
            too_few = self._too_few(share, batch)
            if most <= too_few:
                continue
            limit = min(most, int(left_ms / share.cost_ms), self._limit_of_all())
            if limit <= too_few:
                break
            limit = min(limit, batch) if self.is_shared else limit
            claims[share] = claims.get(share, 0) + limit
            self._ask(share, limit)
            left_ms -= limit * share.cost_ms
            heappush(claiming, (self._order_ahead(share), place, share))
        return claims

    def _polls(self, allowance: _Allowance) -> dict[QueueShare, int]:
        """Long polls of queues that seem to be empty."""
        polls: dict[QueueShare, int] = {}
        for share in self._claiming:
            if share.backlogged:
                continue
            soon = share.soon(allowance.soon)
            part = int(soon * LOOK_AHEAD_MS / sqrt(len(self._shares)) / share.cost_ms)
            if soon and share.waiting <= self._too_few(share, part):
                left = min(int(allowance.left_ms / share.cost_ms), self._limit_of_all())
                polls[share] = max(1, min(left, part, self._limit(share, allowance.soon)))
        return polls

    def _batch(self, share: QueueShare, soon: int, queues: int) -> int:
        """How many jobs one claim brings while other queues have jobs, too: long ones singly, short ones in batches. With the number of
        queues the batches become smaller, but not as small as an equal part, so that claims stay few."""
        if not share.is_short:
            return 1
        in_time = share.soon(soon) * LOOK_AHEAD_MS / share.cost_ms
        return max(1, int(min(in_time, self.prefetch_max + self.total - self.running) / sqrt(max(1, queues))))

    def _too_few(self, share: QueueShare, batch: int) -> int:
        """So that claims stay batches."""
        return min(batch, self.prefetch_max) // 2 if share.is_short else 0

    def _limit(self, share: QueueShare, soon: int) -> int:
        """How many jobs the queue may claim if the others have none."""
        in_time = int(share.soon(soon) * LOOK_AHEAD_MS / share.cost_ms) - share.ahead
        return min(in_time, share.most - share.running - share.ahead + self.prefetch_max)

    def _limit_of_all(self) -> int:
        return self.total - self.running - self.waiting - self._asked + self.prefetch_max

    def _allowance(self) -> _Allowance:
        soon = self.total - self.running + sum([share.running for share in self._running if share.is_short])
        waiting_ms = sum([share.waiting * share.cost_ms for share in self._ready])
        asked_ms = sum([share.asked * share.cost_ms for share in self._asking])
        return _Allowance(soon, soon * LOOK_AHEAD_MS - waiting_ms - asked_ms)

    # --- too many jobs ----------------------------------------------------------------------------------------------------
    def take_surplus(self) -> dict[QueueShare, int]:
        """How many waiting jobs of which queues are to go back now. They count no longer."""
        surplus: dict[QueueShare, int] = {}
        while (share := self._has_too_many()) is not None:
            share.backlogged = True
            self.withdraw(share)
            surplus[share] = surplus.get(share, 0) + 1
        return surplus

    def _has_too_many(self) -> QueueShare | None:
        """The queue whose newest waiting job is to go back: one over its own bound, or else the one that has had the most."""
        soon = self._allowance().soon
        for share in self._ready:
            free = max(0, share.most - share.running)
            if share.waits_ms > share.soon(soon) * LASTING_MS or share.waiting > free + self.prefetch_max:
                return share
        waits_ms = sum([share.waits_ms for share in self._ready])
        if waits_ms <= soon * LASTING_MS and self.waiting <= self.total - self.running + self.prefetch_max:
            return None
        return max(self._ready, key=self._order_ahead)

    def look(self) -> None:
        """Once a second while jobs wait: a queue of whose running jobs none has ended since has long ones, whatever its mean says."""
        for share in self._shares.values():
            if share.running and share.ended == share.ended_before:
                share.mean_ms = max(share.mean_ms or 0.0, LASTING_MS)
            share.ended_before = share.ended


def smoothed_ms(mean_ms: float | None, sample_ms: float) -> float:
    """A moving mean; the first sample starts it."""
    return sample_ms if mean_ms is None else mean_ms + _SMOOTHING * (sample_ms - mean_ms)
