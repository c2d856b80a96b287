"""When a worker has done enough and another should take its place: after so many jobs, so much time, or with so much memory.

A worker only ends, in order and with the exit code `EXIT_CODE`; starting the next is for whoever watches over it (`pinlater worker
--processes`, systemd, Kubernetes). The limits are lowered by a random part, so that processes started together don't end together.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import NamedTuple

from pinlater.worker.settings import WorkerSettings

# sysexits' EX_TEMPFAIL: nothing is wrong, start it again.
EXIT_CODE = 75
_LOWERED_BY = 0.1
_STATM = Path("/proc/self/statm")


class Recycling(NamedTuple):
    """The limits of one process; None is none."""

    jobs: int | None = None
    age_s: float | None = None
    memory_bytes: int | None = None

    def jobs_left(self, claimed: int) -> int | None:
        """How many jobs may still be claimed."""
        return None if self.jobs is None else max(0, self.jobs - claimed)

    def due(self, claimed: int, age_s: float, memory_bytes: int) -> str:
        """Why it is time to end, or nothing."""
        if self.jobs is not None and claimed >= self.jobs:
            return f"{claimed} jobs claimed"
        if self.age_s is not None and age_s >= self.age_s:
            return f"{age_s:.0f} s old"
        if self.memory_bytes is not None and memory_bytes >= self.memory_bytes:
            return f"{memory_bytes} bytes in memory"
        return ""


def recycling_of(settings: WorkerSettings, spread: float) -> Recycling:
    """The settings' limits, lowered by up to a tenth. `spread`: from 0 to 1, another one in each process."""

    def lowered(limit: int | None) -> int | None:
        return None if limit is None else limit - int(limit * _LOWERED_BY * spread)

    age_ms = lowered(settings.recycle_age_ms)
    return Recycling(
        lowered(settings.recycle_jobs_max),
        None if age_ms is None else age_ms / 1000,
        lowered(settings.recycle_memory_bytes_max),
    )


def resident_bytes() -> int:
    """This process's memory: what it holds now, or at most has held where the system doesn't say."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
