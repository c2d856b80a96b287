"""When heartbeats come; and those of claims on two shards, one unreachable, with servers that report per-item errors and servers that
don't."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from pinlater.client import ClaimedJob
from pinlater.domain.clock import WallClock
from pinlater.worker import Worker
from tests import structs as t
from tests.client.fake_server import FakeServer
from tests.worker.conftest import eventually
from tests.worker.consumer.test_server_trouble import FAST
from tests.worker.report_shards import ReportShards, info
from tests.worker.test_worker import running

CLAIM_S = 0.6
ON_1 = "q:s1:p1:1"


async def test_a_claim_lost_on_a_healthy_shard_is_noticed_while_another_is_unreachable(
    shards: ReportShards, caplog: pytest.LogCaptureFixture
) -> None:
    """Both claims came with one dequeue, so their heartbeats are due together."""
    begun, cancelled = set[str](), set[str]()
    async with shards:
        worker = Worker(shards.address, settings=FAST)

        @worker.task("q", claim_timeout=CLAIM_S)
        async def handle(job: ClaimedJob) -> None:
            begun.add(job.token)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.add(job.token)
                raise

        shards.give("a")
        shards.give("b", "2")
        shards.away = {"2"}
        async with running(worker):
            await eventually(lambda: begun == {"a", "b"} and shards.beaten)
            shards.lost = {"a"}
            await eventually(lambda: cancelled)
            assert (cancelled, shards.requests) == ({"a"}, [])
            assert (worker.counts.lost, worker.counts.failed) == (1, 0)
            assert "job q:s1:p1:97: claim lost: it timed out" in caplog.text
            shards.away = set()
            worker.request_stop()  # and once more at the end, which skips the grace time
    assert set("".join(shards.requests)) == {"b"}  # nothing is reported for the lost claim


async def test_the_claim_of_a_finished_job_is_renewed_until_its_ack_arrives(shards: ReportShards) -> None:
    """Otherwise it would time out, and the job would run again."""
    ended = set[str]()
    async with shards:
        worker = Worker(shards.address, settings=FAST)

        @worker.task("q", claim_timeout=CLAIM_S)
        async def handle(job: ClaimedJob) -> None:
            ended.add(job.token)

        shards.acks_arrive = False
        shards.give("a")
        shards.give("b", "2")
        shards.away = {"2"}
        async with running(worker):
            await eventually(lambda: ended == {"a", "b"})
            await eventually(lambda: len(shards.beaten) >= 6)
            assert worker.counts.running == 0
            shards.acks_arrive, shards.away = True, set()
            await eventually(lambda: {"a", "b"} <= set(shards.applied))
    assert worker.counts.acks_refused == 0


class StandingClock(WallClock):
    """Stands still until the test moves it on. `looks`: how often other threads than the test's have looked at it."""

    def __init__(self) -> None:
        self.now_s, self.looks, self._tests_own = 0.0, 0, threading.get_ident()
        super().__init__(time.time, self._look)

    def _look(self) -> float:
        self.looks += threading.get_ident() != self._tests_own
        return self.now_s


@pytest.mark.parametrize(("claim_s", "interval_s"), [(0.75, 0.25), (0.15, 0.1)])
async def test_heartbeats_come_at_each_third_of_a_claim_and_at_most_ten_times_a_second(
    claim_s: float, interval_s: float
) -> None:
    clock, over, renewed = StandingClock(), asyncio.Event(), list[str]()

    async def dequeue(_: Any) -> t.DequeueResponse:
        if server.called("dequeueJobs")[1:]:
            await asyncio.Event().wait()
        return t.DequeueResponse(jobs={ON_1: b""}, metadata={ON_1: t.DequeueMetadata(token="tok")})

    def heartbeat(arguments: Any) -> list[t.AckResult]:
        renewed.extend(claim.descriptor for claim in arguments.request.claims)
        return [t.AckResult(ON_1, 0)]

    server = FakeServer(
        getServerInfo=info, dequeueJobs=dequeue, heartbeatClaims=heartbeat, ackJobs=lambda _: [t.AckResult(ON_1, 0)]
    )
    async with server:
        worker = Worker(server.address, settings=FAST, clock=clock)

        @worker.task("q", claim_timeout=claim_s)
        async def handle(job: ClaimedJob) -> None:
            await over.wait()

        async with running(worker):
            await eventually(lambda: worker.counts.running == 1)
            for number in range(3):
                next_s, looks = clock.now_s + interval_s, clock.looks
                clock.now_s = next_s - 0.001
                await eventually(lambda: clock.looks > looks + 5)  # noqa: B023 - called in this turn
                assert len(renewed) == number
                clock.now_s = next_s
                await eventually(lambda: len(renewed) > number, timeout_s=5)  # noqa: B023 - the same
            over.set()
    assert renewed == [ON_1] * 3
