"""Gives log lines the job that they belong to: queue, job, task, attempt, and trace where the job has one.

The fields are set by a filter, so any formatter can show them, and lines of libraries that a handler calls get them too:

    handler = logging.StreamHandler()
    handler.addFilter(JobFields())

`pinlater worker` does that by itself. A filter belongs on the logging handler: on a logger it would see that logger's lines only.
Weakness: lines of threads that a handler starts by itself have no job, unless it hands them its context.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from pinlater.client.values import ClaimedJob
from pinlater.worker.context import job_at_hand

TRACEPARENT = "traceparent"
NAMES = ("queue", "job", "task", "attempt", "trace")


class JobFields(logging.Filter):
    """Lets every line pass, with the fields of the job that it was written for; a field that the line has already stays.

    `outside`: the fields' value in lines of no job, for formats like `%(job)s` that need one; None leaves them out.
    """

    def __init__(self, outside: str | None = None) -> None:
        super().__init__()
        self._outside = None if outside is None else dict.fromkeys(NAMES, outside)

    def filter(self, record: logging.LogRecord) -> bool:
        context = job_at_hand()
        found = {} if context is None else {**fields_of(context.job), "task": context.task, "attempt": context.attempt}
        for name, value in {**(self._outside or {}), **found}.items():
            if not hasattr(record, name):
                setattr(record, name, value)
        return True


def fields_of(job: ClaimedJob) -> Mapping[str, object]:
    """What `extra` may say of a job, where no context does."""
    fields: dict[str, object] = {"queue": job.queue, "job": job.descriptor}
    if job.attempt:
        fields["attempt"] = job.attempt
    trace = job.headers.get(TRACEPARENT)
    if trace:
        fields["trace"] = trace
    return fields
