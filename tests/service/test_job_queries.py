"""Lookups, counts, scans and bulk operations, with regexes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from pinlater.domain.errors import InvalidArgument
from pinlater.domain.job import JobState
from pinlater.server.operations.addressing import KEYS_A_CALL
from pinlater.server.operations.job_settings import PAGES_BYTES_MAX
from pinlater.server.storage.commands import LookupJobs, ScanJobs
from pinlater.server.storage.values import JobKey, Page
from pinlater.wire.generated.structs import (
    Ack,
    AckBatch,
    Checkpoint,
    CheckpointBatch,
    CountRequest,
    JobInfo,
    LookupRequest,
    RetryRequest,
    ScanRequest,
)
from tests.commands import instead
from tests.service.conftest import CALLER, ServiceUnderTest

PENDING = CountRequest("q", JobState.PENDING)


async def _bodies(world: ServiceUnderTest, **more: Any) -> list[bytes | None]:
    command = ScanRequest("q", JobState.PENDING, bodies=True, **more)
    return [job.body for job in (await world.service.job_queries.scan(command)).jobs]


async def test_a_retry_of_thousands_goes_on_where_its_last_transaction_stopped(world: ServiceUnderTest) -> None:
    """In front of the failed jobs are cancelled ones, which stay as they are."""
    cancelled = await world.enqueue(*[b"cancelled"] * 1_200)
    await world.service.claimed_jobs.cancel("q", cancelled)
    world.clock.advance(ms=1)
    failed = await world.enqueue(*[b"failed"] * 1_300, attempts_allowed=1)
    for _ in range(2):
        assert len((await world.dequeue(650)).jobs) == 650
    await world.service.claimed_jobs.acknowledge(CALLER, AckBatch("q", failed=[Ack(d) for d in failed]))

    assert await world.service.bulk.retry_failed(RetryRequest("q", limit=1_250, skip_cancelled=True)) == 1_250
    assert await world.service.bulk.retry_failed(RetryRequest("q", limit=1_250, skip_cancelled=True)) == 50
    assert await world.service.job_queries.count(PENDING) == len(failed)
    assert await world.service.job_queries.count(CountRequest("q", JobState.FAILED)) == len(cancelled)


async def test_a_job_that_was_due_before_all_time_has_an_age_that_the_wire_can_say(world: ServiceUnderTest) -> None:
    await world.enqueue(b"a", run_after_ms=-(2**63))
    [stats] = await world.service.queues.queue_stats(["q"])
    assert stats.oldest_waiting_ms == 2**63 - 1


def count_lookups(world: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many jobs each question to the store is about, from now on."""
    [shard] = list(world.service.shards)
    look = shard.store.submit
    read: list[int] = []

    async def counted(keys: Sequence[JobKey], bodies: bool) -> Sequence[JobInfo | None]:
        read.append(len(keys))
        return await look(LookupJobs(keys, bodies))

    monkeypatch.setattr(shard.store, "submit", instead(shard.store, LookupJobs, counted))
    return read


async def test_a_lookup_of_more_than_a_frame_is_refused_before_all_of_it_is_read(
    world: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    descriptors = []
    for _ in range(3):
        descriptors += await world.enqueue(*[b"x" * 1_000] * 1_000, custom_status="s" * 5_000)
    read = count_lookups(world, monkeypatch)
    with pytest.raises(InvalidArgument, match="max_answer_bytes"):
        await world.service.job_queries.lookup(LookupRequest(descriptors, True))
    assert sum(read) < 3_000
    found = await world.service.job_queries.lookup(LookupRequest(descriptors[:70], True))
    assert list(found) == descriptors[:70]


async def test_a_job_that_is_named_many_times_is_read_once(
    world: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fifty thousand times its body would be held until the answer."""
    [one, other] = await world.enqueue(b"x" * 1_000, b"y")
    read = count_lookups(world, monkeypatch)
    for bodies in (True, False):
        read.clear()
        found = await world.service.job_queries.lookup(LookupRequest([one] * 10_000 + [other] + [one] * 10_000, bodies))
        assert list(found) == [one, other]
        assert sum(read) == 2


async def test_a_request_about_very_many_jobs_gives_others_their_turn_and_floods_no_log(
    world: ServiceUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    """What was refused is logged for some jobs and counted for all."""
    caplog.set_level(logging.INFO, "pinlater.server.operations")
    jobs = [JobKey("q", 1, number) for number in range(10 * KEYS_A_CALL)]
    await world.enqueue(b"x")
    claimed = (await world.dequeue(1)).jobs[0].descriptor
    names = [claimed, *(f"q:s1:p1:{key.id}" for key in jobs)]
    items = [Checkpoint(claimed, token="another's") for _ in range(len(jobs))]
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    for call in (
        world.service.job_queries.lookup(LookupRequest(names)),
        world.service.claimed_jobs.checkpoint(CALLER, CheckpointBatch("q", items)),
        world.service.claimed_jobs.cancel("q", names[1:]),
        world.service.bulk.delete_jobs_by_descriptor("q", names[1:]),
    ):
        before = turns
        await call
        assert turns - before >= 10
    counting.cancel()
    refused = [record for record in caplog.records if "checkpoint without effect" in record.message]
    assert len(refused) == 11
    assert refused[-1].__dict__["jobs"] == len(jobs) - 10


async def test_the_pages_of_a_scan_that_are_in_memory_at_once_hold_eight_mebibytes_together(
    world: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many priorities and shards there are: as much as the listener reserves for it."""
    for priority in (1, 2, 3):
        await world.enqueue(b"x", priority=priority)
    [shard] = list(world.service.shards)
    scan = shard.store.submit
    asked: list[Page] = []

    async def noted(page: Page) -> Any:
        asked.append(page)
        return await scan(ScanJobs(page))

    monkeypatch.setattr(shard.store, "submit", instead(shard.store, ScanJobs, noted))
    assert len(await _bodies(world)) == 3
    assert asked[0].priorities == range(1, 4)
    assert {page.max_bytes for page in asked} == {PAGES_BYTES_MAX}
