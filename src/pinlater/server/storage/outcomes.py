"""Acks, checkpoints, heartbeats, releases, cancels, orders to run and moves of one call: decided on loaded jobs, in the order of the
arguments.

The first of two acks of one job counts; the second finds the job as the first left it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from pinlater.domain.job import JobState, Outcome
from pinlater.domain.transitions import FAILED, IN_PROGRESS, PENDING
from pinlater.server.storage.changes import Changes
from pinlater.server.storage.decide import Cancel, Happening, Heartbeat, Release, Run
from pinlater.server.storage.options import has_expired
from pinlater.server.storage.record import JobRecord
from pinlater.server.storage.values import NOT_FOUND, Acked, ClaimRef, JobAck, JobCheckpoint, JobKey, RunOrder

APPLIED, ALREADY_FINAL, STALE_CLAIM = Outcome.APPLIED, Outcome.ALREADY_FINAL, Outcome.STALE_CLAIM
SUCCEEDED = Acked(APPLIED, JobState.SUCCEEDED)

Item = TypeVar("Item", JobAck, JobCheckpoint, ClaimRef)


def finish(changes: Changes, acks: Sequence[JobAck]) -> list[Acked]:
    """Ends attempts. An ack without a token applies to the claim of any holder."""
    return _apply(changes, acks, lambda ack: ack, lambda job, ack: ack.token is None or job.token == ack.token)


def checkpoint(changes: Changes, checkpoints: Sequence[JobCheckpoint]) -> list[Acked]:
    """Saves checkpoints, fenced by the token, or by the source if there is no token."""

    def allowed(job: JobRecord, progress: JobCheckpoint) -> bool:
        if progress.token is not None:
            return job.token == progress.token
        return job.source == progress.source

    return _apply(changes, checkpoints, lambda progress: progress, allowed)


def extend(changes: Changes, refs: Sequence[ClaimRef]) -> list[Acked]:
    """Returns the outcomes of heartbeats."""
    return _apply(changes, refs, lambda _: Heartbeat(), _token_is)


def release(changes: Changes, refs: Sequence[ClaimRef]) -> list[Acked]:
    """Returns the outcomes of releases."""
    return _apply(changes, refs, lambda ref: Release(ref.delay_ms), _token_is)


def cancel(changes: Changes, keys: Sequence[JobKey], only_state: JobState | None) -> list[Acked]:
    """Cancels jobs that wait, are claimed, or both. A claim ends whichever worker holds it."""
    results = []
    for key in keys:
        job = changes.find(key)
        meant = job is not None and only_state in (None, job.state)
        after = changes.apply(job, Cancel()) if job is not None and meant else None
        if job is None:
            results.append(NOT_FOUND)
        else:
            results.append(_acked(ALREADY_FINAL, job) if after is None else _acked(APPLIED, after))
    return results


def failed_of(changes: Changes, orders: Sequence[RunOrder]) -> list[JobRecord]:
    """The FAILED jobs that may run among those ordered to run, each once: they must take their unique keys again before `run`."""
    jobs = (changes.find(key) for key in dict.fromkeys(order.key for order in orders))
    return [job for job in jobs if job is not None and job.state is FAILED and not _has_expired(changes, job)]


def _has_expired(changes: Changes, job: JobRecord) -> bool:
    return has_expired(job.options, changes.now_ms)


def run(changes: Changes, orders: Sequence[RunOrder], barred: Collection[int]) -> list[Acked]:
    """Makes PENDING jobs due, and returns FAILED ones to the queue unless their expiry has passed.

    `barred`: ids of failed jobs whose unique key another job has.
    """
    results = []
    for order in orders:
        job = changes.find(order.key)
        if job is None:
            results.append(NOT_FOUND)
            continue
        is_barred = order.only_failed
        if job.state is FAILED:
            is_barred = job.id in barred or _has_expired(changes, job)
        if job.behind:
            results.append(_held(job))
            continue
        after = None if is_barred else changes.apply(job, Run(order.attempts, order.run_after_ms))
        if after is not None:
            results.append(_acked(APPLIED, after))
        elif job.state is IN_PROGRESS:
            results.append(_held(job))
        else:
            results.append(_acked(ALREADY_FINAL, job))
    return results


def move(changes: Changes, keys: Sequence[JobKey], priority: int) -> list[Acked]:
    """Gives waiting and FAILED jobs that priority. A job that has it already stays as it is, in any state: it was moved before."""
    results = []
    for key in keys:
        job = changes.find(key) or changes.find(key._replace(priority=priority))
        if job is None:
            results.append(NOT_FOUND)
        elif job.priority == priority:
            results.append(_there(job))
        elif job.state is IN_PROGRESS or job.behind:
            results.append(_held(job))
        elif job.state is FAILED or job.state is PENDING:
            results.append(_there(changes.move(job, priority)))
        else:
            results.append(_acked(ALREADY_FINAL, job))
    return results


def _there(job: JobRecord) -> Acked:
    """Returns the outcome of a job with its new priority. No claim was renewed."""
    return Acked(APPLIED, job.state, job.run_after_ms if job.state is PENDING and not job.behind else None)


def _token_is(job: JobRecord, ref: ClaimRef) -> bool:
    return job.token == ref.token


def _apply(
    changes: Changes,
    items: Sequence[Item],
    happening: Callable[[Item], Happening],
    allowed: Callable[[JobRecord, Item], bool],
) -> list[Acked]:
    """Applies the event of each item to its job if that is IN_PROGRESS and `allowed` accepts the claim."""
    results = []
    for item in items:
        job = changes.find(item.key)
        if job is None:
            results.append(NOT_FOUND)
        elif job.state is not IN_PROGRESS:
            results.append(_acked(ALREADY_FINAL if job.finished else STALE_CLAIM, job))
        elif not allowed(job, item):
            results.append(_held(job))
        else:
            results.append(_acked(APPLIED, changes.apply(job, happening(item)) or job))
    return results


def _held(job: JobRecord) -> Acked:
    """The refusal that names the holder."""
    refused = _acked(STALE_CLAIM, job)
    return refused._replace(holder=job.holder or "", held_since_ms=job.claimed_at_ms)


def _acked(outcome: Outcome, job: JobRecord) -> Acked:
    """The outcome with the job as it is now: when it is due, or until when the renewed claim lasts."""
    if job.state is PENDING:
        due = outcome is APPLIED or job.options.ordering_key is None  # otherwise it may wait behind others
        return Acked(outcome, PENDING, job.run_after_ms if due else None)
    renewed = outcome is APPLIED and job.state is IN_PROGRESS
    return Acked(outcome, job.state, deadline_ms=job.deadline_ms) if renewed else Acked(outcome, job.state)
