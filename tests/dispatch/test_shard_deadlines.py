"""How long claims wait for one shard of several, on a loop whose time the test turns."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator
from contextvars import Context
from typing import TypeVarTuple, Unpack

import pytest

from pinlater.domain.clock import ManualClock
from pinlater.domain.errors import ShardConnectionFailed
from pinlater.server.dispatch.shard_deadlines import Overdue, ShardDeadlines
from pinlater.server.dispatch.waiters import JobsCame, Waiters

SLOW_MS, STALL_MS = 25, 500
HALF_A_MS = 0.0005
Ts = TypeVarTuple("Ts")


class CountingLoop(asyncio.SelectorEventLoop):
    """Has the time of a clock, and counts the timers that are set."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock
        self.timers = 0

    def time(self) -> float:
        return self._clock.monotonic()

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        self.timers += 1
        return super().call_at(when - HALF_A_MS, callback, *args, context=context)  # a float is not always exact


class Wait:
    """An event loop, its time, and how long one shard waits."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.loop = CountingLoop(self.clock)
        self.deadlines = ShardDeadlines("1", SLOW_MS / 1000, STALL_MS / 1000)
        self.waiters = Waiters("q", self.clock.now_ms)

    def answer(self, waiters: Waiters | None = None, *, anything: bool = False) -> asyncio.Future[str]:
        """An answer that is waited for."""
        future: asyncio.Future[str] = self.loop.create_future()
        self.deadlines.begin(future, waiters, 1, anything=anything)
        return future

    def after(self, ms: int) -> None:
        """So long later."""
        self.clock.advance(ms=ms)
        for _ in range(3):
            self.loop.run_until_complete(asyncio.sleep(0))


@pytest.fixture
def wait() -> Iterator[Wait]:
    made = Wait()
    yield made
    made.loop.close()


def failed(answer: asyncio.Future[str]) -> bool:
    return answer.done() and isinstance(answer.exception(), ShardConnectionFailed)


def test_a_claim_is_given_up_when_the_shard_stalls(wait: Wait) -> None:
    answer = wait.answer()
    wait.after(STALL_MS - 1)
    assert not answer.done()
    wait.after(1)
    assert failed(answer)


def test_the_claim_of_a_dequeue_that_has_jobs_is_given_up_once_the_shard_is_slow(wait: Wait) -> None:
    answer = wait.answer(wait.waiters, anything=True)
    wait.after(SLOW_MS - 1)
    assert not answer.done()
    wait.after(1)
    assert failed(answer)


def test_a_claim_is_given_up_for_the_next_jobs_of_the_queue_once_the_shard_is_slow(wait: Wait) -> None:
    answer = wait.answer(wait.waiters)
    wait.after(SLOW_MS - 1)
    wait.waiters.wake(1)
    assert not answer.done()
    wait.after(1)
    wait.waiters.wake(1)
    assert isinstance(answer.exception(), JobsCame)


def test_the_claim_of_a_waiting_dequeue_is_given_up_once_the_shard_stalls(wait: Wait) -> None:
    answer = wait.answer(wait.waiters)
    wait.after(SLOW_MS)
    wait.after(STALL_MS - SLOW_MS - 1)
    assert not answer.done()
    wait.after(1)
    assert failed(answer)


def test_each_has_its_full_time_however_many_began_before(wait: Wait) -> None:
    answers = []
    for _ in range(10):
        answers.append(wait.answer())
        wait.after(100)
    # Five began within the last 500 ms, the first of them at its very end.
    assert [failed(answer) for answer in answers] == [True] * 6 + [False] * 4
    answers[6].set_result("here at last")
    wait.after(STALL_MS)
    assert answers[6].result() == "here at last"
    assert all(failed(answer) for answer in answers[7:])


def test_thousands_of_answers_that_come_in_time_need_a_few_timers(wait: Wait) -> None:
    for _ in range(2_000):
        answer = wait.answer()
        wait.loop.run_until_complete(asyncio.sleep(0))
        answer.set_result("in time")
    for _ in range(STALL_MS):
        wait.after(1)
    assert wait.loop.timers <= 3


def test_an_answer_that_came_is_not_kept_until_its_time_is_over() -> None:
    class Body:
        pass

    loop = CountingLoop(ManualClock())
    overdue: Overdue[None] = Overdue(0.5, lambda answer, _: answer.set_result(None))
    body = Body()
    seen = weakref.ref(body)
    first: asyncio.Future[Body] = loop.create_future()
    overdue.add(first, None)
    first.set_result(body)
    del first, body
    overdue.add(loop.create_future(), None)
    gc.collect()
    assert seen() is None
    loop.close()
