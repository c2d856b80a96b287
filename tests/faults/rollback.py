"""What a shard may have forgotten: all that it answered after its replica had got the last of it, and not one thing more.

A replica that takes over is its master as it was a while ago. So an answer of that while may be undone: a job be gone, come again, or
be handed out though a worker holds it. Only that is excused, and only where the replica really lacked it.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple

from pinlater.simulation.history import APPLIED, History, PromiseKind, Violation
from tests.faults.load import queue_of, shard_of


class Lacked(frozenset[int]):
    """All ids but these, which are those that the replica lacked: for where it took new jobs before the old master was left."""

    def __contains__(self, job_id: object) -> bool:
        return not super().__contains__(job_id)


class Rollback(NamedTuple):
    """`shard` went back to how it was some time after `since_ns` (`time.monotonic_ns`); nothing that was begun after `until_ns` was lost.

    `stored` and `finished`: the ids of the jobs that the replica had, and of those that it had as succeeded or failed.
    """

    shard: str
    since_ns: int
    until_ns: int
    stored: Container[int]
    finished: Container[int]

    def may_lack(self, started_ns: int, ended_ns: int | None) -> bool:
        """What a call did that was under way at some moment of that time."""
        return started_ns <= self.until_ns and (ended_ns is None or ended_ns >= self.since_ns)


class Tail:
    """What clients were told in the time that a rollback took back, by descriptor."""

    def __init__(self, history: History, rollback: Rollback) -> None:
        self._rollback = rollback
        may_lack = rollback.may_lack
        enqueues = [one for one in history.enqueues if may_lack(one.started_ns, one.ended_ns)]
        self.enqueued = {descriptor for one in enqueues for descriptor in one.descriptors or ()}
        self.claimed = {one.descriptor for one in history.claims if may_lack(one.started_ns, one.ended_ns)}
        self.renewed = {
            one.descriptor
            for one in history.heartbeats
            if one.outcome == APPLIED and may_lack(one.started_ns, one.ended_ns)
        }
        self.ended = {
            one.descriptor
            for one in history.acks
            if one.ends_job and one.outcome == APPLIED and may_lack(one.started_ns, one.ended_ns)
        }
        self.run_again = {
            one.descriptor for one in history.runs if one.outcome == APPLIED and may_lack(one.started_ns, one.ended_ns)
        }
        acked = {one.descriptor for one in history.acks if may_lack(one.started_ns, one.ended_ns)}
        # Those that may have another place under their key than clients know.
        self.moved = self.claimed | acked | self.run_again

    def excuses(self, violation: Violation) -> bool:
        """Whether the replica's lack alone explains it."""
        descriptor, rollback = violation.descriptor, self._rollback
        named = [descriptor, *re.findall(r"\S+:s\S+:p\d+:\d+", violation.text)]
        if violation.kind is PromiseKind.DOUBLED:
            # Enqueued again, as the first enqueue had no answer; its job had been handed out.
            return any(self._is_here(one) and self._never_was(one) and one in self.claimed for one in named)
        if violation.kind is PromiseKind.DISORDERED:
            return any(self._is_here(one) and one in self.moved for one in named)
        if not self._is_here(descriptor):
            return False
        if violation.kind is PromiseKind.LOST:
            return descriptor in self.enqueued and self._never_was(descriptor)
        if violation.kind is PromiseKind.REVERSED:
            return descriptor in self.run_again or (
                descriptor in self.ended and id_of(descriptor) not in rollback.finished
            )
        if violation.kind is PromiseKind.GAVE_UP:
            return descriptor in self.run_again
        if violation.kind is PromiseKind.TWICE:
            return descriptor in self.claimed or descriptor in self.renewed
        if violation.kind is PromiseKind.STALE_APPLIED:
            return descriptor in self.claimed
        return False

    def _is_here(self, descriptor: str) -> bool:
        return shard_of(descriptor) == self._rollback.shard

    def _never_was(self, descriptor: str) -> bool:
        return id_of(descriptor) not in self._rollback.stored


def stopped_again(history: History, rollbacks: Iterable[Rollback]) -> set[tuple[str, str]]:
    """Returns the queues and keys that an operator may have to let go again, since a rollback took it back, or a run of their jobs."""
    keys = {
        descriptor: key
        for one in history.enqueues
        for descriptor, key in zip(one.descriptors or (), one.ordering_keys, strict=False)
        if key is not None
    }
    found = set[tuple[str, str]]()
    for rollback in rollbacks:
        found |= {(one.queue, one.key) for one in history.unblocks if rollback.may_lack(one.started_ns, one.ended_ns)}
        found |= {
            (queue_of(one.descriptor), keys[one.descriptor])
            for one in history.runs
            if one.descriptor in keys and rollback.may_lack(one.started_ns, one.ended_ns)
        }
    return found


def id_of(descriptor: str) -> int:
    """Of the job."""
    return int(descriptor.rpartition(":")[2])


class Judged(NamedTuple):
    """The violations that no rollback explains, the jobs of the others, and of these the ones that a rollback took."""

    broken: list[Violation]
    excused: set[str]
    lost: set[str]


def judged(
    violations: Iterable[Violation],
    history: History,
    rollbacks: Sequence[Rollback],
    deleted: Container[tuple[str, int]] = (),
) -> Judged:
    """Sorts out what a rollback explains. `deleted`: shard and id of jobs that were deleted by hand, finished or not."""
    tails = [Tail(history, rollback) for rollback in rollbacks]
    found = Judged([], set(), set())
    for violation in violations:
        descriptor = violation.descriptor
        gone = (
            violation.kind in {PromiseKind.LOST, PromiseKind.REVERSED}
            and (shard_of(descriptor), id_of(descriptor)) in deleted
        )
        if not gone and not any(tail.excuses(violation) for tail in tails):
            found.broken.append(violation)
            continue
        found.excused.add(descriptor)
        if gone or violation.kind is PromiseKind.LOST:
            found.lost.add(descriptor)
    return found
