"""Storing jobs."""

from __future__ import annotations

import pytest

from pinlater.domain.errors import QueueFull, QueueNotFound
from pinlater.domain.job import JobState
from pinlater.server.storage.commands import InsertJobs, create_queues
from pinlater.server.storage.values import Inserted, InsertRequest
from tests.contract.desk import QUEUE, Desk


async def test_a_stored_job_comes_back_as_it_was_given(desk: Desk) -> None:
    key = await desk.put(b"body", priority=2, delay_ms=500, attempts=7, status="new", headers={"trace": "1"})

    job = await desk.look(key)

    assert (job.descriptor, job.body) == (f"{QUEUE}:s{desk.shard.name}:p2:{key.id}", b"body")
    assert job.state is JobState.PENDING
    assert (job.attempts_allowed, job.attempts_remaining) == (7, 7)
    assert (job.custom_status, job.headers) == ("new", {"trace": "1"})
    assert (job.created_at_ms, job.updated_at_ms) == (desk.now, desk.now)
    assert job.run_after_ms == desk.now + 500
    assert job.claim_descriptor is None
    assert job.claim_deadline_ms is None
    assert job.finished_at_ms is None
    assert (job.error_type, job.error_text, list(job.attempts)) == ("", "", [])


async def test_ids_come_back_in_the_order_of_the_jobs(desk: Desk) -> None:
    jobs = [desk.job(b"%d" % number, priority=1 + number % 3) for number in range(10)]

    inserted = await desk.insert(*jobs)

    assert list(inserted.ids) == [job.id for job in jobs]
    assert inserted.existing == {}
    assert not inserted.repeated


async def test_requests_of_one_call_are_answered_in_order_and_fail_alone(desk: Desk) -> None:
    first, other, last = desk.job(), desk.job(), desk.job()

    results = await desk.shard.submit(
        InsertJobs(
            [
                InsertRequest(QUEUE, [first]),
                InsertRequest("missing", [other]),
                InsertRequest(QUEUE, [desk.job(), desk.job()], max_backlog=2),
                InsertRequest(QUEUE, [last]),
            ],
            desk.now,
        )
    )

    assert isinstance(results[0], Inserted)
    assert isinstance(results[1], QueueNotFound)
    assert isinstance(results[2], QueueFull)
    assert isinstance(results[3], Inserted)
    assert [row.key.id for row in await desk.scan(JobState.PENDING)] == [last.id, first.id]
    await desk.assert_counters_exact()


async def test_an_insert_of_nothing_stores_nothing(desk: Desk) -> None:
    assert list(await desk.shard.submit(InsertJobs([], desk.now))) == []
    inserted = await desk.insert()
    assert list(inserted.ids) == []
    assert (await desk.counts()).pending == 0


@pytest.mark.differs("error numbers, and errors that a script returns")
async def test_an_insert_into_a_missing_queue_is_refused_with_its_name(desk: Desk) -> None:
    """The queue may have been deleted since the server looked; only the store can say."""
    result = await desk.request(InsertRequest("missing", [desk.job()]))

    assert isinstance(result, QueueNotFound)
    assert result.message == "Queue not found: missing"


@pytest.mark.differs("error numbers, and errors that a script returns")
async def test_a_request_that_would_overfill_the_queue_is_refused_whole(desk: Desk) -> None:
    await desk.put(priority=1)
    await desk.put(priority=3, delay_ms=1000)

    refused = await desk.request(InsertRequest(QUEUE, [desk.job(), desk.job()], max_backlog=3))
    fits = await desk.request(InsertRequest(QUEUE, [desk.job()], max_backlog=3))

    assert isinstance(refused, QueueFull)
    assert "its backlog of 2 jobs (at most 3) has no place for 2 more" in refused.message
    assert isinstance(fits, Inserted)
    assert (await desk.counts()).pending == 2


async def test_only_waiting_jobs_fill_a_queue(desk: Desk) -> None:
    for state in (JobState.IN_PROGRESS, JobState.SUCCEEDED, JobState.FAILED):
        await desk.put_in(state)

    result = await desk.request(InsertRequest(QUEUE, [desk.job()], max_backlog=1))

    assert isinstance(result, Inserted)


async def test_a_custom_status_is_cut_at_the_stores_length(desk: Desk) -> None:
    limit = desk.shard.capabilities.custom_status_chars_max
    key = await desk.put(status="é" * (limit + 10))

    assert (await desk.look(key)).custom_status == "é" * limit


async def test_the_same_job_has_different_ids_in_two_queues(desk: Desk) -> None:
    await desk.shard.submit(create_queues(["other"], desk.now))
    key = await desk.put()

    assert await desk.find(key._replace(queue="other")) is None
    assert (await desk.counts("other")).pending == 0


async def test_many_jobs_in_one_request_are_all_there(desk: Desk) -> None:
    jobs = [desk.job(b"%d" % number) for number in range(1000)]

    await desk.insert(*jobs)

    held = await desk.claim(1000)
    assert [one.job.id for one in held] == [job.id for job in jobs]
    assert [one.job.body for one in held] == [job.body for job in jobs]


@pytest.mark.differs("JSON_TABLE")
async def test_the_same_insert_again_stores_nothing_twice(desk: Desk) -> None:
    """A server that lost the answer to its transaction repeats it with the same ids."""
    jobs = [desk.job(b"1"), desk.job(b"2")]
    first = await desk.insert(*jobs)

    again = await desk.insert(*jobs, desk.job(b"3"))

    assert list(again.ids[:2]) == list(first.ids)
    assert [held.job.body for held in await desk.claim(10)] == [b"1", b"2", b"3"]
    assert (await desk.counts()).enqueued_total == 3
    await desk.assert_counters_exact()


async def test_jobs_may_come_in_any_order_of_ids(desk: Desk) -> None:
    """Two lanes of a server make ids at the same time; the later ids may be stored first."""
    early, late, last = desk.job(b"early"), desk.job(b"late"), desk.job(b"last")
    await desk.insert(late)
    await desk.insert(early, last)

    assert [held.job.body for held in await desk.claim(10)] == [b"early", b"late", b"last"]
    await desk.assert_counters_exact()
