"""Which jobs a scan for a task, an error, attempts or an age shows."""

from __future__ import annotations

from typing import Any

import pytest

from pinlater.client import JobInfo, JobState
from pinlater.domain.job import Attempt
from pinlater.domain.job_criteria import JobCriteria

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
        ({"error": "connectionerror: mailbox"}, True),
        ({"error": "STRASSE"}, True),
        ({"error": "empty"}, False),
        ({"min_attempts": 2}, True),
        ({"min_attempts": 3}, False),
        ({"enqueued_from_ms": 5_000}, True),
        ({"enqueued_from_ms": 5_001}, False),
        ({"enqueued_before_ms": 5_001}, True),
        ({"enqueued_before_ms": 5_000}, False),
        ({"error": "full", "min_attempts": 3}, False),
    ],
)
def test_a_job_fits_all_that_is_wanted(wanted: dict[str, Any], fits: bool) -> None:
    criteria = JobCriteria(**wanted)
    assert criteria.fits(JOB) is fits
    assert criteria.of_any_job is (not wanted)


class TooLong(str):
    """A text that is not to be compared."""

    __slots__ = ()

    def casefold(self) -> str:
        raise AssertionError(f"{len(self)} characters were read for one job")


@pytest.mark.parametrize("letter", ["x", "\u0390", "\u1e9e"])
def test_a_text_that_is_longer_than_the_error_of_a_job_is_not_read_for_it(letter: str) -> None:
    """A scan compares ten thousand jobs, and a request may have a text of 16 MiB."""
    assert not JobCriteria(error=TooLong(letter * 100_000)).fits(JOB)
    whole = JOB._replace(error_text=letter * 1_000)
    for wanted in (letter * 1_000, letter.casefold() * 1_000, f"ConnectionError: {letter * 1_000}"):
        assert JobCriteria(error=wanted).fits(whole)


def test_attempts_before_a_retry_by_hand_and_the_running_one_count() -> None:
    again = JOB._replace(attempts=[TRIED], attempts_remaining=3)
    assert JobCriteria(min_attempts=4).fits(again)
    assert not JobCriteria(min_attempts=5).fits(again)
    assert JobCriteria(min_attempts=5).fits(again._replace(state=JobState.IN_PROGRESS, attempts_remaining=2))


def test_a_choice_that_skips_cancelled_jobs_alone_is_one_of_any_job() -> None:
    assert JobCriteria(skip_cancelled=True).of_any_job
    assert not JobCriteria(skip_cancelled=True).fits_all
    assert JobCriteria().fits_all
