"""How much memory a call may need before its answer is sent: an estimate from its arguments, reserved before it starts.

Only calls that show jobs have one: their answers are large compared with their requests. The estimate assumes that a job is as long as a
body may be, and that the sum is no more than a frame and the scan's pages hold, since the operations stop there. Calls that hand out jobs
are not estimated, because most of them get few: their bytes are counted once they exist.
"""

from __future__ import annotations

from pinlater.server.operations.job_settings import PAGES_BYTES_MAX
from pinlater.server.thrift.settings import ThriftSettings

JOB_BYTES = 4 * 1024  # bytes of a job without its body


class MemoryBounds:
    """Jobs and their encoded answer exist at the same time; this is the memory for both. In bytes."""

    def __init__(self, settings: ThriftSettings) -> None:
        self._answer_bytes_max = settings.answer_bytes_max
        self._job_bytes = settings.max_body_bytes + JOB_BYTES

    def shown(self, jobs: int, *, bodies: bool) -> int:
        """Returns the memory that an answer with that number of jobs needs."""
        return 2 * min(max(jobs, 0) * (self._job_bytes if bodies else JOB_BYTES), self._answer_bytes_max)

    def read(self, jobs: int) -> int:
        """Returns the memory that the pages of a scan with bodies need, until it has found that number of jobs."""
        return min(max(jobs, 0) * self._job_bytes, PAGES_BYTES_MAX)
