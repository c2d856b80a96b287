"""Reports that can't be delivered: on an event loop whose time the test advances, against a server with two shards.

The server either tells each item's error by itself, or, as servers before per-item errors do, refuses a whole request for one of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from pinlater.client import Ack, AckResult, AsyncClient, Checkpoint, Claim, ClaimedJob, Outcome, errors
from pinlater.client.errors import PinLaterError
from pinlater.domain.clock import ManualClock
from pinlater.domain.descriptor import shard_of
from pinlater.testing._loop import TurnedLoop
from pinlater.worker import WorkerCounts, WorkerSettings
from pinlater.worker._attempts.endings import Ending, Kind
from pinlater.worker._reports.reporter import Reporter
from pinlater.worker.context import Rescheduling

NUMBERS = {name: number for number, name in enumerate("abcdefgh")}


def job(name: str, shard: str = "1") -> ClaimedJob:
    return ClaimedJob(f"q:s{shard}:p1:{NUMBERS[name]}", "q", b"", token=name)


class ReportRecorder(AsyncClient):
    """Notes the tokens of each call's items. `away`: unreachable shards; `down`: no server at all; `bad`: tokens that it refuses."""

    def __init__(self, *, per_item: bool) -> None:
        super().__init__("127.0.0.1:1")
        self.per_item = per_item
        self.away: set[str] = set()
        self.down = False
        self.refusing: Outcome | None = None  # of all items that reach a shard
        self.bad: set[str] = set()
        self.calls: list[str] = []
        self.applied: list[str] = []
        self.bodies: dict[str, bytes | None] = {}
        self.failed: dict[str, str] = {}

    def answer(self, items: Sequence[tuple[str, str]]) -> list[AckResult]:
        """The results of these descriptors and tokens. Raises if the whole call fails."""
        self.calls.append("".join(token for _, token in items))
        if self.down:
            raise errors.ServerUnreachable("down")
        if any(token in self.bad for _, token in items):
            raise errors.CallerError("bad", detail="INVALID_ARGUMENT")
        lost = [descriptor for descriptor, _ in items if shard_of(descriptor) in self.away]
        if lost and not self.per_item:
            raise self.away_error(lost[0])
        self.applied += [token for descriptor, token in items if descriptor not in lost]
        return [
            AckResult(descriptor, Outcome.ERROR, error=self.away_error(descriptor))
            if descriptor in lost
            else AckResult(descriptor, Outcome.APPLIED if self.refusing is None else self.refusing)
            for descriptor, _ in items
        ]

    def away_error(self, descriptor: str) -> PinLaterError:
        return errors.ShardConnectionFailed(f"{descriptor} is unreachable", detail="SHARD_UNREACHABLE")

    async def ack(self, queue: str, acks: Sequence[Ack], *, per_item_errors: bool = False) -> list[AckResult]:
        assert per_item_errors
        self.failed |= {ack.token or "": ack.error_text for ack in acks if not ack.succeeded}
        return self.answer([(ack.descriptor, ack.token or "") for ack in acks])

    async def release(
        self, queue: str, claims: Sequence[Claim], *, delay_ms: int = 0, per_item_errors: bool = False
    ) -> list[AckResult]:
        assert per_item_errors
        return self.answer([(claim.descriptor, claim.token) for claim in claims])

    async def checkpoint(
        self, queue: str, items: Sequence[Checkpoint], *, per_item_errors: bool = False
    ) -> list[AckResult]:
        assert per_item_errors
        assert all(item.move_to_pending for item in items)
        results = self.answer([(item.descriptor, item.token or "") for item in items])
        self.bodies |= {item.token or "": item.new_body for item in items}
        return results


class FlushedReports:
    """A running worker's reports, while the test advances the time."""

    def __init__(self, clock: ManualClock, *, per_item: bool) -> None:
        self.clock = clock
        self.server = ReportRecorder(per_item=per_item)
        self.flushing: asyncio.Task[None] | None = None
        self.settled: list[int] = []
        self.counts = WorkerCounts()
        self.reports = Reporter(self.server, "q", WorkerSettings(), self.counts, clock, self.settled.extend)

    async def succeeded(self, name: str, shard: str = "1") -> None:
        await self.reports.end(job(name, shard), Ending(Kind.SUCCEEDED), NUMBERS[name])

    async def claim(self) -> None:
        """Makes a claim with acks, as a consumer does."""
        acks = self.reports.take()
        riding = self.reports.riding(acks)
        try:
            results = (
                [] if riding is None else self.server.answer([(ack.descriptor, ack.token or "") for ack in riding.acks])
            )
        except PinLaterError as error:
            self.reports.undelivered(acks, error)
        else:
            self.reports.delivered(acks, results)

    async def after(self, ms: int) -> None:
        """Advances the time in small steps, and lets the reporter act."""
        for _ in range(max(1, ms // 50)):
            self.clock.advance(ms=min(ms, 50))
            for _ in range(20):
                await asyncio.sleep(0)

    async def end_flushing(self) -> None:
        """Flushes as the worker's stop does."""
        assert self.flushing is not None
        self.flushing.cancel()
        await asyncio.wait([self.flushing])

    @property
    def kept(self) -> set[str]:
        """The jobs whose heartbeats go on, of those with reports."""
        return {name for name, number in NUMBERS.items() if number not in self.settled}


Story = Callable[[FlushedReports], Coroutine[Any, Any, None]]
Tell = Callable[[Story], FlushedReports]


@pytest.fixture(params=[True, False], ids=["per item errors", "whole refusals"])
def told(request: pytest.FixtureRequest) -> Tell:
    """Runs a story on its own loop, once with each kind of server."""

    def tell(story: Story) -> FlushedReports:
        clock = ManualClock(0)
        loop = TurnedLoop(clock)

        async def main() -> FlushedReports:
            turned = FlushedReports(clock, per_item=bool(request.param))
            turned.flushing = asyncio.create_task(turned.reports.flush_until_cancelled())
            await turned.after(0)
            try:
                await story(turned)
            finally:
                await turned.end_flushing()
            return turned

        try:
            return loop.run_until_complete(main())
        finally:
            loop.close()

    return tell


def test_acks_of_an_unreachable_shard_delay_no_others_and_arrive_later(told: Tell) -> None:
    async def story(turned: FlushedReports) -> None:
        turned.server.away = {"2"}
        await turned.succeeded("a")
        await turned.succeeded("b", "2")
        await turned.claim()
        await turned.after(100)
        assert turned.server.applied == ["a"]
        await turned.after(60_000)
        turned.server.away = set()
        await turned.after(10_000)

    turned = told(story)
    assert turned.server.applied == ["a", "b"]
    assert turned.counts.acks_refused == 0
    assert turned.reports.undelivered_count == 0


def test_a_dequeue_carries_no_acks_of_an_unreachable_shard(told: Tell) -> None:
    async def story(turned: FlushedReports) -> None:
        turned.server.away = {"2"}
        await turned.succeeded("a", "2")
        await turned.claim()
        await turned.after(100)
        await turned.succeeded("b", "2")
        await turned.succeeded("c")
        assert [report.job.token for report in turned.reports.take()] == ["c"]

    told(story)


def test_a_dequeue_carries_acks_again_once_their_shard_is_reachable(told: Tell) -> None:
    async def story(turned: FlushedReports) -> None:
        turned.server.away = {"2"}
        await turned.succeeded("a", "2")
        await turned.claim()
        await turned.after(100)
        turned.server.away = set()
        await turned.after(10_000)
        await turned.succeeded("b", "2")
        assert [report.job.token for report in turned.reports.take()] == ["b"]

    told(story)


def test_a_claim_is_renewed_until_its_report_has_arrived(told: Tell) -> None:
    async def story(turned: FlushedReports) -> None:
        turned.server.away = {"2"}
        await turned.succeeded("a")
        await turned.succeeded("b", "2")
        await turned.reports.end(job("c", "2"), Ending(Kind.SNOOZED, 5), NUMBERS["c"])
        await turned.after(60_000)
        assert turned.kept >= {"b", "c"}
        assert "a" not in turned.kept
        turned.server.away = set()
        await turned.after(10_000)
        assert not turned.kept & {"a", "b", "c"}

    told(story)


def test_snoozed_and_rescheduled_jobs_outlast_a_restart_of_nine_seconds(told: Tell) -> None:
    async def story(turned: FlushedReports) -> None:
        turned.server.down = True
        await turned.reports.end(job("a"), Ending(Kind.SNOOZED, 60_000), NUMBERS["a"])
        moved = Ending(Kind.RESCHEDULED, rescheduling=Rescheduling(5, b"new"))
        await turned.reports.end(job("b"), moved, NUMBERS["b"])
        await turned.reports.release([(job("c"), NUMBERS["c"])])
        await turned.after(9_000)
        assert turned.server.applied == []
        turned.server.down = False
        await turned.after(10_000)

    turned = told(story)
    assert sorted(turned.server.applied) == ["a", "b", "c"]
    assert turned.server.bodies["b"] == b"new"
    assert turned.counts.released == 3
    assert not turned.kept & {"a", "b", "c"}


@pytest.mark.parametrize("outcome", [Outcome.STALE_CLAIM, Outcome.ALREADY_FINAL])
def test_one_warning_names_jobs_that_run_again_since_their_reports_came_after_their_claims(
    told: Tell, caplog: pytest.LogCaptureFixture, outcome: Outcome
) -> None:
    """Of a job that is final by now, an earlier try may have brought the report. One that fails comes again anyway."""

    async def story(worker: FlushedReports) -> None:
        worker.server.away = {"1"}
        for name in "abcd":
            await worker.succeeded(name)
        await worker.reports.end(job("e"), Ending(Kind.GIVEN_UP), NUMBERS["e"])
        await worker.reports.end(job("f"), Ending(Kind.FAILED), NUMBERS["f"])
        await worker.reports.release([(job("g"), NUMBERS["g"])])
        await worker.after(ms=2_000)
        worker.server.away, worker.server.refusing = set(), outcome
        await worker.after(ms=40_000)

    worker = told(story)
    assert worker.kept == {"h"}
    lines = [(each.levelname, each.getMessage()) for each in caplog.records if "claim" in each.getMessage()]
    too_late = (
        "queue q: 5 reports came too late: the claims had ended before the server could take them, so that these jobs "
        "run again: q:s1:p1:0, q:s1:p1:1, q:s1:p1:2 and 2 more"
    )
    assert lines == ([("WARNING", too_late)] if outcome is Outcome.STALE_CLAIM else [])
    assert worker.counts.acks_refused == 5 * len(lines)


def test_a_stop_retries_reports_until_its_timeout(told: Tell) -> None:
    async def story(turned: FlushedReports) -> None:
        turned.server.down = True
        await turned.reports.end(job("a"), Ending(Kind.SNOOZED, 5), NUMBERS["a"])
        await turned.succeeded("b")
        await turned.end_flushing()
        rest = asyncio.create_task(turned.reports.flush_the_rest(30))
        await turned.after(20_000)
        assert not rest.done()
        turned.server.down = False
        await turned.after(8_000)
        await rest

    turned = told(story)
    assert sorted(turned.server.applied) == ["a", "b"]


def test_a_stop_gives_up_reports_after_its_timeout(told: Tell) -> None:
    async def story(turned: FlushedReports) -> None:
        turned.server.down = True
        await turned.succeeded("a")
        await turned.end_flushing()
        rest = asyncio.create_task(turned.reports.flush_the_rest(30))
        await turned.after(31_000)
        await rest

    assert told(story).reports.undelivered_count == 1


def test_a_refused_report_does_not_block_others(told: Tell) -> None:
    """The others arrive, and the refused one is not retried."""

    async def story(turned: FlushedReports) -> None:
        turned.server.bad = {"c"}
        for name in "abcde":
            await turned.succeeded(name)
        await turned.after(1_000)
        calls = len(turned.server.calls)
        await turned.after(60_000)
        assert len(turned.server.calls) == calls

    turned = told(story)
    assert sorted(turned.server.applied) == ["a", "b", "d", "e"]
    assert turned.counts.acks_refused == 1
    assert turned.reports.undelivered_count == 0


def test_a_body_that_the_server_refuses_fails_its_job_with_the_reason(told: Tell) -> None:
    """Otherwise it would time out without a reason."""

    async def story(turned: FlushedReports) -> None:
        async def too_large(queue: str, items: Sequence[Checkpoint], **_: Any) -> list[AckResult]:
            raise errors.CallerError("A new body of 9 bytes", detail="BODY_TOO_LARGE")

        turned.server.checkpoint = too_large  # type: ignore[method-assign]
        moved = Ending(Kind.RESCHEDULED, rescheduling=Rescheduling(5, b"too large"))
        await turned.reports.end(job("a"), moved, NUMBERS["a"])
        await turned.after(1_000)

    turned = told(story)
    assert turned.server.failed == {"a": "could not be rescheduled: A new body of 9 bytes"}
    assert turned.server.applied == ["a"]


def test_new_bodies_go_in_requests_of_bounded_size(told: Tell) -> None:
    async def story(turned: FlushedReports) -> None:
        turned.server.down = True
        for name in "abcd":
            moved = Ending(Kind.RESCHEDULED, rescheduling=Rescheduling(5, bytes(2_000_000)))
            await turned.reports.end(job(name), moved, NUMBERS[name])
        await turned.after(1_000)
        turned.server.down = False
        await turned.after(10_000)

    turned = told(story)
    assert sorted(turned.server.applied) == ["a", "b", "c", "d"]
    assert sorted(turned.server.calls[-2:]) == ["ab", "cd"]
