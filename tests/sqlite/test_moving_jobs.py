"""Pages of a scan while jobs move on between the two statements of a page."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Sequence
from typing import Any

import pytest

from pinlater.domain.errors import QueueNotFound
from pinlater.domain.job import JobState
from pinlater.server.storage.record import JobRecord
from pinlater.server.storage.relational import reading
from pinlater.server.storage.relational.reading import BoundStatement
from pinlater.server.storage.values import JobKey, Page


class NumberedJobs:
    """A reader of a queue with jobs of the ids 9 to 1, in this order, of which some have moved on."""

    shard = "1"

    def __init__(self, gone: Collection[int] = (), *, exists: bool = True) -> None:
        self.gone = gone
        self.exists = exists
        self.statements = 0

    async def select(self, name: str, /, **values: Any) -> Sequence[tuple[Any, ...]]:
        self.statements += 1
        assert name == "find_queue"
        return [(1,)] if self.exists else []

    async def select_union(
        self, looks: Sequence[BoundStatement], newest: int | None = None
    ) -> Sequence[tuple[Any, ...]]:
        self.statements += 1
        [(_, values)] = looks
        ids = [number for number in range(9, 0, -1) if number < values["after_id"]]
        return [(0, number) for number in ids[:newest] if self.exists]

    async def jobs(
        self, ids: Sequence[int], *, bodies: bool, at_once: int
    ) -> AsyncGenerator[tuple[JobKey, JobRecord], None]:
        self.statements += 1
        for number in ids:
            if number not in self.gone:
                yield JobKey("q", 1, number), JobRecord(number, 1, 1, 0, 0, 0, 1, 0, state=JobState.FAILED)


def page(limit: int, *, bodies: bool = False) -> Page:
    return Page("q", JobState.FAILED, [1], limit, None, 0, False, bodies, 1_000)


async def scanned(wanted: Page, gone: set[int]) -> list[int]:
    """The ids of a page whose jobs `gone` have moved on."""
    found = await reading.scan(NumberedJobs(gone), wanted)
    assert not isinstance(found, Exception)
    return [row.key.id for row in found]


@pytest.mark.parametrize(
    ("gone", "ids"),
    [(set(), [9, 8, 7]), ({9}, [8, 7, 6]), ({9, 8, 7}, [6, 5, 4]), ({9, 7, 5}, [8, 6, 4]), (set(range(3, 10)), [2, 1])],
)
async def test_the_next_jobs_take_the_place_of_those_that_moved_on(gone: set[int], ids: list[int]) -> None:
    """A caller takes a short page for the last one."""
    assert await scanned(page(3), gone) == ids


async def test_with_bodies_a_page_may_be_short_but_is_empty_only_at_the_end() -> None:
    assert await scanned(page(3, bodies=True), {9}) == [8, 7]
    assert await scanned(page(3, bodies=True), {9, 8, 7}) == [6, 5, 4]
    assert await scanned(page(3, bodies=True), set(range(10))) == []


async def test_an_empty_page_of_no_queue_is_an_error() -> None:
    reader = NumberedJobs(exists=False)
    assert isinstance(await reading.scan(reader, page(3)), QueueNotFound)
    assert reader.statements == 2
