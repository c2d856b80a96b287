"""Requests at the default bounds: ten thousand jobs, whatever they carry, are stored whole, and answered alike when they come again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pinlater.domain.errors import QueueFull
from pinlater.domain.job import UniqueScope
from pinlater.server.operations.job_settings import JobSettings
from pinlater.server.storage.commands import CountJobs
from pinlater.server.storage.values import Inserted, InsertRequest, NewJob
from tests.contract.desk import QUEUE, Desk, unique

pytestmark = pytest.mark.differs("plans for statements with long lists, and long answers of scripts")

MANY = JobSettings().max_jobs_per_request
KEY_BYTES = JobSettings().max_unique_key_bytes


def plain(desk: Desk, number: int) -> NewJob:
    return desk.job(b"%d" % number, priority=1 + number % 3)


def with_options(desk: Desk, number: int) -> NewJob:
    """No two alike, so that nothing can be said of all at once."""
    status, headers = f"s{number}", {"number": str(number)}
    return desk.job(b"%d" % number, status=status, headers=headers, delay_ms=number, expires_in_ms=10**9 + number)


def with_unique_key(desk: Desk, number: int) -> NewJob:
    """The longest keys, of characters that statements have to escape. Their digits are all along them: the Lua of Redis 6.2 hashes
    every ninth character of a string that long."""
    key = (f"{number:06d}'\\" * KEY_BYTES)[:KEY_BYTES]
    scope = UniqueScope.TIME if number % 2 else UniqueScope.UNFINISHED
    return desk.job(b"%d" % number, unique=unique(key, scope, 60_000 if number % 2 else 0))


@pytest.mark.parametrize("make", [plain, with_options, with_unique_key])
async def test_as_many_jobs_as_a_request_may_have_are_stored_and_answered_again_alike(
    desk: Desk, make: Callable[[Desk, int], NewJob]
) -> None:
    """In one request with its key: all of them or none, and the answer is kept for a caller who asks again."""
    jobs = [make(desk, number) for number in range(MANY)]
    request = InsertRequest(QUEUE, jobs, request_key="r", fingerprint=b"f", max_backlog=MANY)

    first = await desk.request(request)
    again = await desk.request(request._replace(jobs=[make(desk, number) for number in range(MANY)]))

    assert isinstance(first, Inserted)
    assert isinstance(again, Inserted)
    assert list(again.ids) == list(first.ids) == [job.id for job in jobs]
    assert (first.existing, again.existing, again.repeated) == ({}, {}, True)
    rows = await desk.shard.submit(CountJobs([QUEUE]))
    assert (sum(row.counts.pending for row in rows), sum(row.counts.enqueued_total for row in rows)) == (MANY, MANY)
    assert isinstance(await desk.request(InsertRequest(QUEUE, [desk.job()], max_backlog=MANY)), QueueFull)


async def test_as_many_keys_as_a_request_may_have_are_found_taken(desk: Desk) -> None:
    """The answer names each duplicate, and is kept whole under the request's key."""
    first = await desk.request(InsertRequest(QUEUE, [with_unique_key(desk, number) for number in range(MANY)]))
    assert isinstance(first, Inserted)
    duplicates = InsertRequest(
        QUEUE, [with_unique_key(desk, number) for number in range(MANY)], request_key="r", fingerprint=b"f"
    )

    for _ in range(2):
        second = await desk.request(duplicates)
        assert isinstance(second, Inserted)
        assert list(second.ids) == list(first.ids)
        assert {index: job_id for index, (job_id, _) in second.existing.items()} == dict(enumerate(first.ids))
