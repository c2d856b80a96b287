"""The claims that a worker keeps alive: added and dropped by its event loop, renewed from the heartbeat thread.

A claim gets a heartbeat whenever a third of its length has passed, so that two heartbeats may get lost.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pinlater.client.values import AckResult, Claim, ClaimedJob
from pinlater.domain.clock import Clock
from pinlater.domain.descriptor import shard_of
from pinlater.worker._leases.loop_watchdog import LoopWatchdog

_log = logging.getLogger("pinlater.worker")
_UNREAD_MAX = 10_000
_SHORTEST_S = 0.1
# A queue, and a shard of it.
QueueShard = tuple[str, str]


class Lease(NamedTuple):
    """A claim that is kept alive. The heartbeat thread calls `lost` when the claim has ended, and `given_back` when it released it."""

    job: ClaimedJob
    lost: Callable[[AckResult], object]
    given_back: Callable[[], object]

    @property
    def queue_shard(self) -> QueueShard:
        """Which shard renews it."""
        return self.job.queue, shard_of(self.job.descriptor)


Numbered = tuple[int, Lease]


class Leases:
    """Thread-safe. Leases have numbers, since a job may be claimed again while its first claim is still here."""

    def __init__(self, clock: Clock) -> None:
        self.lock = threading.Lock()
        self._clock = clock
        self._due: dict[int, float] = {}  # when the next heartbeat is: monotonic
        self._interval_s: dict[int, float] = {}
        self._leases: dict[int, Lease] = {}
        self._keep_until: dict[int, float] = {}  # of started jobs: monotonic
        self._given_back: set[int] = set()
        self._unread_given_back: dict[Claim, None] = {}  # claimed, but not yet added
        self._number = 0
        self._next_due: float | None = None

    def add(self, lease: Lease, length_ms: int) -> tuple[int | None, bool]:
        """The lease's number, and whether its heartbeat is due before all others. No number if it was given back unread."""
        with self.lock:
            if self._unread_given_back:
                claim = Claim(lease.job.descriptor, lease.job.token)
                if claim in self._unread_given_back:
                    del self._unread_given_back[claim]
                    return None, False
            self._number += 1
            self._leases[self._number] = lease
            interval_s = self._interval_s[self._number] = max(_SHORTEST_S, length_ms / 3000)
            due = self._due[self._number] = self._clock.monotonic() + interval_s
            sooner = self._next_due is None or due < self._next_due
            if sooner:
                self._next_due = due
            return self._number, sooner

    def drop(self, numbers: Sequence[int]) -> None:
        """Forgets claims that have ended."""
        with self.lock:
            for number in numbers:
                self._forget(number)

    def drop_lost(self, number: int) -> bool:
        """The server says that the claim has ended. False if it was dropped before."""
        with self.lock:
            return self._forget(number)

    def begin(self, number: int, until: float | None) -> bool:
        """The job starts. False if it was given back.

        Its claim is renewed until `until` (monotonic) at most: a job that blocks the event loop can't be stopped at its time limit, and
        must not be kept from other workers for ever.
        """
        with self.lock:
            if number in self._given_back:
                self._given_back.discard(number)
                return False
            if number in self._leases:
                self._keep_until[number] = math.inf if until is None else until
            return True

    def ended(self, number: int) -> None:
        """The job has ended in time. Its claim is renewed until `drop`, which follows when the server has the report."""
        with self.lock:
            if number in self._leases:
                self._keep_until[number] = math.inf

    def is_any_on(self, shards: set[QueueShard]) -> bool:
        """Whether one of these shards has a lease."""
        with self.lock:
            return bool(shards) and any(lease.queue_shard in shards for lease in self._leases.values())

    # --- heartbeats -------------------------------------------------------------------------------------------------------
    def take_due(self) -> tuple[list[Numbered], float | None]:
        """The leases whose heartbeats are due, and how many seconds later the next one is. Drops jobs that could not be stopped."""
        with self.lock:
            now = self._clock.monotonic()
            due = [(number, self._leases[number]) for number, at in self._due.items() if at <= now]
            for number, _ in due:
                self._due[number] = now + self._interval_s[number]
            overdue = [(number, lease) for number, lease in due if now >= self._keep_until.get(number, math.inf)]
            for number, lease in overdue:
                self._forget(number)
                _log.error(
                    "job %s: its time limit is over and the worker could not stop it; is the event loop blocked? "
                    "Its claim is no longer renewed, so that another worker can run it", lease.job.descriptor,
                )  # fmt: skip
            self._next_due = min(self._due.values(), default=None)
            wait_s = None if self._next_due is None else max(0.0, self._next_due - self._clock.monotonic())
            return [numbered for numbered in due if numbered not in overdue] if overdue else due, wait_s

    def shortest_interval_s(self, numbers: Sequence[int]) -> float:
        """The interval of the lease with the most frequent heartbeats."""
        with self.lock:
            intervals = self._interval_s
            return min((intervals[number] for number in numbers if number in intervals), default=_SHORTEST_S)

    def retry_soon(self, numbers: Sequence[int]) -> None:
        """Their heartbeat failed: the next one comes after a quarter of the interval."""
        with self.lock:
            now = self._clock.monotonic()
            for number in self._due.keys() & set(numbers):
                soon = now + max(_SHORTEST_S, self._interval_s[number] / 4)
                self._due[number] = min(self._due[number], soon)

    # --- a blocked event loop ---------------------------------------------------------------------------------------------
    def take_unstarted(
        self, unread: Sequence[ClaimedJob], watchdog: LoopWatchdog
    ) -> tuple[list[Lease], list[ClaimedJob]]:
        """Removes jobs that have not started, to be given back: leases, and `unread` jobs of answers that the loop has not read.

        Nothing if the loop has run meanwhile: the lock makes sure that the loop sees this decision in all that it does later.
        """
        with self.lock:
            if not watchdog.still_waiting:
                return [], []
            numbers = [number for number in self._leases if number not in self._keep_until]
            leases = [self._leases[number] for number in numbers]
            for number in numbers:
                self._forget(number)
                self._given_back.add(number)
            claims = {Claim(job.descriptor, job.token): job for job in unread}
            new = {claim: job for claim, job in claims.items() if claim not in self._unread_given_back}
            self._unread_given_back.update(dict.fromkeys(new))
            while len(self._unread_given_back) > _UNREAD_MAX:  # answers that the loop never read
                del self._unread_given_back[next(iter(self._unread_given_back))]
            return leases, list(new.values())

    def _forget(self, number: int) -> bool:
        self._due.pop(number, None)
        self._interval_s.pop(number, None)
        self._keep_until.pop(number, None)
        self._given_back.discard(number)
        return self._leases.pop(number, None) is not None
