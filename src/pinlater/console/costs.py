"""How much memory a request may need before its answer is sent: an estimate, which the console reserves before it calls a server.

Only lists of jobs and of groups of failures have one. The estimate assumes that a job is as long as a body may be by default, and that
all jobs together are no larger than an answer of a server.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pinlater.client._filtered_jobs import PAGE_JOBS
from pinlater.client._many_failures import QUEUES_A_CALL
from pinlater.console.endpoint import ApiCall, Endpoint
from pinlater.console.endpoints.bulk import SAMPLES
from pinlater.console.endpoints.failures import GROUPS_OF_ALL_MAX
from pinlater.console.endpoints.workers import JOBS_MAX, QUEUES_MAX
from pinlater.console.problems import no_memory
from pinlater.console.shapes.failures import FailuresQuery
from pinlater.console.shapes.jobs import LookupRequest, ScanQuery
from pinlater.console.shapes.search import SearchQuery
from pinlater.domain.byte_budget import ByteBudget
from pinlater.domain.failures import GROUPS_MAX
from pinlater.wire.limits import FRAME_BYTES_MAX

JOB_BYTES = 4 * 1024  # bytes of a job without its body
BODY_BYTES = 1024 * 1024
GROUP_BYTES = 1024  # of failures
HOLDERS_MAX = 200  # jobs that hold a unique key, in an answer of a server


def lookup(call: ApiCall[Any, LookupRequest]) -> int:
    """Estimates a look-up of jobs by descriptor."""
    return _shown(len(call.body.descriptors), bodies=call.body.bodies)


def scan(call: ApiCall[ScanQuery, Any]) -> int:
    """Returns the cost of a page of jobs. If jobs are compared, it is that of the jobs found so far and of a page of jobs to compare."""
    query = call.query
    return _shown(query.limit, bodies=query.bodies)


def holders(_: ApiCall[Any, Any]) -> int:
    """Estimates the jobs that hold a unique key."""
    return _shown(HOLDERS_MAX, bodies=False)


def search(call: ApiCall[SearchQuery, Any]) -> int:
    """Estimates the jobs that a search has found, and a page of jobs to compare."""
    return _shown(call.query.limit + PAGE_JOBS, bodies=False)


def workers(_: ApiCall[Any, Any]) -> int:
    """Estimates the claimed jobs that are read. Other data of servers about workers is smaller."""
    return _shown(QUEUES_MAX * JOBS_MAX, bodies=False)


def preview(_: ApiCall[Any, Any]) -> int:
    """Estimates the jobs that a preview of a bulk run shows."""
    return _shown(SAMPLES, bodies=False)


def failures(call: ApiCall[FailuresQuery, Any]) -> int:
    """Estimates the groups of the queues, as many as a shard keeps of each. For all queues: those of the answer, and those of one call."""
    queues = len(call.query.queue)
    groups = queues * GROUPS_MAX if queues else GROUPS_OF_ALL_MAX + QUEUES_A_CALL * GROUPS_MAX
    return 2 * min(groups * GROUP_BYTES, FRAME_BYTES_MAX)


@contextmanager
def reserved(budget: ByteBudget, endpoint: Endpoint[Any, Any, Any], call: ApiCall[Any, Any]) -> Iterator[None]:
    """Reserves the memory that the call may need. Raises RequestRefused if there is not enough."""
    wanted = 0 if endpoint.cost is None else endpoint.cost(call)
    held = budget.reserve_scan(wanted) if wanted else 0
    if wanted and not held:
        raise no_memory("the answer")
    try:
        yield
    finally:
        budget.free_scan(held)


def _shown(jobs: int, *, bodies: bool) -> int:
    """The jobs and their JSON exist at the same time."""
    return 2 * min(jobs * (JOB_BYTES + BODY_BYTES if bodies else JOB_BYTES), FRAME_BYTES_MAX)
