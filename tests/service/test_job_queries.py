"""Lookups, counts, scans and bulk operations, with regexes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from pinlater.domain.errors import ContinuationInvalid, InvalidArgument, PasswordInvalid, PriorityNotSupported
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
    DeleteRequest,
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


async def test_a_regex_searches_in_utf8_and_case_matters(world: ServiceUnderTest) -> None:
    await world.enqueue("schön".encode(), b"SCHOEN", b"\xff\xfe", b"x schoen y")
    assert await _bodies(world, regex="sch.n") == ["schön".encode()]
    assert await world.service.job_queries.count(replace(PENDING, regex="^scho")) == 0
    assert await world.service.job_queries.count(replace(PENDING, regex="scho")) == 1


@pytest.mark.parametrize("pattern", ["(", "(?=a)", "a{5000}", "x" * 1001, r"\1"])
async def test_an_invalid_regex_gets_a_clear_error(world: ServiceUnderTest, pattern: str) -> None:
    await world.enqueue(b"x")
    with pytest.raises(InvalidArgument, match="regex"):
        await world.service.job_queries.count(replace(PENDING, regex=pattern))


async def test_a_scan_is_newest_first_over_all_priorities(world: ServiceUnderTest) -> None:
    for i in range(6):
        await world.enqueue(b"%d" % i, priority=1 + i % 3)
        world.clock.advance(ms=10)
    assert await _bodies(world) == [b"5", b"4", b"3", b"2", b"1", b"0"]
    assert await _bodies(world, limit=2) == [b"5", b"4"]


async def test_a_paged_scan_sees_each_job_once(world: ServiceUnderTest) -> None:
    await world.enqueue(*(b"%d" % i for i in range(25)))
    seen: list[bytes] = []
    continuation = "0"
    while continuation != "-1":
        page = await world.service.job_queries.scan(
            ScanRequest("q", JobState.PENDING, None, False, continuation, 7, paged=True, bodies=True)
        )
        seen += [job.body or b"" for job in page.jobs]
        continuation = page.continuation
    assert sorted(seen) == sorted(b"%d" % i for i in range(25))


@pytest.mark.parametrize(("continuation", "paged"), [("1", False), ("-1", False), ("5.5", False), ("x", True)])
async def test_a_continuation_that_is_not_ours_is_refused(
    world: ServiceUnderTest, continuation: str, paged: bool
) -> None:
    with pytest.raises(ContinuationInvalid):
        await world.service.job_queries.scan(ScanRequest("q", JobState.PENDING, continuation=continuation, paged=paged))


async def test_future_jobs_count_only_with_the_flag_and_only_they_then(world: ServiceUnderTest) -> None:
    await world.enqueue(b"now")
    await world.enqueue(b"later", b"later", run_after_ms=world.clock.now_ms() + 60_000)
    assert await world.service.job_queries.count(PENDING) == 1
    assert await world.service.job_queries.count(replace(PENDING, future=True)) == 2


async def test_a_limit_of_nothing_does_nothing(world: ServiceUnderTest) -> None:
    """The original took 0 for everything, and with a regex never ended."""
    await world.enqueue(b"x", b"y")
    assert await world.service.bulk.delete_jobs(DeleteRequest("q", JobState.PENDING, limit=0)) == 0
    assert await world.service.bulk.delete_jobs(DeleteRequest("q", JobState.PENDING, regex="x", limit=0)) == 0
    assert await world.service.bulk.retry_failed(RetryRequest("q", limit=0)) == 0
    assert await world.service.job_queries.count(PENDING) == 2


async def test_deleting_by_regex_takes_only_what_matches(world: ServiceUnderTest) -> None:
    await world.enqueue(b"keep", b"drop 1", b"drop 2")
    await world.enqueue(b"drop later", run_after_ms=world.clock.now_ms() + 1000)
    assert await world.service.bulk.delete_jobs(DeleteRequest("q", JobState.PENDING, regex="^drop", limit=10)) == 3
    assert await _bodies(world) == [b"keep"]


async def test_failed_jobs_can_be_retried(world: ServiceUnderTest) -> None:
    descriptors = await world.enqueue(b"x", b"y", attempts_allowed=1)
    await world.dequeue()
    await world.service.claimed_jobs.acknowledge(CALLER, AckBatch("q", failed=[Ack(d) for d in descriptors]))
    assert await world.service.job_queries.count(CountRequest("q", JobState.FAILED)) == 2
    assert await world.service.bulk.retry_failed(RetryRequest("q", attempts=2)) == 2
    assert [handed_out.job.attempts_remaining for handed_out in (await world.dequeue()).jobs] == [2, 2]


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


async def test_bad_numbers_are_refused(world: ServiceUnderTest) -> None:
    with pytest.raises(InvalidArgument):
        await world.service.bulk.delete_jobs(DeleteRequest("q", JobState.PENDING, limit=-1))
    with pytest.raises(InvalidArgument):
        await world.service.bulk.retry_failed(RetryRequest("q", attempts=0))
    with pytest.raises(PriorityNotSupported):
        await world.service.job_queries.count(replace(PENDING, priority=9))
    with pytest.raises(InvalidArgument):
        await world.service.job_queries.scan(ScanRequest("q", JobState.PENDING, limit=-5))


async def test_deleting_a_queue_needs_the_password(world: ServiceUnderTest) -> None:
    with pytest.raises(PasswordInvalid):
        await world.service.queues.delete_queue("q", "guess")
    await world.service.queues.delete_queue("q", "open sesame")
    await world.service.queues.delete_queue("q", "open sesame")
    assert not await world.service.queues.queue_names()


async def test_stats_come_from_counters(world: ServiceUnderTest) -> None:
    await world.enqueue(b"a", b"b")
    await world.enqueue(b"c", priority=3)
    world.clock.advance(seconds=5)
    await world.dequeue(1)
    [stats] = await world.service.queues.queue_stats(["q"])
    assert [(row.priority, row.pending, row.in_progress) for row in stats.counts] == [(1, 1, 1), (3, 1, 0)]
    assert stats.oldest_waiting_ms == 5000


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


@pytest.mark.parametrize("state", [-1, 4, 2**31 - 1])
async def test_an_unknown_state_is_an_error(world: ServiceUnderTest, state: int) -> None:
    for refused in (
        world.service.job_queries.count(CountRequest("q", state)),
        world.service.job_queries.scan(ScanRequest("q", state)),
        world.service.bulk.delete_jobs(DeleteRequest("q", state)),
    ):
        with pytest.raises(InvalidArgument, match="not a job state"):
            await refused
