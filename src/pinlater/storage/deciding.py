"""Words about jobs named one by one, decided on loaded records: acks, checkpoints, heartbeats, releases, cancels.

In the order of the arguments, so that the first of two acks of one job counts and the second meets what the first left. A store loads
the records before and writes what became of them after.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from pinlater.domain.job import JobState, Outcome
from pinlater.storage.events import Events, Record, acked
from pinlater.storage.interface import Ack, Acked, Checkpoint, ClaimRef, JobKey, RunOrder

NOT_FOUND = Acked(Outcome.NOT_FOUND)

Item = TypeVar("Item", Ack, Checkpoint, ClaimRef)
Records = Mapping[JobKey, Record]


def finish(events: Events, records: Records, acks: Sequence[Ack]) -> list[Acked]:
    """Ends attempts; without a token any holder's claim counts."""

    def end_attempt(job: Record, ack: Ack) -> None:
        if ack.succeeded:
            events.succeed(job, ack)
        else:
            events.fail(job, ack)

    return _decide(records, acks, end_attempt, lambda job, ack: ack.token is None or bool(job.token == ack.token))


def checkpoint(events: Events, records: Records, checkpoints: Sequence[Checkpoint]) -> list[Acked]:
    """Fenced by the token, or by the source where there is none."""

    def allowed(job: Record, progress: Checkpoint) -> bool:
        if progress.token is not None:
            return bool(job.token == progress.token)
        return bool(job.source == progress.source)

    return _decide(records, checkpoints, events.checkpoint, allowed, renews=True)


def extend(events: Events, records: Records, refs: Sequence[ClaimRef]) -> list[Acked]:
    """Heartbeats."""
    return _decide(records, refs, lambda job, _: events.extend(job), _token_is, renews=True)


def release(events: Events, records: Records, refs: Sequence[ClaimRef]) -> list[Acked]:
    """Claims given back."""
    return _decide(records, refs, lambda job, ref: events.release(job, ref.delay_ms), _token_is)


def cancel(events: Events, records: Records, keys: Sequence[JobKey]) -> list[Acked]:
    """Whoever holds them; only finished jobs stay as they are."""
    results = []
    for key in keys:
        job = records.get(key)
        if job is None:
            results.append(NOT_FOUND)
        elif job.finished:
            results.append(acked(Outcome.ALREADY_FINAL, job))
        else:
            events.cancel(job)
            results.append(acked(Outcome.APPLIED, job))
    return results


def puts_back(records: Records, orders: Sequence[RunOrder]) -> list[Record]:
    """The FAILED jobs among those ordered to run, each once; their unique keys must be taken again first."""
    jobs = (records.get(key) for key in dict.fromkeys(order.key for order in orders))
    return [job for job in jobs if job is not None and job.state is JobState.FAILED]


def run(events: Events, records: Records, orders: Sequence[RunOrder], barred: Collection[int]) -> list[Acked]:
    """Waiting jobs become due, failed ones go back to the queue. `barred`: ids of failed jobs whose unique key another job has."""
    results = []
    for order in orders:
        job = records.get(order.key)
        if job is None:
            results.append(NOT_FOUND)
        elif job.state is JobState.IN_PROGRESS:
            refused = acked(Outcome.STALE_CLAIM, job)
            results.append(refused._replace(holder=job.holder, held_since_ms=job.claimed_at_ms))
        elif job.state is JobState.SUCCEEDED or (job.state is JobState.FAILED and job.id in barred):
            results.append(acked(Outcome.ALREADY_FINAL, job))
        else:
            if job.state is JobState.FAILED:
                events.requeue(job, order.attempts, order.run_after_ms)
            else:
                events.run(job, order.run_after_ms)
            results.append(acked(Outcome.APPLIED, job))
    return results


def _token_is(job: Record, ref: ClaimRef) -> bool:
    return bool(job.token == ref.token)


def _decide(
    records: Records,
    items: Sequence[Item],
    act: Callable[[Record, Item], None],
    allowed: Callable[[Record, Item], bool],
    *,
    renews: bool = False,
) -> list[Acked]:
    """Carries out `act` on each job that is IN_PROGRESS and whose claim `allowed` accepts; says of the others why not."""
    results = []
    for item in items:
        job = records.get(item.key)
        if job is None:
            results.append(NOT_FOUND)
        elif job.finished:
            results.append(acked(Outcome.ALREADY_FINAL, job))
        elif job.state is JobState.PENDING:
            results.append(acked(Outcome.STALE_CLAIM, job))
        elif not allowed(job, item):
            refused = acked(Outcome.STALE_CLAIM, job)
            results.append(refused._replace(holder=job.holder, held_since_ms=job.claimed_at_ms))
        else:
            act(job, item)
            applied = acked(Outcome.APPLIED, job)
            renewed = renews and job.state is JobState.IN_PROGRESS
            results.append(applied._replace(deadline_ms=job.deadline_ms) if renewed else applied)
    return results
