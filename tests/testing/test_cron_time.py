"""What a task learns of the firing that enqueued it: its planned time, in the zone of the entry."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from pinlater import JobContext, Retry, Worker, current_job
from pinlater.testing import InProcessService
from pinlater.worker.cron import cron
from tests.worker import process_tasks

BERLIN = ZoneInfo("Europe/Berlin")


def noting(seen: list[datetime | None], expression: str, overlap: bool = True) -> Worker:
    """A worker with one entry in Berlin, which notes the times of its firings."""
    worker = Worker("nowhere.invalid:1")

    @worker.cron(expression, tz="Europe/Berlin", overlap=overlap)
    async def report(job: JobContext) -> None:
        seen.append(job.cron_time)

    return worker


@pytest.mark.parametrize("overlap", [True, False])
async def test_a_task_knows_the_planned_time_of_its_firing_in_the_zone_of_the_entry(
    pinlater_service: InProcessService, overlap: bool
) -> None:
    seen: list[datetime | None] = []
    with pinlater_service.serving(noting(seen, "30 0 * * *", overlap)):
        await pinlater_service.run_for(days=2)
    assert seen == [datetime(2026, 1, 2, 0, 30, tzinfo=BERLIN), datetime(2026, 1, 3, 0, 30, tzinfo=BERLIN)]
    assert [time and time.tzinfo for time in seen] == [BERLIN, BERLIN]


async def test_a_firing_that_was_missed_has_its_planned_time() -> None:
    """A worker that makes up for it is late, and a report is about the planned day."""
    seen: list[datetime | None] = []
    worker = noting(seen, "30 0 * * *")
    with InProcessService(now=datetime(2026, 1, 1, 23, 10, tzinfo=UTC)) as service, service.serving(worker):
        service.clock.advance(minutes=50)
        await service.run_until_idle()
        assert (service.clock.now, seen) == (
            datetime(2026, 1, 2, tzinfo=UTC),
            [datetime(2026, 1, 2, 0, 30, tzinfo=BERLIN)],
        )


async def test_a_retry_has_the_same_time_and_other_jobs_have_none(pinlater_service: InProcessService) -> None:
    seen: list[datetime | None] = []
    worker = Worker("nowhere.invalid:1")

    @worker.cron("0 12 * * *")
    async def report() -> None:
        seen.append(current_job().cron_time)
        if len(seen) == 1:
            raise Retry(after=7)

    with pinlater_service.serving(worker):
        await pinlater_service.run_for(days=1)
        await report.enqueue_async()
        await pinlater_service.run_until_idle()
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert seen == [noon, noon, None]


async def test_of_the_two_times_of_a_repeated_hour_it_is_the_one_that_fired(
    pinlater_service: InProcessService,
) -> None:
    seen: list[datetime | None] = []
    pinlater_service.clock.advance_to(datetime(2026, 10, 25, tzinfo=UTC))
    with pinlater_service.serving(noting(seen, "30 * * * *")):
        await pinlater_service.run_until_idle(queues=[])
        await pinlater_service.run_for(hours=2)
    assert [time and time.isoformat() for time in seen[-2:]] == [
        "2026-10-25T02:30:00+02:00",
        "2026-10-25T02:30:00+01:00",
    ]


async def test_a_task_in_a_process_knows_it_too(pinlater_service: InProcessService) -> None:
    entry = cron(process_tasks.tell_cron_time, "* * * * *")
    firing = datetime(2026, 1, 1, 0, 7, tzinfo=UTC)
    with pinlater_service.serving(process_tasks.worker):
        await entry.producer(firing).enqueue_async()
        [ran] = await pinlater_service.run_until_idle(processes=True, raise_errors=False)
    assert ran.error_text == "2026-01-01 00:07:00+00:00"


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-03-29T08:00:00+02:00[Europe/Berlin]", datetime(2026, 3, 29, 8, tzinfo=BERLIN)),
        ("2026-03-29T06:00:00Z", datetime(2026, 3, 29, 6, tzinfo=UTC)),
        ("2026-03-29T06:00:00+02:00[Mars/Olympus]", datetime(2026, 3, 29, 4, tzinfo=UTC)),
        ("2026-03-29T06:00:00", datetime(2026, 3, 29, 6, tzinfo=UTC)),
    ],
)
async def test_producers_in_other_languages_and_tests_may_name_the_time(
    pinlater_service: InProcessService, text: str, time: datetime
) -> None:
    """The page on the envelope describes the header."""
    seen: list[datetime | None] = []
    worker = noting(seen, "0 0 1 1 *")
    with pinlater_service.serving(worker):
        [entry] = worker.cron_entries
        await entry.task.using(headers={"pinlater-cron-time": text}).enqueue_async()
        await pinlater_service.run_until_idle()
    assert seen == [time]
    assert seen[0] is not None
    assert seen[0].utcoffset() is not None


async def test_a_header_that_is_no_time_is_an_error_of_the_job(pinlater_service: InProcessService) -> None:
    worker = noting([], "0 0 1 1 *")
    with pinlater_service.serving(worker):
        [entry] = worker.cron_entries
        await entry.task.using(headers={"pinlater-cron-time": "noon"}).enqueue_async()
        with pytest.raises(ValueError, match="noon"):
            await pinlater_service.run_until_idle()
