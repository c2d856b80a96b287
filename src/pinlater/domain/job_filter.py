"""Which jobs of a queue are meant: the one filter of scans, counts, retries, deletes and bulk runs, and the values of its fields.

Servers evaluate it. The command line, the HTTP API and the dashboard generate their options, parameters and fields from the records here.
A new field is one of `JobFilter`, in `pinlater.thrift` and here, and a record in `FILTER_FIELDS`.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from enum import Enum
from typing import Any, NamedTuple

from pinlater.domain.body_text import regex_of_text
from pinlater.domain.errors import InvalidArgument
from pinlater.domain.failures import CLAIM_TIMED_OUT, failure_of, is_group_name
from pinlater.domain.job import TASK_HEADER, TIMED_OUT, JobState, ShownJob
from pinlater.domain.transitions import was_cancelled

_FOLDED_MAX = 3  # the most characters that one becomes when its case is folded
_I32_MAX = 2**31 - 1
NAMES_MAX = 1_000
"""How many tasks or headers a filter may name."""


class JobFilter(NamedTuple):
    """The conditions for a job. A field that is not set excludes no job.

    `state`: of the job.
    `priority`: that of the job.
    `regex`: matches in its body, in RE2's syntax.
    `tasks`: one of them is its task.
    `headers`: all of them are among its headers.
    `error_text`: occurs in the type or the text of its error, in any case.
    `min_attempts`: how many attempts have begun, at least.
    `enqueued_from_ms`, `enqueued_before_ms`: it was enqueued at or after the first, and before the second.
    `group`: the group of failures that contains its last failed attempt.
    `skip_cancelled`: it was not cancelled.
    """

    state: JobState
    priority: int | None = None
    regex: str | None = None
    tasks: frozenset[str] = frozenset()
    headers: Mapping[str, str] = {}
    error_text: str = ""
    min_attempts: int = 0
    enqueued_from_ms: int | None = None
    enqueued_before_ms: int | None = None
    group: str = ""
    skip_cancelled: bool = False

    @property
    def compares(self) -> bool:
        """Whether it has conditions besides state, priority and body, for which each job must be read."""
        return self != JobFilter(*self[:3])

    @property
    def is_plain(self) -> bool:
        """Whether counters know how many jobs match: its only conditions are state and priority."""
        return self == JobFilter(*self[:2])

    def fault(self) -> FilterFault | None:
        """Returns what is wrong with the filter, or None. Only servers know which priorities there are, and the cost of a regex."""
        for each in FILTER_FIELDS:
            if text := each.fault(getattr(self, each.field)):
                return FilterFault(each, text)
        start_ms, end_ms = self.enqueued_from_ms, self.enqueued_before_ms
        if start_ms is not None and end_ms is not None and start_ms >= end_ms:
            text = f"no job is enqueued from {start_ms} on and before {end_ms}: the times exclude each other"
            return FilterFault(_field("enqueued_from_ms"), text)
        return None

    def check(self) -> None:
        """Raises `InvalidArgument` if something is wrong with the filter."""
        if (fault := self.fault()) is not None:
            raise InvalidArgument(f"{fault.field.word}: {fault.text}")

    def fits(self, job: ShownJob) -> bool:
        """Returns whether a job of the state and priority, whose body matches the regex, matches."""
        last_attempt = job.attempts[-1] if job.attempts else None
        if self.skip_cancelled and was_cancelled(job.custom_status, job.finished_at_ms, last_attempt):
            return False
        headers = job.headers or {}
        if self.tasks and headers.get(TASK_HEADER) not in self.tasks:
            return False
        if not all(headers.get(name) == value for name, value in self.headers.items()):
            return False
        if not (self._fits_attempts(job) and self._fits_age(job) and self._fits_error(job)):
            return False
        return not self.group or group_of(job) == self.group

    def _fits_error(self, job: ShownJob) -> bool:
        if not self.error_text:
            return True
        text = f"{job.error_type or ''}: {job.error_text or ''}"
        # A text that can't contain it is skipped, so that it is not searched in each of many jobs.
        return len(self.error_text) <= _FOLDED_MAX * len(text) and self.error_text.casefold() in text.casefold()

    def _fits_attempts(self, job: ShownJob) -> bool:
        return self.min_attempts <= 0 or attempts_begun(job) >= self.min_attempts

    def _fits_age(self, job: ShownJob) -> bool:
        if self.enqueued_from_ms is not None and job.created_at_ms < self.enqueued_from_ms:
            return False
        return self.enqueued_before_ms is None or job.created_at_ms < self.enqueued_before_ms


class FieldKind(Enum):
    """The format of the value of a field for people."""

    NUMBER = "a number"
    REGEX = "a regular expression"
    BODY_TEXT = "a text in the body, of which a regular expression is made"
    NAMES = "names, of which several may be given"
    HEADERS = "NAME=VALUE, of which several may be given"
    TEXT = "a text"
    MOMENT = "a time"


class FilterField(NamedTuple):
    """One field of a filter, as people see it.

    `field`: of `JobFilter`.
    `word`: its name in the HTTP API, and with dashes its option.
    `kind`: the format of its value.
    `label`: on pages.
    `text`: what it is, in a sentence.
    `least`, `most`: the range of a number.
    `span`: for a time, the word for how long ago that is, which options and pages accept.
    `span_label`, `span_text`: label and description of that word.
    `is_common`: whether pages show it at once.
    """

    field: str
    word: str
    kind: FieldKind
    label: str
    text: str
    least: int = 0
    most: int = 0
    span: str = ""
    span_label: str = ""
    span_text: str = ""
    is_common: bool = False

    @property
    def asked(self) -> str:
        """Returns the word with which options and pages ask for the value."""
        return self.span or self.word

    def fault(self, value: object) -> str:
        """Returns why the field can't have this value; '' if it can."""
        if isinstance(value, int) and self.kind is FieldKind.NUMBER and not self.least <= value <= self.most:
            return f"must be from {self.least} to {self.most}, not {value}"
        if isinstance(value, Sized) and self.kind in {FieldKind.NAMES, FieldKind.HEADERS} and len(value) > NAMES_MAX:
            return f"at most {NAMES_MAX:,} are possible, not {len(value):,}"
        if self.field == "group" and value and not is_group_name(str(value)):
            return f"{str(value)[:100]!r} is not the name of a group: 16 hexadecimal digits"
        return ""

    def read(self, written: Any) -> Any:
        """Returns the value of the field from the text of a person or a program. Raises `FilterFault`."""
        if self.kind is FieldKind.NAMES:
            return frozenset(written)
        if self.kind is FieldKind.BODY_TEXT:
            return regex_of_text(written)
        if self.kind is not FieldKind.HEADERS:
            return written
        headers = {}
        for text in written:
            name, equals, value = text.partition("=")
            if not equals or not name:
                raise FilterFault(self, f"{text[:200]!r} is not NAME=VALUE")
            headers[name] = value
        return headers

    def written(self, value: Any) -> Any:
        """Returns the value as a program reads it; `read` accepts it."""
        if self.kind is FieldKind.NAMES:
            return sorted(value)
        if self.kind is FieldKind.HEADERS:
            return [f"{name}={text}" for name, text in value.items()]
        return value


class FilterFault(Exception):
    """Describes what is wrong with a field of a filter."""

    def __init__(self, field: FilterField, text: str) -> None:
        super().__init__(text)
        self.field = field
        self.text = text


FILTER_FIELDS: Sequence[FilterField] = (
    FilterField(
        "priority",
        "priority",
        FieldKind.NUMBER,
        "Priority",
        "Only this priority; 1 is the highest.",
        least=1,
        most=127,
        is_common=True,
    ),
    FilterField(
        "tasks",
        "task",
        FieldKind.NAMES,
        "Task",
        "Only jobs of this task; may be repeated for several.",
        is_common=True,
    ),
    FilterField(
        "headers",
        "header",
        FieldKind.HEADERS,
        "Header NAME=VALUE",
        "Only jobs with this header, as `NAME=VALUE`; may be repeated.",
        is_common=True,
    ),
    FilterField(
        "regex",
        "text",
        FieldKind.BODY_TEXT,
        "Text in the body",
        "Only jobs with this text in their body, in small or large letters. Not with `regex`.",
        is_common=True,
    ),
    FilterField(
        "regex",
        "regex",
        FieldKind.REGEX,
        "Regex in the body",
        "Only jobs in whose body this is found (RE2 syntax).",
    ),
    FilterField(
        "error_text",
        "error",
        FieldKind.TEXT,
        "Text of the error",
        "Only jobs with this text in the type or text of their error, in small or large letters.",
    ),
    FilterField(
        "min_attempts",
        "min_attempts",
        FieldKind.NUMBER,
        "Attempts",
        "Only jobs of which this many attempts have begun.",
        most=_I32_MAX,
    ),
    FilterField(
        "enqueued_before_ms",
        "enqueued_before_ms",
        FieldKind.MOMENT,
        "Enqueued before",
        "Only jobs that were enqueued before.",
        span="older_than",
        span_label="Older 2h",
        span_text="Only jobs enqueued before that: 90s, 5m, 2h, 1d.",
    ),
    FilterField(
        "enqueued_from_ms",
        "enqueued_from_ms",
        FieldKind.MOMENT,
        "Enqueued from",
        "Only jobs that were enqueued then or later.",
        span="newer_than",
        span_label="Newer 10m",
        span_text="Only jobs enqueued since then: 90s, 5m, 2h, 1d.",
    ),
    FilterField(
        "group",
        "group",
        FieldKind.TEXT,
        "Group of failures",
        "Only jobs whose last failed attempt is in this group of failures, as `pinlater job failures` names it.",
    ),
)
"""In the order in which they are shown."""


def _field(name: str) -> FilterField:
    return next(each for each in FILTER_FIELDS if each.field == name)


def filter_from(state: JobState, given: Mapping[str, Any], *, skip_cancelled: bool = False) -> JobFilter:
    """Returns the filter with these values, by the words of their fields; None, and no names, set nothing. Raises `FilterFault`.

    An empty string is an error: a script with an empty variable would otherwise select all jobs."""
    values: dict[str, Any] = {}
    for each in FILTER_FIELDS:
        written = given.get(each.word)
        if written is None or written in ((), []):
            continue
        if "" in (written if isinstance(written, (list, tuple)) else (written,)):
            raise FilterFault(each, "must not be empty")
        if each.field in values:
            raise FilterFault(each, "regex and text exclude each other")
        values[each.field] = each.read(written)
    found = JobFilter(state, skip_cancelled=skip_cancelled, **values)
    if (fault := found.fault()) is not None:
        raise fault
    return found


def words_of(chosen: JobFilter) -> dict[str, Any]:
    """Returns the values of a filter by the words of their fields, without the text from which a regex was made."""
    return {
        each.word: each.written(getattr(chosen, each.field))
        for each in FILTER_FIELDS
        if each.kind is not FieldKind.BODY_TEXT
    }


def group_of(job: ShownJob) -> str:
    """The name of the group in which its last failed attempt was counted, '' without an attempt. For a failure without an error the
    status is used, which may contain more. Without an attempt it is not used: callers that see it masked could guess it from names of
    groups."""
    if job.failure_group:
        return job.failure_group
    if not (job.error_type or job.error_text or job.attempts):
        return ""
    outcome = job.attempts[-1].outcome if job.attempts else ""
    return group_of_texts(
        job.headers or {}, outcome or "", job.error_type or "", job.error_text or "", job.custom_status
    )


def group_of_texts(
    headers: Mapping[str, str], last_outcome: str, error_type: str, error_text: str, custom_status: str
) -> str:
    """The same from the strings of a job. `last_outcome`: of the last attempt, '' without one."""
    if last_outcome == TIMED_OUT:
        error_type, error_text = CLAIM_TIMED_OUT, ""
    elif not error_type and not error_text:
        error_text = custom_status
    return failure_of(headers, TASK_HEADER, error_type, error_text).group


def attempts_begun(job: ShownJob) -> int:
    """All of them, including those before a manual retry, which gives a job new ones; a final failure leaves none."""
    if job.attempts:
        return job.attempts[-1].number + (job.state == JobState.IN_PROGRESS)
    return job.attempts_allowed - job.attempts_remaining
