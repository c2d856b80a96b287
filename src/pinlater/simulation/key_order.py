"""Finds the jobs of one ordering key that no possible order of their hand-outs explains. Pure functions.

A job that goes to the end of its key takes another place, and counts as another job from then on.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class PlacedJob(NamedTuple):
    """A job in one of its places. A time is infinite if the event did not happen, or is not known."""

    descriptor: str
    # Jobs of one request are in the order of its list. None: the job did not take this place by an enqueue.
    request: int | None
    # The earliest and the latest instant at which it can have taken the place.
    since_ns: float
    placed_ns: float
    # The latest instant at which it can have been handed out first.
    begun_ns: float
    # The earliest instant at which it can have ended, or left the place.
    ended_ns: float


class EarlyJob(NamedTuple):
    """A job that began while others of its key cannot have ended."""

    descriptor: str
    # How it relates to them: `before` jobs with an earlier place, or `beside` jobs that had begun.
    how: str
    others: Sequence[str]


_Ends = list[tuple[float, str]]


def out_of_turn(jobs: Sequence[PlacedJob]) -> Iterable[EarlyJob]:
    """Yields each job that began while jobs with an earlier place cannot have ended.

    A place is earlier if it is earlier in the list of the same request, or if it was surely taken before the other one can have been.
    """
    placed = sorted(jobs, key=lambda job: job.placed_ns)
    before: _Ends = []
    of_request: defaultdict[int | None, _Ends] = defaultdict(list)
    at = 0
    for job in sorted(jobs, key=lambda job: job.since_ns):
        while at < len(placed) and placed[at].placed_ns < job.since_ns:
            insort(before, _end_of(placed[at]))
            at += 1
        listed = of_request[job.request]
        if others := [*_not_ended(before, job), *_not_ended(listed, job)]:
            yield EarlyJob(job.descriptor, "before", others)
        if job.request is not None:
            insort(listed, _end_of(job))


def side_by_side(jobs: Sequence[PlacedJob]) -> Iterable[EarlyJob]:
    """Yields each job that began while jobs that had begun before cannot have ended."""
    begun: _Ends = []
    for job in sorted(jobs, key=lambda job: job.begun_ns):
        if job.begun_ns < job.ended_ns:
            if others := _not_ended(begun, job):
                yield EarlyJob(job.descriptor, "beside", others)
            insort(begun, _end_of(job))


def _end_of(job: PlacedJob) -> tuple[float, str]:
    return job.ended_ns, job.descriptor


def _not_ended(ends: _Ends, job: PlacedJob) -> list[str]:
    """Returns the jobs that cannot have ended when `job` began."""
    return [descriptor for _, descriptor in ends[bisect_right(ends, (job.begun_ns, "\U0010ffff")) :]]
