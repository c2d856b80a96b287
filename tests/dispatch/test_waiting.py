"""Waiting rooms: who is woken, when, and that no wake is lost."""

from __future__ import annotations

import asyncio

from pinlater.dispatch.waiting import WaitingRoom, Woken
from pinlater.domain.clock import ManualClock


async def _enter(room: WaitingRoom, *limits: int) -> list[asyncio.Task[bool]]:
    tasks = [asyncio.create_task(room.wait(limit, 60)) for limit in limits]
    await asyncio.sleep(0)
    return tasks


async def test_one_waiter_is_woken_for_one_job() -> None:
    room = WaitingRoom("q", ManualClock().now_ms)
    first, second = await _enter(room, 1, 1)
    room.wake(1)
    assert await first
    assert not second.done()
    assert len(room) == 1
    second.cancel()


async def test_a_waiter_for_many_is_enough_for_many() -> None:
    """Ten jobs for a waiter that takes ten must not wake a second one for nothing."""
    room = WaitingRoom("q", ManualClock().now_ms)
    first, second = await _enter(room, 10, 10)
    room.wake(10)
    assert await first
    assert not second.done()
    room.wake(1)
    assert await second


async def test_a_wake_that_met_a_cancelled_waiter_goes_on_to_the_next() -> None:
    room = WaitingRoom("q", ManualClock().now_ms)
    first, second = await _enter(room, 1, 1)
    room.wake(1)
    first.cancel()
    assert await second


async def test_a_waiter_goes_with_empty_hands_when_its_time_is_up() -> None:
    room = WaitingRoom("q", ManualClock().now_ms)
    assert not await room.wait(1, 0.001)
    assert len(room) == 0


async def test_somebody_is_woken_when_the_next_job_becomes_due() -> None:
    clock = ManualClock()
    room = WaitingRoom("q", clock.now_ms)
    waiter = asyncio.create_task(room.wait(1, 60, clock.now_ms() + 2))
    assert await waiter


async def test_an_earlier_due_time_replaces_a_later_one() -> None:
    clock = ManualClock()
    room = WaitingRoom("q", clock.now_ms)
    waiter = asyncio.create_task(room.wait(1, 60, clock.now_ms() + 3_600_000))
    await asyncio.sleep(0)
    room.due_at(clock.now_ms() + 2)
    assert await waiter


async def test_the_version_grows_with_each_wake_so_that_no_wake_is_missed() -> None:
    room = WaitingRoom("q", ManualClock().now_ms)
    before = room.version
    room.wake(1)
    assert room.version == before + 1


async def test_an_answer_that_is_watched_is_failed_by_a_wake_and_leaves_when_it_has_come() -> None:
    """Who waits for a slow shard stands in the line like any other."""
    room = WaitingRoom("q", lambda: 0)
    loop = asyncio.get_running_loop()
    came, woken, all_woken = loop.create_future(), loop.create_future(), loop.create_future()
    for answer in (came, woken, all_woken):
        room.watch(answer, 1)
    [waiter] = await _enter(room, 1)
    came.set_result("jobs")
    await asyncio.sleep(0)
    assert len(room) == 3
    room.wake(1)
    assert isinstance(woken.exception(), Woken)
    assert not all_woken.done()
    room.wake_all()
    assert isinstance(all_woken.exception(), Woken)
    assert await waiter
    late = loop.create_future()
    late.set_result("jobs")
    room.watch(late, 1)
    assert len(room) == 0
