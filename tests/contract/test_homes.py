"""A shard takes jobs with ordering keys only while it is the home of their queue, by its own row. A new home waits for the former one."""

from __future__ import annotations

import pytest

from pinlater.domain.errors import OrderElsewhere, QueueNotFound
from pinlater.domain.job import JobState, Outcome
from pinlater.domain.queue import NO_HOME, Home, Life, Queue, QueueConfig
from pinlater.server.storage.commands import (
    CancelJobs,
    ConfigureQueue,
    CountOrdered,
    DeleteQueues,
    DeleteWithCopies,
    ExpireJobs,
    InsertJobs,
    LiftBarrier,
    ListQueues,
    MergeQueues,
    MoveHome,
    RestoreJobs,
    UnblockKey,
    create_queues,
)
from pinlater.server.storage.values import CopiesOf, Inserted, InsertRequest, RestoreOrder
from tests.contract.desk import QUEUE, Desk

OTHER = "2"


async def home_of(desk: Desk) -> Home:
    [queue] = await desk.shard.submit(ListQueues())
    return queue.home


async def closed(desk: Desk, known: Home) -> Home:
    """The shard names the other one as the next home."""
    moved = Home(OTHER, known.version + 1, desk.shard.name)
    assert await desk.shard.submit(MoveHome(QUEUE, known, moved)) == moved
    return moved


async def waiting(desk: Desk, *keys: str) -> Home:
    """The shard is the home since the other one has closed, with a job of each of these keys, which are their bodies."""
    home = await desk.become_home(former=OTHER)
    for key in keys:
        await desk.put(key.encode(), ordering_key=key)
    return home


async def lift(desk: Desk, home: Home, limit: int = 100) -> list[str]:
    """The other shard has none left. Returns the places at which the calls ended."""
    await desk.become_home(known=home, former=OTHER, lifted=True)
    ends: list[str] = []
    while (after := await desk.shard.submit(LiftBarrier(QUEUE, ends[-1] if ends else "", limit, desk.now))) is not None:
        assert isinstance(after, str)
        ends.append(after)
    return ends


async def bodies(desk: Desk) -> list[bytes]:
    return sorted([held.job.body for held in await desk.claim(100)])


@pytest.mark.parametrize("jobs", [1, 3_000])
async def test_a_shard_that_is_not_the_home_refuses_jobs_with_ordering_keys_and_takes_others(
    desk: Desk, jobs: int
) -> None:
    for home in (NO_HOME, Home(OTHER, 1), Home(claim=desk.shard.name)):
        before = await home_of(desk)
        assert await desk.shard.submit(MoveHome(QUEUE, before, home)) == home
        request = [desk.job() for _ in range(jobs)]
        refused = await desk.request(InsertRequest(QUEUE, [*request, desk.job(ordering_key="a")]))
        assert isinstance(refused, OrderElsewhere)
        assert desk.shard.name in str(refused)
        assert isinstance(await desk.request(InsertRequest(QUEUE, [desk.job(b"plain")])), Inserted)
        assert await bodies(desk) == [b"plain"]


async def test_other_requests_of_the_call_are_stored(desk: Desk) -> None:
    await desk.shard.submit(create_queues(["mine"], desk.now))
    await desk.become_home("mine")
    requests = [
        InsertRequest(QUEUE, [desk.job(b"plain")]),
        InsertRequest(QUEUE, [desk.job(b"refused", ordering_key="a")]),
        InsertRequest("mine", [desk.job(b"mine", ordering_key="a")]),
        InsertRequest(QUEUE, [desk.job(b"more")]),
    ]
    answers = await desk.shard.submit(InsertJobs(requests, desk.now))
    assert [isinstance(answer, Inserted) for answer in answers] == [True, False, True, True]
    assert await bodies(desk) == [b"more", b"plain"]
    assert [held.job.body for held in await desk.claim(5, queue="mine")] == [b"mine"]


async def test_what_was_stored_before_the_shard_closed_is_answered_again_and_runs_in_order(desk: Desk) -> None:
    home = await desk.become_home()
    request = InsertRequest(QUEUE, [desk.job(b"1", ordering_key="a"), desk.job(b"2", ordering_key="a")], "r", b"f")
    stored = await desk.request(request)
    await closed(desk, home)
    assert isinstance(stored, Inserted)
    assert await desk.request(request) == stored._replace(repeated=True)
    for body in (b"1", b"2"):
        held = await desk.take()
        assert held.job.body == body
        await desk.succeed(held.key)
    assert await desk.shard.submit(CountOrdered(QUEUE, 10)) == 0


async def test_of_two_changes_of_a_home_one_counts(desk: Desk) -> None:
    home = await desk.become_home()
    moved = await closed(desk, home)
    assert await desk.shard.submit(MoveHome(QUEUE, home, Home("3", 2))) == moved
    assert await home_of(desk) == moved
    assert isinstance(await desk.shard.submit(MoveHome("missing", NO_HOME, Home("3", 1))), QueueNotFound)


async def test_jobs_wait_for_those_on_the_former_home_whatever_ends(desk: Desk) -> None:
    """A job that has another before it under its key waits for that one, too."""
    home = await waiting(desk, "a", "a", "b", "c", "c")
    expiring = await desk.put(b"d", ordering_key="d", expires_in_ms=5)
    await desk.put(b"d", ordering_key="d")
    cancelled = await desk.put(b"e", ordering_key="e")
    await desk.put(b"e", ordering_key="e")
    assert await bodies(desk) == []
    await desk.shard.submit(CancelJobs([cancelled], desk.now))
    desk.clock.advance(ms=10)
    await desk.shard.submit(ExpireJobs(desk.now, 10))
    assert (await desk.look(expiring)).state is JobState.FAILED
    assert await desk.shard.submit(UnblockKey(QUEUE, "a", desk.now)) == 0
    assert await bodies(desk) == []
    await desk.assert_counters_exact()
    await lift(desk, home)
    assert await bodies(desk) == [b"a", b"b", b"c", b"d", b"e"]
    await desk.assert_counters_exact()


@pytest.mark.parametrize("limit", [1, 2, 100])
async def test_the_first_jobs_of_all_keys_go_a_bounded_number_at_a_time(desk: Desk, limit: int) -> None:
    keys = ["é", "k", "a", "long key", "kk"]
    home = await waiting(desk, *keys, *keys)
    ends = await lift(desk, home, limit)
    assert len(ends) == {1: 5, 2: 2, 100: 0}[limit]
    assert await bodies(desk) == sorted(key.encode() for key in keys)
    assert await bodies(desk) == []


async def test_as_many_jobs_of_a_key_go_as_its_queue_says(desk: Desk) -> None:
    await desk.shard.submit(ConfigureQueue(QUEUE, config=QueueConfig(max_in_hand_per_key=2)))
    home = await waiting(desk, "a", "a", "a", "b")
    await lift(desk, home)
    assert await bodies(desk) == [b"a", b"a", b"b"]


async def test_jobs_that_come_while_the_first_ones_are_let_go_take_their_places(desk: Desk) -> None:
    home = await waiting(desk, "a")
    lifted = await desk.become_home(known=home, former=OTHER, lifted=True)
    await desk.put(b"behind", ordering_key="a")
    await desk.put(b"free", ordering_key="z")
    assert await bodies(desk) == [b"free"]
    await desk.shard.submit(LiftBarrier(QUEUE, "", 10, desk.now))
    await desk.become_home(known=lifted)
    held = await desk.take()
    assert held.job.body == b"a"
    await desk.succeed(held.key)
    assert await bodies(desk) == [b"behind"]


@pytest.mark.parametrize("stopped", [False, True])
async def test_a_failed_job_does_not_wait_again_on_a_former_home_unless_it_still_has_its_place(
    desk: Desk, stopped: bool
) -> None:
    """Those on the new home may run already. One that has stopped its key has kept them waiting."""
    if stopped:
        await desk.shard.submit(ConfigureQueue(QUEUE, config=QueueConfig(after_failure="stop")))
    home = await desk.become_home()
    held = await desk.put_and_take(ordering_key="a", attempts=1)
    await desk.fail(held.key)
    await closed(desk, home)
    assert await desk.shard.submit(CountOrdered(QUEUE, 10)) == int(stopped)
    assert ((await desk.run(held.key)).outcome is Outcome.APPLIED) is stopped
    if stopped:
        await desk.fail((await desk.take()).key, final=True)
    assert await desk.retry_failed() == int(stopped)
    if stopped:
        await desk.fail((await desk.take()).key, final=True)
    assert (await desk.look(held.key)).state is JobState.FAILED
    await desk.assert_counters_exact()


async def test_a_deleted_job_does_not_come_back_to_a_former_home(desk: Desk) -> None:
    home = await desk.become_home()
    key, plain = await desk.put(ordering_key="a"), await desk.put()
    of = CopiesOf("run", desk.now)
    await desk.shard.submit(DeleteWithCopies([key, plain], JobState.PENDING, of, desk.now))
    await closed(desk, home)
    restored = await desk.shard.submit(RestoreJobs(RestoreOrder(QUEUE, of), desk.now))
    assert (restored.restored, restored.key_taken) == (1, 1)
    assert [held.key for held in await desk.claim(5)] == [plain]


async def test_a_job_that_fails_on_a_former_home_is_tried_again_there(desk: Desk) -> None:
    await desk.shard.submit(ConfigureQueue(QUEUE, config=QueueConfig(retry_place="to_back")))
    home = await desk.become_home()
    for body in (b"1", b"2"):
        await desk.put(body, ordering_key="a")
    await closed(desk, home)
    await desk.fail((await desk.take()).key)
    for body in (b"2", b"1"):
        held = await desk.take()
        assert held.job.body == body
        assert await desk.shard.submit(CountOrdered(QUEUE, 10)) > 0
        await desk.succeed(held.key)


async def test_no_more_jobs_are_counted_than_asked_for(desk: Desk) -> None:
    await waiting(desk, "a", "b", "c")
    assert [await desk.shard.submit(CountOrdered(QUEUE, limit)) for limit in (1, 2, 10)] == [1, 2, 3]
    assert await desk.shard.submit(CountOrdered("missing", 10)) == 0


async def test_shards_take_over_the_newest_home_and_no_claim(desk: Desk) -> None:
    async def told(home: Home) -> Home:
        [queue] = await desk.shard.submit(MergeQueues([Queue(QUEUE, home=home)], desk.now))
        return queue.home

    claimed = Home(claim="3")
    assert await told(claimed) == NO_HOME
    assert await desk.shard.submit(MoveHome(QUEUE, NO_HOME, claimed)) == claimed
    assert await told(Home()) == claimed
    assert await told(Home(OTHER, 2, "1", claim="4")) == Home(OTHER, 2, "1")
    assert await told(Home("3", 1)) == Home(OTHER, 2, "1")
    assert await told(Home(OTHER, 3, "1", lifted=True)) == Home(OTHER, 3, "1", lifted=True)
    await desk.shard.submit(ConfigureQueue(QUEUE, config=QueueConfig(max_backlog=7), paused=True))
    assert await home_of(desk) == Home(OTHER, 3, "1", lifted=True)


async def test_a_queue_that_was_deleted_has_no_home_any_more(desk: Desk) -> None:
    await desk.shard.submit(MergeQueues([Queue("q", life=Life(5), home=Home("2", 1))], desk.now))
    await desk.shard.submit(DeleteQueues(["q"], 6, desk.now))
    [made] = await desk.shard.submit(MergeQueues([Queue("q", life=Life(9, 6))], desk.now))
    assert made.home == NO_HOME
    [kept] = await desk.shard.submit(MergeQueues([Queue("q", life=Life(5), home=Home("2", 1))], desk.now))
    assert kept.home == NO_HOME


async def test_a_deletion_before_the_queue_was_made_does_not_take_its_home(desk: Desk) -> None:
    await desk.shard.submit(MergeQueues([Queue("q", life=Life(9), home=Home("2", 1))], desk.now))
    [kept] = await desk.shard.submit(MergeQueues([Queue("q", life=Life(5, 4))], desk.now))
    assert (kept.home, kept.life) == (Home("2", 1), Life(9, 4))


async def test_a_home_outlives_a_restart(desk: Desk) -> None:
    home = await waiting(desk, "a")
    if not desk.shard.capabilities.durable:
        return
    await desk.reopen()
    assert await home_of(desk) == home
    assert await bodies(desk) == []
    await lift(desk, home)
    assert await bodies(desk) == [b"a"]


@pytest.mark.parametrize(
    "moved", [Home(OTHER, 3), Home(OTHER, 3, "3"), None], ids=["elsewhere", "to wait elsewhere", "no longer waits"]
)
async def test_jobs_that_wait_on_a_shard_whose_row_no_longer_says_so_can_be_let_go(
    desk: Desk, moved: Home | None
) -> None:
    """It was lost and is back, or comes from a backup: the other shards have gone on. The row says that it is to be done."""
    await waiting(desk, "a", "a", "b")
    newer = moved or Home(desk.shard.name, 4)
    [queue] = await desk.shard.submit(
        MergeQueues([Queue(QUEUE, home=newer._replace(claim="3", lift_due=True))], desk.now)
    )
    assert queue.home == await home_of(desk) == newer._replace(lift_due=True)
    assert await bodies(desk) == []
    assert await desk.shard.submit(LiftBarrier(QUEUE, "", 100, desk.now)) is None
    assert await bodies(desk) == [b"a", b"b"]
    assert await desk.shard.submit(MoveHome(QUEUE, queue.home, newer)) == newer


async def test_a_row_that_hears_of_a_newer_home_has_nothing_to_let_go_if_no_job_waited_there(desk: Desk) -> None:
    for home in (Home(OTHER, 2, desk.shard.name), Home(desk.shard.name, 3), Home(OTHER, 4)):
        [queue] = await desk.shard.submit(MergeQueues([Queue(QUEUE, home=home)], desk.now))
        assert queue.home == home
