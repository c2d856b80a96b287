"""When acks are flushed: on an event loop whose time the test advances, so that five milliseconds are exact."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from pinlater.client import Ack, AckResult, AsyncClient, ClaimedJob, Outcome, errors
from pinlater.domain.clock import ManualClock
from pinlater.testing._loop import TurnedLoop
from pinlater.worker import WorkerCounts, WorkerSettings
from pinlater.worker._attempts.endings import Ending, Kind
from pinlater.worker._reports.reporter import Reporter

Story = Callable[["FlushedAcks"], Coroutine[Any, Any, None]]


class AckRecorder(AsyncClient):
    """Records acks and their times; with `held` it answers when that is set."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__("127.0.0.1:1")
        self.turned = clock
        self.came: list[tuple[int, list[str]]] = []
        self.held: asyncio.Event | None = None
        self.away = False

    async def ack(self, queue: str, acks: Sequence[Ack], *, per_item_errors: bool = False) -> list[AckResult]:
        assert per_item_errors
        self.came.append((self.turned.now_ms(), [ack.descriptor for ack in acks]))
        if self.held is not None:
            await self.held.wait()
        if self.away:
            raise errors.ConnectionLost("gone")
        return [AckResult(ack.descriptor, Outcome.APPLIED) for ack in acks]


class FlushedAcks:
    """Flushes reports while the test advances the time."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.server = AckRecorder(clock)
        self.settled: list[int] = []
        self.reports = Reporter(self.server, "q", WorkerSettings(), WorkerCounts(), clock, self.settled.extend)

    async def succeeded(self, name: str) -> None:
        await self.reports.end(ClaimedJob(name, "q", b"", token="t"), Ending(Kind.SUCCEEDED))

    async def after(self, ms: int) -> None:
        """Advances the time, and lets the reporter act."""
        self.clock.advance(ms=ms)
        for _ in range(20):
            await asyncio.sleep(0)


@pytest.fixture
def told() -> Callable[[Story], FlushedAcks]:
    """Runs a story on its own loop."""

    def tell(story: Story) -> FlushedAcks:
        clock = ManualClock(0)
        loop = TurnedLoop(clock)

        async def main() -> FlushedAcks:
            turned = FlushedAcks(clock)
            flushing = asyncio.create_task(turned.reports.flush_until_cancelled())
            await turned.after(0)
            await story(turned)
            flushing.cancel()
            await asyncio.wait([flushing])
            return turned

        try:
            return loop.run_until_complete(main())
        finally:
            loop.close()

    return tell


def test_an_ack_is_flushed_after_five_milliseconds_with_later_ones(
    told: Callable[[Story], FlushedAcks],
) -> None:
    async def story(turned: FlushedAcks) -> None:
        await turned.succeeded("a")
        await turned.after(4)
        await turned.succeeded("b")
        assert turned.server.came == []
        await turned.after(1)
        await turned.succeeded("c")
        await turned.after(5)

    assert told(story).server.came == [(5, ["a", "b"]), (10, ["c"])]


def test_a_claim_takes_the_acks_along_before_that(told: Callable[[Story], FlushedAcks]) -> None:
    async def story(turned: FlushedAcks) -> None:
        await turned.succeeded("a")
        await turned.after(3)
        assert [report.job.descriptor for report in turned.reports.take()] == ["a"]
        await turned.succeeded("b")  # at 3 ms: its own five begin now
        await turned.after(4)

    assert told(story).server.came == []


def test_the_wait_of_an_ack_includes_the_flush_before_it(told: Callable[[Story], FlushedAcks]) -> None:
    async def story(turned: FlushedAcks) -> None:
        held = turned.server.held = asyncio.Event()
        await turned.succeeded("a")
        await turned.after(5)
        await turned.succeeded("b")
        await turned.after(20)
        held.set()
        await turned.after(0)

    assert told(story).server.came == [(5, ["a"]), (25, ["b"])]


def test_reports_to_an_unreachable_server_are_retried_after_a_pause(told: Callable[[Story], FlushedAcks]) -> None:
    async def story(turned: FlushedAcks) -> None:
        turned.server.away = True
        await turned.succeeded("a")
        await turned.after(5)
        await turned.after(40)
        turned.server.away = False
        await turned.after(100)
        await turned.after(5)

    came = told(story).server.came
    assert [names for _, names in came] == [["a"], ["a"]]
    assert came[1][0] > 50
