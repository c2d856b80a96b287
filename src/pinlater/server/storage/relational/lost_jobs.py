"""Jobs whose own rows are gone, by a manual change or after a partial restore: they are removed from the other tables, counted and
logged."""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)


class LostJobs:
    """How many lost jobs a shard has removed since its start."""

    __slots__ = ("jobs",)

    def __init__(self) -> None:
        self.jobs = 0

    def count(self, jobs: int, where: str) -> None:
        """Adds removed jobs. `where`: the name of the store, for the log."""
        self.jobs += jobs
        logger.error("jobs are gone from %s: %d that had left rows in other tables", where, jobs)
