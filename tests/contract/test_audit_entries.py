"""Entries of the audit: each stored once, read newest first in pages, at most a number of them, and deleted by age."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pinlater.domain.audit import entry_id, first_id_at
from pinlater.domain.job import JobState
from pinlater.server.storage.commands import AddToTrail, DeleteQueues, ListTrail, PruneTrail
from pinlater.server.storage.values import TrailEntry
from tests.contract.desk import Desk

MANY = 1_000


def record(at_ms: int, number: int = 0, content: bytes = b"{}") -> TrailEntry:
    return TrailEntry(entry_id(at_ms, number, 7), content)


def at(*times_ms: int) -> list[TrailEntry]:
    return [record(at_ms, content=b'{"at":%d}' % at_ms) for at_ms in times_ms]


async def stored(desk: Desk, since: str = "", before: str = "", limit: int = MANY) -> Sequence[TrailEntry]:
    return list(await desk.shard.submit(ListTrail(since, before, limit)))


async def test_a_shard_without_entries_lists_none_and_prunes_none(desk: Desk) -> None:
    assert await stored(desk) == []
    assert await desk.shard.submit(PruneTrail(first_id_at(desk.now), MANY)) == 0


async def test_entries_are_listed_newest_first_whatever_the_order_they_came_in(desk: Desk) -> None:
    first, second, third = at(10, 20, 30)
    await desk.shard.submit(AddToTrail([second], MANY))
    await desk.shard.submit(AddToTrail([third, first], MANY))

    assert await stored(desk) == [third, second, first]


async def test_entries_of_one_millisecond_are_listed_in_the_order_of_their_server(desk: Desk) -> None:
    records = [record(5, number) for number in (9, 10, 255, 256)]
    await desk.shard.submit(AddToTrail(records, MANY))

    assert await stored(desk) == records[::-1]


async def test_an_entry_that_comes_again_is_stored_once(desk: Desk) -> None:
    """After a lost answer a server writes its entries again, among them new ones."""
    first, second, third = at(10, 20, 30)
    await desk.shard.submit(AddToTrail([first, second], MANY))
    await desk.shard.submit(AddToTrail([first, second, third, third], MANY))

    assert await stored(desk) == [third, second, first]


async def test_a_page_ends_before_an_id_and_begins_at_one(desk: Desk) -> None:
    first, second, third, fourth = records = at(10, 20, 30, 40)
    await desk.shard.submit(AddToTrail(records, MANY))

    assert await stored(desk, limit=2) == [fourth, third]
    assert await stored(desk, before=third.id, limit=1) == [second]
    assert await stored(desk, before=second.id) == [first]
    assert await stored(desk, since=second.id, before=fourth.id) == [third, second]
    assert await stored(desk, since=first_id_at(20), before=first_id_at(40)) == [third, second]
    assert await stored(desk, since=first_id_at(50)) == []


async def test_beyond_the_bound_the_oldest_entries_go(desk: Desk) -> None:
    records = at(*range(1, 11))
    for start in range(0, 10, 2):
        await desk.shard.submit(AddToTrail(records[start : start + 2], 5))

    assert await stored(desk) == records[:-6:-1]


async def test_a_bound_that_is_lower_than_before_holds_from_the_next_entry_on(desk: Desk) -> None:
    records = at(*range(1, 11))
    await desk.shard.submit(AddToTrail(records, MANY))
    await desk.shard.submit(AddToTrail(at(11), 3))

    assert await stored(desk) == at(11, 10, 9)


async def test_pruning_deletes_the_oldest_entries_below_an_id_and_no_more_than_asked(desk: Desk) -> None:
    records = at(*range(1, 8))
    await desk.shard.submit(AddToTrail(records, MANY))

    assert await desk.shard.submit(PruneTrail(first_id_at(6), 0)) == 0
    assert await desk.shard.submit(PruneTrail(first_id_at(6), 3)) == 3
    assert await stored(desk) == at(7, 6, 5, 4)
    assert await desk.shard.submit(PruneTrail(first_id_at(6), 3)) == 2
    assert await desk.shard.submit(PruneTrail(first_id_at(6), 3)) == 0
    assert await stored(desk) == at(7, 6)


async def test_a_pruned_shard_counts_new_entries_only(desk: Desk) -> None:
    await desk.shard.submit(AddToTrail(at(1, 2, 3), 3))
    await desk.shard.submit(PruneTrail(first_id_at(100), MANY))
    await desk.shard.submit(AddToTrail(at(101, 102, 103), 3))

    assert await stored(desk) == at(103, 102, 101)


@pytest.mark.parametrize(
    "content", [b"'); DROP TABLE jobs; --", b'a|b|c \\ " \x00 \r\n', "größer 🙂".encode(), b"x" * 8_000]
)
async def test_content_comes_back_byte_for_byte(desk: Desk, content: bytes) -> None:
    await desk.shard.submit(AddToTrail([record(1, content=content)], MANY))

    assert await stored(desk) == [record(1, content=content)]


async def test_a_thousand_entries_in_one_call(desk: Desk) -> None:
    records = at(*range(1, 1_001))
    await desk.shard.submit(AddToTrail(records, 600))

    assert await stored(desk) == records[:-601:-1]


async def test_entries_outlast_the_server(desk: Desk) -> None:
    if not desk.shard.capabilities.durable:
        pytest.skip("what this store holds ends with the server")
    await desk.shard.submit(AddToTrail(at(1, 2), MANY))
    await desk.reopen()

    assert await stored(desk) == at(2, 1)


async def test_entries_touch_no_queue_and_no_job(desk: Desk) -> None:
    key = await desk.put()
    await desk.shard.submit(AddToTrail(at(1, 2, 3), 1))
    await desk.shard.submit(DeleteQueues(["other"], desk.now, desk.now))
    await desk.shard.submit(PruneTrail(first_id_at(2), MANY))

    assert (await desk.look(key)).state is JobState.PENDING
    assert await stored(desk) == at(3)
