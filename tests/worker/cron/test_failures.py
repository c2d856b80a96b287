"""Cron after the worker was suspended, the server was unreachable, or many firings were missed."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from pinlater.client import AsyncClient
from pinlater.worker import Worker
from pinlater.worker.cron import Missed
from tests import structs as t
from tests.client.fake_server import FakeServer
from tests.worker.conftest import eventually
from tests.worker.cron.test_cron import entry
from tests.worker.report_shards import info
from tests.worker.test_worker import FAST, running

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def times(firings: list[datetime]) -> list[str]:
    return [f"{firing:%H:%M:%S}" for firing in firings]


def test_the_latest_of_very_many_missed_firings_is_the_latest() -> None:
    assert times(entry("* * * * * *").missed_before(NOON)) == ["12:00:00"]
    every = entry("* * * * * *", "all", timedelta(days=30)).missed_before(NOON)
    assert (len(every), every[-1], every[-1] - every[0]) == (1_000, NOON, timedelta(seconds=999))
    assert times(entry("0 3 * * *", "latest", timedelta(days=2)).missed_before(NOON)) == ["03:00:00"]


@pytest.mark.parametrize(
    ("missed", "minutes_late", "fired"),
    [
        ("skip", 0, ["12:00:00"]),
        ("skip", 0.5, ["12:00:00"]),
        ("skip", 2.5, []),
        ("latest", 0, ["12:00:00"]),
        ("latest", 25, ["12:20:00"]),
        ("latest", 600, ["22:00:00"]),
        ("all", 25, ["12:00:00", "12:10:00", "12:20:00"]),
        ("all", 75, ["12:20:00", "12:30:00", "12:40:00", "12:50:00", "13:00:00", "13:10:00"]),
    ],
)
def test_a_suspended_worker_follows_the_choice_for_missed_firings(
    missed: str, minutes_late: float, fired: list[str]
) -> None:
    assert times(entry("*/10 * * * *", missed).late(NOON, NOON + timedelta(minutes=minutes_late))) == fired


def test_a_firing_older_than_its_key_stays_missed() -> None:
    """Another worker may have made it, and its key may have expired."""
    assert entry("0 12 * * *").late(NOON, NOON + timedelta(hours=3)) == []


@pytest.mark.parametrize("missed", [Missed.SKIP, Missed.ALL])
async def test_a_firing_fires_on_time_without_a_look_back(missed: Missed) -> None:
    due = NOON + timedelta(milliseconds=3)
    assert times(entry("0 12 * * *", missed.value, timedelta(0)).late(NOON, due)) == ["12:00:00"]


def ticking(client: AsyncClient) -> Worker:
    worker = Worker(client, settings=FAST)

    @worker.cron("* * * * * *", queue="q", missed="latest")
    async def tick() -> None: ...

    return worker


async def no_jobs(arguments: Any) -> t.DequeueResponse:
    await asyncio.sleep((arguments.request.wait_ms or 0) / 1000)
    return t.DequeueResponse()


async def test_after_an_outage_only_the_latest_firing_is_made() -> None:
    keys: list[str] = []

    def enqueue(arguments: Any) -> t.Enqueued:
        (job,) = arguments.request.jobs
        keys.append(job.unique_key)
        return t.Enqueued(descriptors=[f"q:s1:p1:{len(keys)}"])

    async with (
        FakeServer(getServerInfo=info, enqueueJobs=enqueue, dequeueJobs=no_jobs) as server,
        AsyncClient(server.address) as client,
        running(ticking(client)),
    ):
        await eventually(lambda: keys)
        await server.stop()
        before = len(keys)
        away = asyncio.get_running_loop().time() + 3
        await eventually(lambda: asyncio.get_running_loop().time() > away)
        await server.start()
        await eventually(lambda: len(keys) >= before + 2)
    # The firing whose enqueue was under way is given up when the next one is due, so all are passed over but for the last.
    made = [datetime.strptime(key[-20:], "%Y-%m-%dT%H:%M:%S%z") for key in keys[before - 1 : before + 2]]
    assert max(later - earlier for earlier, later in pairwise(made)) >= timedelta(seconds=2)
    assert keys == sorted(set(keys))


async def test_a_firing_under_way_is_given_up_when_the_next_one_replaces_it(caplog: pytest.LogCaptureFixture) -> None:
    """Or else both would be made at once when the server comes back. Its outcome is unknown, so the log calls it missed."""
    keys: list[str] = []

    async def stuck(arguments: Any) -> None:
        keys.append(arguments.request.jobs[0].unique_key)
        await asyncio.Event().wait()

    async with (
        FakeServer(getServerInfo=info, enqueueJobs=stuck, dequeueJobs=no_jobs) as server,
        AsyncClient(server.address, timeout_ms=60_000) as client,
        running(ticking(client)),
    ):
        await eventually(lambda: len(set(keys)) >= 2)
    assert keys == sorted(keys)
    assert "cron tick: a firing was missed: no answer came before the next one was due" in caplog.text


@pytest.mark.parametrize(("missed", "seconds"), [("latest", 600), ("skip", 600), ("all", None)])
def test_a_firing_is_replaced_by_the_next_one_unless_all_are_made(missed: str, seconds: int | None) -> None:
    replaced = entry("*/10 * * * *", missed).replaced_at(NOON)
    assert replaced == (None if seconds is None else NOON + timedelta(seconds=seconds))
