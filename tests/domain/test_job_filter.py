"""Which jobs a scan for a task, an error, attempts or an age shows."""

from __future__ import annotations

from typing import Any

import pytest

from pinlater.client import JobInfo, JobState
from pinlater.domain.job import Attempt
from pinlater.domain.job_filter import JobFilter

TRIED = Attempt(4, "host:9010:0:worker:1", 1_000, 2_000, "failed", "ValueError", "boom")
JOB = JobInfo(
    "mail:s1:p1:7",
    JobState.FAILED,
    3,
    1,
    "",
    5_000,
    headers={"pinlater-task": "send", "tenant": "acme"},
    error_type="ConnectionError",
    error_text="Mailbox Straße is full",
)


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        ({}, True),
        ({"tasks": frozenset({"send", "archive"})}, True),
        ({"tasks": frozenset({"archive"})}, False),
        ({"headers": {"tenant": "acme"}}, True),
        ({"headers": {"tenant": "other"}}, False),
        ({"error_text": "connectionerror: mailbox"}, True),
        ({"error_text": "STRASSE"}, True),
        ({"error_text": "empty"}, False),
        ({"min_attempts": 2}, True),
        ({"min_attempts": 3}, False),
        ({"enqueued_from_ms": 5_000}, True),
        ({"enqueued_from_ms": 5_001}, False),
        ({"enqueued_before_ms": 5_001}, True),
        ({"enqueued_before_ms": 5_000}, False),
        ({"error_text": "full", "min_attempts": 3}, False),
    ],
)
def test_a_job_fits_all_that_is_wanted(wanted: dict[str, Any], fits: bool) -> None:
    chosen = JobFilter(JobState.FAILED, **wanted)
    assert chosen.fits(JOB) is fits
    assert chosen.compares is bool(wanted)


class TooLong(str):
    """A text that is not to be compared."""

    __slots__ = ()

    def casefold(self) -> str:
        raise AssertionError(f"{len(self)} characters were read for one job")


@pytest.mark.parametrize("letter", ["x", "\u0390", "\u1e9e"])
def test_a_text_that_is_longer_than_the_error_of_a_job_is_not_read_for_it(letter: str) -> None:
    """A scan compares ten thousand jobs, and a request may have a text of 16 MiB."""
    assert not JobFilter(JobState.FAILED, error_text=TooLong(letter * 100_000)).fits(JOB)
    whole = JOB._replace(error_text=letter * 1_000)
    for wanted in (letter * 1_000, letter.casefold() * 1_000, f"ConnectionError: {letter * 1_000}"):
        assert JobFilter(JobState.FAILED, error_text=wanted).fits(whole)


def test_attempts_before_a_retry_by_hand_and_the_running_one_count() -> None:
    again = JOB._replace(attempts=[TRIED], attempts_remaining=3)
    assert JobFilter(JobState.FAILED, min_attempts=4).fits(again)
    assert not JobFilter(JobState.FAILED, min_attempts=5).fits(again)
    assert JobFilter(JobState.FAILED, min_attempts=5).fits(
        again._replace(state=JobState.IN_PROGRESS, attempts_remaining=2)
    )


def test_a_filter_compares_jobs_unless_state_priority_and_body_are_all_that_it_chooses_by() -> None:
    assert JobFilter(JobState.FAILED, skip_cancelled=True).compares
    assert JobFilter(JobState.FAILED, 1, "a").compares is False
    assert JobFilter(JobState.FAILED, 1).is_plain
    assert not JobFilter(JobState.FAILED, 1, "a").is_plain
