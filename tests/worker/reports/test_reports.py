"""Reports that can't be delivered at once, against a server with two shards.

The server either tells each item's error by itself, or, as servers before per-item errors do, refuses a whole request for one of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from pinlater.client import ClaimedJob
from pinlater.worker import Reject, Snooze, Worker, WorkerSettings, current_job
from tests import structs as t
from tests.worker.conftest import eventually
from tests.worker.report_shards import ReportShards
from tests.worker.test_worker import running

SETTINGS = WorkerSettings(
    concurrency=50, backoff_first_ms=5, backoff_max_ms=20, wait_ms=50, unknown_task_delay_ms=1, prefetch_max=0
)
FINAL, STALE = 1, 2


def worker_of(server: ReportShards, act: Callable[[str], Any] = lambda _: None, **settings: Any) -> Worker:
    """Its task calls `act` with the name of each job."""
    worker = Worker(server.address, settings=WorkerSettings(**{**_AS_GIVEN, **settings}))

    @worker.task("q", default=True)
    async def work(job: ClaimedJob) -> None:
        done = act(job.token)
        if asyncio.iscoroutine(done):
            await done

    return worker


_AS_GIVEN = {name: getattr(SETTINGS, name) for name in WorkerSettings.__slots__}


def snooze_or_move(name: str) -> None:
    if name == "a":
        raise Snooze(60)
    current_job().reschedule(0, b"new")


async def test_acks_of_an_unreachable_shard_delay_no_others_and_ride_again_once_it_is_back(
    shards: ReportShards,
) -> None:
    async with shards:
        worker = worker_of(shards)
        async with running(worker):
            shards.away = {"2"}
            shards.give("a")
            shards.give("b", "2")
            await eventually(lambda: "a" in shards.applied and shards.requests.count("b") >= 2)
            seen = len(shards.riding)
            shards.give("c", "2")
            shards.give("d")
            await eventually(lambda: "d" in shards.applied)
            assert "c" not in shards.riding[seen:]
            assert "b" not in shards.riding[seen:]
            shards.away = set()
            await eventually(lambda: {"b", "c"} <= set(shards.applied))
            seen = len(shards.riding)
            await eventually(lambda: len(shards.called("dequeueJobs")) > seen)
            for name in "efgh":
                shards.give(name, "2")
                await eventually(lambda: name in shards.applied)  # noqa: B023 - called in this turn
            assert shards.riding[seen:]
    assert sorted(shards.applied) == list("abcdefgh")
    assert (worker.counts.acks_refused, worker.counts.succeeded) == (0, 8)


async def test_snoozed_rescheduled_and_returned_jobs_outlast_an_outage(shards: ReportShards) -> None:
    go_on = asyncio.Event()

    async def act(name: str) -> None:
        await go_on.wait()
        snooze_or_move(name)

    async with shards:
        worker = worker_of(shards, act)
        async with running(worker):
            shards.give("ab")
            await eventually(lambda: worker.counts.running == 2)
            shards.away = {"1"}
            go_on.set()
            shards.give("c", task="unknown")
            await eventually(lambda: {"a", "b", "c"} <= set("".join(shards.requests)))
            assert shards.applied == []
            await shards.stop()
            failed = worker.counts.claim_errors
            await eventually(lambda: worker.counts.claim_errors > failed + 3)
            shards.away = set()
            await shards.start()
            await eventually(lambda: worker.counts.released == 3)
    assert sorted(shards.applied) == ["a", "b", "c"]
    assert shards.bodies["b"] == b"new"


@pytest.mark.parametrize("outcome", [STALE, FINAL])
async def test_one_warning_names_jobs_that_run_again_since_their_reports_came_after_their_claims(
    shards: ReportShards, caplog: pytest.LogCaptureFixture, outcome: int
) -> None:
    """Of a job that is final by now, an earlier try may have brought the report. One that fails comes again anyway."""
    go_on = asyncio.Event()

    async def act(name: str) -> None:
        await go_on.wait()
        if name == "e":
            raise Reject("no")
        if name == "f":
            raise ValueError

    async with shards:
        worker = worker_of(shards, act)
        async with running(worker):
            shards.give("abcdef")
            await eventually(lambda: worker.counts.running == 6)
            shards.away = {"1"}
            go_on.set()
            await eventually(lambda: "abcdef" in {"".join(sorted(each)) for each in shards.requests[-3:]})
            caplog.clear()
            shards.away, shards.outcome = set(), outcome
            await eventually(lambda: len(shards.applied) == 6)
    lines = [(each.levelname, each.getMessage()) for each in caplog.records if "claim" in each.getMessage()]
    too_late = (
        "queue q: 5 reports came too late: the claims had ended before the server could take them, so that these jobs "
        "run again: q:s1:p1:97, q:s1:p1:98, q:s1:p1:99 and 2 more"
    )
    assert lines == ([("WARNING", too_late)] if outcome == STALE else [])
    assert worker.counts.acks_refused == 5 * len(lines)


async def test_a_stop_retries_reports_until_the_server_is_back(shards: ReportShards) -> None:
    async with shards:
        worker = worker_of(shards, lambda name: snooze_or_move(name) if name == "a" else None)
        working = asyncio.create_task(worker.run_async())
        shards.away = {"1"}
        shards.give("ab")
        await eventually(lambda: {"a", "b"} <= set("".join(shards.requests)))
        await shards.stop()
        worker.request_stop()
        gone = asyncio.get_running_loop().time() + 1.5
        await eventually(lambda: asyncio.get_running_loop().time() > gone)
        assert not working.done()
        shards.away = set()
        await shards.start()
        await asyncio.wait_for(working, 20)
    assert sorted(shards.applied) == ["a", "b"]


async def test_a_stop_gives_reports_up_after_its_grace_time(caplog: pytest.LogCaptureFixture) -> None:
    async with ReportShards() as server:
        worker = worker_of(server, grace_ms=100)
        async with running(worker):
            server.away = {"1"}
            server.give("a")
            await eventually(lambda: "a" in server.requests)
    assert "queue q: 1 report could not be delivered; those jobs run again" in caplog.messages


async def test_a_refused_report_does_not_block_others(shards: ReportShards) -> None:
    """The others arrive, and the refused one is not retried."""
    go_on = asyncio.Event()
    async with shards:
        worker = worker_of(shards, lambda _: go_on.wait())
        async with running(worker):
            shards.give("abcde")
            shards.bad = {"c"}
            await eventually(lambda: worker.counts.running == 5)
            go_on.set()
            await eventually(lambda: worker.counts.acks_refused == 1 and len(shards.applied) == 4)
            told = len(shards.requests)
            claims = len(shards.called("dequeueJobs"))
            await eventually(lambda: len(shards.called("dequeueJobs")) > claims + 3)
            assert len(shards.requests) == told
    assert sorted(shards.applied) == ["a", "b", "d", "e"]


async def test_a_body_that_the_server_refuses_fails_its_job_with_the_reason() -> None:
    """Otherwise it would time out without a reason."""

    async with ReportShards() as server:

        def refuse(_: Any) -> None:
            raise t.PinLaterException(400, "A new body of 9 bytes", "BODY_TOO_LARGE", False)

        server.methods["checkpointJobsFenced"] = refuse
        worker = worker_of(server, lambda _: current_job().reschedule(0, b"too large"))
        async with running(worker):
            server.give("a")
            await eventually(lambda: server.applied)
    assert server.failed == {"a": "could not be rescheduled: A new body of 9 bytes"}
    assert server.applied == ["a"]


async def test_new_bodies_go_in_requests_of_bounded_size() -> None:
    async with ReportShards() as server:
        worker = worker_of(server, lambda _: current_job().reschedule(0, bytes(2_000_000)))
        async with running(worker):
            server.away = {"1"}
            server.give("abcd")
            await eventually(lambda: set("".join(server.requests)) == set("abcd"))
            await eventually(lambda: sum(len(each) == 2 for each in server.requests[-4:]) == 4)
            server.away = set()
            await eventually(lambda: sorted(server.applied) == ["a", "b", "c", "d"])
    assert max(map(len, server.requests)) == 2
