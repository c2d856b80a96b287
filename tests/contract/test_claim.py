"""Handing out jobs."""

from __future__ import annotations

from random import Random

import pytest

from pinlater.domain.errors import QueueNotFound
from pinlater.domain.job import JobState
from pinlater.server.storage.commands import ClaimJobs, DeleteJobs, PeekJobs, create_queues
from pinlater.server.storage.values import ClaimCall, Claimed, ClaimOrder
from tests.contract.desk import QUEUE, TIMEOUT_MS, Desk


async def test_a_claimed_job_brings_all_that_its_worker_needs(desk: Desk) -> None:
    key = await desk.put(b"body", priority=2, attempts=3, headers={"a": "b"})
    desk.clock.advance(seconds=5)

    job = (await desk.take()).job

    assert (job.id, job.priority, job.body) == (key.id, 2, b"body")
    assert (job.attempts_allowed, job.attempts_remaining, job.attempt) == (3, 3, 1)
    assert job.headers == {"a": "b"}
    assert job.created_at_ms == job.run_after_ms == desk.now - 5000
    assert job.claim_deadline_ms == desk.now + TIMEOUT_MS


async def test_a_claimed_job_is_in_progress_and_shows_its_holder(desk: Desk) -> None:
    held = await desk.put_and_take()

    job = await desk.look(held.key)

    assert job.state is JobState.IN_PROGRESS
    assert job.claim_descriptor == held.holder.descriptor
    assert job.claim_deadline_ms == desk.now + TIMEOUT_MS
    assert job.attempts_remaining == 2


async def test_a_claimed_job_is_not_handed_out_again(desk: Desk) -> None:
    await desk.put_and_take()

    assert await desk.claim() == []


async def test_higher_priorities_go_first_then_due_time_then_order_of_enqueue(desk: Desk) -> None:
    low = await desk.put(priority=3, delay_ms=-500)
    late = await desk.put(priority=1)
    early = await desk.put(priority=1, delay_ms=-100)
    late_too = await desk.put(priority=1)
    middle = await desk.put(priority=2, delay_ms=-900)

    held = await desk.claim(10)

    assert [one.key for one in held] == [early, late, late_too, middle, low]


async def test_a_claim_through_a_priority_hands_out_no_job_of_a_later_one(desk: Desk) -> None:
    low = await desk.put(priority=3, delay_ms=-500)
    high = await desk.put(priority=1)
    middle = await desk.put(priority=2, delay_ms=-900)

    assert [one.key for one in await desk.claim(10, through=1)] == [high]
    assert await desk.claim(10, through=1) == []
    assert [one.key for one in await desk.claim(10, through=2)] == [middle]
    assert [one.key for one in await desk.claim(10, through=3)] == [low]


@pytest.mark.parametrize("owned", [True, False])
async def test_a_short_claim_through_a_priority_says_which_job_is_the_best_of_those_that_stay(
    desk: Desk, owned: bool
) -> None:
    async def left(through: int | None) -> tuple[tuple[int, int] | None, int | None]:
        calls = [ClaimCall(1, desk.holder()), ClaimCall(2, desk.holder())]
        claimed = await desk.order(ClaimOrder(QUEUE, calls, TIMEOUT_MS, from_memory=owned, through_priority=through))
        return claimed.head, claimed.next_due_ms

    now_ms = desk.now
    assert await left(1) == (None, None)
    await desk.put(priority=1, delay_ms=9_000)
    assert await left(1) == (None, now_ms + 9_000)
    for _ in range(2):
        await desk.put(priority=1)
    await desk.put(priority=2, delay_ms=-500)
    await desk.put(priority=3, delay_ms=-800)
    head, next_due_ms = await left(1)
    assert head == (2, now_ms - 500)
    assert next_due_ms is not None
    assert next_due_ms <= now_ms
    assert (await left(2))[0] == (3, now_ms - 800)
    assert await left(None) == (None, now_ms + 9_000)


@pytest.mark.parametrize("owned", [True, False])
async def test_claims_through_priorities_beside_new_jobs_take_each_job_once_and_in_order(
    desk: Desk, owned: bool
) -> None:
    """Also while a store remembers jobs: a claim of fewer priorities leaves nothing out of what it remembers of the others."""
    waiting: list[tuple[int, int]] = []
    dice = Random(7)
    for _ in range(150):
        if dice.random() < 0.5:
            key = await desk.put(priority=dice.randrange(1, 4), delay_ms=-dice.randrange(2))
            waiting.append((key.priority, key.id))
        through, limit = dice.choice([None, 1, 2, 3]), dice.choice([1, 2, 5])
        got = [(one.key.priority, one.key.id) for one in await desk.claim(limit, owned=owned, through=through)]
        may = [job for job in waiting if through is None or job[0] <= through]
        assert len(got) == min(limit, len(may))
        assert sorted(priority for priority, _ in got) == sorted(priority for priority, _ in may)[:limit]
        waiting = [job for job in waiting if job not in got]
        desk.clock.advance(ms=dice.choice([1, 1, 300, 1_100]))


async def test_a_job_is_handed_out_from_the_millisecond_on_that_it_is_due(desk: Desk) -> None:
    key = await desk.put(delay_ms=1000)

    desk.clock.advance(ms=999)
    assert await desk.claim() == []
    desk.clock.advance(ms=1)
    assert (await desk.take()).key == key


async def test_no_more_than_the_limit_is_handed_out(desk: Desk) -> None:
    await desk.insert(*[desk.job() for _ in range(5)])

    assert len(await desk.claim(3)) == 3
    assert len(await desk.claim(3)) == 2
    assert len(await desk.claim(3)) == 0


async def test_a_limit_of_nothing_takes_nothing(desk: Desk) -> None:
    key = await desk.put()

    assert await desk.claim(0) == []
    assert (await desk.look(key)).state is JobState.PENDING


async def test_calls_of_one_order_share_the_jobs_in_their_order(desk: Desk) -> None:
    """Joined claims: first come, first served, each under its own holder."""
    inserted = await desk.insert(*[desk.job() for _ in range(5)])
    holders = [desk.holder(), desk.holder(), desk.holder()]

    claimed = await desk.order(ClaimOrder(QUEUE, [ClaimCall(2, holder) for holder in holders], TIMEOUT_MS))

    assert [[job.id for job in jobs] for jobs in claimed.jobs] == [
        list(inserted.ids[:2]),
        list(inserted.ids[2:4]),
        list(inserted.ids[4:]),
    ]
    states = await desk.scan(JobState.IN_PROGRESS)
    assert {row.key.id: row.job.claim_descriptor for row in states} == {
        job.id: holder.descriptor for holder, jobs in zip(holders, claimed.jobs, strict=True) for job in jobs
    }


async def test_orders_of_one_call_are_answered_in_order_and_fail_alone(desk: Desk) -> None:
    key = await desk.put()
    orders = [ClaimOrder(name, [ClaimCall(1, desk.holder())], TIMEOUT_MS) for name in ("missing", QUEUE)]

    missing, found = await desk.shard.submit(ClaimJobs(orders, desk.now))

    assert isinstance(missing, QueueNotFound)
    assert isinstance(found, Claimed)
    assert [job.id for job in found.jobs[0]] == [key.id]


async def test_a_claim_of_no_orders_or_no_calls_does_nothing(desk: Desk) -> None:
    assert list(await desk.shard.submit(ClaimJobs([], desk.now))) == []
    claimed = await desk.order(ClaimOrder(QUEUE, [], TIMEOUT_MS))
    assert list(claimed.jobs) == []


async def test_a_short_claim_says_when_the_next_job_is_due(desk: Desk) -> None:
    await desk.put(priority=2, delay_ms=7000)
    await desk.put(priority=3, delay_ms=5000)
    order = ClaimOrder(QUEUE, [ClaimCall(1, desk.holder())], TIMEOUT_MS)

    assert (await desk.order(order)).next_due_ms == desk.now + 5000


async def test_a_short_claim_names_no_time_of_a_job_that_is_gone(desk: Desk) -> None:
    """The first of the jobs that are not due yet was deleted: a waiter would wake for nothing."""
    first = await desk.put(delay_ms=1)
    await desk.put(delay_ms=400)
    await desk.shard.submit(DeleteJobs([first]))
    order = ClaimOrder(QUEUE, [ClaimCall(1, desk.holder())], TIMEOUT_MS)

    assert (await desk.order(order)).next_due_ms == desk.now + 400
    second = await desk.put(delay_ms=300)
    assert (await desk.order(order)).next_due_ms == desk.now + 300
    await desk.shard.submit(DeleteJobs([second]))
    assert (await desk.order(order)).next_due_ms == desk.now + 400


async def test_a_short_claim_of_a_queue_with_no_waiting_job_names_no_time(desk: Desk) -> None:
    await desk.put()

    claimed = await desk.order(ClaimOrder(QUEUE, [ClaimCall(2, desk.holder())], TIMEOUT_MS))

    assert len(claimed.jobs[0]) == 1
    assert claimed.next_due_ms is None


async def test_a_full_claim_names_no_time(desk: Desk) -> None:
    await desk.insert(desk.job(), desk.job())

    claimed = await desk.order(ClaimOrder(QUEUE, [ClaimCall(1, desk.holder())], TIMEOUT_MS))

    assert claimed.next_due_ms is None


async def test_an_answer_stops_at_its_bytes(desk: Desk) -> None:
    """What does not fit in the frame stays in the queue for the next call."""
    await desk.insert(*[desk.job(b"x" * 1000) for _ in range(10)])
    call = ClaimCall(10, desk.holder(), max_bytes=3500)

    claimed = await desk.order(ClaimOrder(QUEUE, [call], TIMEOUT_MS))

    assert len(claimed.jobs[0]) == 3
    assert claimed.next_due_ms == desk.now, "there is more to have at once"
    counts = await desk.counts()
    assert (counts.pending, counts.in_progress) == (7, 3)


@pytest.mark.differs("the length of headers, before a job is read")
@pytest.mark.parametrize("headers", [{"trace": "é" * 450}, {f"{number:02}": "" for number in range(90)}])
async def test_headers_count_as_bytes_of_an_answer(desk: Desk, headers: dict[str, str]) -> None:
    """Also those of a job that has failed before, and as long as their encoding is."""
    await desk.insert(*[desk.job(b"x" * 100, headers=headers, attempts=3) for _ in range(6)])
    await desk.fail((await desk.take()).key)
    call = ClaimCall(10, desk.holder(), max_bytes=3_500)

    peeked = await desk.shard.submit(PeekJobs(QUEUE, 10, desk.now, 3_500))
    claimed = await desk.order(ClaimOrder(QUEUE, [call], TIMEOUT_MS))

    assert [job.headers for job in claimed.jobs[0]] == [headers] * len(claimed.jobs[0])
    assert 2 <= len(claimed.jobs[0]) <= len(peeked) == 3  # type: ignore[arg-type]
    assert claimed.next_due_ms == desk.now


async def test_one_job_always_fits(desk: Desk) -> None:
    """A job longer than the budget would otherwise stay for ever."""
    await desk.insert(desk.job(b"x" * 5000), desk.job(b"y"))

    claimed = await desk.order(ClaimOrder(QUEUE, [ClaimCall(2, desk.holder(), max_bytes=100)], TIMEOUT_MS))

    assert [job.body for job in claimed.jobs[0]] == [b"x" * 5000]


async def test_the_calls_of_a_claim_stop_at_their_bytes_together(desk: Desk) -> None:
    """Calls that got nothing come again at once."""
    await desk.insert(*[desk.job(b"x" * 1000, priority=1 + number % 2) for number in range(9)])
    calls = [[ClaimCall(limit, desk.holder()) for limit in (1, 2, 1, 1, 1)] for _ in range(2)]

    first, second = [await desk.order(ClaimOrder(QUEUE, each, TIMEOUT_MS, bytes_together_max=3500)) for each in calls]

    assert [[len(jobs) for jobs in each.jobs] for each in (first, second)] == [[1, 2, 1, 0, 0]] * 2
    assert (first.cut_short, second.cut_short) == (True, True)
    third = await desk.order(ClaimOrder(QUEUE, calls[0], TIMEOUT_MS, bytes_together_max=3500))
    assert [len(jobs) for jobs in third.jobs] == [1, 0, 0, 0, 0]
    assert not third.cut_short, "there is no job that they left"


async def test_all_queues_of_a_claim_share_its_bytes(desk: Desk) -> None:
    await desk.shard.submit(create_queues(["other"], desk.now))
    await desk.insert(*[desk.job(b"x" * 1000) for _ in range(3)])
    await desk.insert(*[desk.job(b"x" * 1000) for _ in range(3)], queue="other")
    orders = [
        ClaimOrder(
            name, [ClaimCall(1, desk.holder()), ClaimCall(1, desk.holder())], TIMEOUT_MS, bytes_together_max=1500
        )
        for name in (QUEUE, "other")
    ]

    one, two = await desk.shard.submit(ClaimJobs(orders, desk.now))

    assert isinstance(one, Claimed)
    assert isinstance(two, Claimed)
    assert ([len(jobs) for jobs in one.jobs], one.cut_short) == ([1, 1], False)
    assert ([len(jobs) for jobs in two.jobs], two.cut_short) == ([0, 0], True)


async def test_a_job_with_options_counts_in_the_bytes_of_a_claim(desk: Desk) -> None:
    await desk.insert(*[desk.job(b"x" * 1000, headers={"a": "b"}, expires_in_ms=5_000) for _ in range(3)])
    order = ClaimOrder(QUEUE, [ClaimCall(1, desk.holder()) for _ in range(3)], TIMEOUT_MS, bytes_together_max=1500)

    claimed = await desk.order(order)

    assert ([len(jobs) for jobs in claimed.jobs], claimed.cut_short) == ([1, 1, 0], True)


async def test_a_jobs_own_claim_timeout_goes_first(desk: Desk) -> None:
    held = await desk.put_and_take(claim_timeout_ms=5)

    assert held.job.claim_deadline_ms == desk.now + 5


async def test_claims_of_one_queue_leave_the_others_alone(desk: Desk) -> None:
    await desk.shard.submit(create_queues(["other"], desk.now))
    await desk.put(queue="other")

    assert await desk.claim() == []
    assert len(await desk.claim(queue="other")) == 1


async def test_a_peek_shows_what_a_claim_would_give_and_changes_nothing(desk: Desk) -> None:
    await desk.insert(desk.job(b"low", priority=2), desk.job(b"high"), desk.job(b"future", delay_ms=1))

    peeked = await desk.shard.submit(PeekJobs(QUEUE, 10, desk.now, 1_000_000))
    held = await desk.claim(10)

    assert not isinstance(peeked, QueueNotFound)
    assert [job.body for job in peeked] == [b"high", b"low"]  # type: ignore[union-attr]
    assert list(peeked) == [one.job._replace(claim_deadline_ms=0) for one in held]  # type: ignore[arg-type]


async def test_a_peek_keeps_to_its_limit_and_its_bytes(desk: Desk) -> None:
    await desk.insert(*[desk.job(b"x" * 100) for _ in range(4)])

    few = await desk.shard.submit(PeekJobs(QUEUE, 2, desk.now, 1_000_000))
    small = await desk.shard.submit(PeekJobs(QUEUE, 4, desk.now, 50))

    assert len(few) == 2  # type: ignore[arg-type]
    assert len(small) == 1  # type: ignore[arg-type]


async def test_a_peek_into_a_missing_queue_is_refused(desk: Desk) -> None:
    assert isinstance(await desk.shard.submit(PeekJobs("missing", 1, desk.now, 1000)), QueueNotFound)


async def test_peeks_do_not_show_expired_jobs(desk: Desk) -> None:
    await desk.put(expires_in_ms=10)
    desk.clock.advance(ms=11)

    assert list(await desk.shard.submit(PeekJobs(QUEUE, 10, desk.now, 1000))) == []  # type: ignore[arg-type]
