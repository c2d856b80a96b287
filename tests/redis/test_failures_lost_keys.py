"""Any key of a shard is deleted (evicted, or by an operator's DEL): nothing wedges, nothing is kept for ever, and what can be known from
the other keys is put right. What a lost job's own data (`j`) means is in `test_failures_lost_jobs.py`."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable
from typing import Any, NamedTuple

import pytest

from pinlater.domain.errors import PinLaterError, QueueNotFound, ShardConnectionFailed
from pinlater.domain.job import JobState, Outcome, UniqueScope
from pinlater.domain.queue import QueueConfig
from pinlater.server.storage.commands import (
    AddToTrail,
    Announce,
    CollectGarbage,
    ConfigureQueue,
    CountJobs,
    CountOrdered,
    DeleteJobs,
    DeleteQueues,
    DeleteWithCopies,
    ExpireJobs,
    ListChangedQueues,
    ListSamples,
    ListTrail,
    ListUniqueQueues,
    NoteMap,
    PeekJobs,
    PruneTrail,
    SaveSamples,
    ScanJobs,
    TimeOutClaims,
    TrimSamples,
    create_queues,
)
from pinlater.server.storage.values import (
    CopiesOf,
    InsertRequest,
    JobKey,
    Page,
    SampleRange,
    StoredSample,
    TrailEntry,
    raise_error,
)
from tests.contract.desk import ALL, QUEUE, TIMEOUT_MS, Desk, DeskJob, unique
from tests.redis.consistency import keys_of
from tests.redis.lost_keys import KINDS, keys_of_kind
from tests.redis.proxied_redis import FRONT, ProxiedRedis
from tests.shared_shards.proxied_database import stats_of

_RUN = CopiesOf("0123456789abcdef", 1_000)
# Those whose loss takes a job along, or more than one.
TAKES_JOBS = {"j"}


class Life(NamedTuple):
    """What there was before."""

    bodies: set[bytes]  # of jobs that wait or are in hand
    held: DeskJob
    finished: list[JobKey]


async def live(desk: Desk) -> Life:
    """A shard with something in every key."""
    finished = [await desk.put_in(state, b"done") for state in (JobState.SUCCEEDED, JobState.FAILED)]
    held = await desk.put_and_take(b"held")
    tried = await desk.put_and_take(b"tried", priority=3, attempts=9)
    await desk.fail(tried.key, error=("E", "text"))
    await desk.put(b"waits", priority=2)
    await desk.put(b"unique", unique=unique("k", UniqueScope.UNFINISHED))
    await desk.put(b"timed", unique=unique("t", UniqueScope.TIME, 500))
    await desk.put(b"expires", expires_in_ms=10 * TIMEOUT_MS, delay_ms=5)
    await desk.request(InsertRequest(QUEUE, [desk.job(b"keyed")], "request", b"f"))
    await desk.shard.submit(ConfigureQueue(QUEUE, config=QueueConfig()))
    await desk.shard.submit(create_queues(["gone"], desk.now))
    await desk.put(b"gone", queue="gone")
    await desk.shard.submit(DeleteQueues(["gone"], desk.now))
    await desk.shared.submit(Announce("127.0.0.1:9010"))
    await desk.shard.submit(NoteMap("{}", desk.now))
    await desk.shard.submit(AddToTrail([TrailEntry("1", b"{}")], 10))
    await desk.shard.submit(SaveSamples([StoredSample(60, desk.now, QUEUE, "server", b"s")]))
    await desk.shard.submit(DeleteWithCopies([await desk.put(b"deleted")], JobState.PENDING, _RUN, desk.now))
    for body in (b"first", b"second"):
        await desk.put(body, ordering_key="a")
    bodies = {b"first", b"second", b"held", b"waits", b"unique", b"timed", b"expires", b"keyed", b"tried"}
    return Life(bodies, held, finished)


def delete(database: ProxiedRedis, kind: str) -> None:
    """All keys of a kind."""
    found = keys_of_kind(keys_of(database.server), FRONT, kind)
    assert found, f"there is no {kind}"
    database.server.execute("DEL", *found)


async def look_at_everything(desk: Desk, life: Life) -> None:
    """Each caller gets an answer, or an error that says what is not there."""
    with contextlib.suppress(QueueNotFound, ShardConnectionFailed):
        await desk.find(life.held.key)
        for state in JobState:
            raise_error(await desk.shard.submit(ScanJobs(Page(QUEUE, state, [1], ALL, due_by_ms=desk.now))))
        await desk.shard.submit(PeekJobs(QUEUE, 10, desk.now, 1_000_000))
        await desk.shard.submit(CountJobs())
        await desk.shard.submit(ListUniqueQueues())
        await desk.shared.submit(ListChangedQueues())
        await desk.shard.submit(ListTrail("", "", 10))
        await desk.shard.submit(ListSamples([SampleRange(60, 0, 2 * desk.now)]))


async def look_after(desk: Desk) -> None:
    """What a server does by itself, and some time."""
    for _ in range(4):
        # A change makes the next look a new one; a server would wait for it for a second.
        with contextlib.suppress(PinLaterError):
            await desk.shard.ping()
            await desk.shard.submit(create_queues(["another"], desk.now))
            await desk.shard.submit(ConfigureQueue("another", paused=False))
        await desk.shard.submit(TimeOutClaims(desk.now, ALL))
        await desk.shard.submit(ExpireJobs(desk.now, ALL))
        await desk.collect(succeeded_ms=100 * TIMEOUT_MS, failed_ms=100 * TIMEOUT_MS)
        await desk.shard.submit(PruneTrail("0", ALL))
        await desk.shard.submit(TrimSamples(60, 0, ALL))
        await desk.shared.submit(ListChangedQueues())


@pytest.mark.parametrize("kind", KINDS)
async def test_whatever_key_is_lost_all_jobs_that_are_left_are_done_and_nothing_is_kept(
    database: ProxiedRedis, desk: Desk, kind: str
) -> None:
    """Found by what a server does anyway; the jobs come whole, with all that is not in the lost key."""
    life = await live(desk)
    delete(database, kind)
    await look_at_everything(desk, life)
    desk.clock.advance(ms=TIMEOUT_MS + 1)
    await look_after(desk)
    stats = stats_of(desk)
    await desk.reopen()  # where the slot was lost, ids must be made with another

    done = set()
    while claimed := await desk.claim(100):
        for held in claimed:
            assert (await desk.succeed(held.key, token=held.holder.token)).outcome is Outcome.APPLIED
            done.add(held.job.body)
    await desk.put(b"new")
    assert (await desk.take()).job.body == b"new"

    if kind in TAKES_JOBS:
        assert done == set()
        assert stats.jobs_lost + stats_of(desk).jobs_lost == len(life.bodies) + len(life.finished)
    else:
        assert done == life.bodies
        for key, state in zip(life.finished, (JobState.SUCCEEDED, JobState.FAILED), strict=True):
            assert (await desk.look(key)).state is state
    desk.clock.advance(ms=200 * TIMEOUT_MS)
    await look_after(desk)
    counts = [await desk.counts(priority=priority) for priority in (1, 2, 3)]
    assert sum(row.in_progress + row.succeeded + row.failed for row in counts) == 0
    left = [key for key in keys_of(database.server) if key.startswith(FRONT + b"j") and len(key) == len(FRONT) + 14]
    assert len(left) == sum(row.pending for row in counts) == 1
    if kind != "fb":  # see `test_lost_bytes_are_counted_again`
        await database.assert_consistent()


@pytest.mark.parametrize("kind", ["d", "dn"])
@pytest.mark.parametrize("comes", ["before the repair", "after the last one has ended"])
async def test_jobs_that_come_after_the_places_of_their_key_are_lost_run_in_their_order(
    database: ProxiedRedis, desk: Desk, kind: str, comes: str
) -> None:
    """Those that waited go at once, and nothing that is left of them keeps later ones waiting."""
    for _ in range(4):
        await desk.put(b"old", ordering_key="a")
    first = await desk.take()
    delete(database, kind)
    if comes == "before the repair":
        await put_two(desk)
    await desk.succeed(first.key)
    await look_after(desk)
    old = [held for held in await desk.claim(100) if held.job.body == b"old"]
    assert len(old) == 3
    for held in old:
        await desk.succeed(held.key)
    if comes != "before the repair":
        await put_two(desk)
    await look_after(desk)
    desk.clock.advance(ms=TIMEOUT_MS + 1)
    await desk.shard.submit(TimeOutClaims(desk.now, ALL))
    desk.clock.advance(ms=TIMEOUT_MS)
    for body in (b"1", b"2"):
        [held] = await desk.claim(100)
        assert held.job.body == body
        await desk.succeed(held.key)
    await database.assert_consistent()


async def put_two(desk: Desk) -> None:
    for body in (b"1", b"2"):
        await desk.put(body, ordering_key="a", attempts=9)


async def test_no_job_on_another_shard_waits_for_lost_ones_of_which_only_the_places_are_left(
    database: ProxiedRedis, desk: Desk
) -> None:
    await desk.put(ordering_key="a")
    delete(database, "j")
    await desk.put(ordering_key="b")
    assert await desk.shard.submit(CountOrdered(QUEUE, 10)) == 1


async def test_no_key_expires_so_a_policy_that_evicts_what_expires_evicts_none(
    database: ProxiedRedis, desk: Desk
) -> None:
    """`volatile-*`, of which no server warns."""
    await live(desk)
    assert [key for key in keys_of(database.server) if database.server.execute("PTTL", key) != -1] == []


async def test_repaired_jobs_are_counted_and_logged(
    database: ProxiedRedis, desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        await desk.put()
    delete(database, "r")
    assert await desk.claim(10) == []
    await desk.collect()

    assert stats_of(desk).jobs_repaired == 3
    assert "3 jobs put right" in caplog.text
    assert len(await desk.claim(10)) == 3


async def test_a_claim_that_is_lost_ends_at_its_deadline_and_no_token_counts_for_it(
    database: ProxiedRedis, desk: Desk
) -> None:
    """The holder is unknown; so its worker is told that the job isn't its own, and the job runs again."""
    held = await desk.put_and_take()
    delete(database, "h")

    assert (await desk.succeed(held.key, token=held.holder.token)).outcome is Outcome.STALE_CLAIM
    assert (await desk.look(held.key)).state is JobState.IN_PROGRESS
    assert stats_of(desk).jobs_repaired == 1
    desk.clock.advance(ms=TIMEOUT_MS + 1)
    [swept] = await desk.shard.submit(TimeOutClaims(desk.now, ALL))
    assert (swept.retried, swept.lost) == (1, 0)
    await database.assert_consistent()


async def test_a_queue_never_gets_the_number_of_another(database: ProxiedRedis, desk: Desk) -> None:
    """The last number is gone, and so would be the line between two queues' jobs."""
    await desk.shard.submit(create_queues(["dropped"], desk.now))
    await desk.put(b"dropped", queue="dropped")
    await desk.shard.submit(DeleteQueues(["dropped"]))
    await desk.put(b"one's")
    delete(database, "meta")

    await desk.shard.submit(create_queues(["other"], desk.now))
    await desk.put(b"other's", queue="other")

    assert [held.job.body for held in await desk.claim(10, queue="other")] == [b"other's"]
    assert [held.job.body for held in await desk.claim(10)] == [b"one's"]


async def test_where_all_names_and_the_last_number_are_gone_no_queue_gets_the_jobs_of_another(
    database: ProxiedRedis, desk: Desk
) -> None:
    """Redis evicts these three, and a queue is created before the next maintenance. The jobs have no owner and are freed."""
    for priority in (1, 2):
        await desk.put(b"one's", priority=priority)
    for kind in ("meta", "q", "qn"):
        delete(database, kind)

    await desk.shard.submit(create_queues(["other"], desk.now))
    await desk.put(b"other's", queue="other")
    assert [held.job.body for held in await desk.claim(10, queue="other")] == [b"other's"]

    await look_after(desk)
    assert [key for key in keys_of(database.server) if key.startswith(FRONT + b"r")] == []
    await database.assert_consistent()


async def test_lost_bytes_are_counted_again(database: ProxiedRedis) -> None:
    """By the rounds over all jobs; two of them, since a round isn't one moment. Otherwise memory would stay full."""
    desk = await database.desk(finished_bytes_max=5_000)
    for _ in range(8):
        await desk.put_in(JobState.SUCCEEDED, bytes(979))
        desk.clock.advance(seconds=1)
    delete(database, "fb")
    assert [await desk.collect() for _ in range(4)] == [(0, 0), (0, 0), (0, 0), (0, 0)]

    await desk.put()  # so that the next look is a new one, as it is after a second
    assert await desk.collect() == (3, 0)
    await database.assert_consistent()


@pytest.mark.parametrize("also", [(), ("j", "h", "p")])
async def test_keys_of_unknown_queues_are_freed(
    database: ProxiedRedis, desk: Desk, caplog: pytest.LogCaptureFixture, also: tuple[str, ...]
) -> None:
    """Both keys that hold queues' names are gone; where all of their jobs are, too, the indexes still name these."""
    await live(desk)
    await desk.shard.submit(CollectGarbage([], desk.now, ALL))  # frees the queue that was deleted
    for kind in ("q", "qn", *also):
        delete(database, kind)

    await look_after(desk)

    assert "what 1 of them left is freed" in caplog.text
    assert [key for key in keys_of(database.server) if key.startswith(FRONT) and key[len(FRONT) :][:1] in b"jrisf"] == [
        FRONT + b"fb",
        FRONT + b"servers",
    ]


async def test_priorities_are_known_again_at_the_next_look_though_the_totals_are_gone_too(
    database: ProxiedRedis, desk: Desk
) -> None:
    """From the indexes; without the scan of all jobs."""
    await desk.put(b"first", priority=1)
    await desk.put(b"second", priority=200)
    delete(database, "pr")
    delete(database, "n")
    assert await desk.claim(10) == []

    await desk.reopen()
    await desk.shard.submit(TimeOutClaims(desk.now, ALL))

    assert [held.job.body for held in await desk.claim(10)] == [b"first", b"second"]


async def test_jobs_that_wait_and_are_in_no_index_any_more_are_missed_by_the_next_count(
    database: ProxiedRedis, desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    """Not only by the scan of all jobs, which may come to them hours later. The index is there again, with those that came since."""
    for _ in range(3):
        await desk.put(b"old", priority=2)
    await desk.shard.submit(CountJobs())
    delete(database, "r")
    await desk.put(b"new", priority=2)

    await desk.shard.submit(CountJobs())
    assert "gone from their indexes: 3" in caplog.text
    await desk.shard.submit(TimeOutClaims(desk.now, ALL))

    assert [held.job.body for held in await desk.claim(10)] == [b"old", b"old", b"old", b"new"]
    assert stats_of(desk).jobs_repaired == 3
    await desk.shard.submit(CountJobs())
    assert caplog.text.count("gone from their indexes") == 1
    await database.assert_consistent()


async def test_jobs_that_calls_claimed_or_removed_are_not_missed(
    database: ProxiedRedis, desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    """Claimed, cancelled, moved, expired, deleted, purged, lost and counted so, or gone with their queue; and totals that were lost."""

    async def taken_by(calls: Awaitable[Any]) -> None:
        await calls
        await desk.shard.submit(CountJobs())

    first, second, moved = await desk.put(), await desk.put(), await desk.put()
    for _ in range(6):
        await desk.put()
    await desk.put(expires_in_ms=5, delay_ms=1)
    await taken_by(desk.shard.submit(CountJobs()))
    await taken_by(desk.cancel(first))
    await taken_by(desk.move(moved, 2))
    await taken_by(desk.move(moved._replace(priority=2), 1))
    await taken_by(desk.shard.submit(DeleteJobs([second])))
    await taken_by(desk.purge(JobState.PENDING, limit=1))
    held = await desk.take()
    await taken_by(desk.shard.submit(CountJobs()))
    await taken_by(desk.release(held.ref))
    await taken_by(desk.claim(1))
    desk.clock.advance(ms=6)
    await taken_by(desk.shard.submit(ExpireJobs(desk.now, ALL)))
    delete(database, "n")
    await taken_by(desk.claim(1))
    delete(database, "j")
    await taken_by(desk.claim(1))
    await desk.put()
    await taken_by(desk.shard.submit(CountJobs()))
    await taken_by(desk.shard.submit(DeleteQueues([QUEUE])))
    await taken_by(desk.shard.submit(create_queues([QUEUE], desk.now)))

    assert "gone from their indexes" not in caplog.text


async def test_a_queue_that_was_made_again_is_not_measured_by_the_one_before(
    database: ProxiedRedis, desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    """It has had more jobs by the next count, and none of them was given back."""
    await desk.release((await desk.put_and_take()).ref)
    await desk.shard.submit(CountJobs())
    await desk.shard.submit(DeleteQueues([QUEUE]))
    await desk.shard.submit(create_queues([QUEUE], desk.now))
    for _ in range(5):
        await desk.put()
    await desk.shard.submit(CountJobs())
    assert "gone from their indexes" not in caplog.text
    await database.assert_consistent()
