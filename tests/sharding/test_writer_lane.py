"""A lane whose queue is that of a writer: no item without an answer, whatever becomes of its command."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from pinlater.domain.errors import Draining, InvalidArgument, PinLaterError, ShardConnectionFailed, StoreFull
from pinlater.server.sharding.joined import NOT_BEGUN, JoinedItems, LaneResults
from pinlater.server.sharding.writer_lane import WriterLane
from pinlater.server.storage.commands import DeleteJobs
from pinlater.server.storage.interface import WaitingBatch
from pinlater.server.storage.values import JobKey


class DoublingWriter:
    """Takes what waits in a lane when the test says so, and answers each number with its double."""

    def __init__(self) -> None:
        self.commands: list[list[int]] = []
        self.joined: list[WaitingBatch] = []
        self.refusals: list[PinLaterError] = []
        self.is_closed = False
        self.lane: WriterLane[int, int] = WriterLane("test", self._make, self, orphaned=self._orphaned)
        self.orphans: list[tuple[int, int]] = []

    def join(self, batch: WaitingBatch) -> None:
        if self.is_closed:
            raise ShardConnectionFailed("closed")
        self.joined.append(batch)

    def _make(self, items: list[int]) -> JoinedItems[int]:
        """A number of a hundred or more is too old to be asked for; 99 can't be joined."""
        asked = [item for item in items if item < 100]
        if 99 in asked:
            raise ZeroDivisionError

        def results(answer: Sequence[int | PinLaterError]) -> LaneResults[int]:
            given = iter(answer)
            return [next(given) if item < 100 else InvalidArgument("too old") for item in items]

        command = DeleteJobs([JobKey("q", 1, item) for item in asked]) if asked else None
        return JoinedItems(command, results, self.refusals.append)

    def _orphaned(self, item: int, result: int) -> None:
        self.orphans.append((item, result))

    def turn(self, error: Exception | None = None) -> None:
        """Carries out one command of each lane that waits. 13 makes it fail by a bug."""
        waiting, self.joined = self.joined, []
        for batch in waiting:
            begun = batch.begin()
            if begun is None:
                continue
            assert isinstance(begun.command, DeleteJobs)
            items = [key.id for key in begun.command.keys]
            self.commands.append(items)
            if 13 in items or error is not None:
                others = batch.failed(error or ZeroDivisionError())
            else:
                others = batch.done([NOT_BEGUN if item == 50 and len(items) > 1 else 2 * item for item in items])
            if others:
                self.joined.append(batch)


def outcomes(asked: Sequence[asyncio.Future[int]]) -> list[object]:
    return [type(each.exception()) if each.exception() is not None else each.result() for each in asked]


async def test_what_comes_before_the_turn_is_one_command_and_what_comes_later_the_next() -> None:
    writer = DoublingWriter()
    asked = [writer.lane.submit(item) for item in (1, 2, 3)]
    assert len(writer.joined) == 1
    writer.turn()
    asked.append(writer.lane.submit(4))
    writer.turn()
    assert outcomes(asked) == [2, 4, 6, 8]
    assert writer.commands == [[1, 2, 3], [4]]
    assert (writer.lane.calls, writer.lane.items, writer.lane.length, writer.joined) == (2, 4, 0, [])


async def test_what_comes_between_begin_and_answer_is_for_the_next_command() -> None:
    writer = DoublingWriter()
    first = writer.lane.submit(1)
    [batch], writer.joined = writer.joined, []
    assert batch.begin() is not None
    second = writer.lane.submit(2)
    assert (writer.joined, writer.lane.running, writer.lane.waiting) == ([], 1, 1)
    assert batch.done([2])
    writer.joined.append(batch)
    writer.turn()
    assert outcomes([first, second]) == [2, 4]


async def test_an_error_of_the_store_reaches_all_callers_of_the_command_and_the_lane_goes_on() -> None:
    writer = DoublingWriter()
    asked = [writer.lane.submit(item) for item in (1, 2)]
    writer.turn(StoreFull.of("disk"))
    asked.append(writer.lane.submit(3))
    writer.turn()
    assert outcomes(asked) == [StoreFull, StoreFull, 6]
    assert [type(refusal) for refusal in writer.refusals] == [StoreFull]


async def test_a_poisonous_item_harms_only_itself() -> None:
    writer = DoublingWriter()
    asked = [writer.lane.submit(item) for item in (12, 13, 14)]
    for _ in range(4):
        writer.turn()
    assert outcomes(asked) == [24, ZeroDivisionError, 28]
    assert writer.commands == [[12, 13, 14], [12], [13], [14]]
    assert (writer.lane.length, writer.joined) == (0, [])


async def test_an_item_that_cannot_be_joined_harms_only_itself() -> None:
    writer = DoublingWriter()
    asked = [writer.lane.submit(item) for item in (12, 99, 14)]
    for _ in range(3):
        writer.turn()
    assert outcomes(asked) == [24, ZeroDivisionError, 28]


async def test_items_that_need_no_command_are_answered_without_one() -> None:
    writer = DoublingWriter()
    asked = [writer.lane.submit(item) for item in (100, 101)]
    writer.turn()
    asked.append(writer.lane.submit(1))
    writer.turn()
    assert outcomes(asked) == [InvalidArgument, InvalidArgument, 2]
    assert writer.commands == [[1]]


async def test_an_item_that_did_not_fit_is_the_first_of_the_next_command() -> None:
    writer = DoublingWriter()
    asked = [writer.lane.submit(item) for item in (1, 50)]
    writer.turn()
    asked.append(writer.lane.submit(3))
    assert not asked[1].done()
    writer.turn()
    writer.turn()
    assert writer.commands == [[1, 50], [50, 3], [50]]
    assert outcomes(asked) == [2, 100, 6]


async def test_an_answer_that_does_not_fit_the_items_fails_them_and_no_other() -> None:
    writer = DoublingWriter()
    first = writer.lane.submit(1)
    [batch], writer.joined = writer.joined, []
    batch.begin()
    assert not batch.done([])
    second = writer.lane.submit(2)
    writer.turn()
    assert isinstance(first.exception(), BaseException)
    assert second.result() == 4


async def test_a_caller_that_left_is_not_asked_for_and_one_that_leaves_too_late_is_told_of() -> None:
    writer = DoublingWriter()
    gone = writer.lane.submit(1)
    gone.cancel()
    writer.turn()
    assert (writer.commands, writer.lane.length) == ([], 0)
    late = writer.lane.submit(2)
    [batch], writer.joined = writer.joined, []
    batch.begin()
    late.cancel()
    batch.done([4])
    assert writer.orphans == [(2, 4)]


async def test_a_writer_that_is_closed_refuses_what_comes() -> None:
    writer = DoublingWriter()
    writer.is_closed = True
    refused = writer.lane.submit(1)
    assert outcomes([refused]) == [ShardConnectionFailed]
    await asyncio.wait_for(writer.lane.close(), 5)


async def test_a_lane_that_closes_finishes_what_is_there() -> None:
    writer = DoublingWriter()
    asked = [writer.lane.submit(item) for item in (12, 13)]
    closing = [asyncio.ensure_future(writer.lane.close()) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(Draining):
        writer.lane.submit(1)
    writer.turn()
    await asyncio.sleep(0)
    assert not any(each.done() for each in closing)
    writer.turn()
    writer.turn()
    await asyncio.wait_for(asyncio.gather(*closing), 5)
    assert outcomes(asked) == [24, ZeroDivisionError]
