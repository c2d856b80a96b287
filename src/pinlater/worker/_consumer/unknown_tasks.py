"""The log line of jobs whose task the worker does not know: once a minute for each name."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from pinlater.client.values import ClaimedJob
from pinlater.domain.durations import duration_text
from pinlater.worker.logs import fields_of

_log = logging.getLogger("pinlater.worker")
_REMEMBERED = 100
_LOGGED_EVERY_S = 60.0


class UnknownTasks:
    """Belongs to one queue, whose tasks are `known`."""

    def __init__(self, queue: str, known: Iterable[str]) -> None:
        self._queue = queue
        self._known = known
        self._logged: dict[str, float] = {}

    def log(self, job: ClaimedJob, task: str, delay_ms: int, now_s: float) -> None:
        """Such a job goes back. `task`: '' if it names none."""
        if now_s - self._logged.get(task, -1e9) < _LOGGED_EVERY_S:
            return
        self._logged = {**dict(list(self._logged.items())[-_REMEMBERED:]), task: now_s}
        named = f"no task {task!r} here"
        unnamed = "the job names no task and the queue has no default task"
        _log.warning(
            "queue %s: %s (known: %s); such jobs go back for %s, without an attempt, for a worker that knows it",
            self._queue, named if task else unnamed, ", ".join(sorted(self._known)), duration_text(delay_ms),
            extra=fields_of(job),
        )  # fmt: skip
