"""Unique keys: how long each scope takes them."""

from __future__ import annotations

import pytest

from pinlater.domain.job import JobState, UniqueScope
from pinlater.server.storage.commands import DeleteJobs, ExpireJobs, InsertJobs, TimeOutClaims, create_queues
from pinlater.server.storage.values import Inserted, InsertRequest, JobKey
from tests.contract.desk import ALL, HOUR_MS, QUEUE, TIMEOUT_MS, About, Desk, unique

SCOPES = list(UniqueScope)
PENDING, UNFINISHED, TIME = SCOPES


async def taken(desk: Desk, key: str = "k") -> bool:
    """Whether another job with `key` would find it taken. The probe leaves nothing behind."""
    probe = desk.job(unique=unique(key, UNFINISHED), delay_ms=HOUR_MS)
    inserted = await desk.insert(probe)
    if inserted.existing:
        return True
    [job] = [row.job for row in await desk.scan(JobState.PENDING, future=True) if row.key.id == probe.id]
    assert job.unique_key == key
    await desk.shard.submit(DeleteJobs([JobKey(QUEUE, 1, probe.id)]))
    return False


@pytest.mark.parametrize("scope", SCOPES)
async def test_a_second_job_under_the_key_is_the_first_one(desk: Desk, scope: UniqueScope) -> None:
    """The first job's body and priority stay; the answer names it, across priorities."""
    first = desk.job(b"first", priority=2, unique=unique("k", scope, HOUR_MS))
    await desk.insert(first)
    second = desk.job(b"second", priority=1, unique=unique("k", scope, HOUR_MS))

    inserted = await desk.insert(desk.job(), second, desk.job())

    assert inserted.ids[1] == first.id
    assert inserted.existing == {1: (first.id, 2)}
    held = await desk.claim(10)
    assert [one.job.body for one in held] == [b"hello", b"hello", b"first"]


@pytest.mark.parametrize("scope", SCOPES)
async def test_duplicates_in_one_request_are_one_job(desk: Desk, scope: UniqueScope) -> None:
    first, duplicate = (desk.job(unique=unique("k", scope, HOUR_MS)) for _ in range(2))

    inserted = await desk.insert(first, duplicate)

    assert list(inserted.ids) == [first.id, first.id]
    assert inserted.existing == {1: (first.id, 1)}
    assert (await desk.counts()).pending == 1


async def test_the_key_is_shown(desk: Desk) -> None:
    key = await desk.put(unique=unique("the key"))

    assert (await desk.look(key)).unique_key == "the key"


async def test_keys_of_two_queues_have_nothing_to_do_with_each_other(desk: Desk) -> None:
    await desk.shard.submit(create_queues(["other"], desk.now))
    await desk.insert(desk.job(unique=unique("k")))

    inserted = await desk.insert(desk.job(unique=unique("k")), queue="other")

    assert inserted.existing == {}


@pytest.mark.differs("collation")
async def test_keys_are_compared_exactly(desk: Desk) -> None:
    keys = ["k", "K", " k", "k ", "", "é", "e\u0301", "k\x00", "k\x00x"]

    inserted = await desk.insert(*[desk.job(unique=unique(key)) for key in keys])

    assert inserted.existing == {}
    again = await desk.insert(*[desk.job(unique=unique(key)) for key in keys])
    assert {index: pair[0] for index, pair in again.existing.items()} == dict(enumerate(inserted.ids))


async def test_scope_pending_is_freed_at_the_first_claim_and_not_retaken(desk: Desk) -> None:
    """While one runs, the next may wait."""
    held = await desk.put_and_take(unique=unique("k", PENDING))
    assert not await taken(desk)

    await desk.fail(held.key)
    assert not await taken(desk), "back in the queue, but the key stays free"


async def test_scope_unfinished_is_held_through_claims_and_retries(desk: Desk) -> None:
    held = await desk.put_and_take(unique=unique("k", UNFINISHED))
    assert await taken(desk)
    await desk.fail(held.key)
    assert await taken(desk)
    await desk.take()
    await desk.succeed(held.key)
    assert not await taken(desk)


@pytest.mark.parametrize("scope", [PENDING, UNFINISHED])
@pytest.mark.parametrize("end", ["succeed", "fail", "cancel", "delete", "purge", "expire", "time_out"])
async def test_the_end_of_the_job_frees_its_key(desk: Desk, scope: UniqueScope, end: str) -> None:
    about: About = {"unique": unique("k", scope), "attempts": 1, "expires_in_ms": 10 if end == "expire" else None}
    waits = end in ("cancel", "delete", "purge", "expire")
    key = await desk.put(**about) if waits else (await desk.put_and_take(**about)).key
    if end == "succeed":
        await desk.succeed(key)
    elif end == "fail":
        await desk.fail(key)
    elif end == "cancel":
        await desk.cancel(key)
    elif end == "delete":
        await desk.shard.submit(DeleteJobs([key]))
    elif end == "purge":
        await desk.purge(JobState.PENDING)
    elif end == "expire":
        desk.clock.advance(ms=11)
        await desk.shard.submit(ExpireJobs(desk.now, ALL))
    else:
        desk.clock.advance(ms=TIMEOUT_MS + 1)
        await desk.shard.submit(TimeOutClaims(desk.now, ALL))

    assert not await taken(desk)


@pytest.mark.parametrize("end", ["succeed", "delete", "cancel"])
async def test_scope_time_is_freed_by_time_alone(desk: Desk, end: str) -> None:
    held = await desk.put_and_take(unique=unique("k", TIME, 5000))
    if end == "succeed":
        await desk.succeed(held.key)
    elif end == "cancel":
        await desk.cancel(held.key)
    else:
        await desk.shard.submit(DeleteJobs([held.key]))

    desk.clock.advance(ms=4999)
    await desk.collect()
    assert await taken(desk)
    desk.clock.advance(ms=2)
    assert not await taken(desk)


async def test_scope_time_ends_while_the_job_still_waits(desk: Desk) -> None:
    """Then there are two; garbage collection of the key harms neither."""
    first = await desk.put(unique=unique("k", TIME, 5000))
    desk.clock.advance(ms=5001)
    second = desk.job(unique=unique("k", TIME, 5000))

    inserted = await desk.insert(second)
    await desk.collect()

    assert inserted.existing == {}
    assert await taken(desk)
    assert [held.job.id for held in await desk.claim(10)] == [first.id, second.id]


async def test_a_retry_takes_the_key_again(desk: Desk) -> None:
    held = await desk.put_and_take(unique=unique("k"))
    await desk.fail(held.key, final=True)
    assert not await taken(desk)

    assert await desk.retry_failed() == 1

    assert await taken(desk)


async def test_a_retry_passes_over_a_job_whose_key_is_taken(desk: Desk) -> None:
    """And it doesn't count against the limit."""
    first = await desk.put_and_take(unique=unique("k"), attempts=1)
    await desk.fail(first.key)
    desk.clock.advance(seconds=1)
    second = await desk.put_in(JobState.FAILED)
    newer = await desk.put(unique=unique("k"))

    assert await desk.retry_failed(limit=1) == 1

    assert (await desk.look(first.key)).state is JobState.FAILED
    assert (await desk.look(second)).state is JobState.PENDING
    assert (await desk.look(newer)).state is JobState.PENDING
    await desk.assert_counters_exact()


async def test_of_two_failed_jobs_with_one_key_a_retry_takes_one(desk: Desk) -> None:
    keys = [await desk.put_in(JobState.FAILED, unique=unique("k")) for _ in range(2)]

    assert await desk.retry_failed() == 1

    assert [(await desk.look(key)).state for key in keys] == [JobState.PENDING, JobState.FAILED]


async def test_an_old_jobs_end_does_not_free_a_key_that_another_has_now(desk: Desk) -> None:
    old = await desk.put_and_take(unique=unique("k", PENDING))
    await desk.put(unique=unique("k", PENDING), delay_ms=HOUR_MS)

    await desk.succeed(old.key)
    await desk.shard.submit(DeleteJobs([old.key]))

    assert await taken(desk)


async def test_a_full_queue_still_answers_for_jobs_that_are_there(desk: Desk) -> None:
    await desk.put(unique=unique("k"))
    await desk.put()

    result = await desk.request(InsertRequest(QUEUE, [desk.job(unique=unique("k"))], max_backlog=1))

    assert isinstance(result, Inserted)
    assert len(result.existing) == 1


@pytest.mark.differs("error numbers")
async def test_two_requests_of_one_call_see_each_other(desk: Desk) -> None:
    """Joined in one transaction, they come out as if one came after the other."""
    first, second = desk.job(unique=unique("k")), desk.job(unique=unique("k"))

    results = await desk.shard.submit(
        InsertJobs([InsertRequest(QUEUE, [first]), InsertRequest(QUEUE, [second])], desk.now)
    )

    assert [list(one.ids) for one in results if isinstance(one, Inserted)] == [[first.id], [first.id]]
