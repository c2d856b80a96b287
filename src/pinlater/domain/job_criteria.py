"""Which jobs are meant, of those chosen by state, priority and body: by task, header, error, attempts, age and group. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pinlater.domain.failures import CLAIM_TIMED_OUT, failure_of
from pinlater.domain.job import TASK_HEADER, TIMED_OUT, JobState, ShownJob
from pinlater.domain.transitions import was_cancelled

_FOLDED_MAX = 3  # characters that one becomes at most without its case


class JobCriteria(NamedTuple):
    """What a job must be and have. `tasks`: one of them, if any is named. `error`: a text in the type or the text of its error, in small or
    large letters. `min_attempts`: that have begun. `enqueued_from_ms` and before `enqueued_before_ms`: when it was enqueued. `group`: of
    failures, in which its last failed attempt is.
    """

    tasks: frozenset[str] = frozenset()
    headers: Mapping[str, str] = {}
    error: str = ""
    min_attempts: int = 0
    enqueued_from_ms: int | None = None
    enqueued_before_ms: int | None = None
    group: str = ""
    skip_cancelled: bool = False

    @property
    def of_any_job(self) -> bool:
        """Whether it chooses none, but perhaps skips cancelled ones."""
        return self._replace(skip_cancelled=False) == JobCriteria()

    @property
    def fits_all(self) -> bool:
        return self.of_any_job and not self.skip_cancelled

    def fits(self, job: ShownJob) -> bool:
        last_attempt = job.attempts[-1] if job.attempts else None
        if self.skip_cancelled and was_cancelled(job.custom_status, job.finished_at_ms, last_attempt):
            return False
        headers = job.headers or {}
        if self.tasks and headers.get(TASK_HEADER) not in self.tasks:
            return False
        if not all(headers.get(name) == value for name, value in self.headers.items()):
            return False
        if self.group and group_of(job) != self.group:
            return False
        return self._fits_error(job) and self._fits_attempts(job) and self._fits_age(job)

    def _fits_error(self, job: ShownJob) -> bool:
        if not self.error:
            return True
        text = f"{job.error_type or ''}: {job.error_text or ''}"
        # A text that can't be in it is not read for each of many jobs.
        return len(self.error) <= _FOLDED_MAX * len(text) and self.error.casefold() in text.casefold()

    def _fits_attempts(self, job: ShownJob) -> bool:
        return self.min_attempts <= 0 or attempts_begun(job) >= self.min_attempts

    def _fits_age(self, job: ShownJob) -> bool:
        if self.enqueued_from_ms is not None and job.created_at_ms < self.enqueued_from_ms:
            return False
        return self.enqueued_before_ms is None or job.created_at_ms < self.enqueued_before_ms


def group_of(job: ShownJob) -> str:
    """The name of the group in which its last failed attempt was counted. Of a failure without an error the status tells, which may have
    more in it."""
    if job.failure_group:
        return job.failure_group
    outcome = job.attempts[-1].outcome if job.attempts else ""
    return group_of_texts(
        job.headers or {}, outcome or "", job.error_type or "", job.error_text or "", job.custom_status
    )


def group_of_texts(
    headers: Mapping[str, str], last_outcome: str, error_type: str, error_text: str, custom_status: str
) -> str:
    """The same from the texts of a job. `last_outcome`: of the last attempt, '' without one."""
    if last_outcome == TIMED_OUT:
        error_type, error_text = CLAIM_TIMED_OUT, ""
    elif not error_type and not error_text:
        error_text = custom_status
    return failure_of(headers, TASK_HEADER, error_type, error_text).group


def attempts_begun(job: ShownJob) -> int:
    """Returns the number of attempts, including those before a manual retry, which grants new ones; a final failure leaves none."""
    if job.attempts:
        return job.attempts[-1].number + (job.state == JobState.IN_PROGRESS)
    return job.attempts_allowed - job.attempts_remaining
