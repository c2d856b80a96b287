"""Durable stores: what was answered is there again after a restart."""

from __future__ import annotations

import asyncio

import pytest

from pinlater.domain.job import JobState, Outcome, UniqueScope
from pinlater.domain.queue import QueueConfig
from pinlater.server.storage.commands import ConfigureQueue, DeleteQueues, ListQueues, TimeOutClaims, create_queues
from pinlater.server.storage.values import Inserted, InsertRequest, JobCheckpoint
from tests.contract.desk import ALL, QUEUE, TIMEOUT_MS, Desk, unique


@pytest.fixture(autouse=True)
def _durable_only(desk: Desk) -> None:
    if not desk.shard.capabilities.durable:
        pytest.skip("this store keeps nothing after its process, and says so")


async def test_jobs_of_all_states_are_there_again(desk: Desk) -> None:
    keys = [
        await desk.put_in(state, b"%d" % state, status="s", headers={"a": "b"}, unique=unique(str(state)))
        for state in list(JobState)[::-1]
    ]
    before = [await desk.look(key) for key in keys]
    counts = await desk.counts()

    await desk.reopen()

    assert [await desk.look(key) for key in keys] == before
    assert await desk.counts() == counts
    await desk.assert_counters_exact()


async def test_a_reopened_store_has_the_history_of_a_job(desk: Desk) -> None:
    held = await desk.put_and_take(b"old", attempts=5)
    await desk.fail(held.key, error=("E", "text"), status="x")
    await desk.take()
    await desk.checkpoint(JobCheckpoint(held.key, "worker", new_body=b"new", prepend_status="y"))
    before = await desk.look(held.key)

    await desk.reopen()

    assert await desk.look(held.key) == before


@pytest.mark.parametrize("together", [False, True], ids=["a claim after the insert", "both in one transaction"])
async def test_a_claim_of_the_last_waiting_job_times_out_after_a_restart(desk: Desk, together: bool) -> None:
    """Nothing waits then, and only the claim says that there is something to sweep."""
    await desk.put_in(JobState.SUCCEEDED)
    if together:
        putting, claiming = asyncio.ensure_future(desk.put()), asyncio.ensure_future(desk.claim())
        key, held = await putting, await claiming
        if not held:  # a store elsewhere may look first
            held = await desk.claim()
    else:
        key, held = await desk.put(), await desk.claim()
    assert [each.key for each in held] == [key]

    await desk.reopen()
    desk.clock.advance(ms=TIMEOUT_MS + 1)

    [swept] = await desk.shard.submit(TimeOutClaims(desk.now, ALL))
    assert swept.retried == 1
    assert (await desk.look(key)).state is JobState.PENDING


async def test_claims_go_on_after_a_restart(desk: Desk) -> None:
    """Tokens, sources, deadlines and timeouts."""
    first = await desk.put_and_take()
    second = await desk.put_and_take(source="other")
    third = await desk.put_and_take()
    await desk.reopen()

    assert await desk.claim() == []
    assert (await desk.succeed(first.key, token=first.holder.token)).outcome is Outcome.APPLIED
    assert (await desk.checkpoint(JobCheckpoint(second.key, "other"))).outcome is Outcome.APPLIED
    assert (await desk.succeed(third.key, token="wrong")).outcome is Outcome.STALE_CLAIM
    desk.clock.advance(ms=TIMEOUT_MS)
    assert (await desk.heartbeat(third.ref)).deadline_ms == desk.now + TIMEOUT_MS
    desk.clock.advance(ms=1)
    [swept] = await desk.shard.submit(TimeOutClaims(desk.now, ALL))
    assert swept.retried == 1


async def test_queues_and_their_settings_are_there_again(desk: Desk) -> None:
    await desk.shard.submit(create_queues(["gone", "paused"], desk.now))
    await desk.shard.submit(ConfigureQueue("paused", config=QueueConfig(max_jobs_per_second=0.5), paused=True))
    key = await desk.put(queue="gone")
    await desk.shard.submit(DeleteQueues(["gone"]))
    before = list(await desk.shard.submit(ListQueues()))

    await desk.reopen()

    assert list(await desk.shard.submit(ListQueues())) == before
    assert await desk.find(key) is None


async def test_keys_are_still_taken(desk: Desk) -> None:
    job = desk.job(unique=unique("k", UniqueScope.TIME, 50_000))
    first = await desk.request(InsertRequest(QUEUE, [job], request_key="r", fingerprint=b"f"))
    await desk.reopen()

    again = await desk.request(InsertRequest(QUEUE, [desk.job()], request_key="r", fingerprint=b"f"))
    other = await desk.insert(desk.job(unique=unique("k")))

    assert isinstance(first, Inserted)
    assert isinstance(again, Inserted)
    assert (list(again.ids), again.repeated) == (list(first.ids), True)
    assert list(other.ids) == [job.id]


async def test_new_ids_are_above_all_old_ones(desk: Desk) -> None:
    """Even if the clock was set back while the server was down."""
    jobs = [desk.job() for _ in range(3)]
    await desk.insert(*jobs)
    desk.clock.advance(hours=-5)

    await desk.reopen()

    assert desk.shard.highest_id == jobs[-1].id
    assert desk.job().id > jobs[-1].id


async def test_the_highest_id_counts_finished_jobs_too(desk: Desk) -> None:
    """Callers still have their descriptors."""
    await desk.put()
    last = await desk.put_and_take(priority=1, delay_ms=-10)
    await desk.succeed(last.key)

    await desk.reopen()

    assert desk.shard.highest_id == last.key.id


async def test_future_jobs_become_due_after_a_restart(desk: Desk) -> None:
    key = await desk.put(delay_ms=5000)
    await desk.reopen()
    assert (await desk.counts()).future == 1
    desk.clock.advance(ms=5000)

    assert (await desk.counts()).future == 0
    assert (await desk.take()).key == key
