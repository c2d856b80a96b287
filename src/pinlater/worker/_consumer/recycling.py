"""When a worker has done enough and ends, so that another replaces it: after a number of jobs, at an age, or at a memory size.

The worker only ends, in order and with `EXIT_CODE`; its supervisor starts the next one (`pinlater worker --processes`, systemd,
Kubernetes). A random part lowers the limits, so that processes that started together don't end together.
"""

from __future__ import annotations

from typing import NamedTuple

from pinlater.worker.settings import WorkerSettings

# sysexits' EX_TEMPFAIL: nothing is wrong, start it again.
EXIT_CODE = 75
_LOWERED_BY = 0.1


class Recycling(NamedTuple):
    """The limits of one process; None for no limit."""

    jobs: int | None = None
    age_s: float | None = None
    memory_bytes: int | None = None

    def jobs_left(self, claimed: int) -> int | None:
        """How many jobs may still be claimed."""
        return None if self.jobs is None else max(0, self.jobs - claimed)

    def due(self, claimed: int, age_s: float, memory_bytes: int) -> str:
        """Why the worker ends now; '' if it doesn't."""
        if self.jobs is not None and claimed >= self.jobs:
            return f"{claimed} jobs claimed"
        if self.age_s is not None and age_s >= self.age_s:
            return f"{age_s:.0f} s old"
        if self.memory_bytes is not None and memory_bytes >= self.memory_bytes:
            return f"{memory_bytes} bytes in memory"
        return ""


def recycling_of(settings: WorkerSettings, spread: float) -> Recycling:
    """The settings' limits, lowered by up to a tenth. `spread`: a random number from 0 to 1."""

    def lowered(limit: int | None) -> int | None:
        return None if limit is None else limit - int(limit * _LOWERED_BY * spread)

    age_ms = lowered(settings.recycle_age_ms)
    return Recycling(
        lowered(settings.recycle_jobs_max),
        None if age_ms is None else age_ms / 1000,
        lowered(settings.recycle_memory_bytes_max),
    )
