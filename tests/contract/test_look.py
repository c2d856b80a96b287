"""Lookups and scans."""

from __future__ import annotations

from functools import partial

import pytest

from pinlater.domain.errors import QueueNotFound
from pinlater.domain.job import JobState
from pinlater.server.storage.commands import LookupJobs, ScanJobs, create_queues
from pinlater.server.storage.values import JobKey, Page, PageRow
from tests.contract.desk import QUEUE, Desk


async def test_lookups_are_answered_in_order_with_none_for_what_is_not_there(desk: Desk) -> None:
    first, second = await desk.put(b"1"), await desk.put(b"2", priority=2)
    keys = [
        second,
        first._replace(id=first.id + 1_000_000),
        first,
        first._replace(priority=2),
        first._replace(queue="missing"),
        first,
    ]

    jobs = await desk.shard.submit(LookupJobs(keys, bodies=True))

    assert [job.body if job else None for job in jobs] == [b"2", None, b"1", None, None, b"1"]
    assert list(await desk.shard.submit(LookupJobs([], bodies=True))) == []


async def test_bodies_come_only_when_asked_for(desk: Desk) -> None:
    key = await desk.put(b"body")

    assert (await desk.look(key, bodies=False)).body is None
    assert (await desk.look(key, bodies=True)).body == b"body"


async def test_updated_at_follows_what_happens_to_the_job(desk: Desk) -> None:
    key = await desk.put(attempts=3)
    seen = [(await desk.look(key)).updated_at_ms]
    for step in (desk.take, lambda: desk.fail(key), desk.take, lambda: desk.succeed(key)):
        desk.clock.advance(seconds=1)
        await step()
        seen.append((await desk.look(key)).updated_at_ms)

    assert seen == [desk.now - 4000, desk.now - 3000, desk.now - 2000, desk.now - 1000, desk.now]
    assert (await desk.look(key)).created_at_ms == seen[0]


async def test_waiting_jobs_are_scanned_by_run_after_newest_first(desk: Desk) -> None:
    a = desk.job(delay_ms=-10)
    b = desk.job()
    c = desk.job(delay_ms=-5)
    d = desk.job()
    await desk.insert(a, b, c, d)

    assert [row.key.id for row in await desk.scan(JobState.PENDING)] == [d.id, b.id, c.id, a.id]


async def test_due_and_future_jobs_are_scanned_apart(desk: Desk) -> None:
    past, now, soon = desk.job(delay_ms=-1), desk.job(), desk.job(delay_ms=1)
    await desk.insert(past, now, soon)

    assert [row.key.id for row in await desk.scan(JobState.PENDING)] == [now.id, past.id]
    assert [row.key.id for row in await desk.scan(JobState.PENDING, future=True)] == [soon.id]


@pytest.mark.parametrize("future", [False, True])
@pytest.mark.parametrize("state", [JobState.IN_PROGRESS, JobState.SUCCEEDED, JobState.FAILED])
async def test_the_future_flag_means_nothing_to_other_states(desk: Desk, state: JobState, future: bool) -> None:
    """The original applied it to PENDING only."""
    key = await desk.put_in(state)

    assert [row.key.id for row in await desk.scan(state, future=future)] == [key.id]


async def test_jobs_in_progress_are_scanned_by_claim_time(desk: Desk) -> None:
    old = await desk.put_and_take()
    desk.clock.advance(seconds=1)
    new = await desk.put_and_take(delay_ms=-100_000)
    desk.clock.advance(seconds=1)
    await desk.heartbeat(old.ref)

    assert [row.key.id for row in await desk.scan(JobState.IN_PROGRESS)] == [new.key.id, old.key.id]


@pytest.mark.parametrize("state", [JobState.SUCCEEDED, JobState.FAILED])
async def test_finished_jobs_are_scanned_by_finish_time(desk: Desk, state: JobState) -> None:
    await desk.insert(desk.job(), desk.job())
    first, second = await desk.claim(2)
    for held in (second, first):
        desk.clock.advance(seconds=1)
        await (desk.succeed(held.key) if state is JobState.SUCCEEDED else desk.fail(held.key, final=True))

    assert [row.key.id for row in await desk.scan(state)] == [first.key.id, second.key.id]


@pytest.mark.parametrize("state", list(JobState))
async def test_pages_go_through_all_jobs_once(desk: Desk, state: JobState) -> None:
    """Equal times are told apart by the id, so that no page border loses or doubles one."""
    keys: list[JobKey] = []
    for number in range(11):
        if number % 4 == 0:
            desk.clock.advance(seconds=1)
        keys.append(await desk.put_in(state) if state is not JobState.PENDING else await desk.put())
    seen: list[int] = []
    after: tuple[int, int] | None = None
    while rows := await desk.page(Page(QUEUE, state, [1], 3, after=after, due_by_ms=desk.now)):
        assert len(rows) <= 3
        seen.extend(row.key.id for row in rows)
        after = (rows[-1].sort_ms, rows[-1].key.id)

    assert seen == [key.id for key in keys[::-1]]


@pytest.mark.parametrize("state", list(JobState))
async def test_the_jobs_of_several_priorities_are_in_one_order(desk: Desk, state: JobState) -> None:
    """Also where they have the same time, and where a page ends between them."""
    keys: list[JobKey] = []
    for number in range(24):
        if number % 5 == 0:
            desk.clock.advance(seconds=1)
        priority = 1 + number * 5 % 3 if number < 18 else 3
        keys.append(await (desk.put if state is JobState.PENDING else partial(desk.put_in, state))(priority=priority))
    every = Page(QUEUE, state, [3, 1, 2, 9], 100, due_by_ms=desk.now)

    rows = list(await desk.page(every))
    assert [row.key for row in rows] == keys[::-1]
    for limit in (1, 4, 7):
        found: list[PageRow] = []
        page = every._replace(limit=limit)
        while part := await desk.page(page):
            assert len(part) <= limit
            found += part
            page = page._replace(after=(part[-1].sort_ms, part[-1].key.id))
        assert found == rows
    of_two = await desk.page(every._replace(priorities=[1, 3]))
    assert [row.key for row in of_two] == [key for key in keys[::-1] if key.priority != 2]


@pytest.mark.parametrize("state", list(JobState))
async def test_a_page_may_begin_at_a_place_where_no_job_is(desk: Desk, state: JobState) -> None:
    """A scan over several shards continues after a job of another shard."""
    keys = [await desk.put_in(state) if state is not JobState.PENDING else await desk.put() for _ in range(3)]
    page = Page(QUEUE, state, [1], 10, due_by_ms=desk.now)
    rows = await desk.page(page)
    newest = rows[0]
    places = {
        (newest.sort_ms, newest.key.id + 1): 3,
        (newest.sort_ms, newest.key.id): 2,
        (newest.sort_ms + 1, 0): 3,
        (rows[-1].sort_ms, rows[-1].key.id + 1): 1,
        (rows[-1].sort_ms, rows[-1].key.id - 1): 0,
    }
    for place, expected in places.items():
        assert len(await desk.page(page._replace(after=place))) == expected, place
    assert len(keys) == 3


async def test_the_future_part_has_pages_too(desk: Desk) -> None:
    """The border is the time at which the scan began."""
    jobs = [desk.job(delay_ms=delay) for delay in (-1, 0, 1, 2, 3)]
    await desk.insert(*jobs)
    page = Page(QUEUE, JobState.PENDING, [1], 2, due_by_ms=desk.now, future=True)

    first = await desk.page(page)
    second = await desk.page(page._replace(after=(first[-1].sort_ms, first[-1].key.id)))

    assert [row.key.id for row in [*first, *second]] == [jobs[4].id, jobs[3].id, jobs[2].id]


async def test_a_row_says_by_which_time_it_is_ordered(desk: Desk) -> None:
    held = await desk.put_and_take(attempts=1)
    claimed_at = desk.now
    [row] = await desk.page(Page(QUEUE, JobState.IN_PROGRESS, [1], 1))
    assert row.sort_ms == claimed_at

    desk.clock.advance(seconds=1)
    await desk.fail(held.key)
    [row] = await desk.page(Page(QUEUE, JobState.FAILED, [1], 1))
    assert row.sort_ms == desk.now
    assert row.job == await desk.look(held.key, bodies=False)


async def test_scanned_jobs_are_shown_as_lookups_show_them(desk: Desk) -> None:
    for state in list(JobState)[::-1]:
        await desk.put_in(state, status="s", headers={"a": "b"})

    for state in JobState:
        [row] = await desk.page(Page(QUEUE, state, [1], 10, due_by_ms=desk.now, bodies=True))
        assert row.job == await desk.look(JobKey(QUEUE, 1, row.key.id), bodies=True)


async def test_a_page_with_bodies_ends_at_its_bytes_but_has_a_row(desk: Desk) -> None:
    """A page without rows would mean the end."""
    await desk.insert(*[desk.job(b"x" * 1000) for _ in range(10)])
    page = Page(QUEUE, JobState.PENDING, [1], 10, due_by_ms=desk.now, bodies=True, max_bytes=2500)

    rows: list[PageRow] = []
    while part := await desk.page(page):
        assert len(part) <= 4
        rows.extend(part)
        page = page._replace(after=(part[-1].sort_ms, part[-1].key.id))

    assert len({row.key.id for row in rows}) == len(rows) == 10
    assert {row.job.body for row in rows} == {b"x" * 1000}


async def test_the_bodies_of_several_priorities_have_one_limit(desk: Desk) -> None:
    await desk.insert(*[desk.job(b"x" * 1000, priority=1 + number % 3) for number in range(9)])
    page = Page(QUEUE, JobState.PENDING, [1, 2, 3], 9, due_by_ms=desk.now, bodies=True, max_bytes=2500)

    ids = [row.key.id for row in await desk.page(page)]

    assert 1 <= len(ids) <= 4
    assert ids == [row.key.id for row in await desk.page(page._replace(bodies=False))][: len(ids)]


async def test_the_future_part_of_several_priorities_is_one_order(desk: Desk) -> None:
    jobs = [desk.job(delay_ms=delay, priority=1 + delay % 3) for delay in range(-3, 7)]
    await desk.insert(*jobs)
    page = Page(QUEUE, JobState.PENDING, [1, 2, 3], 4, due_by_ms=desk.now)

    due, future = await desk.page(page), await desk.page(page._replace(future=True))

    assert [row.key.id for row in due] == [job.id for job in jobs[3::-1]]
    assert [row.key.id for row in future] == [job.id for job in jobs[:5:-1]]


async def test_a_scan_looks_at_one_priority_and_one_queue(desk: Desk) -> None:
    await desk.shard.submit(create_queues(["other"], desk.now))
    key = await desk.put(priority=2)
    await desk.put(priority=1)
    await desk.put(queue="other", priority=2)

    assert [row.key.id for row in await desk.scan(JobState.PENDING, priority=2)] == [key.id]
    assert await desk.scan(JobState.PENDING, priority=3) == []


@pytest.mark.parametrize("priorities", [[1], [1, 2, 3]])
async def test_a_scan_of_a_missing_queue_is_refused(desk: Desk, priorities: list[int]) -> None:
    assert isinstance(
        await desk.shard.submit(ScanJobs(Page("missing", JobState.PENDING, priorities, 1))), QueueNotFound
    )


async def test_a_scan_of_no_rows_gives_none(desk: Desk) -> None:
    await desk.put()

    assert list(await desk.page(Page(QUEUE, JobState.PENDING, [1], 0, due_by_ms=desk.now))) == []
