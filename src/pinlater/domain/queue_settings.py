"""The settings of a queue, one record each: its valid values, and the words with which the command line, the HTTP API and the console
show it.

A new setting is a field of `QueueConfig`, in `pinlater.thrift` and in `domain.queue`, and a record here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from pinlater.domain.durations import YEAR_MS
from pinlater.domain.errors import InvalidArgument
from pinlater.domain.job import ATTEMPTS_ALLOWED_MAX
from pinlater.domain.queue import IN_HAND_PER_KEY_MAX, STOP, TO_BACK, QueueConfig

_I32_MAX = 2**31 - 1


class QueueSetting(NamedTuple):
    """A setting.

    `field`: that of `QueueConfig`; durations are in milliseconds and end with `_ms`.
    `label`: that of its field in a form.
    `text`: what it is, in a sentence.
    `least`, `most`: the range of a number.
    `words`: all values of a setting that is not a number, the default first.
    `is_fraction`: whether the number need not be whole.
    `unset`: what applies if neither the queue nor the server sets it; '' for no limit.
    """

    field: str
    label: str
    text: str
    least: int = 0
    most: int = 0
    words: Sequence[str] = ()
    is_fraction: bool = False
    unset: str = ""

    @property
    def is_span(self) -> bool:
        return self.field.endswith("_ms")

    @property
    def help(self) -> str:
        """Returns the description of the setting and, in a second sentence, what applies if it is not set."""
        return f"{self.text} If not set: {self.unset}." if self.unset else self.text

    def check(self, value: float | str | None) -> None:
        """Raises `InvalidArgument` unless the setting may have this value; None is not a value."""
        if value is None:
            return
        if isinstance(value, str):
            if value not in self.words:
                raise InvalidArgument(f"{self.field} must be {' or '.join(self.words)}, not {value[:100]!r}")
        elif not (math.isfinite(value) and self.least <= value <= self.most):
            raise InvalidArgument(f"{self.field} must be from {self.least} to {self.most}, not {value}")


QUEUE_SETTINGS: Sequence[QueueSetting] = (
    QueueSetting(
        "max_jobs_per_second",
        "Jobs per second, at most",
        "Jobs handed out per second; 0 stops dequeues.",
        most=10**9,
        is_fraction=True,
    ),
    QueueSetting(
        "burst",
        "Jobs saved up for a burst, at most",
        "Jobs that such a limit saves up while the queue is quiet.",
        least=1,
        most=_I32_MAX,
        unset="those of a second",
    ),
    QueueSetting("max_backlog", "Pending jobs, at most", "Largest number of pending jobs.", most=2**53),
    QueueSetting(
        "claim_timeout_ms",
        "Claim timeout",
        "How long a claim lasts, of jobs that set no time.",
        least=1,
        most=YEAR_MS,
    ),
    QueueSetting(
        "default_attempts",
        "Attempts of a job",
        "Attempts of jobs that set none.",
        least=1,
        most=ATTEMPTS_ALLOWED_MAX,
    ),
    QueueSetting(
        "default_expiry_ms",
        "Expiry of a job",
        "Expiry of jobs that set none.",
        least=1,
        most=10 * YEAR_MS,
    ),
    QueueSetting("succeeded_ttl_ms", "Keep succeeded jobs for", "How long succeeded jobs are kept.", most=10 * YEAR_MS),
    QueueSetting("failed_ttl_ms", "Keep failed jobs for", "How long failed jobs are kept.", most=10 * YEAR_MS),
    QueueSetting(
        "partitions",
        "Shards, as partitions",
        "On how many shards the queue is stored; if no number is set, on as many as the servers choose.",
        least=1,
        most=_I32_MAX,
        unset="auto",
    ),
    QueueSetting(
        "max_in_hand_per_key",
        "Jobs of an ordering key in hand, at most",
        "Jobs of an ordering key that are ready or in hand at a time.",
        least=1,
        most=IN_HAND_PER_KEY_MAX,
        unset="1",
    ),
    QueueSetting(
        "retry_place",
        "Where a job with an ordering key waits for its retry",
        "Where a job with an ordering key waits for its retry: `in_place` or `to_back`.",
        words=("in_place", TO_BACK),
        unset="in_place",
    ),
    QueueSetting(
        "after_failure",
        "What a job with an ordering key does that fails finally",
        "What a job with an ordering key does to its key when it fails finally: `continue` or `stop`.",
        words=("continue", STOP),
        unset="continue",
    ),
)
"""In the order in which they are shown."""


def check_config(config: QueueConfig) -> None:
    """Raises `InvalidArgument` for the first value that its setting can't have."""
    for setting in QUEUE_SETTINGS:
        setting.check(getattr(config, setting.field))
