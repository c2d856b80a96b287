"""Two servers on one store, of which one remembers what is no longer so: the store decides, and nothing is lost, refused or miscounted.

`desk` works; `other` was opened before the queue was made, or knows one that was deleted since and made again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from random import Random

import pytest

from pinlater.domain.errors import EnqueueRejected, PinLaterError, QueueNotFound
from pinlater.domain.job import JobState, Outcome, UniqueKey, UniqueScope
from pinlater.domain.queue import ALL_JOBS, Home, Life, Queue, QueueConfig, Versions
from pinlater.server.storage.commands import (
    AdvanceDue,
    AskState,
    ClaimJobs,
    CollectGarbage,
    CountJobs,
    CountOrdered,
    DeleteJobs,
    DeleteQueues,
    DeleteWithCopies,
    ExpireJobs,
    FinishJobs,
    ListChangedQueues,
    ListQueues,
    MergeQueues,
    MoveHome,
    PeekJobs,
    PurgeJobs,
    RestoreJobs,
    ScanJobs,
    TimeOutClaims,
    create_queues,
)
from pinlater.server.storage.values import (
    Acked,
    ClaimCall,
    Claimed,
    ClaimOrder,
    CopiesOf,
    Inserted,
    InsertRequest,
    JobAck,
    JobCheckpoint,
    Page,
    Purge,
    Restored,
    RestoreOrder,
    TimeToLive,
)
from tests.contract.desk import QUEUE, Desk, DeskJob
from tests.contract.stores import SHARED, make_store, needs_server, never_old

_SPREAD_S = 0.02


@pytest.fixture(params=SHARED)
def store_kind(request: pytest.FixtureRequest) -> str:
    kind = str(request.param)
    needs_server(kind, request)
    return kind


@pytest.fixture
async def other(store_kind: str, tmp_path: Path) -> AsyncIterator[Desk]:
    """A server that knows no queue."""
    desk = Desk(lambda: make_store(store_kind, tmp_path, never_old()))
    await desk.open()
    yield desk
    await desk.shard.close()


@pytest.fixture
async def desk(store_kind: str, tmp_path: Path, other: Desk) -> AsyncIterator[Desk]:
    """The server that makes the queue, after `other` was opened."""
    desk = Desk(lambda: make_store(store_kind, tmp_path, never_old()))
    desk.clock = other.clock
    await desk.open()
    await desk.shard.submit(create_queues([QUEUE], desk.now))
    yield desk
    await desk.shard.close()


async def know(desk: Desk) -> None:
    """Afterwards the server remembers the queue."""
    assert await desk.claim() == []


async def make_again(desk: Desk) -> None:
    """Another server deletes the queue and makes it again."""
    await desk.shard.submit(DeleteQueues([QUEUE]))
    await desk.shard.submit(create_queues([QUEUE], desk.now))


async def test_a_server_that_knows_a_deleted_queue_stores_no_job_past_the_order_of_the_new_one(
    other: Desk, desk: Desk
) -> None:
    await know(other)
    await desk.shard.submit(DeleteQueues([QUEUE]))
    await desk.shard.submit(create_queues([QUEUE], desk.now, Life(1), asks_order=True))
    for server in (other, desk):
        refused = await server.request(InsertRequest(QUEUE, [server.job()]))
        assert isinstance(refused, EnqueueRejected)
    assert await desk.claim() == []
    jobs = [other.job(ordering_key=ALL_JOBS), other.job(ordering_key=ALL_JOBS)]
    await other.insert(*jobs)
    assert [held.key.id for held in await desk.claim(5)] == [jobs[0].id]


# --- sweeps of a server that does not know the queue ------------------------------------------------------------------------------


async def test_a_sweep_by_a_server_that_does_not_know_the_queue_deletes_no_job(other: Desk, desk: Desk) -> None:
    held = await desk.put_and_take()
    desk.clock.advance(ms=10**6)
    [swept] = await other.shard.submit(TimeOutClaims(desk.now, 100))
    assert (swept.queue, swept.retried) == (QUEUE, 1)
    assert (await desk.look(held.key)).state is JobState.PENDING
    assert (await desk.counts()).in_progress == 0
    await desk.assert_counters_exact()


async def test_a_sweep_by_a_server_that_does_not_know_the_queue_moves_its_counters(other: Desk, desk: Desk) -> None:
    await desk.put(delay_ms=1_000)
    desk.clock.advance(ms=1_000)
    await other.shard.submit(AdvanceDue(desk.now, 100))
    counts = await desk.counts()
    assert (counts.pending, counts.future) == (1, 0)
    await desk.assert_counters_exact()


async def test_a_sweep_by_a_server_that_does_not_know_the_queue_expires_its_jobs(other: Desk, desk: Desk) -> None:
    key = await desk.put(expires_in_ms=1_000)
    desk.clock.advance(ms=1_001)
    [swept] = await other.shard.submit(ExpireJobs(desk.now, 100))
    assert (swept.queue, swept.failed) == (QUEUE, 1)
    assert (await desk.look(key)).state is JobState.FAILED
    await desk.assert_counters_exact()


async def test_garbage_of_a_queue_that_the_server_does_not_know_is_collected(other: Desk, desk: Desk) -> None:
    """Also where the server learned of the queue only after a sweep that left it out."""
    await desk.put_in(JobState.SUCCEEDED)
    desk.clock.advance(ms=10_000)
    assert await other.shard.submit(CollectGarbage([], desk.now, 100)) == []
    [swept] = await other.shard.submit(CollectGarbage([TimeToLive(QUEUE, 1_000, 1_000)], desk.now, 100))
    assert swept.deleted_succeeded == 1
    await desk.assert_counters_exact()


async def test_claims_of_a_queue_that_is_gone_are_deleted_with_their_jobs(other: Desk, desk: Desk) -> None:
    """A server that never knew the queue asks the database before it deletes; only what is gone there goes."""
    gone = await desk.put_and_take(b"gone")
    await desk.shard.submit(create_queues(["kept"], desk.now))
    await desk.put(b"kept", queue="kept")
    kept = await desk.take(queue="kept")
    await desk.shard.submit(DeleteQueues([QUEUE]))
    desk.clock.advance(ms=10**6)
    [swept] = await other.shard.submit(TimeOutClaims(desk.now, 100))
    assert (swept.queue, swept.retried) == ("kept", 1)
    assert (await desk.look(kept.key)).body == b"kept"
    assert await desk.find(gone.key) is None
    await desk.shard.submit(create_queues([QUEUE], desk.now))
    assert await other.claim() == []
    await desk.assert_counters_exact()


# --- a queue that was deleted and made again by another server ----------------------------------------------------------------------


@pytest.fixture
async def again(other: Desk, desk: Desk) -> DeskJob:
    """A job in hand, in a queue that `other` remembers from before it was made anew."""
    await know(other)
    await make_again(desk)
    return await desk.put_and_take()


@pytest.mark.parametrize("acks", [1, 2])
async def test_acks_of_live_claims_count_in_a_queue_that_was_made_again(
    again: DeskJob, other: Desk, desk: Desk, acks: int
) -> None:
    """One by one and several at once; after an unexpected answer, the second call looks before it acks."""
    more = [await desk.put_and_take() for _ in range(2 * acks - 1)]
    held = [again, *more]
    for part in (held[:acks], held[acks:]):
        words = [JobAck(one.key, True, one.holder.token) for one in part]
        answers = await other.shard.submit(FinishJobs(words, desk.now))
        assert [answer.outcome for answer in answers] == [Outcome.APPLIED] * acks
    await desk.assert_counters_exact()


WORDS: dict[str, Callable[[Desk, DeskJob], Awaitable[Acked]]] = {
    "ack without a token": lambda desk, held: desk.succeed(held.key),
    "ack with a status": lambda desk, held: desk.succeed(held.key, token=held.holder.token, status="so"),
    "failure": lambda desk, held: desk.fail(held.key, token=held.holder.token),
    "checkpoint": lambda desk, held: desk.checkpoint(JobCheckpoint(held.key, "worker", held.holder.token, b"new")),
    "heartbeat": lambda desk, held: desk.heartbeat(held.ref),
    "release": lambda desk, held: desk.release(held.ref),
    "cancel": lambda desk, held: desk.cancel(held.key),
}


@pytest.mark.parametrize("word", list(WORDS))
async def test_a_live_claim_is_never_answered_not_found(again: DeskJob, other: Desk, desk: Desk, word: str) -> None:
    """For clients of the original a NOT_FOUND is a lost ack."""
    assert (await WORDS[word](other, again)).outcome is Outcome.APPLIED
    await desk.assert_counters_exact()


async def test_an_empty_claim_looks_into_the_queue_that_there_is(other: Desk, desk: Desk) -> None:
    await know(other)
    await make_again(desk)
    await desk.put(b"new")
    assert [held.job.body for held in await other.claim()] == [b"new"]
    await desk.assert_counters_exact()


@pytest.mark.differs("error numbers, and errors that a script returns")
async def test_a_claim_from_a_queue_that_is_gone_says_so(other: Desk, desk: Desk) -> None:
    """Also where it finds nothing, so that nothing is counted."""
    assert await other.claim() == []
    await desk.shard.submit(DeleteQueues([QUEUE]))
    order = ClaimOrder(QUEUE, [ClaimCall(1, other.holder())], 1_000)
    [answer] = await other.shard.submit(ClaimJobs([order], desk.now))
    assert isinstance(answer, QueueNotFound)


@pytest.mark.differs("error numbers, and errors that a script returns")
async def test_one_stale_order_does_not_touch_another_of_the_same_call(other: Desk, desk: Desk) -> None:
    await desk.shard.submit(create_queues(["steady"], desk.now))
    await know(other)
    await make_again(desk)
    await desk.put(b"steady", queue="steady")
    orders = [ClaimOrder(queue, [ClaimCall(1, other.holder())], 1_000) for queue in (QUEUE, "steady")]
    empty, full = await other.shard.submit(ClaimJobs(orders, desk.now))
    assert isinstance(empty, Claimed)
    assert isinstance(full, Claimed)
    assert [[job.body for job in jobs] for jobs in (*empty.jobs, *full.jobs)] == [[], [b"steady"]]
    [(_, counts)] = await desk.shard.submit(CountJobs(["steady"]))
    assert counts.claimed_total == 1
    await desk.assert_counters_exact()


async def test_request_keys_of_the_queue_before_answer_nothing(other: Desk, desk: Desk) -> None:
    """The first enqueue went with the old queue: the same request is a new enqueue."""
    assert await other.claim() == []
    await other.request(InsertRequest(QUEUE, [other.job(b"old")], "key", b"f"))
    await make_again(desk)
    stored = await other.request(InsertRequest(QUEUE, [other.job(b"new")], "key", b"f"))
    assert isinstance(stored, Inserted)
    assert not stored.repeated
    assert [held.job.body for held in await desk.claim()] == [b"new"]
    await desk.assert_counters_exact()


async def test_unique_keys_of_the_queue_before_are_free(other: Desk, desk: Desk) -> None:
    held = UniqueKey("key", UniqueScope.UNFINISHED, 0)
    await other.put(b"old", unique=held)
    await make_again(desk)
    stored = await other.insert(other.job(b"new", unique=held))
    assert stored.existing == {}
    assert [one.job.body for one in await desk.claim()] == [b"new"]
    await desk.assert_counters_exact()


async def test_operators_words_reach_the_queue_that_there_is(other: Desk, desk: Desk) -> None:
    await know(other)
    await make_again(desk)
    failed = [await desk.put_in(JobState.FAILED) for _ in range(3)]
    assert await other.retry_failed(attempts=2, limit=1) == 1
    await make_again(other)
    await desk.put_in(JobState.FAILED)
    failed = [await other.put_in(JobState.FAILED) for _ in range(2)]
    assert await desk.shard.submit(DeleteJobs([failed[0]])) == 1
    await make_again(other)
    await other.put_in(JobState.FAILED)
    assert await desk.shard.submit(PurgeJobs(Purge(QUEUE, JobState.FAILED, 1, 10))) == 1
    await desk.assert_counters_exact()


async def test_a_look_at_what_waits_sees_the_queue_that_there_is(other: Desk, desk: Desk) -> None:
    await know(other)
    await make_again(desk)
    await desk.put(b"new", priority=7)
    seen = await other.shard.submit(PeekJobs(QUEUE, 10, desk.now, 1_000))
    assert not isinstance(seen, PinLaterError)
    assert [job.body for job in seen] == [b"new"]


async def test_looks_see_the_queue_that_there_is(other: Desk, desk: Desk) -> None:
    old = await other.put(b"old")
    await make_again(desk)
    assert await other.find(old) is None
    assert await other.scan(JobState.PENDING) == []
    await make_again(desk)
    new = await desk.put(b"new")
    assert (await other.look(new)).body == b"new"
    await make_again(desk)
    new = await desk.put(b"new")
    assert [row.key.id for row in await other.scan(JobState.PENDING)] == [new.id]
    await make_again(desk)
    assert await other.shard.submit(PeekJobs(QUEUE, 10, desk.now, 1_000)) == []
    await desk.shard.submit(DeleteQueues([QUEUE]))
    page = Page(QUEUE, JobState.PENDING, [1], 10, due_by_ms=desk.now)
    assert isinstance(await other.shard.submit(ScanJobs(page)), QueueNotFound)
    assert isinstance(await other.shard.submit(PeekJobs(QUEUE, 10, desk.now, 1_000)), QueueNotFound)


async def test_a_server_that_remembers_the_queue_before_hears_of_jobs_in_the_new_one(other: Desk, desk: Desk) -> None:
    """Waiting dequeues are woken by this."""
    await know(other)
    await make_again(desk)
    await other.shared.submit(ListChangedQueues())
    await desk.put()
    assert await other.shared.submit(ListChangedQueues()) == [QUEUE]


async def test_the_state_of_a_shard_is_another_one_after_a_change_by_any_server(other: Desk, desk: Desk) -> None:
    told = 0
    other.shared.follow(lambda: told)
    try:
        before = await other.shared.submit(AskState())
        assert before is not None
        assert await other.shared.submit(AskState()) == before
        changes = desk.shared.changes
        await desk.put()
        assert desk.shared.changes > changes
        told = 1
        assert await other.shared.submit(AskState()) != before
        told = 0  # what the shard says is enough
        after = await other.shared.submit(AskState())
        assert after != before
        await other.put()
        assert await other.shared.submit(AskState()) != after
        other.shared.follow(lambda: None)
        assert await other.shared.submit(AskState()) is None
    finally:
        other.shared.follow(lambda: None)


async def test_a_shard_in_which_nothing_changes_is_asked_nothing_by_sweeps(store_kind: str, tmp_path: Path) -> None:
    desk = Desk(lambda: make_store(store_kind, tmp_path))
    await desk.open()
    await desk.shard.submit(create_queues([QUEUE], desk.now))
    await desk.put()
    desk.shared.follow(lambda: 0)

    async def sweep() -> float:
        await desk.shard.submit(TimeOutClaims(desk.now, 100))
        await desk.shard.submit(ExpireJobs(desk.now, 100))
        await desk.shard.submit(AdvanceDue(desk.now, 100))
        await desk.shard.submit(CollectGarbage([TimeToLive(QUEUE, 1_000, 1_000)], desk.now, 100))
        return desk.shard.figures()["round_trips"]

    found = [await sweep() for _ in range(10)]
    await desk.shard.close()
    assert found[-1] == found[-3]


async def test_priorities_that_only_another_server_used_are_claimed(other: Desk, desk: Desk) -> None:
    """This server's settings have fewer levels."""
    assert await other.claim() == []
    await desk.put(b"low", priority=7)
    await other.shared.submit(ListChangedQueues())
    assert [held.job.body for held in await other.claim()] == [b"low"]
    await desk.assert_counters_exact()


# --- queues that one server makes while another deletes them ------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
async def test_a_queue_that_is_deleted_while_another_server_makes_it_from_old_knowledge_stays_deleted(
    seed: int, other: Desk, desk: Desk
) -> None:
    """Whichever of the two is first, and whether the queue is there."""
    random = Random(seed)
    for round_ in range(1, 16):
        old, now = 100 * round_, 100 * round_ + 50
        if random.random() < 0.5:
            await desk.shard.submit(MergeQueues([Queue("q", life=Life(old))], desk.now))

        async def make(desk: Desk, turns: int, life: Life) -> None:
            for _ in range(turns):
                await asyncio.sleep(0)
            await desk.shard.submit(MergeQueues([Queue("q", paused=True, life=life)], desk.now))

        makers = [make(random.choice([desk, other]), random.randint(0, 40), Life(old)) for _ in range(4)]
        await asyncio.gather(*makers, desk.shard.submit(DeleteQueues(["q"], now)))
        assert "q" not in {queue.name for queue in await other.shard.submit(ListQueues())}
        await asyncio.gather(make(desk, 0, Life(now + 1)), make(other, 0, Life(now + 2)))
        [made] = [queue for queue in await other.shard.submit(ListQueues()) if queue.name == "q"]
        assert made.life == Life(now + 2, now)


@pytest.mark.differs("row locks and deadlocks")
@pytest.mark.parametrize("seed", range(3))
async def test_creations_and_deletions_of_one_moment_leave_no_queue_or_setting_from_before_a_deletion(
    desk: Desk, other: Desk, seed: int
) -> None:
    """Whichever the store carries out first. A deletion that answers with a later time has certainly deleted nothing."""
    random = Random(seed)
    for number in range(6):
        name, start_ms = f"q{number}", desk.now
        made = [start_ms + random.randrange(10) for _ in range(random.randrange(1, 5))]
        deletions = [start_ms + random.randrange(10) for _ in range(random.randrange(1, 4))]
        given = [
            Queue(name, QueueConfig(max_backlog=ms), versions=Versions(f"{ms:013d}.0"), life=Life(ms)) for ms in made
        ]
        merges = [random.choice([desk, other]).shard.submit(MergeQueues([queue], desk.now)) for queue in given]
        deletes = [random.choice([desk, other]).shard.submit(DeleteQueues([name], ms)) for ms in deletions]
        calls: list[Awaitable[object]] = [*merges, *deletes]
        order = random.sample(range(len(calls)), len(calls))
        answers = dict(zip(order, await asyncio.gather(*(calls[index] for index in order)), strict=True))
        done_ms = [ms for index, ms in enumerate(deletions, len(merges)) if int(str(answers[index])) < ms]
        found = [queue for queue in await other.shard.submit(ListQueues()) if queue.name == name]
        assert found == [queue for queue in await desk.shard.submit(ListQueues()) if queue.name == name]
        latest_ms = max(done_ms, default=0)
        assert all(queue.life.made_ms > latest_ms for queue in found)
        assert all(queue.config.max_backlog is None or queue.config.max_backlog > latest_ms for queue in found)
        if max(made) > max(deletions):
            assert [(queue.life.made_ms, queue.config.max_backlog) for queue in found] == [(max(made), max(made))]
        if not found:
            [late] = await other.shard.submit(create_queues([name], desk.now, life=Life(latest_ms)))
            assert late.life.over


# --- jobs that are deleted with copies --------------------------------------------------------------------------------------------


@pytest.mark.differs("row locks and deadlocks")
async def test_two_servers_that_delete_and_restore_at_once_lose_and_double_no_job(desk: Desk, other: Desk) -> None:
    run = CopiesOf("0123456789abcdef", 1)
    keys = [await desk.put(unique=UniqueKey(f"k{number}")) for number in range(40)]

    async def delete(server: Desk, first: int) -> int:
        done = 0
        for start in range(first, 40, 5):
            done += (await server.shard.submit(DeleteWithCopies(keys[start:], JobState.PENDING, run, desk.now))).deleted
        return done

    assert sum(await asyncio.gather(delete(desk, 0), delete(other, 3), delete(desk, 1))) == 40
    await desk.assert_counters_exact()
    answers: list[Restored] = []

    async def restore(server: Desk) -> None:
        after: str | None = ""
        while after is not None:
            answers.append(await server.shard.submit(RestoreJobs(RestoreOrder(QUEUE, run, after), desk.now)))
            after = answers[-1].after

    await asyncio.gather(restore(desk), restore(other), restore(desk))
    assert sum(answer.restored for answer in answers) == 40
    assert sum(answer.key_taken for answer in answers) == 0
    await desk.assert_counters_exact()
    await other.shared.submit(ListChangedQueues())
    assert len({held.key for held in await other.claim(100, owned=False)}) == 40


# --- moves to another priority --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2])
async def test_jobs_that_one_server_moves_beside_claims_of_both_are_handed_out_once(
    other: Desk, desk: Desk, seed: int
) -> None:
    random = Random(seed)
    keys = [await desk.put(priority=random.randint(1, 3)) for _ in range(60)]
    handed_out: list[int] = []

    async def work(server: Desk) -> None:
        for _ in range(10):
            for held in await server.claim(3, owned=False):
                handed_out.append(held.key.id)
                assert (await server.succeed(held.key, token=held.holder.token)).outcome is Outcome.APPLIED

    async def move(server: Desk) -> None:
        for key in random.sample(keys, 30):
            name = key
            for priority in random.sample([1, 2, 3], 2):
                if (await server.move(name, priority)).outcome is Outcome.APPLIED:
                    name = name._replace(priority=priority)

    await asyncio.gather(work(desk), move(other), work(other), move(desk), move(other))
    for server in (desk, other):
        await server.shared.submit(ListChangedQueues())
        handed_out += [held.key.id for held in await server.claim(60, owned=False)]
    assert sorted(handed_out) == sorted(key.id for key in keys)
    await desk.assert_counters_exact()
    await other.assert_counters_exact()


async def test_a_server_that_does_not_know_the_queue_moves_its_jobs(other: Desk, desk: Desk) -> None:
    key = await desk.put()
    assert (await other.move(key, 3)).outcome is Outcome.APPLIED
    assert [held.key for held in await desk.claim(5)] == [key._replace(priority=3)]
    await desk.assert_counters_exact()


async def test_a_move_in_a_queue_that_was_made_again_finds_no_job_of_the_old_one(other: Desk, desk: Desk) -> None:
    await know(other)
    key = await desk.put()
    await make_again(desk)
    assert (await other.move(key, 3)).outcome is Outcome.NOT_FOUND
    assert (await desk.counts(priority=3)).pending == 0
    await desk.assert_counters_exact()


@pytest.mark.parametrize("seed", range(3))
async def test_no_insert_is_stored_after_its_shard_has_ceased_to_be_the_home(
    desk: Desk, other: Desk, seed: int
) -> None:
    """So what is counted then is all that will ever be there."""
    random = Random(seed)
    home = await desk.become_home()

    async def insert(server: Desk) -> int:
        stored = 0
        await asyncio.sleep(random.random() * _SPREAD_S)
        for _ in range(10):
            job = server.job(ordering_key=random.choice("abc"))
            stored += isinstance(await server.request(InsertRequest(QUEUE, [job])), Inserted)
        return stored

    async def close() -> int:
        await asyncio.sleep(random.random() * 2 * _SPREAD_S)
        moved = Home("2", home.version + 1, desk.shard.name)
        assert await other.shard.submit(MoveHome(QUEUE, home, moved)) == moved
        return await other.shard.submit(CountOrdered(QUEUE, 1_000))

    counted, *stored = await asyncio.gather(close(), *(insert(random.choice([desk, other])) for _ in range(12)))
    assert counted == sum(stored) == await desk.shard.submit(CountOrdered(QUEUE, 1_000))
