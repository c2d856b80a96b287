"""The claims that a worker keeps alive: added and dropped by its event loop, renewed from the heartbeat thread.

The event loop starts a job and the heartbeat thread gives back jobs that have not started: the lock decides which comes first.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from pinlater.client.values import Ack, AckResult, Checkpoint, Claim, ClaimedJob
from pinlater.domain.clock import Clock
from pinlater.domain.descriptor import shard_of
from pinlater.worker._outbox.heartbeat_log import log_apart
from pinlater.worker.counts import TaskCounts

_log = logging.getLogger("pinlater.worker")
_UNREAD_MAX = 10_000
_SHORTEST_S = 0.1
# A queue, and a shard of it.
QueueShard = tuple[str, str]


class GiveBack(NamedTuple):
    """Ends a claim without using up an attempt; the job is due again after `delay_ms`."""

    claim: Claim
    delay_ms: int


Message = Ack | GiveBack | Checkpoint


class Lease:
    """A claim that is renewed until the server has the message that ends it. Equal to itself only: a job may be claimed again while its
    first claim is still here.

    `interval_s`: of its heartbeats. `due_s`: when the next one is (monotonic).
    `keep_until_s`: until when the claim of a started job is renewed (monotonic); None of a job that has not started.
    `was_given_back`: the heartbeat thread has released it before it started. The lock of `Leases` decides between the two.
    `message`: what the server is told at the end; set once. `maybe_applied`: an earlier try to tell it may have reached the server.
    `counts`: of its task. `is_counted`: they have counted the attempt that ends with this ack.
    """

    job: ClaimedJob
    interval_s: float
    is_renewed = False
    due_s = 0.0
    keep_until_s: float | None = None
    was_given_back = False
    message: Message
    maybe_applied = False
    counts: TaskCounts | None = None
    is_counted = False

    def lost(self, result: AckResult) -> None:
        """Called by the heartbeat thread: the claim has ended."""
        raise NotImplementedError

    def given_back(self) -> None:
        """Called by the heartbeat thread: it released the claim."""
        raise NotImplementedError


L = TypeVar("L", bound=Lease)


def shard_of_job(job: ClaimedJob) -> QueueShard:
    """Which shard renews its claim."""
    return job.queue, shard_of(job.descriptor)


class Leases:
    """Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self.lock = threading.Lock()
        self._clock = clock
        self._held: dict[Lease, None] = {}
        self._unread_given_back: dict[Claim, None] = {}  # claimed, but not yet added
        self._next_due_s: float | None = None

    def add(self, claims: Sequence[L]) -> tuple[Sequence[L], bool]:
        """Renews claims from now on. Returns those that were given back unread, and whether a heartbeat is due before all others."""
        given_back: list[L] = []
        with self.lock:
            now_s, before_s = self._clock.monotonic(), self._next_due_s
            for lease in claims:
                if self._unread_given_back and self._was_given_back(lease.job):
                    given_back.append(lease)
                    continue
                lease.is_renewed = True
                due_s = lease.due_s = now_s + lease.interval_s
                self._held[lease] = None
                if self._next_due_s is None or due_s < self._next_due_s:
                    self._next_due_s = due_s
            return given_back, self._next_due_s != before_s

    def _was_given_back(self, job: ClaimedJob) -> bool:
        claim = Claim(job.descriptor, job.token)
        if claim not in self._unread_given_back:
            return False
        del self._unread_given_back[claim]
        return True

    def drop(self, claims: Sequence[Lease]) -> None:
        """Forgets claims that have ended."""
        with self.lock:
            for lease in claims:
                self._held.pop(lease, None)

    def drop_lost(self, lease: Lease) -> bool:
        """The server says that the claim has ended. False if it was dropped before."""
        with self.lock:
            was_held = lease in self._held
            self._held.pop(lease, None)
            return was_held

    def is_any_on(self, shards: set[QueueShard]) -> bool:
        """Whether one of these shards has a claim."""
        with self.lock:
            return bool(shards) and any(shard_of_job(lease.job) in shards for lease in self._held)

    # --- heartbeats -------------------------------------------------------------------------------------------------------
    def take_due(self) -> tuple[list[Lease], float | None]:
        """The leases whose heartbeats are due, and how many seconds later the next one is. Drops jobs that could not be stopped."""
        with self.lock:
            now_s = self._clock.monotonic()
            due = [lease for lease in self._held if lease.due_s <= now_s]
            overdue = [lease for lease in due if lease.keep_until_s is not None and now_s >= lease.keep_until_s]
            for lease in due:
                lease.due_s = now_s + lease.interval_s
            for lease in overdue:
                del self._held[lease]
                log_apart(
                    _log, logging.ERROR,
                    "job %s: its time limit is over and the worker could not stop it; is the event loop blocked? "
                    "Its claim is no longer renewed, so that another worker can run it", lease.job.descriptor,
                )  # fmt: skip
            self._next_due_s = min((lease.due_s for lease in self._held), default=None)
            wait_s = None if self._next_due_s is None else max(0.0, self._next_due_s - self._clock.monotonic())
            return [lease for lease in due if lease not in overdue] if overdue else due, wait_s

    def shortest_interval_s(self, leases: Sequence[Lease]) -> float:
        """The interval of the lease with the most frequent heartbeats."""
        with self.lock:
            return min((lease.interval_s for lease in leases if lease in self._held), default=_SHORTEST_S)

    def retry_soon(self, leases: Sequence[Lease]) -> None:
        """Their heartbeat failed: the next one comes after a quarter of the interval."""
        with self.lock:
            now_s = self._clock.monotonic()
            for lease in leases:
                lease.due_s = min(lease.due_s, now_s + max(_SHORTEST_S, lease.interval_s / 4))

    # --- a blocked event loop ---------------------------------------------------------------------------------------------
    def take_unstarted(
        self, unread: Sequence[ClaimedJob], is_blocked: Callable[[], bool]
    ) -> tuple[list[Lease], list[ClaimedJob]]:
        """Removes jobs that have not started, to be given back: leases, and `unread` jobs of answers that the loop has not read.

        Returns none if the loop has run meanwhile: the lock makes sure that the loop sees this decision in all that it does later.
        """
        with self.lock:
            if not is_blocked():
                return [], []
            leases = [lease for lease in self._held if lease.keep_until_s is None]
            for lease in leases:
                del self._held[lease]
                lease.was_given_back = True
            claims = {Claim(job.descriptor, job.token): job for job in unread}
            new = {claim: job for claim, job in claims.items() if claim not in self._unread_given_back}
            self._unread_given_back.update(dict.fromkeys(new))
            while len(self._unread_given_back) > _UNREAD_MAX:  # answers that the loop never read
                del self._unread_given_back[next(iter(self._unread_given_back))]
            return leases, list(new.values())
