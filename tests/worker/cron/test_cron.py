"""Cron entries against a real server: each firing once, however many workers run, and missed firings."""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from pinlater.client import AsyncClient, UniqueScope
from pinlater.worker import Missed, Worker, WorkerSettings, current_job
from pinlater.worker.cron import LOOK_BACK_MAX, Cron, cron
from pinlater.worker.tasks import Task
from tests.worker.conftest import eventually
from tests.worker.test_worker import running

NOON = datetime(2026, 3, 10, 12, 0, 30, tzinfo=UTC)


def sweep_task() -> Task[[], None]:
    worker = Worker("127.0.0.1:1")

    @worker.task("cron")
    def sweep() -> None: ...

    return sweep


def entry(
    expression: str, missed: Missed | str = "latest", look_back: timedelta = timedelta(hours=1), tz: str = "UTC"
) -> Cron:
    return cron(sweep_task(), expression, missed=missed, tz=tz, look_back=look_back)


async def test_a_firing_has_one_line_at_info(client: AsyncClient, caplog: pytest.LogCaptureFixture) -> None:
    """The attempt's. A line for the enqueue, too, would double the log of a worker that only runs cron jobs."""
    await client.create_queue("cron")
    worker = Worker(client)

    @worker.cron("* * * * * *", missed="skip")
    async def sweep() -> None: ...

    with caplog.at_level("DEBUG", "pinlater.worker"):
        async with running(worker):
            await eventually(lambda: worker.counts.succeeded)
    lines = {
        record.getMessage().split(" in ")[0]: record.levelname
        for record in caplog.records
        if "sweep" in record.getMessage()
    }
    assert lines == {"cron sweep fired": "DEBUG", "sweep started": "DEBUG", "sweep succeeded": "INFO"}


async def test_many_workers_make_each_firing_once(client: AsyncClient) -> None:
    await client.create_queue("cron")
    handled: list[str] = []
    async with AsyncExitStack() as stack:
        for _ in range(3):
            worker = Worker(client, settings=WorkerSettings(backoff_first_ms=10, backoff_max_ms=50))

            @worker.cron("* * * * * *", missed="skip")
            async def sweep() -> None:
                handled.append(current_job().descriptor)

            await stack.enter_async_context(running(worker))
        await eventually(lambda: len(handled) >= 2)
    infos = (await client.lookup(handled)).values()
    keys = [info.unique_key or "" for info in infos]
    assert len(set(handled)) == len(handled)
    assert len(set(keys)) == len(keys)
    assert all(key.startswith("cron:sweep:2") for key in keys)


@pytest.mark.parametrize(
    ("missed", "made_up"),
    [(Missed.SKIP, []), ("latest", ["12:00"]), (Missed.ALL, ["11:15", "11:30", "11:45", "12:00"])],
)
def test_missed_firings_follow_the_choice(missed: Missed | str, made_up: list[str]) -> None:
    found = entry("*/15 * * * *", missed).missed_before(NOON)
    assert [f"{firing:%H:%M}" for firing in found] == made_up


def test_a_firings_key_has_its_utc_time_and_outlives_the_look_back() -> None:
    key = entry("0 13 * * *", tz="Europe/Berlin").key(datetime(2026, 3, 10, 13, tzinfo=ZoneInfo("Europe/Berlin")))
    assert (key.key, key.scope) == ("cron:sweep:2026-03-10T12:00:00Z", UniqueScope.TIME)
    assert key.for_ms >= 2 * 3_600_000


@pytest.mark.parametrize(
    ("expression", "tz", "says"),
    [
        ("* * *", "UTC", "not a cron expression: .* it has 3 fields, not five, or six with the seconds first"),
        ("@reboot", "UTC", "'@reboot': a start is no time: call the function before worker.run\\(\\)"),
        ("@every 5m", "UTC", r"'@every 5m': write '\*/5 \* \* \* \*', for example"),
        ("@dayly", "UTC", "'@dayly' is none of the names @hourly, .*, @annually; did you mean @daily\\?"),
        (
            "@noon",
            "UTC",
            "'@noon' is none of the names @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually$",
        ),
        ("61 * * * *", "UTC", "'61"),
        ("* * * * *", "Berlin", "no such time zone"),
    ],
)
def test_invalid_cron_entries_are_refused_at_registration(expression: str, tz: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        entry(expression, tz=tz)


@pytest.mark.parametrize(
    ("name", "expression"),
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@Daily", "0 0 * * *"),
    ],
)
def test_a_name_fires_as_the_expression_that_it_stands_for(name: str, expression: str) -> None:
    named, written = (entry(text, tz="America/New_York").after(NOON) for text in (name, expression))
    assert [next(named) for _ in range(5)] == [next(written) for _ in range(5)]


def test_a_cron_expression_that_is_no_text_is_refused() -> None:
    with pytest.raises(TypeError, match=r"must be a text such as .*, not 60"):
        entry(60)  # type: ignore[arg-type]


@pytest.mark.parametrize("look_back", [LOOK_BACK_MAX + timedelta(days=1), timedelta.max, timedelta(days=-1)])
def test_a_look_back_longer_than_keys_last_is_refused(look_back: timedelta) -> None:
    with pytest.raises(ValueError, match="look_back must be from 0 to 182 days"):
        cron(sweep_task(), "* * * * *", look_back=look_back)


async def test_the_server_accepts_the_longest_look_back(client: AsyncClient) -> None:
    await client.create_queue("q")
    worker = Worker(client)

    @worker.task("q")
    async def tick() -> None: ...

    entry = cron(tick, "* * * * *", look_back=LOOK_BACK_MAX)
    placed = await tick.using(unique=entry.key(NOON)).enqueue_async()
    again = await tick.using(unique=entry.key(NOON)).enqueue_async()
    assert (placed.existing, again.existing, again.descriptor) == (False, True, placed.descriptor)
