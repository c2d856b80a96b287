"""What the settings of a queue say about its ordering keys: where a retry goes, what a final failure does, how many are in hand."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest

from pinlater.domain.errors import PinLaterError, QueueNotFound
from pinlater.domain.job import JobState, Outcome
from pinlater.domain.queue import QueueConfig
from pinlater.server.storage.commands import (
    CollectGarbage,
    ConfigureQueue,
    DeleteJobs,
    DeleteWithCopies,
    ExpireJobs,
    FinishJobs,
    RestoreJobs,
    TimeOutClaims,
    UnblockKey,
)
from pinlater.server.storage.values import CopiesOf, JobAck, JobKey, RestoreOrder, TimeToLive
from tests.contract.desk import ALL, QUEUE, TIMEOUT_MS, Desk, DeskJob
from tests.contract.test_ordering import ENDS, LATER_MS, fails, is_quarantined, names, only, put, times_out_at_last

FAILED = JobState.FAILED
RUN = CopiesOf("0123456789abcdef", 1_000)
FINAL_FAILURES = [fails, times_out_at_last, is_quarantined]


@pytest.fixture(autouse=True)
async def counters(desk: Desk) -> AsyncIterator[None]:
    """Whatever a test does, the counters say afterwards what the rows say."""
    yield
    await desk.assert_counters_exact()


async def configure(desk: Desk, **settings: object) -> None:
    await desk.shard.submit(ConfigureQueue(QUEUE, config=QueueConfig(**settings)))  # type: ignore[arg-type]


async def take_all(desk: Desk) -> list[str]:
    """Claims and ends what is due until nothing is."""
    seen: list[str] = []
    while held := await desk.claim(1):
        seen.append(held[0].job.body.decode())
        await desk.succeed(held[0].key)
    return seen


async def succeed_all(desk: Desk, *held: DeskJob) -> None:
    """Acks these in one call."""
    await desk.shard.submit(FinishJobs([JobAck(each.key, True, each.ref.token) for each in held], desk.now))


# --- after_failure ----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("end", FINAL_FAILURES, ids=lambda end: end.__name__)
async def test_a_job_that_fails_finally_stops_its_key_where_the_queue_says_so(desk: Desk, end: object) -> None:
    await configure(desk, after_failure="stop")
    first, _ = await put(desk, "1", "2")
    await end(desk, first)  # type: ignore[operator]
    assert (await desk.look(first)).state is FAILED
    await put(desk, "3")
    await put(desk, "other", key="b")
    assert await names(desk) == ["other"]


async def stopped(desk: Desk) -> tuple[JobKey, JobKey]:
    """A key with a job that stopped it, and one that waits behind that."""
    await configure(desk, after_failure="stop")
    first, second = await put(desk, "1", "2")
    await fails(desk, first)
    assert await names(desk) == []
    return first, second


@pytest.mark.parametrize("how", ["retry", "run"])
async def test_a_job_that_stopped_its_key_keeps_its_place_when_it_is_retried(desk: Desk, how: str) -> None:
    first, _ = await stopped(desk)
    if how == "retry":
        assert await desk.retry_failed() == 1
    else:
        assert (await desk.run(first)).outcome is Outcome.APPLIED
    held = await only(desk)
    assert held.key == first
    await desk.succeed(first)
    assert await names(desk) == ["2"]


async def is_deleted(desk: Desk, key: JobKey) -> None:
    assert await desk.shard.submit(DeleteJobs([key])) == 1


async def is_purged(desk: Desk, key: JobKey) -> None:
    assert await desk.purge(FAILED, limit=1) == 1


async def is_deleted_with_a_copy(desk: Desk, key: JobKey) -> None:
    assert (await desk.shard.submit(DeleteWithCopies([key], FAILED, RUN, desk.now))).deleted == 1


async def outlives_its_time(desk: Desk, key: JobKey) -> None:
    desk.clock.advance(ms=10)
    await desk.shard.submit(CollectGarbage([TimeToLive(QUEUE, 1, 1)], desk.now, ALL))


@pytest.mark.parametrize(
    "end", [is_deleted, is_purged, is_deleted_with_a_copy, outlives_its_time], ids=lambda end: end.__name__
)
async def test_a_stopped_key_goes_on_once_the_job_that_stopped_it_is_deleted(desk: Desk, end: object) -> None:
    first, _ = await stopped(desk)
    await end(desk, first)  # type: ignore[operator]
    assert await take_all(desk) == ["2"]


async def test_a_job_that_stopped_its_key_and_comes_back_after_a_delete_takes_no_place(desk: Desk) -> None:
    first, _ = await stopped(desk)
    await is_deleted_with_a_copy(desk, first)
    await desk.shard.submit(RestoreJobs(RestoreOrder(QUEUE, RUN), desk.now))
    assert await names(desk) == ["2"]
    assert (await desk.run(first)).outcome is Outcome.APPLIED
    assert await names(desk) == []


@pytest.mark.parametrize("end", [end for end in ENDS if end not in FINAL_FAILURES], ids=lambda end: end.__name__)
async def test_no_other_end_of_a_job_stops_its_key(desk: Desk, end: object) -> None:
    await configure(desk, after_failure="stop")
    first, _, _ = await put(desk, "1", "2", "3")
    await end(desk, first)  # type: ignore[operator]
    assert await names(desk) == ["2"]


async def test_a_job_that_expires_stops_no_key(desk: Desk) -> None:
    await configure(desk, after_failure="stop")
    await put(desk, "1", expires_in_ms=500)
    await put(desk, "2")
    desk.clock.advance(ms=501)
    await desk.shard.submit(ExpireJobs(desk.now, ALL))
    assert await names(desk) == ["2"]


async def test_a_job_that_waits_behind_a_stopped_one_is_still_cancelled_and_deleted(desk: Desk) -> None:
    first, second = await stopped(desk)
    [third] = await put(desk, "3")
    await desk.cancel(second)
    await is_deleted(desk, third)
    assert await names(desk) == []
    await put(desk, "4")
    assert await desk.retry_failed() == 2
    held = await only(desk)
    assert held.key == first
    await desk.succeed(first)
    assert await take_all(desk) == ["4", "2"]


async def test_a_stopped_key_stays_so_when_the_setting_changes(desk: Desk) -> None:
    first, _ = await stopped(desk)
    await configure(desk)
    await put(desk, "3")
    assert await names(desk) == []
    await is_deleted(desk, first)
    assert await take_all(desk) == ["2", "3"]


async def unblock(desk: Desk, queue: str = QUEUE) -> int | PinLaterError:
    return await desk.shard.submit(UnblockKey(queue, "a", desk.now))


async def test_a_stopped_key_is_unblocked_and_the_job_that_stopped_it_stays_failed(desk: Desk) -> None:
    first, _ = await stopped(desk)
    assert await unblock(desk) == 1
    assert await take_all(desk) == ["2"]
    assert (await desk.look(first)).state is FAILED
    await put(desk, "3")
    assert await desk.retry_failed() == 1
    assert await take_all(desk) == ["3", "1"]


async def test_to_unblock_a_key_that_no_job_has_stopped_changes_nothing(desk: Desk) -> None:
    assert await unblock(desk) == 0
    await put(desk, "1", "2")
    assert await unblock(desk) == 0
    assert await names(desk) == ["1"]
    assert await unblock(desk) == 0
    assert await names(desk) == []
    assert isinstance(await unblock(desk, "nowhere"), QueueNotFound)


async def test_all_jobs_that_stopped_a_key_let_it_go_at_once(desk: Desk) -> None:
    await configure(desk, max_in_hand_per_key=2, after_failure="stop")
    await put(desk, "1", "2", "3", "4", "5")
    for held in await desk.claim(10):
        await desk.fail(held.key, final=True)
    assert await names(desk) == []
    assert await unblock(desk) == 2
    assert await names(desk) == ["3", "4"]


# --- retry ------------------------------------------------------------------------------------------------------------------------
async def test_a_failed_attempt_goes_to_the_end_where_the_queue_says_so(desk: Desk) -> None:
    await configure(desk, retry_place="to_back")
    first, _, _ = await put(desk, "1", "2", "3", attempts=3)
    await desk.take()
    await desk.fail(first)
    assert await take_all(desk) == ["2", "3", "1"]


async def test_the_delay_of_a_retry_that_went_to_the_end_counts_once_it_is_first(desk: Desk) -> None:
    await configure(desk, retry_place="to_back")
    first, _ = await put(desk, "1", "2")
    await desk.take()
    await desk.fail(first, delay_ms=LATER_MS)
    assert (await desk.look(first)).run_after_ms == desk.now + LATER_MS
    assert await take_all(desk) == ["2"]
    desk.clock.advance(ms=LATER_MS)
    assert await take_all(desk) == ["1"]


async def test_a_retry_that_is_alone_under_its_key_waits_only_for_its_delay(desk: Desk) -> None:
    await configure(desk, retry_place="to_back")
    [first] = await put(desk, "1")
    await desk.take()
    await desk.fail(first)
    assert await take_all(desk) == ["1"]


async def test_a_job_that_times_out_or_is_released_keeps_its_place_all_the_same(desk: Desk) -> None:
    await configure(desk, retry_place="to_back")
    await put(desk, "1", "2", attempts=5)
    await desk.release((await only(desk)).ref)
    await only(desk)
    desk.clock.advance(ms=TIMEOUT_MS + 1)
    await desk.shard.submit(TimeOutClaims(desk.now, ALL))
    assert await take_all(desk) == ["1", "2"]


async def test_retries_that_fail_in_one_call_go_to_the_ends_of_their_keys(desk: Desk) -> None:
    await configure(desk, retry_place="to_back")
    for key in "abc":
        await put(desk, f"{key}1", f"{key}2", key=key)
    held = await desk.claim(10)
    await desk.shard.submit(FinishJobs([JobAck(each.key, False, each.ref.token) for each in held], desk.now))
    assert sorted(await names(desk)) == ["a2", "b2", "c2"]


# --- max_in_hand_per_key ----------------------------------------------------------------------------------------------------------
async def test_as_many_jobs_of_a_key_are_in_hand_as_the_queue_allows(desk: Desk) -> None:
    await configure(desk, max_in_hand_per_key=2)
    await put(desk, "1", "2", "3", "4", "5")
    one, two = await desk.claim(10)
    assert (one.job.body, two.job.body) == (b"1", b"2")
    await desk.succeed(two.key)
    assert await names(desk) == ["3"]
    await desk.succeed(one.key)
    assert await names(desk) == ["4"]
    assert await names(desk) == []


async def test_jobs_of_a_key_that_are_in_hand_together_may_end_in_one_call(desk: Desk) -> None:
    await configure(desk, max_in_hand_per_key=3)
    await desk.insert(*[desk.job(b"%d" % number, ordering_key="a") for number in range(7)])
    seen: list[str] = []
    while held := await desk.claim(10):
        assert len(held) <= 3
        seen += [each.job.body.decode() for each in held]
        await succeed_all(desk, *held)
    assert seen == list(map(str, range(7)))


async def test_more_go_when_the_number_is_raised(desk: Desk) -> None:
    await put(desk, "1", "2", "3", "4", "5")
    first = await only(desk)
    await configure(desk, max_in_hand_per_key=3)
    await put(desk, "6")
    assert await names(desk) == []
    await desk.succeed(first.key)
    assert await names(desk) == ["2", "3", "4"]


async def test_fewer_go_when_the_number_is_lowered(desk: Desk) -> None:
    await configure(desk, max_in_hand_per_key=3)
    await put(desk, "1", "2", "3", "4", "5")
    one, two, three = await desk.claim(10)
    await configure(desk)
    await succeed_all(desk, two, one)
    assert await names(desk) == []
    await succeed_all(desk, three)
    assert await names(desk) == ["4"]


async def test_all_in_hand_from_before_the_number_was_lowered_may_end_in_one_call(desk: Desk) -> None:
    await configure(desk, max_in_hand_per_key=3)
    await put(desk, "1", "2", "3", "4", "5")
    held = await desk.claim(10)
    await configure(desk)
    await succeed_all(desk, *held)
    assert await names(desk) == ["4"]


async def test_several_in_hand_wait_behind_one_that_stopped_their_key(desk: Desk) -> None:
    await configure(desk, max_in_hand_per_key=2, after_failure="stop")
    await put(desk, "1", "2", "3", "4")
    one, two = await desk.claim(10)
    await desk.fail(two.key, final=True)
    await put(desk, "5")
    await desk.succeed(one.key)
    assert await names(desk) == []
    assert await desk.retry_failed() == 1
    assert await names(desk) == ["2", "3"]


async def test_several_in_hand_go_to_the_end_one_by_one(desk: Desk) -> None:
    await configure(desk, max_in_hand_per_key=2, retry_place="to_back")
    await put(desk, "1", "2", "3", attempts=2)
    one, _ = await desk.claim(10)
    await desk.fail(one.key)
    assert await names(desk) == ["3"]
    assert await names(desk) == []


async def test_settings_that_change_between_random_events_leave_no_job_behind_without_a_reason(desk: Desk) -> None:
    chance = random.Random(20_262)
    most, in_hand, stored, begun = 1, dict[str, DeskJob](), 0, list[int]()
    for _ in range(250):
        if chance.random() < 0.1:
            most = chance.choice([1, 2, 3, 5])
            await configure(desk, max_in_hand_per_key=most, after_failure="stop")
        if chance.random() < 0.5:
            await put(desk, str(stored))
            stored += 1
        before = len(in_hand)
        for held in await desk.claim(10):
            in_hand[held.job.body.decode()] = held
            begun.append(int(held.job.body))
        assert len(in_hand) <= max(before, 5)
        if in_hand and chance.random() < 0.7:
            held = in_hand.pop(chance.choice(sorted(in_hand)))
            if chance.random() < 0.2:
                await desk.fail(held.key, final=True)
                await is_deleted(desk, held.key)
            else:
                await desk.succeed(held.key)
    await succeed_all(desk, *in_hand.values())
    begun += [int(name) for name in await take_all(desk)]
    assert begun == list(range(stored))
