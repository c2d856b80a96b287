"""A delay that no server takes ends the attempt at once, with an error that names it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from pinlater import JobContext, JobState, Retry, Snooze, Worker
from pinlater.domain.durations import YEAR_MS
from pinlater.testing import InProcessService
from pinlater.worker import Kind, constant, exponential
from pinlater.worker.durations import Duration
from pinlater.worker.settings import WorkerSettings

YEAR = timedelta(milliseconds=YEAR_MS)
TOO_LONG: list[Duration] = [1e30, 1e308, YEAR.total_seconds() + 1, YEAR + timedelta(seconds=1), timedelta.max, "367d"]
THE_BOUND = r"a job waits for a year \(366 days\) at most"


@pytest.fixture
def service() -> Iterator[InProcessService]:
    with InProcessService() as service:
        yield service


@pytest.mark.parametrize("delay", TOO_LONG, ids=str)
async def test_a_retry_or_a_snooze_that_is_too_long_is_a_failure_that_names_it(
    service: InProcessService, delay: Duration
) -> None:
    worker = Worker("nowhere.invalid:1")

    @worker.task("q", attempts=1)
    async def retry() -> None:
        raise Retry(delay)

    @worker.task("q", attempts=1)
    def snooze() -> None:
        raise Snooze(delay)

    with service.serving(worker):
        for task in (retry, snooze):
            await task.enqueue_async()
        ran = await service.run_until_idle(raise_errors=False)
    assert [(one.kind, one.error_type) for one in ran] == [(Kind.FAILED, "ValueError")] * 2
    for one in ran:
        assert str(delay) in one.error_text
        assert "at most" in one.error_text


@pytest.mark.parametrize("at", [10**18, 10**30, datetime.max.replace(tzinfo=UTC), timedelta.max, "367d"], ids=str)
async def test_so_is_a_reschedule_to_a_time_that_is_too_far_ahead(
    service: InProcessService, at: datetime | timedelta | str | int
) -> None:
    worker = Worker("nowhere.invalid:1")

    @worker.task("q", attempts=1)
    async def later(context: JobContext) -> None:
        context.reschedule(at)

    with service.serving(worker):
        await later.enqueue_async()
        [ran] = await service.run_until_idle(raise_errors=False)
    [job] = service.client.scan("q", JobState.FAILED).jobs
    [attempt] = job.attempts
    assert ran.descriptor == job.descriptor
    assert attempt.outcome == "failed"
    assert (
        "at most" in attempt.error_text
        or "could not be rescheduled: checkpoint: items[0].run_after_ms" in attempt.error_text
    )


@pytest.mark.parametrize("delay_ms", [10**30, YEAR_MS + 1, math.inf, math.nan])
async def test_a_policy_of_the_users_own_waits_for_a_year_at_most(service: InProcessService, delay_ms: float) -> None:
    class Policy:
        def delay_ms(self, attempt: int, error: BaseException, spread: float) -> int:
            return delay_ms  # type: ignore[return-value]

    worker = Worker("nowhere.invalid:1")

    @worker.task("q", attempts=2, retry=Policy())
    async def fail() -> None:
        raise LookupError

    with service.serving(worker):
        await fail.enqueue_async()
        await service.run_until_idle(raise_errors=False)
    [job] = service.client.scan("q", JobState.PENDING, future=True).jobs
    waits_ms = (job.run_after_ms or 0) - service.clock.now_ms()
    assert waits_ms == (YEAR_MS if math.isfinite(delay_ms) else 1_000)


def test_a_policy_a_task_and_a_setting_with_a_longer_delay_are_refused_where_they_are_made() -> None:
    worker = Worker("nowhere.invalid:1")

    @worker.task("q")
    def task() -> None: ...

    with pytest.raises(ValueError, match=f"seconds: 367d would be 367 days, and {THE_BOUND}"):
        constant("367d")
    with pytest.raises(ValueError, match=f"max: .*{THE_BOUND}"):
        exponential(1, max=timedelta.max)
    with pytest.raises(ValueError, match=f"task task: delay: .*{THE_BOUND}"):
        task.using(delay=YEAR + timedelta(seconds=1))
    with pytest.raises(ValueError, match="retry_delay_ms must be at most"):
        WorkerSettings(retry_delay_ms=YEAR_MS + 1)
    assert task.using(delay=YEAR).job().run_after_ms


@pytest.mark.parametrize("given", [1_900_000_000, 1_900_000_000_000, 1_900_000_000_000_000])
def test_a_time_in_the_place_of_a_delay_is_told(given: int) -> None:
    with pytest.raises(ValueError, match="is it a time"):
        Retry(given)
