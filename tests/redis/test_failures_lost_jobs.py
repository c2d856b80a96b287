"""A job's data is gone from Redis (evicted, or deleted by hand): the job is lost, is said to be, and nothing wedges."""

from __future__ import annotations

import logging

import pytest

from pinlater.domain.job import JobState, Outcome, UniqueScope
from pinlater.server.storage.commands import DeleteJobs, ExpireJobs, ListMembers, TimeOutClaims, create_queues
from pinlater.server.storage.values import Inserted, JobKey
from tests.contract.desk import ALL, TIMEOUT_MS, Desk, unique
from tests.redis.proxied_redis import FRONT, ProxiedRedis
from tests.shared_shards.proxied_database import stats_of


def lose(database: ProxiedRedis, key: JobKey) -> None:
    """As an eviction does it."""
    [found] = [name for name in database.server.execute("KEYS", "*") if name.endswith(key.id.to_bytes(8, "big"))]
    assert found.startswith(FRONT + b"j")
    assert database.server.execute("DEL", found) == 1


async def test_a_claim_passes_over_a_lost_job(
    database: ProxiedRedis, desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    lost, kept = await desk.put(b"lost"), await desk.put(b"kept")
    lose(database, lost)
    assert (await desk.counts()).pending == 2

    with caplog.at_level(logging.ERROR):
        [held] = await desk.claim(10)

    assert held.key == kept
    assert (await desk.counts()).pending == 0
    assert stats_of(desk).jobs_lost == 1
    assert "gone" in caplog.text
    await database.assert_consistent()


async def test_a_queue_of_lost_jobs_is_gone_through_to_its_end(database: ProxiedRedis, desk: Desk) -> None:
    keys = [await desk.put(priority=1 + number % 3) for number in range(60)]
    for key in keys:
        lose(database, key)
    last = await desk.put(b"last", priority=3)

    assert [held.key for held in await desk.claim(1)] == [last]
    assert stats_of(desk).jobs_lost == 60
    await database.assert_consistent()


async def test_a_lost_job_that_was_claimed_is_gone_after_its_timeout(database: ProxiedRedis, desk: Desk) -> None:
    """Counted as the original does it: `<queue>_timeout_evict`."""
    held = await desk.put_and_take()
    other = await desk.put_and_take(b"other")
    lose(database, held.key)
    desk.clock.advance(ms=TIMEOUT_MS + 1)

    [swept] = await desk.shard.submit(TimeOutClaims(desk.now, ALL))

    assert (swept.lost, swept.retried) == (1, 1)
    assert (await desk.counts()).in_progress == 0
    assert (await desk.look(other.key)).state is JobState.PENDING
    await database.assert_consistent()


async def test_a_lost_job_that_expires_is_gone_then(database: ProxiedRedis, desk: Desk) -> None:
    key = await desk.put(expires_in_ms=10, delay_ms=1_000)
    lose(database, key)
    desk.clock.advance(ms=11)

    [swept] = await desk.shard.submit(ExpireJobs(desk.now, ALL))

    assert (swept.lost, swept.failed) == (1, 0)
    await database.assert_consistent()


@pytest.mark.parametrize("state", list(JobState))
async def test_no_call_finds_a_lost_job(database: ProxiedRedis, desk: Desk, state: JobState) -> None:
    lost, kept = await desk.put_in(state), await desk.put_in(state)
    lose(database, lost)

    assert await desk.find(lost) is None
    assert [row.key.id for row in await desk.scan(state)] == [kept.id]
    assert await desk.shard.submit(DeleteJobs([lost])) == 0
    assert (await desk.cancel(lost)).outcome is Outcome.NOT_FOUND
    if state is JobState.FAILED:
        assert await desk.retry_failed() == 1
    else:
        assert await desk.purge(state) == 1
        await database.assert_consistent()


@pytest.mark.parametrize("succeeded", [True, False])
async def test_an_ack_of_a_lost_job_affects_no_other_job(database: ProxiedRedis, desk: Desk, succeeded: bool) -> None:
    """A success counts: it was done. A failure can't be tried again."""
    held, other = await desk.put_and_take(), await desk.put_and_take()
    lose(database, held.key)

    acked = await (desk.succeed(held.key) if succeeded else desk.fail(held.key))

    assert acked.outcome is (Outcome.APPLIED if succeeded else Outcome.NOT_FOUND)
    assert (await desk.succeed(other.key)).outcome is Outcome.APPLIED
    desk.clock.advance(ms=TIMEOUT_MS + 1)
    await desk.shard.submit(TimeOutClaims(desk.now, ALL))
    await desk.collect(succeeded_ms=0, failed_ms=0)
    await database.assert_consistent()


@pytest.mark.parametrize("scope", [UniqueScope.PENDING, UniqueScope.UNFINISHED])
async def test_the_unique_key_of_a_lost_job_is_free(database: ProxiedRedis, desk: Desk, scope: UniqueScope) -> None:
    lost = await desk.put(unique=unique("k", scope))
    lose(database, lost)

    job = desk.job(unique=unique("k", scope))
    inserted = await desk.insert(job)

    assert isinstance(inserted, Inserted)
    assert (list(inserted.ids), inserted.existing) == ([job.id], {})


@pytest.mark.parametrize("in_hand", [False, True])
async def test_the_next_job_of_an_ordering_key_goes_in_the_place_of_a_lost_one(
    database: ProxiedRedis, desk: Desk, in_hand: bool
) -> None:
    first, second, third = [await desk.put(ordering_key="a") for _ in range(3)]
    if in_hand:
        await desk.take()
    lose(database, first)
    lose(database, second)
    if in_hand:
        desk.clock.advance(ms=TIMEOUT_MS + 1)
        await desk.shard.submit(TimeOutClaims(desk.now, ALL))
    found = [held.key for _ in range(2) for held in await desk.claim(10, owned=False)]
    assert found == [third]


async def test_a_shard_whose_keys_are_all_gone_goes_on(database: ProxiedRedis, desk: Desk) -> None:
    """FLUSHALL by mistake, or a Redis without persistence that was started again: queues must be made again, that is all."""
    held = await desk.put_and_take()
    database.server.execute("FLUSHALL")

    await desk.shard.submit(create_queues(["emails"], desk.now))
    assert (await desk.succeed(held.key)).outcome is Outcome.NOT_FOUND
    await desk.open()  # ids are made with the new slot
    key = await desk.put(b"new")
    assert (await desk.take()).key == key
    await desk.shard.ping()
    assert [member.slot for member in await desk.shared.submit(ListMembers())] == [desk.shard.slot]
    await database.assert_consistent()
