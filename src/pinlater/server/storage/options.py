"""The options of a job as stores keep them: as JSON in the one column `jobs.options`, by the names of their fields.

A plain job has NULL there, and costs nothing for what it doesn't use.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from pinlater.domain.job import JobOptions, NewJob
from pinlater.domain.transitions import MYSQL_STATUS, StatusRule

NONE = JobOptions()
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(JobOptions).decode


def has_expired(options: JobOptions, now_ms: int) -> bool:
    """Whether a claim fails the job instead of handing it out, and a retry leaves it FAILED."""
    return options.expires_ms is not None and options.expires_ms < now_ms


def have_unique_keys(jobs: Sequence[NewJob]) -> bool:
    """Whether any of these jobs has a unique key."""
    return any([job.options is not None and job.options.unique is not None for job in jobs])  # noqa: C419 a list is quicker


def options_text(options: JobOptions | None, rule: StatusRule = MYSQL_STATUS) -> str | None:
    """Returns what `options_of` reads; None for a plain job. `rule` cuts the status."""
    if options is None or options == NONE:
        return None
    if options.status:
        options = replace(options, status=rule.at_enqueue(options.status))
    return _encode(options).decode()


def options_of(text: str | None) -> JobOptions:
    """Returns the options that a store has kept."""
    return NONE if text is None else _decode(text)
