"""Pages of a scan while jobs move on between the two statements of a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pinlater.domain.errors import QueueNotFound
from pinlater.domain.job import JobInfo, JobState
from pinlater.server.storage.relational import reading
from pinlater.server.storage.values import JobKey, Page, PageRow

JOB = JobInfo("q:s1:p1:1", JobState.FAILED, 1, 0, "", 0)


class NumberedJobs:
    """A reader of a queue with jobs of the ids 9 to 1, in this order."""

    def __init__(self, *, exists: bool = True) -> None:
        self.exists = exists
        self.statements = 0

    async def select(self, name: str, /, **values: Any) -> Sequence[tuple[Any, ...]]:
        self.statements += 1
        assert name == "find_queue"
        return [(1,)] if self.exists else []

    async def select_page(
        self, name: str, priorities: Sequence[int], limit: int, /, **values: Any
    ) -> Sequence[tuple[Any, ...]]:
        self.statements += 1
        ids = [number for number in range(9, 0, -1) if number < values["after_id"]]
        return [(0, number) for number in ids[:limit] if self.exists]


def page(limit: int, *, bodies: bool = False) -> Page:
    return Page("q", JobState.FAILED, [1], limit, None, 0, False, bodies, 1_000)


async def scanned(reader: NumberedJobs, wanted: Page, gone: set[int]) -> list[int]:
    """The ids of a page whose jobs `gone` have moved on."""

    async def read(order: Sequence[tuple[int, int]]) -> list[PageRow]:
        return [PageRow(at, JobKey("q", 1, number), JOB) for at, number in order if number not in gone]

    found = await reading.scan(reader, wanted, read)
    assert not isinstance(found, Exception)
    return [row.key.id for row in found]


@pytest.mark.parametrize(
    ("gone", "ids"),
    [(set(), [9, 8, 7]), ({9}, [8, 7, 6]), ({9, 8, 7}, [6, 5, 4]), ({9, 7, 5}, [8, 6, 4]), (set(range(3, 10)), [2, 1])],
)
async def test_the_next_jobs_take_the_place_of_those_that_moved_on(gone: set[int], ids: list[int]) -> None:
    """A caller takes a short page for the last one."""
    assert await scanned(NumberedJobs(), page(3), gone) == ids


async def test_with_bodies_a_page_may_be_short_but_is_empty_only_at_the_end() -> None:
    assert await scanned(NumberedJobs(), page(3, bodies=True), {9}) == [8, 7]
    assert await scanned(NumberedJobs(), page(3, bodies=True), {9, 8, 7}) == [6, 5, 4]
    assert await scanned(NumberedJobs(), page(3, bodies=True), set(range(10))) == []


async def test_an_empty_page_of_no_queue_is_an_error() -> None:
    async def read(_order: Sequence[tuple[int, int]]) -> list[PageRow]:
        raise AssertionError("there is nothing to read")

    reader = NumberedJobs(exists=False)
    assert isinstance(await reading.scan(reader, page(3), read), QueueNotFound)
    assert reader.statements == 2
