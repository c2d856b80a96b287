"""When heartbeats come; and those of claims on two shards, one unreachable, with servers that report per-item errors and servers that
don't."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from pinlater.client import ClaimedJob
from pinlater.domain.clock import SystemClock, WallClock
from pinlater.worker import Worker
from tests import structs as t
from tests.client.fake_server import FakeServer
from tests.worker.conftest import eventually
from tests.worker.consumer.test_server_trouble import FAST, info
from tests.worker.test_worker import running

ON_1, ON_2 = "q:s1:p1:1", "q:s2:p1:2"
CLAIM_MS = 600
AWAY = t.PinLaterException(502, "Shard 2 is unreachable", "SHARD_UNREACHABLE", True)


class RenewalServer:
    """Hands out a job of each shard in one answer. Shard 2 is unreachable; `lost` claims have ended."""

    def __init__(self, *, per_item: bool) -> None:
        self.per_item = per_item
        self.given = False
        self.acks_arrive = True
        self.lost: set[str] = set()
        self.acked: set[str] = set()
        self.beaten: list[str] = []

    async def dequeue(self, arguments: Any) -> Any:
        request = arguments.request.acks
        outcomes = None if request is None else self.carry_out(request.succeeded, request.per_item_errors, ack=True)
        if self.given:
            await asyncio.sleep((arguments.request.wait_ms or 0) / 1000)
            return t.DequeueResponse(ack_outcomes=outcomes)
        self.given = True
        meta = t.DequeueMetadata(
            attempts_allowed=1,
            attempts_remaining=1,
            token="tok",
            claim_deadline_ms=SystemClock().now_ms() + CLAIM_MS,
        )
        return t.DequeueResponse(jobs={ON_1: b"", ON_2: b""}, metadata={ON_1: meta, ON_2: meta})

    def ack(self, arguments: Any) -> Any:
        return self.carry_out(arguments.request.succeeded, arguments.request.per_item_errors, ack=True)

    def heartbeat(self, arguments: Any) -> Any:
        return self.carry_out(arguments.request.claims, arguments.request.per_item_errors, ack=False)

    def carry_out(self, items: Any, per_item: bool | None, *, ack: bool) -> list[t.AckResult]:
        names = [item.descriptor for item in items]
        away = [name for name in names if name == ON_2] if self.acks_arrive or not ack else names
        if away and not (per_item and self.per_item):
            raise AWAY
        done = self.acked.update if ack else self.beaten.extend
        done(name for name in names if name not in away)
        return [self.outcome(name, away=name in away) for name in names]

    def outcome(self, name: str, *, away: bool) -> t.AckResult:
        if away:
            return t.AckResult(name, 4, error_code=502, error_detail="SHARD_UNREACHABLE", retryable=True)
        return t.AckResult(name, 2 if name in self.lost else 0)

    @property
    def methods(self) -> dict[str, Any]:
        return {
            "getServerInfo": info,
            "dequeueJobs": self.dequeue,
            "ackJobs": self.ack,
            "heartbeatClaims": self.heartbeat,
            "releaseJobs": lambda arguments: [t.AckResult(claim.descriptor, 0) for claim in arguments.request.claims],
        }


@pytest.fixture(params=[True, False], ids=["per item errors", "whole refusals"])
def shards(request: pytest.FixtureRequest) -> RenewalServer:
    return RenewalServer(per_item=bool(request.param))


async def test_a_claim_lost_on_a_healthy_shard_is_noticed_while_another_is_unreachable(
    shards: RenewalServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Both claims came with one dequeue, so their heartbeats are due together."""
    begun, cancelled = set[str](), set[str]()
    async with FakeServer(**shards.methods) as server:
        worker = Worker(server.address, settings=FAST)

        @worker.task("q")
        async def handle(job: ClaimedJob) -> None:
            begun.add(job.descriptor)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.add(job.descriptor)
                raise

        async with running(worker):
            await eventually(lambda: begun == {ON_1, ON_2} and shards.beaten)
            shards.lost = {ON_1}
            await eventually(lambda: cancelled)
            assert (cancelled, shards.acked) == ({ON_1}, set())
            assert (worker.counts.lost, worker.counts.failed) == (1, 0)
            assert f"job {ON_1}: claim lost: it timed out" in caplog.text
            worker.request_stop()


async def test_the_claim_of_a_finished_job_is_renewed_until_its_ack_arrives(shards: RenewalServer) -> None:
    """Otherwise it would time out, and the job would run again."""
    shards.acks_arrive = False
    ended = set[str]()
    async with FakeServer(**shards.methods) as server:
        worker = Worker(server.address, settings=FAST)

        @worker.task("q")
        async def handle(job: ClaimedJob) -> None:
            ended.add(job.descriptor)

        task = asyncio.create_task(worker.run_async())
        await eventually(lambda: ended == {ON_1, ON_2})
        await eventually(lambda: len(shards.beaten) >= 6)
        assert worker.counts.running == 0
        shards.acks_arrive = True
        await eventually(lambda: ON_1 in shards.acked)
        worker.request_stop()
        worker.request_stop()  # without the grace time
        await asyncio.wait_for(task, 30)
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
