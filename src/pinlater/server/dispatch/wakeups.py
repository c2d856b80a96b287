"""Tells waiting dequeues of jobs that became ready: first those of this server, then, for jobs that none here takes, those of the other
servers of the same shards.

So a job is requested once, and its ack reaches the server that has stored it. All servers are told of the jobs of a queue with a rate
limit, since each hands out a share of them. A dequeue that was woken and ends without jobs passes its wake on (`Waiters.pass_on`). If it
can't, because its server was killed, dequeues elsewhere find the jobs at their next look (`change_poller`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from pinlater.domain.clock import Clock
from pinlater.server.dispatch.waiters import Waiters
from pinlater.server.sharding.shards import Shards
from pinlater.server.storage.values import InsertRequest


class Wakeups:
    """The waiters of all queues."""

    def __init__(self, clock: Clock, shards: Shards, is_limited: Callable[[str], bool]) -> None:
        self._clock = clock
        self._is_limited = is_limited
        self._shards = shards
        self._by_queue: dict[str, Waiters] = {}
        self._tell_others: Callable[[str, int, bool], None] | None = None
        self._begins: Callable[[str], None] | None = None

    def join_others(self, tell: Callable[[str, int, bool], None], begins: Callable[[str], None]) -> None:
        """Connects the other servers: `tell(queue, jobs, past_owner)` reports jobs to them, `begins(queue)` a dequeue that will wait."""
        self._tell_others, self._begins = tell, begins

    def waiters_of(self, queue: str) -> Waiters:
        """The waiters of a queue, created if there are none. Call it when a dequeue is about to wait."""
        if self._begins is not None:
            self._begins(queue)
        waiters = self._by_queue.get(queue)
        if waiters is None:
            waiters = self._by_queue[queue] = Waiters(queue, self._clock.now_ms, partial(self._tell, queue))
        return waiters

    def count(self, queue: str) -> int:
        """How many dequeues wait for this queue."""
        waiters = self._by_queue.get(queue)
        return 0 if waiters is None else len(waiters)

    def count_by_queue(self) -> dict[str, int]:
        """How many dequeues wait, for each queue that has any."""
        return {name: len(waiters) for name, waiters in self._by_queue.items() if len(waiters)}

    def jobs_ready(self, queue: str, jobs: int, due_at_ms: int | None = None, *, past_owner: bool = False) -> None:
        """Wakes dequeues for `jobs` jobs of this queue that can be claimed now, and another at `due_at_ms` for the next one.

        `past_owner`: the server that owns the queue may not know of them, or they are on no partition of it.
        """
        if jobs:
            self._shards.heads.forget(queue)
        self._wake_here_first(queue, jobs, due_at_ms, past_owner=past_owner)

    def came_first(self, queue: str, due_at_ms: int, past_owner: bool) -> bool:
        """Wakes a dequeue for a job that became ready because the jobs before it under its ordering key have ended.

        Returns whether the job is due and a dequeue waits for it here.
        """
        is_due, any_wait = due_at_ms <= self._clock.now_ms(), self.count(queue) > 0
        self.jobs_ready(queue, 1 if is_due else 0, None if is_due else due_at_ms, past_owner=past_owner)
        return is_due and any_wait

    def wake_from_peer(self, queue: str, jobs: int, past_owner: bool = False) -> None:
        """Wakes dequeues for jobs that another server has announced."""
        self._shards.heads.forget(queue)
        self._wake(queue, jobs, past_owner=past_owner)

    def _wake_here_first(self, queue: str, jobs: int, due_at_ms: int | None, *, past_owner: bool) -> None:
        left = self._wake(queue, jobs, due_at_ms, past_owner=past_owner)
        if past_owner or self._is_limited(queue):
            left = jobs  # the owner must know of them; or dequeues here may not take them yet
        if left:
            self._tell(queue, left, past_owner=past_owner)

    def _tell(self, queue: str, jobs: int, *, past_owner: bool = False) -> None:
        if self._tell_others is not None:
            self._tell_others(queue, jobs, past_owner)

    def _wake(self, queue: str, jobs: int, due_at_ms: int | None = None, *, past_owner: bool = False) -> int:
        """Wakes dequeues of this server. Returns the number of jobs that none of them takes."""
        if past_owner:
            self._shards.look_everywhere(queue)
        waiters = self._by_queue.get(queue)
        if waiters is None:
            return jobs
        waiters.search |= past_owner
        if jobs:
            jobs = waiters.wake(jobs)
        if due_at_ms is not None:
            waiters.version += 1
            waiters.due_at(due_at_ms)
        return jobs

    def inserting(
        self, shard: str, requests: Sequence[InsertRequest], now_ms: int, owns: Callable[[str], bool]
    ) -> bool:
        """Wakes the dequeues that wait for these jobs. Returns whether any waits for one of the queues here.

        The other servers are told of due jobs only; they learn of later ones from the store. `owns`: whether this server owns a queue on
        the shard.
        """
        is_stray = any_wait = False
        several_shards = len(self._shards) > 1
        for request in requests:
            if several_shards:
                self._shards.heads.stored(request, shard, now_ms)
                is_stray = not self._shards.is_partition(request.queue, shard)
                if is_stray:
                    # Again: a claim may have found none while these were on their way.
                    self._shards.strays.heard(request.queue, [shard])
            waiters = self._by_queue.get(request.queue)
            if waiters is None and self._tell_others is None:
                continue
            any_wait = any_wait or bool(waiters)
            later = [job.run_after_ms for job in request.jobs if job.run_after_ms > now_ms]
            due = len(request.jobs) - len(later)
            past_owner = is_stray or not owns(request.queue)
            self._wake_here_first(request.queue, due, min(later) if later else None, past_owner=past_owner)
        return any_wait

    def look_again(self, queue: str | None = None) -> None:
        """Wakes all dequeues of this queue (None: of all queues), so that they ask again: its settings or its shards have changed."""
        for waiters in list(self._by_queue.values()) if queue is None else filter(None, [self._by_queue.get(queue)]):
            waiters.search = True
            waiters.wake_all()

    def queue_gone(self, queue: str) -> None:
        """Wakes all dequeues of a queue that is gone; they end with that error."""
        waiters = self._by_queue.pop(queue, None)
        if waiters is not None:
            waiters.wake_all()
