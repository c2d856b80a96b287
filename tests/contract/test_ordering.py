"""Jobs with an ordering key run one after the other, in the order in which they were stored; different keys side by side."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest

from pinlater.domain.job import TASK_HEADER, JobState, Outcome
from pinlater.server.storage.commands import (
    CancelJobs,
    ClaimJobs,
    CollectGarbage,
    CountJobs,
    DeleteJobs,
    DeleteQueues,
    DeleteWithCopies,
    ExpireJobs,
    FindAheadInKey,
    FinishJobs,
    InsertJobs,
    PeekJobs,
    RestoreJobs,
    TimeOutClaims,
    create_queues,
)
from pinlater.server.storage.values import (
    AheadInKey,
    ClaimCall,
    ClaimOrder,
    CopiesOf,
    Inserted,
    InsertRequest,
    JobAck,
    JobCheckpoint,
    JobKey,
    RestoreOrder,
)
from tests.contract.desk import ALL, QUEUE, TIMEOUT_MS, Desk, DeskJob, unique

PENDING, IN_PROGRESS, FAILED, SUCCEEDED = (
    JobState.PENDING,
    JobState.IN_PROGRESS,
    JobState.FAILED,
    JobState.SUCCEEDED,
)
LATER_MS = 10_000
RUN = CopiesOf("0123456789abcdef", 1_000)


@pytest.fixture(autouse=True)
async def counters(desk: Desk) -> AsyncIterator[None]:
    """Whatever a test does, the counters say afterwards what the rows say."""
    yield
    await desk.assert_counters_exact()


async def test_jobs_behind_others_of_their_keys_are_counted_apart(desk: Desk) -> None:
    """By a count of some queues, and of all."""
    first, _, _ = await put(desk, "1", "2", "3")
    await put(desk, "4", key="b")
    await desk.put(b"later", delay_ms=LATER_MS)
    counts = await desk.counts()
    assert (counts.pending, counts.future, counts.behind_key) == (5, 3, 2)
    assert [row.counts.behind_key for row in await desk.shard.submit(CountJobs()) if row.queue == QUEUE] == [2]
    await desk.take()
    await desk.succeed(first)
    assert (await desk.counts()).behind_key == 1


async def test_no_more_than_10000_jobs_behind_others_are_counted(desk: Desk) -> None:
    await desk.insert(*[desk.job(ordering_key="a") for _ in range(10_002)])
    assert (await desk.counts()).behind_key == 10_000


async def put(desk: Desk, *names: str, key: str = "a", **about: object) -> list[JobKey]:
    """Stores jobs of a task with these bodies under one key, each by a call of its own."""
    about.setdefault("headers", {TASK_HEADER: "load"})
    return [await desk.put(name.encode(), ordering_key=key, **about) for name in names]  # type: ignore[arg-type]


async def names(desk: Desk, limit: int = 10) -> list[str]:
    """Claims what is due."""
    return [held.job.body.decode() for held in await desk.claim(limit)]


async def only(desk: Desk) -> DeskJob:
    """Claims all that is due, which is one job."""
    [held] = await desk.claim(10)
    return held


# --- order ---------------------------------------------------------------------------------------------------------------------
async def test_one_job_of_a_key_runs_at_a_time_in_the_order_of_the_enqueues(desk: Desk) -> None:
    await put(desk, "1", "2", "3")
    for name in ("1", "2", "3"):
        held = await only(desk)
        assert held.job.body.decode() == name
        assert await names(desk) == []
        await desk.succeed(held.key, token=held.ref.token)
    assert await names(desk) == []


async def test_different_keys_and_jobs_without_one_run_side_by_side(desk: Desk) -> None:
    await put(desk, "a1", "a2")
    await put(desk, "b1", "b2", key="b")
    await desk.put(b"plain")
    assert await names(desk) == ["a1", "b1", "plain"]


async def test_keys_of_two_queues_have_nothing_to_do_with_each_other(desk: Desk) -> None:
    await desk.shard.submit(create_queues(["images"], desk.now))
    await put(desk, "1")
    await desk.put(b"other", queue="images", ordering_key="a")
    assert len(await desk.claim(2)) == 1
    assert len(await desk.claim(2, queue="images")) == 1


async def test_several_of_a_key_in_one_request_run_in_the_order_of_the_list(desk: Desk) -> None:
    await desk.insert(*[desk.job(name, ordering_key="a") for name in (b"1", b"2", b"3")])
    for name in (b"1", b"2", b"3"):
        held = await only(desk)
        assert held.job.body == name
        await desk.succeed(held.key)


async def test_several_requests_of_one_call_run_in_its_order(desk: Desk) -> None:
    requests = [InsertRequest(QUEUE, [desk.job(name, ordering_key="a")]) for name in (b"1", b"2", b"3")]
    await desk.become_home()
    await desk.shard.submit(InsertJobs(requests, desk.now))
    assert await names(desk) == ["1"]


async def test_acks_and_claims_of_thousands_keep_the_order(desk: Desk) -> None:
    await desk.insert(*[desk.job(b"%d" % number, ordering_key=f"k{number % 50}") for number in range(1_000)])
    seen: dict[int, list[int]] = {key: [] for key in range(50)}
    for _ in range(20):
        held = await desk.claim(1_000)
        assert len(held) == 50
        for each in held:
            number = int(each.job.body)
            seen[number % 50].append(number)
        await desk.shard.submit(FinishJobs([JobAck(each.key, True, each.ref.token) for each in held], desk.now))
    assert all(numbers == list(range(key, 1_000, 50)) for key, numbers in seen.items())


async def test_a_long_request_keeps_the_order(desk: Desk) -> None:
    await desk.insert(*[desk.job(b"%d" % number, ordering_key="a") for number in range(3_000)])
    for number in range(3):
        held = await only(desk)
        assert int(held.job.body) == number
        await desk.succeed(held.key)


async def test_priority_counts_among_the_first_ones_of_keys_and_not_within_a_key(desk: Desk) -> None:
    await put(desk, "a1", priority=3)
    await put(desk, "a2", priority=1)
    await put(desk, "b1", key="b", priority=2)
    assert await names(desk, 1) == ["b1"]
    held = await only(desk)
    assert held.job.body == b"a1"
    await desk.succeed(held.key)
    assert await names(desk) == ["a2"]


async def test_a_repeated_insert_stores_nothing_anew(desk: Desk) -> None:
    jobs = [desk.job(name, ordering_key="a") for name in (b"1", b"2")]
    await desk.insert(*jobs)
    await desk.insert(*jobs)
    for name in (b"1", b"2"):
        held = await only(desk)
        assert held.job.body == name
        await desk.succeed(held.key)
    assert await names(desk) == []


async def test_a_request_that_is_refused_takes_no_place(desk: Desk) -> None:
    await put(desk, "1")
    full = InsertRequest(QUEUE, [desk.job(b"2", ordering_key="a"), desk.job(b"3", ordering_key="b")], max_backlog=1)
    assert not isinstance(await desk.request(full), Inserted)
    await desk.succeed((await only(desk)).key)
    await put(desk, "4", key="b")
    assert await names(desk) == ["4"]


# --- attempts -------------------------------------------------------------------------------------------------------------------
async def test_a_job_that_fails_keeps_its_place_and_its_key_waits_for_the_retry(desk: Desk) -> None:
    await put(desk, "1", "2")
    held = await only(desk)
    await desk.fail(held.key, delay_ms=LATER_MS)
    assert await names(desk) == []
    desk.clock.advance(ms=LATER_MS)
    again = await only(desk)
    assert again.job.body == b"1"
    await desk.succeed(again.key)
    assert await names(desk) == ["2"]


async def test_a_checkpoint_that_returns_the_job_with_a_delay_keeps_its_place(desk: Desk) -> None:
    await put(desk, "1", "2")
    held = await only(desk)
    due_ms = desk.now + LATER_MS
    await desk.checkpoint(JobCheckpoint(held.key, "worker", held.ref.token, move_to_pending=True, run_after_ms=due_ms))
    assert await names(desk) == []
    desk.clock.advance(ms=LATER_MS)
    assert await names(desk) == ["1"]


async def test_a_released_job_keeps_its_place(desk: Desk) -> None:
    await put(desk, "1", "2")
    await desk.release((await only(desk)).ref)
    await desk.release((await only(desk)).ref, LATER_MS)
    assert await names(desk) == []
    desk.clock.advance(ms=LATER_MS)
    assert await names(desk) == ["1"]


async def test_a_claim_that_times_out_keeps_the_place_and_its_late_ack_is_refused(desk: Desk) -> None:
    await put(desk, "1", "2")
    held = await only(desk)
    desk.clock.advance(ms=TIMEOUT_MS + 1)
    await desk.shard.submit(TimeOutClaims(desk.now, ALL))
    again = await only(desk)
    assert again.key == held.key
    late = await desk.succeed(held.key, token=held.ref.token)
    assert late.outcome is Outcome.STALE_CLAIM
    assert await names(desk) == []


async def test_a_delay_at_enqueue_holds_the_place_and_later_ones_wait_for_it(desk: Desk) -> None:
    await put(desk, "1", delay_ms=LATER_MS)
    await put(desk, "2")
    assert await names(desk) == []
    desk.clock.advance(ms=LATER_MS)
    held = await only(desk)
    assert held.job.body == b"1"
    await desk.succeed(held.key)
    assert await names(desk) == ["2"]


async def test_a_delay_of_one_that_waits_counts_once_it_is_first(desk: Desk) -> None:
    await put(desk, "1")
    [second] = await put(desk, "2", delay_ms=LATER_MS)
    await desk.succeed((await only(desk)).key)
    assert await names(desk) == []
    assert (await desk.look(second)).run_after_ms == desk.now + LATER_MS
    desk.clock.advance(ms=LATER_MS)
    assert await names(desk) == ["2"]


# --- ends -----------------------------------------------------------------------------------------------------------------------
async def succeeds(desk: Desk, key: JobKey) -> None:
    await desk.take()
    await desk.succeed(key)


async def fails(desk: Desk, key: JobKey) -> None:
    await desk.take()
    await desk.fail(key, final=True)


async def is_cancelled(desk: Desk, key: JobKey) -> None:
    assert (await desk.cancel(key)).outcome is Outcome.APPLIED


async def is_cancelled_in_hand(desk: Desk, key: JobKey) -> None:
    await desk.take()
    await is_cancelled(desk, key)


async def is_deleted(desk: Desk, key: JobKey) -> None:
    assert await desk.shard.submit(DeleteJobs([key])) == 1


async def is_deleted_in_hand(desk: Desk, key: JobKey) -> None:
    await desk.take()
    await is_deleted(desk, key)


async def is_deleted_with_a_copy(desk: Desk, key: JobKey) -> None:
    assert (await desk.shard.submit(DeleteWithCopies([key], PENDING, RUN, desk.now))).deleted == 1


async def is_purged(desk: Desk, key: JobKey) -> None:
    assert await desk.purge(PENDING, limit=1) == 1


async def is_purged_in_hand(desk: Desk, key: JobKey) -> None:
    await desk.take()
    assert await desk.purge(IN_PROGRESS, limit=1) == 1


async def times_out_at_last(desk: Desk, key: JobKey) -> None:
    for _ in range(2):
        await desk.take()
        desk.clock.advance(ms=TIMEOUT_MS + 1)
        await desk.shard.submit(TimeOutClaims(desk.now, ALL))


async def is_quarantined(desk: Desk, _: JobKey) -> None:
    await desk.take()
    desk.clock.advance(ms=TIMEOUT_MS + 1)
    await desk.shard.submit(TimeOutClaims(desk.now, ALL, quarantine_after=1))


ENDS = [
    succeeds,
    fails,
    is_cancelled,
    is_cancelled_in_hand,
    is_deleted,
    is_deleted_in_hand,
    is_deleted_with_a_copy,
    is_purged,
    is_purged_in_hand,
    times_out_at_last,
    is_quarantined,
]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
async def test_the_next_job_goes_when_the_first_ends(desk: Desk, end: object) -> None:
    first, _, _ = await put(desk, "1", "2", "3")
    await end(desk, first)  # type: ignore[operator]
    assert await names(desk) == ["2"]


@pytest.mark.parametrize("end", [is_cancelled, is_deleted, is_deleted_with_a_copy], ids=lambda end: end.__name__)
async def test_a_job_that_ends_while_it_waits_is_passed_over(desk: Desk, end: object) -> None:
    first, second, _ = await put(desk, "1", "2", "3")
    await end(desk, second)  # type: ignore[operator]
    held = await only(desk)
    assert held.key == first
    await desk.succeed(first)
    assert await names(desk) == ["3"]


@pytest.mark.parametrize("by", ["claim", "sweep"])
async def test_a_first_job_that_expires_lets_the_next_one_go(desk: Desk, by: str) -> None:
    await put(desk, "1", expires_in_ms=500)
    await put(desk, "2")
    await desk.put(b"plain")
    desk.clock.advance(ms=501)
    if by == "sweep":
        await desk.shard.submit(ExpireJobs(desk.now, ALL))
    seen = await names(desk)
    assert sorted(seen + await names(desk)) == ["2", "plain"]


async def test_a_job_that_expires_while_it_waits_is_passed_over(desk: Desk) -> None:
    await put(desk, "1")
    [second] = await put(desk, "2", expires_in_ms=500)
    await put(desk, "3")
    desk.clock.advance(ms=501)
    await desk.shard.submit(ExpireJobs(desk.now, ALL))
    assert (await desk.look(second)).state is FAILED
    await desk.succeed((await only(desk)).key)
    assert await names(desk) == ["3"]


async def test_all_of_a_key_are_cancelled_in_one_call(desk: Desk) -> None:
    jobs = [desk.job(b"%d" % number, ordering_key="a") for number in range(2_000)]
    await desk.insert(*jobs)
    keys = [JobKey(QUEUE, job.priority, job.id) for job in jobs]
    await desk.shard.submit(CancelJobs(keys[:1_000], desk.now))
    await desk.shard.submit(CancelJobs(keys[1_000:1_999], desk.now))
    assert await names(desk) == ["1999"]


async def test_all_of_a_key_are_purged_step_by_step(desk: Desk) -> None:
    await put(desk, *map(str, range(7)))
    while await desk.purge(PENDING, limit=2):
        pass
    [key] = await put(desk, "new")
    assert (await only(desk)).key == key


async def test_a_key_is_free_again_once_its_jobs_have_ended(desk: Desk) -> None:
    for name in ("1", "2"):
        await put(desk, name)
        held = await only(desk)
        assert held.job.body.decode() == name
        await desk.succeed(held.key)


# --- what comes back ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("how", ["retry", "run"])
async def test_a_failed_job_that_is_retried_goes_to_the_end(desk: Desk, how: str) -> None:
    first, _ = await put(desk, "1", "2")
    await fails(desk, first)
    if how == "retry":
        assert await desk.retry_failed() == 1
    else:
        assert (await desk.run(first)).outcome is Outcome.APPLIED
    for name in (b"2", b"1"):
        held = await only(desk)
        assert held.job.body == name
        await desk.succeed(held.key)


async def test_failed_jobs_that_are_retried_together_keep_the_order_of_their_ends(desk: Desk) -> None:
    keys = await put(desk, "1", "2", "3")
    for key in keys:
        await fails(desk, key)
        desk.clock.advance(ms=1)
    assert await desk.retry_failed() == 3
    for name in (b"1", b"2", b"3"):
        held = await only(desk)
        assert held.job.body == name
        await desk.succeed(held.key)


async def test_an_undo_of_a_delete_puts_jobs_at_the_end(desk: Desk) -> None:
    first, second, _ = await put(desk, "1", "2", "3")
    await desk.shard.submit(DeleteWithCopies([first, second], PENDING, RUN, desk.now))
    await desk.shard.submit(RestoreJobs(RestoreOrder(QUEUE, RUN), desk.now))
    for name in (b"3", b"1", b"2"):
        held = await only(desk)
        assert held.job.body == name
        await desk.succeed(held.key)


@pytest.mark.parametrize("change", ["run", "move"])
async def test_only_the_first_of_a_key_can_be_made_due_or_moved(desk: Desk, change: str) -> None:
    first, second = await put(desk, "1", "2")
    for key, outcome in ((second, Outcome.STALE_CLAIM), (first, Outcome.APPLIED)):
        done = await (desk.run(key) if change == "run" else desk.move(key, 2))
        assert done.outcome is outcome
    assert await names(desk) == ["1"]


# --- keys, looks ----------------------------------------------------------------------------------------------------------------
async def test_a_unique_key_counts_besides_and_a_job_that_exists_keeps_its_place(desk: Desk) -> None:
    await put(desk, "1")
    await put(desk, "2", unique=unique("k"))
    await put(desk, "3")
    await put(desk, "again", unique=unique("k"))
    for name in (b"1", b"2", b"3"):
        held = await only(desk)
        assert held.job.body == name
        await desk.succeed(held.key)
    assert await names(desk) == []


async def test_jobs_that_wait_behind_others_are_shown_as_waiting_with_their_own_times(desk: Desk) -> None:
    first, second, third = await put(desk, "1", "2", "3")
    now = desk.now
    for key in (first, second, third):
        shown = await desk.look(key)
        assert (shown.state, shown.run_after_ms) == (PENDING, now)
    assert [row.key for row in await desk.scan(PENDING)] == [first]
    behind = await desk.scan(PENDING, future=True)
    assert [row.key for row in behind] == [third, second]
    assert [row.job.run_after_ms for row in behind] == [now, now]
    counts = await desk.counts()
    assert (counts.pending, counts.future) == (3, 2)
    peeked = await desk.shard.submit(PeekJobs(QUEUE, 10, desk.now, ALL))
    assert [job.body for job in peeked] == [b"1"]  # type: ignore[union-attr]


async def test_a_job_tells_which_is_the_first_of_its_key_and_how_many_come_before_it(desk: Desk) -> None:
    first, second, third, _ = keys = await put(desk, "1", "2", "3", "4", priority=2)
    [other] = await put(desk, "other", key="b")
    plain = await desk.put(b"plain")
    for in_hand in (False, True):
        found = [await desk.shard.submit(FindAheadInKey(key, 2)) for key in (*keys, other, plain)]
        assert found == [None, AheadInKey(first, 1), AheadInKey(first, 2), AheadInKey(first, 2), None, None]
        if not in_hand:
            await desk.claim(10)
    await desk.succeed(first)
    assert await desk.shard.submit(FindAheadInKey(third, 10)) == AheadInKey(second, 1)
    assert await desk.shard.submit(FindAheadInKey(first, 10)) is None
    assert await desk.shard.submit(FindAheadInKey(third._replace(queue="missing"), 10)) is None


async def test_a_claim_that_finds_only_jobs_behind_is_told_of_no_due_time_that_comes(desk: Desk) -> None:
    await put(desk, "1", "2")
    await only(desk)
    claimed = await desk.order(ClaimOrder(QUEUE, [ClaimCall(1, desk.holder())], TIMEOUT_MS))
    assert claimed.next_due_ms is None or claimed.next_due_ms > desk.now + 2**45


async def test_the_end_of_a_job_and_a_claim_of_the_next_one_work_in_one_call_after_the_other(desk: Desk) -> None:
    await put(desk, "1", "2")
    held = await only(desk)
    [acked] = await desk.shard.submit(FinishJobs([JobAck(held.key, True, held.ref.token)], desk.now))
    assert acked.state is SUCCEEDED
    order = ClaimOrder(QUEUE, [ClaimCall(1, desk.holder())], TIMEOUT_MS, from_memory=True)
    [claimed] = await desk.shard.submit(ClaimJobs([order], desk.now))
    assert [job.body for [job] in claimed.jobs] == [b"2"]  # type: ignore[union-attr]


async def test_a_deleted_queue_leaves_no_places(desk: Desk) -> None:
    await put(desk, "1", "2")
    await desk.shard.submit(DeleteQueues([QUEUE]))
    while any(row.freed for row in await desk.shard.submit(CollectGarbage([], desk.now, 1))):
        pass
    desk.clock.advance(ms=1)
    await desk.shard.submit(create_queues([QUEUE], desk.now))
    await put(desk, "new")
    assert await names(desk) == ["new"]


async def test_the_order_survives_a_restart(desk: Desk) -> None:
    if not desk.shard.capabilities.durable:
        return
    await put(desk, "1", "2")
    await desk.reopen()
    await put(desk, "3")
    for name in (b"1", b"2", b"3"):
        held = await only(desk)
        assert held.job.body == name
        await desk.succeed(held.key)


async def test_jobs_of_many_keys_go_as_a_list_for_each_key_says(desk: Desk) -> None:
    """Random enqueues, claims and ends, against a list of names for each key."""
    chance = random.Random(20_261)
    expected: dict[str, list[str]] = {key: [] for key in "abc"}
    in_hand: dict[str, DeskJob] = {}
    for number in range(300):
        key = chance.choice("abc")
        if chance.random() < 0.5:
            await put(desk, f"{key}{number}", key=key, priority=chance.randint(1, 3))
            expected[key].append(f"{key}{number}")
        for held in await desk.claim(chance.randint(1, 3)):
            name = held.job.body.decode()
            assert name[0] not in in_hand
            assert name == expected[name[0]][0]
            in_hand[name[0]] = held
        if in_hand and chance.random() < 0.6:
            key = chance.choice(sorted(in_hand))
            held = in_hand.pop(key)
            what = chance.choice(["succeed", "fail", "retry", "release", "delete", "cancel"])
            if what == "succeed":
                await desk.succeed(held.key)
            elif what == "delete":
                await is_deleted(desk, held.key)
            elif what == "cancel":
                await desk.cancel(held.key)
            elif what == "fail":
                await desk.fail(held.key, final=True)
            elif what == "retry" and held.job.attempts_remaining > 1:
                await desk.fail(held.key)
                continue
            else:
                await desk.release(held.ref)
                continue
            expected[key].pop(0)
