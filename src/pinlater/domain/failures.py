"""Failures that look alike are one group: of one task, with one type of error, and one text except for what differs from job to job.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

HOUR_MS = 3_600_000
HOURS_SHOWN = 24
HOURS_KEPT = 48
GROUP_KEPT_MS = 30 * 24 * HOUR_MS
GROUPS_MAX = 200
"""The most groups of a queue on a shard. Failures that belong to further groups are counted in the group `OTHERS`."""
OTHERS = "0" * 16
CLAIM_TIMED_OUT = "ClaimTimeout"
"""The type of a failure without an error: a claim that timed out."""
PROCESS_DIED = "pinlater.worker.ProcessDied"
"""The type of the error of a job whose process in the Python worker died."""
QUEUES_MAX = 100
"""Of one request."""
MUTED_MS_MAX = 30 * 24 * HOUR_MS
MUTES_MAX = 1_000
"""Changes of the mutes of one queue that are kept, for 30 days each."""
PATTERN_CHARS_MAX = 200
TASK_CHARS_MAX = 200
_ANYTHING = "…"
# HTTP statuses identify the failure, if a text begins with one or names it as one.
_HTTP_ERROR = r"(?:40[0134689]|41[0235]|42[2-59]|50[0-47])(?!\w|[.:,/-]\d)"
_CALLED_SO = r"(?i:\b(?:HTTP(?:/\d(?:\.\d)?)?|status(?: code)?|code|error|response)[\s:=(-]{1,2})"
_VARIABLE = re.compile(
    rf"(?P<kept>(?:^|(?<=: )|{_CALLED_SO}){_HTTP_ERROR})"
    r"|\b0x[0-9a-fA-F]+\b"
    r"|\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"
    r"|\b(?=[0-9a-fA-F]*[0-9])[0-9a-fA-F]{12,}\b"
    r"|'[^']*'|\"[^\"]*\""
    r"|(?<![^\s@<>'\"])[^\s@<>]+@[^\s@<>]+"  # from the beginning of a word: starting at each of its characters takes quadratic time
    r"|\d+(?:[.:,/-]\d+)*"
)
_RETRY_DELAY = re.compile(r"(?:^|; )again in [0-9.e+]{1,16} s$")  # in the form that a worker's `Retry` writes
_READ_CHARS = 500
_GROUP_NAME = re.compile(r"[0-9a-f]{16}", re.ASCII)


def is_group_name(text: str) -> bool:
    """Returns whether a group of failures may have this name."""
    return _GROUP_NAME.fullmatch(text) is not None


class FailureKind(NamedTuple):
    """The key by which a failed attempt is grouped. `pattern`: the first line of the error, with `…` for numbers, quoted names and
    addresses, but with HTTP statuses."""

    task: str
    error_type: str
    pattern: str

    @property
    def group(self) -> str:
        """The name of its group: 16 hexadecimal digits."""
        text = "\0".join(self).encode("utf-8", "replace")
        return blake2b(text, digest_size=8).hexdigest()


def failure_of(headers: Mapping[str, str] | None, task_header: str, error_type: str, error_text: str) -> FailureKind:
    """Returns how a failed attempt of a job with these headers is grouped."""
    task = (headers or {}).get(task_header, "")[:TASK_CHARS_MAX]
    return FailureKind(task, error_type, pattern_of(error_text))


def without_retry_delay(text: str) -> str:
    """Returns the text of a `Retry` without the time of the next attempt."""
    return _RETRY_DELAY.sub("", text)


def pattern_of(error_text: str) -> str:
    """The first line that is not empty, without the parts that differ from job to job, and without the time of the next attempt: a last
    attempt has none, and belongs to the group of the earlier ones."""
    return _pattern(error_text.lstrip()[:_READ_CHARS].partition("\n")[0].rstrip())


@lru_cache(maxsize=1024)
def _pattern(line: str) -> str:
    return _VARIABLE.sub(lambda found: found["kept"] or _ANYTHING, without_retry_delay(line))[:PATTERN_CHARS_MAX]
