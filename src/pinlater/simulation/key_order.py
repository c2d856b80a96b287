"""Jobs of one ordering key in the order of their places: finds hand-outs that no possible order could make right. Pure.

A job that goes to the end of its key takes another place, and counts as another job from then on.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class PlacedJob(NamedTuple):
    """A job in one of its places. Infinite: it never happened, or it is not known."""

    descriptor: str
    # Jobs of one request are in the order of its list. None: of no request.
    request: int | None
    # The earliest and the latest instant at which it can have taken the place.
    since_ns: float
    placed_ns: float
    # The latest instant at which it can have been handed out first.
    begun_ns: float
    # The earliest instant at which it can have ended, or left the place.
    ended_ns: float


_Ends = list[tuple[float, str]]


def out_of_turn(jobs: Sequence[PlacedJob], most: int) -> Iterable[tuple[str, str]]:
    """Yields jobs that began while `most` of those before them can't have ended, with a description.

    The jobs before it are in the same request, or took their place before this job can have taken its own.
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
        left = [*_not_ended(before, job), *_not_ended(listed, job)]
        if len(left) >= most:
            yield job.descriptor, f"before {left[-1]}, which has a place before it"
        if job.request is not None:
            insort(listed, _end_of(job))


def side_by_side(jobs: Sequence[PlacedJob], most: int) -> Iterable[tuple[str, str]]:
    """Yields jobs that began while `most` others can't have ended that had begun before, with a description."""
    begun: _Ends = []
    for job in sorted(jobs, key=lambda job: job.begun_ns):
        if job.begun_ns < job.ended_ns:
            left = _not_ended(begun, job)
            if len(left) >= most:
                yield job.descriptor, f"beside {left[-1]}"
            insort(begun, _end_of(job))


def _end_of(job: PlacedJob) -> tuple[float, str]:
    return job.ended_ns, job.descriptor


def _not_ended(ends: _Ends, job: PlacedJob) -> list[str]:
    """Returns those that can't have ended when the job began."""
    return [descriptor for _, descriptor in ends[bisect_right(ends, (job.begun_ns, "\U0010ffff")) :]]
