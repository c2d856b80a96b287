"""Adds the running job to log records: queue, job, task, attempt, and trace if the job has one.

A filter sets the fields, so any formatter can show them, and records of libraries that a task calls have them too:

    handler = logging.StreamHandler()
    handler.addFilter(JobFields())

`pinlater worker` does this. Add the filter to the logging handler: on a logger it sees that logger's records only.
Weakness: records of threads that a task starts have no job, unless the task passes its context on.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from pinlater.client.values import ClaimedJob
from pinlater.domain.trace_headers import TRACEPARENT
from pinlater.worker.context import RUNNING

NAMES = ("queue", "job", "task", "attempt", "trace")


class JobFields(logging.Filter):
    """Passes every record, with the fields of the job that wrote it. Fields that the record has are kept.

    `outside`: the fields' value in records outside of jobs, for formats like `%(job)s` that need one; None leaves the fields out.
    """

    def __init__(self, outside: str | None = None) -> None:
        super().__init__()
        self._outside = None if outside is None else dict.fromkeys(NAMES, outside)

    def filter(self, record: logging.LogRecord) -> bool:
        context = RUNNING.get()
        found = {} if context is None else {**fields_of(context.job), "task": context.task, "attempt": context.attempt}
        for name, value in {**(self._outside or {}), **found}.items():
            if not hasattr(record, name):
                setattr(record, name, value)
        return True


def fields_of(job: ClaimedJob) -> Mapping[str, object]:
    """The fields of a job, as `extra` for log lines outside of its context."""
    fields: dict[str, object] = {"queue": job.queue, "job": job.descriptor}
    if job.attempt:
        fields["attempt"] = job.attempt
    trace = job.headers.get(TRACEPARENT)
    if trace:
        fields["trace"] = trace
    return fields
