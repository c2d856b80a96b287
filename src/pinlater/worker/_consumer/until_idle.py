"""A consumer that ends by itself: when no queue of its worker has a job that is due, and none is running.

For batch runs and tests. It asks for what is there now instead of waiting for more; a job that ends makes every queue ask again, since
it may have enqueued others. An error of the server ends the run instead of being waited out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from pinlater.client.errors import DequeueRateLimited, PinLaterError
from pinlater.client.values import ClaimedJob, Dequeued
from pinlater.worker._attempts.calling import Ended
from pinlater.worker._attempts.endings import Ending
from pinlater.worker._consumer.consumer import Consumer, InHand, Team
from pinlater.worker._reports.delivery import Report
from pinlater.worker.settings import WorkerSettings
from pinlater.worker.tasks import Place, Task

# Told of a job how an attempt ended, with the exception where it is at hand.
OnEnd = Callable[[ClaimedJob, Ending, BaseException | None], None]

# Acks ride on the next claim, which follows at once; one that went by itself could free a job behind the last claim's back.
_NO_FLUSH_MS = 24 * 3_600_000


def settings_until_idle(settings: WorkerSettings) -> WorkerSettings:
    """The same, asking without waiting, and with nothing claimed ahead."""
    return replace(settings, wait_ms=0, prefetch_max=0, ack_flush_ms=_NO_FLUSH_MS)


def in_threads(tasks: Mapping[str, Task[..., Any]]) -> dict[str, Task[..., Any]]:
    """The same, those that run in processes in threads instead."""
    return {name: _in_thread(task) for name, task in tasks.items()}


def _in_thread(task: Task[..., Any]) -> Task[..., Any]:
    if task.options.place is not Place.PROCESS:
        return task
    moved = copy(task)
    moved.options = replace(task.options, place=Place.THREAD)
    return moved


class Idleness:
    """What the consumers of one run know of each other. `failure`: the server's error that ended the run."""

    def __init__(self, team: Team, ended: OnEnd | None) -> None:
        self._team = team
        self._idle: set[Consumer] = set()
        self.ended = ended
        self.endings = 0
        self.failure: PinLaterError | None = None

    def something_ended(self) -> None:
        """Every queue asks again."""
        self.endings += 1
        self._idle.clear()
        self._team.slot_freed()

    def found_nothing(self, consumer: Consumer) -> None:
        """This one has nothing to do; if that holds for all of them the run is over."""
        self._idle.add(consumer)
        if len(self._idle) == len(self._team.consumers):
            self._stop()

    def failed(self, error: PinLaterError) -> None:
        """Ends the run."""
        self.failure = error
        self._stop()

    def _stop(self) -> None:
        self._team.stop.set()
        self._team.slot_freed()


class ConsumerUntilIdle(Consumer):
    """One queue's part."""

    def __init__(
        self,
        team: Team,
        queue: str,
        tasks: Mapping[str, Task[..., Any]],
        default: Task[..., Any] | None,
        idleness: Idleness,
    ) -> None:
        super().__init__(team, queue, tasks, default)
        self._idleness = idleness
        self._endings_seen = 0

    async def _dequeue(self, limit: int, acks: Sequence[Report]) -> Dequeued:
        self._endings_seen = self._idleness.endings
        return await super()._dequeue(limit, acks)

    async def _pace(self, dequeued: Dequeued, took_s: float) -> None:
        del took_s
        if dequeued.jobs or self._endings_seen != self._idleness.endings:
            return
        self._room.clear()
        if not self._running and not self._stock:
            self._idleness.found_nothing(self)
        await self._room.wait()

    async def _stay_away(self, error: PinLaterError) -> None:
        if not isinstance(error, DequeueRateLimited):
            self._idleness.failed(error)
            return
        await self._pace(Dequeued(), 0)  # paused, or its limit is used up: as good as empty

    async def _report(self, claim: InHand, ended: Ended) -> None:
        if self._idleness.ended is not None:
            self._idleness.ended(claim.job, ended.ending, ended.error)
        await super()._report(claim, ended)

    def _free_slot(self, claim: InHand) -> None:
        super()._free_slot(claim)
        self._idleness.something_ended()
