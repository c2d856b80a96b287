"""Jobs whose own rows are gone, by hand or after the restore of a part: they are removed from the other tables, counted and logged."""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)


class LostJobs:
    """How many a shard has removed since its start."""

    __slots__ = ("jobs",)

    def __init__(self) -> None:
        self.jobs = 0

    def count(self, jobs: int, where: str) -> None:
        """Adds some that were removed. `where`: the store, for the log."""
        self.jobs += jobs
        logger.error("jobs are gone from %s: %d that had left rows in other tables", where, jobs)
