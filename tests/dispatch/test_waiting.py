"""Waiters: which is woken, when, and that no wake is lost."""

from __future__ import annotations

import asyncio

from pinlater.domain.clock import ManualClock
from pinlater.server.dispatch.waiters import JobsCame, Waiters


async def _enter(waiters: Waiters, *limits: int) -> list[asyncio.Task[bool]]:
    tasks = [asyncio.create_task(waiters.wait(limit, 60)) for limit in limits]
    await asyncio.sleep(0)
    return tasks


async def test_one_waiter_is_woken_for_one_job() -> None:
    waiters = Waiters("q", ManualClock().now_ms)
    first, second = await _enter(waiters, 1, 1)
    waiters.wake(1)
    assert await first
    assert not second.done()
    assert len(waiters) == 1
    second.cancel()


async def test_a_waiter_for_many_is_enough_for_many() -> None:
    """Ten jobs for a waiter that takes ten must not wake a second one for nothing."""
    waiters = Waiters("q", ManualClock().now_ms)
    first, second = await _enter(waiters, 10, 10)
    waiters.wake(10)
    assert await first
    assert not second.done()
    waiters.wake(1)
    assert await second


async def test_a_wake_that_met_a_cancelled_waiter_goes_on_to_the_next() -> None:
    waiters = Waiters("q", ManualClock().now_ms)
    first, second = await _enter(waiters, 1, 1)
    waiters.wake(1)
    first.cancel()
    assert await second


async def test_a_waiter_goes_with_empty_hands_when_its_time_is_up() -> None:
    waiters = Waiters("q", ManualClock().now_ms)
    assert not await waiters.wait(1, 0.001)
    assert len(waiters) == 0


async def test_a_waiter_is_woken_when_the_next_job_becomes_due() -> None:
    clock = ManualClock()
    waiters = Waiters("q", clock.now_ms)
    waiter = asyncio.create_task(waiters.wait(1, 60, clock.now_ms() + 2))
    assert await waiter


async def test_an_earlier_due_time_replaces_a_later_one() -> None:
    clock = ManualClock()
    waiters = Waiters("q", clock.now_ms)
    waiter = asyncio.create_task(waiters.wait(1, 60, clock.now_ms() + 3_600_000))
    await asyncio.sleep(0)
    waiters.due_at(clock.now_ms() + 2)
    assert await waiter


async def test_the_version_grows_with_each_wake_so_that_no_wake_is_missed() -> None:
    waiters = Waiters("q", ManualClock().now_ms)
    before = waiters.version
    waiters.wake(1)
    assert waiters.version == before + 1


async def test_an_answer_that_is_watched_is_failed_by_a_wake_and_leaves_when_it_has_come() -> None:
    """A waiter for a slow shard stands in the line like any other."""
    waiters = Waiters("q", lambda: 0)
    loop = asyncio.get_running_loop()
    came, woken, all_woken = loop.create_future(), loop.create_future(), loop.create_future()
    for answer in (came, woken, all_woken):
        waiters.watch(answer, 1)
    [waiter] = await _enter(waiters, 1)
    came.set_result("jobs")
    await asyncio.sleep(0)
    assert len(waiters) == 3
    waiters.wake(1)
    assert isinstance(woken.exception(), JobsCame)
    assert not all_woken.done()
    waiters.wake_all()
    assert isinstance(all_woken.exception(), JobsCame)
    assert await waiter
    late = loop.create_future()
    late.set_result("jobs")
    waiters.watch(late, 1)
    assert len(waiters) == 0
