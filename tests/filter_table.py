"""Which of some failed jobs each filter finds: the table that every door must answer alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pinlater.client import Ack, AsyncClient, Job, JobFilter, JobState
from pinlater.domain.durations import duration_ms
from pinlater.domain.failures import failure_of
from pinlater.domain.job import TASK_HEADER
from pinlater.domain.job_filter import FILTER_FIELDS, filter_from

_SEND, _BILL = {TASK_HEADER: "send"}, {TASK_HEADER: "bill"}
_JOBS: Mapping[str, Job] = {
    "a": Job(b"red apple", headers={**_SEND, "tenant": "acme"}, attempts_allowed=3),
    "b": Job(b"green apple", headers={**_SEND, "tenant": "beta"}),
    "c": Job(b"red pear", headers={**_BILL, "tenant": "acme"}),
    "d": Job(b"red plum", headers=_SEND, attempts_allowed=1),
    "e": Job(b"x", priority=2),
}
_ERRORS = {"a": ("OSError", "no disk"), "b": ("Boom", "it broke"), "c": ("OSError", "NO DISK"), "e": ("Boom", "again")}
_ALL = "abcde"


class FilterCase(NamedTuple):
    """`words`: what options say, by the words with which they ask. `found`: the names of the jobs."""

    words: Mapping[str, Any]
    found: str


FILTER_CASES: Sequence[FilterCase] = (
    FilterCase({}, _ALL),
    FilterCase({"priority": 2}, "e"),
    FilterCase({"task": ["send"]}, "abd"),
    FilterCase({"task": ["send", "bill"]}, "abcd"),
    FilterCase({"header": ["tenant=acme"]}, "ac"),
    FilterCase({"header": ["tenant=acme"], "task": ["send"]}, "a"),
    FilterCase({"text": "APPLE"}, "ab"),
    FilterCase({"regex": "^red"}, "acd"),
    FilterCase({"regex": "^red", "task": ["send"]}, "ad"),
    FilterCase({"error": "no disk"}, "ac"),
    FilterCase({"error": "boom", "priority": 1}, "b"),
    FilterCase({"min_attempts": 2}, "a"),
    FilterCase({"older_than": "1h"}, ""),
    FilterCase({"newer_than": "1h"}, _ALL),
    FilterCase({"newer_than": "2h", "older_than": "1h"}, ""),
    FilterCase({"group": failure_of(_SEND, TASK_HEADER, "OSError", "no disk").group}, "a"),
)
EMPTY_CASES: Sequence[Mapping[str, Any]] = (
    {"group": ""},
    {"error": ""},
    {"regex": ""},
    {"text": ""},
    {"task": [""]},
    {"group": "", "task": ["send"]},
)
"""What a script says whose variable is not set."""
WRONG_CASES: Sequence[Mapping[str, Any]] = (
    *EMPTY_CASES,
    {"group": "none"},
    {"min_attempts": -1},
    {"header": ["tenant"]},
    {"regex": "x", "text": "x"},
    {"newer_than": "1h", "older_than": "2h"},
    {"regex": "("},
)


async def fail_jobs(client: AsyncClient, queue: str) -> dict[str, str]:
    """Stores the jobs, of which one is cancelled and the others fail; their names by descriptor."""
    stored = (await client.enqueue(queue, list(_JOBS.values()))).descriptors
    names = dict(zip(stored, _JOBS, strict=True))
    await client.cancel(queue, [job for job, name in names.items() if name == "d"])
    for is_last in (False, True):
        for job in (await client.dequeue(queue, 10)).jobs:
            name = names[job.descriptor]
            kind, text = _ERRORS[name]
            final = is_last or name != "a"
            ack = Ack(job.descriptor, succeeded=False, token=job.token, final=final, error_type=kind, error_text=text)
            await client.ack(queue, [ack])
    return names


def moments(words: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
    """The same in the words of the API, which has times for spans."""
    times = {
        field.word: now_ms - duration_ms(words[field.span])
        for field in FILTER_FIELDS
        if field.span and field.span in words
    }
    return {word: value for word, value in words.items() if not word.endswith("_than")} | times


def filter_of_words(words: Mapping[str, Any], now_ms: int) -> JobFilter:
    """The filter of failed jobs."""
    return filter_from(JobState.FAILED, moments(words, now_ms))


def options_of(words: Mapping[str, Any]) -> list[str]:
    """The same as options of a command."""
    given = []
    for word, value in words.items():
        for each in value if isinstance(value, list) else [value]:
            given += [f"--{word.replace('_', '-')}", str(each)]
    return given
