"""How much memory a request may need before its answer is sent: an estimate, which the console reserves before it calls a server.

Only lists of jobs and of groups of failures have one. The estimate assumes that a job is as long as a body may be by default, and that
all jobs together are no larger than an answer of a server. Items and their JSON exist at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pinlater.console.endpoint import ApiCall, Endpoint
from pinlater.console.problems import no_memory
from pinlater.domain.byte_budget import ByteBudget
from pinlater.wire.limits import FRAME_BYTES_MAX

JOB_BYTES = 4 * 1024  # bytes of a job without its body
BODY_BYTES = 1024 * 1024
_GROUP_BYTES = 1024  # of failures


def of_jobs(jobs: int, *, bodies: bool = False) -> int:
    """Returns the cost of an answer with jobs, or of jobs that are read to compare them."""
    return 2 * min(jobs * (JOB_BYTES + BODY_BYTES if bodies else JOB_BYTES), FRAME_BYTES_MAX)


def of_groups(groups: int) -> int:
    """Returns the cost of groups of failures."""
    return 2 * min(groups * _GROUP_BYTES, FRAME_BYTES_MAX)


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
