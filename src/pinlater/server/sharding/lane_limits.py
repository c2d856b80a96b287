"""What a request counts against the bounds of its lane, and the bounds that differ from those of every lane (`lane.py`)."""

from __future__ import annotations

from pinlater.server.storage.values import InsertRequest

# A waiting claim costs nothing until it gets jobs: ten thousand that ask for a thousand jobs each may all look again at once.
CLAIMS_WAITING_MAX = 10_000_000
# If one call took all waiting requests, the store's process and this one would only wait for each other. So this many requests share one.
WHOLE_UP_TO_ELSEWHERE = 24
# This many bytes of bodies count as one more job, so that a batch of large ones is no transaction of gigabytes.
_BYTES_A_JOB = 4096


def weight_of_insert(request: InsertRequest) -> int:
    """In jobs of ordinary size."""
    jobs = request.jobs
    if len(jobs) == 1:  # most requests
        return 1 + len(jobs[0].body) // _BYTES_A_JOB
    return len(jobs) + sum([len(job.body) for job in jobs]) // _BYTES_A_JOB
