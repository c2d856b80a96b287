"""When a queue gets more partitions, and when fewer: decided from samples, without I/O and without a clock.

A queue grows if it keeps the owners of all its partitions busy, and the owners of the next shards in its order are not busy. If its rate
does not grow by a quarter within half a minute, as with shards on one machine, the step is reverted, and not retried for an hour. Once
its rate has grown by a quarter, the step stays, even if fewer jobs come later. A queue shrinks after ten minutes in which half of its
partitions would have sufficed.

Weaknesses: a step counts as useless if fewer jobs come before the rate has grown. A server that takes over the first partition of a queue
knows nothing of steps that were not confirmed or were reverted. Servers that decide in the same moment may together make more changes
than `CHANGES_MAX`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

BUSY = 0.8
PART = 0.25
"""The share of an owner's work from which on a queue counts as the reason why the owner is busy."""
SPARE = 0.5
"""The load below which an owner takes another partition."""
QUIET = 0.4
"""The load below which half of the partitions suffice."""
FASTER = 1.25
BUSY_MS = 5_000
TRIAL_MS = 30_000
RETRY_MS = 3_600_000
QUIET_MS = 600_000
APART_MS = 30_000
"""Between two changes of one queue."""
CHANGES_MAX = 5
"""Changes in `APART_MS` of all queues together, so ten a minute."""


class OwnerLoad(NamedTuple):
    """How busy a server is, as shares of the time: its lanes to one shard, and its event loop."""

    server: str
    lanes: float
    loop: float


class PartitionLoad(NamedTuple):
    """How busy the owner of a queue is on one shard: its lanes to the shard and its event loop, and the queue's share of both."""

    lanes: float
    loop: float
    of_lanes: float = 0.0
    of_loop: float = 0.0

    @property
    def busy(self) -> float:
        return max(self.lanes, self.loop)

    @property
    def by_queue(self) -> float:
        """The queue's share of the load."""
        return max(self.lanes * self.of_lanes, self.loop * self.of_loop)

    @property
    def is_full_of_queue(self) -> bool:
        """Whether the owner is busy because of the queue."""
        return (self.lanes >= BUSY and self.of_lanes >= PART) or (self.loop >= BUSY and self.of_loop >= PART)


class WatchedQueue(NamedTuple):
    """One queue over the last seconds.

    `partitions`: how many it has.
    `loads`: of all shards in its order, the partitions first, or None where the load is not known.
    `rate`: jobs a second.
    `changed_ms`: when its automatic number was last changed.
    """

    queue: str
    partitions: int
    loads: Sequence[PartitionLoad | None]
    rate: float
    changed_ms: int


class ChangeReason(Enum):
    """Why a number is changed."""

    BUSY = "busy"
    NOT_FASTER = "not faster with more"
    QUIET = "quiet"


class NumberChange(NamedTuple):
    """A change of a number, and the rate before it."""

    queue: str
    before: int
    after: int
    reason: ChangeReason
    rate: float


@dataclass(slots=True)
class _Watched:
    """One queue. `busy_ms`, `quiet_ms`: since when the queue has been busy or quiet. `trial`: the last step up, until it has proven
    useful, and when it was made.
    `not_before_ms`: the earliest time of the next step up."""

    busy_ms: int | None = None
    quiet_ms: int | None = None
    trial: tuple[NumberChange, int] | None = None
    not_before_ms: int = 0


class Growth:
    """Decides for the queues whose first partition one server owns."""

    def __init__(self) -> None:
        self._watched: dict[str, _Watched] = {}

    def decide(self, samples: Iterable[WatchedQueue], changed_ms: Iterable[int], now_ms: int) -> NumberChange | None:
        """The next step among all queues that are worth a look; everything about other queues is forgotten, except for reverted steps.

        `changed_ms`: when the number of each queue of the cluster was last changed. Call `made` once the step is made.
        """
        seen = {sample.queue: sample for sample in samples}
        for queue, watched in list(self._watched.items()):
            if queue not in seen:
                watched.busy_ms = watched.quiet_ms = watched.trial = None
                if watched.not_before_ms <= now_ms:
                    del self._watched[queue]
        steps = [step for sample in seen.values() if (step := self._step(sample, now_ms)) is not None]
        if not steps or sum(at_ms > now_ms - APART_MS for at_ms in changed_ms) >= CHANGES_MAX:
            return None
        return min(steps, key=lambda step: (step.reason is not ChangeReason.NOT_FASTER, step.queue))

    def made(self, step: NumberChange, now_ms: int) -> None:
        """Notes that the step was made."""
        watched = self._watched[step.queue]
        watched.busy_ms = watched.quiet_ms = None
        watched.trial = (step, now_ms) if step.reason is ChangeReason.BUSY else None
        if step.reason is ChangeReason.NOT_FASTER:
            watched.not_before_ms = now_ms + RETRY_MS

    def _step(self, sample: WatchedQueue, now_ms: int) -> NumberChange | None:
        number = sample.partitions
        watched = self._watched.setdefault(sample.queue, _Watched())
        watched.busy_ms = _since(watched.busy_ms, now_ms, true=_is_busy(sample))
        watched.quiet_ms = _since(watched.quiet_ms, now_ms, true=_is_quiet(sample))
        if watched.trial is not None and (
            watched.trial[0].after != number or sample.rate >= watched.trial[0].rate * FASTER
        ):
            watched.trial = None
        if now_ms - sample.changed_ms < APART_MS:
            return None
        if watched.trial is not None:
            step, made_ms = watched.trial
            if now_ms - made_ms < TRIAL_MS:
                return None
            return NumberChange(sample.queue, number, step.before, ChangeReason.NOT_FASTER, sample.rate)
        if watched.busy_ms is not None and now_ms - watched.busy_ms >= BUSY_MS and now_ms >= watched.not_before_ms:
            return NumberChange(
                sample.queue, number, min(2 * number, len(sample.loads)), ChangeReason.BUSY, sample.rate
            )
        if watched.quiet_ms is not None and now_ms - watched.quiet_ms >= QUIET_MS:
            return NumberChange(sample.queue, number, _half(number), ChangeReason.QUIET, sample.rate)
        return None


def _since(since_ms: int | None, now_ms: int, *, true: bool) -> int | None:
    return (now_ms if since_ms is None else since_ms) if true else None


def _half(number: int) -> int:
    return (number + 1) // 2


def _is_busy(sample: WatchedQueue) -> bool:
    """Returns whether the partitions are full, and the owners of the next shards are not busy."""
    number = sample.partitions
    now, more = sample.loads[:number], sample.loads[number : 2 * number]
    full = all(load is not None and load.is_full_of_queue for load in now)
    return full and bool(more) and all(load is not None and load.busy < SPARE for load in more)


def _is_quiet(sample: WatchedQueue) -> bool:
    """Returns whether half of the partitions would suffice."""
    number = sample.partitions
    loads = [load for load in sample.loads[:number] if load is not None]
    if number < 2 or len(loads) < number:
        return False
    kept, given_up = loads[: _half(number)], loads[_half(number) :]
    more = sum(load.by_queue for load in given_up) / len(kept)
    return all(load.busy + more < QUIET for load in kept)
