"""Lanes: group commit without timers, and no item without an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from pinlater.domain.errors import (
    Draining,
    InvalidArgument,
    OutcomeUnknown,
    PinLaterError,
    ShardConnectionFailed,
    StoreFull,
    TooManyWaiting,
)
from pinlater.server.sharding.joined import NOT_BEGUN, NotBegun
from pinlater.server.sharding.lane import Lane


class DoublingStore:
    """Answers each number with its double, when the test lets it."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.started = asyncio.Event()
        self.fault: Exception | None = None

    async def execute(self, items: list[int]) -> Sequence[int | PinLaterError]:
        self.batches.append(items)
        self.started.set()
        await self.gate.wait()
        if self.fault is not None:
            raise self.fault
        if 13 in items:
            raise ZeroDivisionError
        return [InvalidArgument("odd one") if item < 0 else item * 2 for item in items]


async def test_requests_that_arrive_during_a_call_join_the_next_one() -> None:
    store = DoublingStore()
    lane: Lane[int, int] = Lane("test", store.execute)
    store.gate.clear()
    first = lane.submit(1)
    await store.started.wait()
    rest = [lane.submit(i) for i in range(2, 6)]
    store.gate.set()
    assert await asyncio.gather(first, *rest) == [2, 4, 6, 8, 10]
    assert store.batches == [[1], [2, 3, 4, 5]]


async def test_an_error_value_reaches_its_own_caller_only() -> None:
    lane: Lane[int, int] = Lane("test", DoublingStore().execute)
    good, bad = lane.submit(1), lane.submit(-1)
    assert await good == 2
    with pytest.raises(InvalidArgument):
        await bad


async def test_a_fault_of_the_store_reaches_all_callers_in_the_call_and_the_lane_goes_on() -> None:
    store = DoublingStore()
    lane: Lane[int, int] = Lane("test", store.execute)
    store.fault = StoreFull.of("disk")
    results = await asyncio.gather(lane.submit(1), lane.submit(2), return_exceptions=True)
    assert [type(result) for result in results] == [StoreFull, StoreFull]
    store.fault = None
    assert await lane.submit(3) == 6


async def test_a_poisonous_item_harms_only_itself() -> None:
    """A bug that one item wakes must not fail the others in the same call."""
    lane: Lane[int, int] = Lane("test", DoublingStore().execute)
    results = await asyncio.gather(*(lane.submit(i) for i in (12, 13, 14)), return_exceptions=True)
    assert results[0] == 24
    assert isinstance(results[1], ZeroDivisionError)
    assert results[2] == 28


async def test_over_the_bound_a_caller_is_refused_at_once() -> None:
    store = DoublingStore()
    store.gate.clear()
    lane: Lane[int, int] = Lane("test", store.execute, waiting_max=2)
    kept = [lane.submit(1), lane.submit(2)]
    with pytest.raises(TooManyWaiting):
        lane.submit(3)
    store.gate.set()
    assert await asyncio.gather(*kept) == [2, 4]
    assert await lane.submit(3) == 6


async def test_batches_are_bounded_by_weight_but_a_heavy_item_passes_alone() -> None:
    store = DoublingStore()
    lane: Lane[int, int] = Lane("test", store.execute, batch_max=10, weigh=lambda item: item)
    await asyncio.gather(*(lane.submit(i) for i in (4, 5, 6, 50, 1)))
    assert store.batches == [[4, 5], [6], [50], [1]]


async def test_an_item_cancelled_before_its_call_is_never_carried_out() -> None:
    store = DoublingStore()
    lane: Lane[int, int] = Lane("test", store.execute)
    store.gate.clear()
    first = lane.submit(1)
    await store.started.wait()
    gone, kept = lane.submit(2), lane.submit(3)
    gone.cancel()
    store.gate.set()
    assert (await first, await kept) == (2, 6)
    assert store.batches == [[1], [3]]
    assert not lane.length


async def test_a_result_whose_caller_has_gone_is_told_to_orphaned() -> None:
    """A claim without a caller must be given back."""
    store = DoublingStore()
    orphans: list[tuple[int, int]] = []
    lane: Lane[int, int] = Lane("test", store.execute, orphaned=lambda item, result: orphans.append((item, result)))
    store.gate.clear()
    gone, kept = lane.submit(1), lane.submit(2)
    await store.started.wait()
    gone.cancel()
    store.gate.set()
    assert await kept == 4
    assert orphans == [(1, 2)]


async def test_closing_finishes_what_is_there_and_refuses_what_comes() -> None:
    store = DoublingStore()
    store.gate.clear()
    lane: Lane[int, int] = Lane("test", store.execute)
    there = lane.submit(1)
    await store.started.wait()
    closing = asyncio.create_task(lane.close())
    await asyncio.sleep(0)
    with pytest.raises(Draining):
        lane.submit(2)
    store.gate.set()
    await closing
    assert there.result() == 2


# --- calls that take too long ----------------------------------------------------------------------------------------------------


async def test_a_call_that_is_given_up_is_answered_so_and_the_lane_goes_on() -> None:
    """A late result is orphaned."""
    store = DoublingStore()
    orphans: list[tuple[int, int]] = []
    lane: Lane[int, int] = Lane("test", store.execute, orphaned=lambda item, result: orphans.append((item, result)))
    store.gate.clear()
    hung = [lane.submit(1), lane.submit(-2)]
    await store.started.wait()
    hung_gate, store.gate = store.gate, asyncio.Event()
    store.gate.set()
    next_one = lane.submit(3)
    assert lane.give_up(OutcomeUnknown("slow"))
    for future in hung:
        with pytest.raises(OutcomeUnknown):
            await future
    assert await next_one == 6
    assert lane.length == 0
    assert orphans == []
    hung_gate.set()
    await _turns()
    assert orphans == [(1, 2)]
    assert await lane.submit(4) == 8
    assert not lane.give_up(OutcomeUnknown("nothing is under way"))


async def test_a_late_failure_of_an_abandoned_call_affects_no_later_call() -> None:
    store = DoublingStore()
    lane: Lane[int, int] = Lane("test", store.execute)
    store.gate.clear()
    hung = lane.submit(13)
    await store.started.wait()
    lane.give_up(OutcomeUnknown("slow"))
    with pytest.raises(OutcomeUnknown):
        await hung
    store.gate.set()
    await _turns()
    assert store.batches == [[13]]
    assert await lane.submit(1) == 2


async def test_a_given_up_call_is_cancelled_in_the_end() -> None:
    store = DoublingStore()
    lane: Lane[int, int] = Lane("test", store.execute)
    store.gate.clear()
    hung = lane.submit(1)
    await store.started.wait()
    [task] = [task for task in asyncio.all_tasks() if task.get_name() == "lane test"]
    lane.give_up(OutcomeUnknown("slow"), cancel_after_s=0)
    with pytest.raises(OutcomeUnknown):
        await hung
    await asyncio.wait([task])
    assert task.cancelled()


async def test_a_lane_can_refuse_waiting_requests_while_its_call_continues() -> None:
    store = DoublingStore()
    lane: Lane[int, int] = Lane("test", store.execute)
    store.gate.clear()
    first = lane.submit(1)
    await store.started.wait()
    behind = lane.submit(2)
    assert lane.fail_waiting(ShardConnectionFailed("slow")) == 1
    with pytest.raises(ShardConnectionFailed):
        await behind
    store.gate.set()
    assert await first == 2
    assert store.batches == [[1]]
    assert lane.length == 0


async def test_a_lane_hands_over_what_has_not_begun_and_what_still_comes() -> None:
    old, new = DoublingStore(), DoublingStore()
    lane: Lane[int, int] = Lane("old", old.execute)
    successor: Lane[int, int] = Lane("new", new.execute)
    old.gate.clear()
    first = lane.submit(1)
    await old.started.wait()
    behind, gone = lane.submit(2), lane.submit(3)
    gone.cancel()
    lane.hand_over(successor)
    later = lane.submit(4)
    assert [await behind, await later] == [4, 8]
    old.gate.set()
    assert await first == 2
    await lane.close()
    assert old.batches == [[1]]
    assert new.batches == [[2, 4]]
    assert lane.length == successor.length == 0


async def test_an_abandoned_lane_answers_all_callers() -> None:
    store = DoublingStore()
    lane: Lane[int, int] = Lane("test", store.execute)
    store.gate.clear()
    futures = [lane.submit(1)]
    await store.started.wait()
    futures.append(lane.submit(2))
    await lane.abandon(Draining())
    for future in futures:
        with pytest.raises(Draining):
            await future
    with pytest.raises(Draining):
        lane.submit(3)
    assert lane.length == 0


async def test_items_run_alone_after_a_bug_go_on_when_one_of_them_is_given_up() -> None:
    batches: list[list[int]] = []
    met, gate = asyncio.Event(), asyncio.Event()

    async def execute(items: list[int]) -> Sequence[int | PinLaterError]:
        batches.append(items)
        if 13 in items:
            raise ZeroDivisionError
        if items == [1]:
            met.set()
            await gate.wait()
        return [item * 2 for item in items]

    lane: Lane[int, int] = Lane("test", execute)
    futures = [lane.submit(item) for item in (1, 13, 2)]
    await met.wait()
    lane.give_up(OutcomeUnknown("slow"))
    with pytest.raises(OutcomeUnknown):
        await futures[0]
    gate.set()
    with pytest.raises(ZeroDivisionError):
        await futures[1]
    assert await futures[2] == 4
    assert batches[:2] == [[1, 13, 2], [1]]
    assert lane.length == 0


async def test_each_calls_end_is_observed_and_its_time_measured() -> None:
    store, now = DoublingStore(), [10.0]
    seen: list[PinLaterError | None] = []
    lane: Lane[int, int] = Lane("test", store.execute, observe=seen.append, monotonic=lambda: now[0])
    store.gate.clear()
    future = lane.submit(1)
    await store.started.wait()
    now[0] = 12.5
    assert lane.busy_for() == 2.5
    store.gate.set()
    await future
    assert lane.busy_for() == 0.0
    store.fault = StoreFull.of("disk")
    with pytest.raises(StoreFull):
        await lane.submit(2)
    assert seen == [None, store.fault]
    assert (lane.calls, lane.items, lane.busy_s) == (2, 2, 2.5)


async def _turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_lane_starts_the_next_call_before_it_answers_the_last_one() -> None:
    """So the store has work again while its last answers are on their way."""
    store, order = DoublingStore(), list[list[list[int]]]()
    lane: Lane[int, int] = Lane("test", store.execute, reads_on=True)
    store.gate.clear()
    first = lane.submit(1)
    first.add_done_callback(lambda _: order.append(list(store.batches)))
    await store.started.wait()
    late: list[asyncio.Future[int]] = []
    store.gate.set()
    asyncio.get_running_loop().call_soon(lambda: late.append(lane.submit(2)))
    assert await first == 2
    assert await late[0] == 4
    assert order == [[[1], [2]]]


async def test_a_lane_says_where_one_more_would_ride_best() -> None:
    store = DoublingStore()
    lane: Lane[int, int] = Lane("test", store.execute)
    ranks = [lane.rank]
    store.gate.clear()
    first = lane.submit(1)
    ranks.append(lane.rank)
    await store.started.wait()
    ranks.append(lane.rank)
    second = lane.submit(2)
    ranks.append(lane.rank)
    store.gate.set()
    await asyncio.wait([first, second])
    ranks.append(lane.rank)
    assert ranks == [1, 0, 3, 2, 1]


async def test_items_that_a_call_had_no_space_for_are_first_in_the_next() -> None:
    calls: list[list[int]] = []

    async def execute(items: list[int]) -> list[int | NotBegun]:
        calls.append(items)
        if len(calls) == 1:
            assert lane.submit(9) is not None
        return [item if place < 2 else NOT_BEGUN for place, item in enumerate(items)]

    lane: Lane[int, int] = Lane("test", execute)
    answers = await asyncio.gather(*[lane.submit(item) for item in range(5)])
    assert answers == list(range(5))
    await lane.close()
    assert calls == [[0, 1, 2, 3, 4], [2, 3, 4, 9], [4, 9]]
    assert lane.length == 0


async def test_items_that_a_call_had_no_space_for_go_to_the_lanes_successor() -> None:
    async def execute(items: list[int]) -> list[int | NotBegun]:
        first.hand_over(second)
        return [items[0], *[NOT_BEGUN] * (len(items) - 1)]

    async def execute_there(items: list[int]) -> list[int]:
        return [10 * item for item in items]

    first: Lane[int, int] = Lane("first", execute)
    second: Lane[int, int] = Lane("second", execute_there)
    answers = await asyncio.gather(*[first.submit(item) for item in (1, 2, 3)])
    assert answers == [1, 20, 30]
    await asyncio.gather(first.close(), second.close())
    assert (first.length, second.length) == (0, 0)
