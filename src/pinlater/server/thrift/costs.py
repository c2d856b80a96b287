"""How much memory a call may need before its answer is on its way: an estimate from its arguments, reserved before it starts.

Only calls that show jobs have one: their answers are large compared with their requests. A job is taken to be as long as a body may
be, and the sum to be no more than a frame and the scan's pages hold, since the operations stop there. Calls that hand out jobs are
not estimated, because most of them get few: what they hold is counted once it exists.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pinlater.server.operations.job_queries import HOLDERS_MAX
from pinlater.server.operations.job_settings import PAGES_BYTES_MAX
from pinlater.server.thrift.settings import ThriftSettings

Cost = Callable[[Any], int]

JOB_BYTES = 4 * 1024  # of a job without its body


def costs(settings: ThriftSettings) -> dict[str, Cost]:
    """The estimate for each method that has one, in bytes; 0 if a call needs none."""
    bytes_max = settings.answer_bytes_max
    with_body = settings.max_body_bytes + JOB_BYTES

    def shown(jobs: int, job_bytes: int) -> int:
        """Jobs and their encoded answer exist at the same time."""
        return 2 * min(max(jobs, 0) * job_bytes, bytes_max)

    def read(jobs: int) -> int:
        return min(max(jobs, 0) * with_body, PAGES_BYTES_MAX)

    def dequeue(call: Any) -> int:
        request = call.request
        return shown(request.limit, with_body) if request.dryRun else 0

    def lookup(call: Any) -> int:
        request = call.request
        return shown(len(request.jobDescriptors), with_body if request.includeBody else JOB_BYTES)

    def scan(call: Any) -> int:
        request = call.request
        if request.bodyRegexToMatch is not None:
            return shown(request.limit, with_body if request.includeBody else JOB_BYTES) + PAGES_BYTES_MAX
        if request.includeBody:
            return shown(request.limit, with_body) + read(request.limit)
        return shown(request.limit, JOB_BYTES)

    def search(call: Any) -> int:
        return PAGES_BYTES_MAX if call.request.bodyRegexToMatch is not None else 0

    return {
        "dequeueJobs": dequeue,
        "lookupJobs": lookup,
        "findUniqueKey": lambda _: shown(HOLDERS_MAX, JOB_BYTES),
        "scanJobs": scan,
        "getJobCount": search,
        "deleteJobs": search,
    }
