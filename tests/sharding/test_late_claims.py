"""Claims that a shard answers only after their dequeue has gone on without it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from pinlater.domain.calls import Claim, Job
from pinlater.domain.errors import ShardConnectionFailed
from pinlater.domain.job import HandedOutJob, Holder, Outcome
from pinlater.server.dispatch.late_claims import ClaimAsker, LateClaims
from pinlater.server.sharding.guarded import slow_to_answer
from pinlater.server.sharding.joined_claims import ClaimRequest
from pinlater.server.sharding.lane import Lane
from pinlater.server.sharding.shard_lanes import ShardLanes
from pinlater.server.storage.commands import ClaimJobs, ReleaseJobs
from pinlater.server.storage.values import ClaimCall, Claimed
from tests.sharding.faulty import CallFault
from tests.sharding.sharded_server import ShardedServer, on_shards, run_on_shards, shard_of
from tests.sharding.test_trouble import InOrder


async def met(fault: CallFault) -> None:
    """Returns once a call hangs."""
    await fault.met.wait()


@on_shards()
async def test_a_dequeue_that_waits_gets_the_jobs_of_a_shard_whose_claims_take_long(server: ShardedServer) -> None:
    """They are its own, and were not given back. Otherwise no worker would get a job of that shard."""
    descriptor = await server.put("2")
    fault = server.store("2").hangs(ClaimJobs, done_first=True)
    waiting = asyncio.ensure_future(server.dequeue(wait_ms=20_000))
    await server.pass_time(server.settings.stall_ms + 400)
    assert not waiting.done()
    fault.release()
    await server.turns()
    [job] = waiting.result().jobs
    assert job.descriptor == descriptor
    assert server.store("2").calls[ReleaseJobs] == 0
    [renewed] = await server.service.claimed_jobs.heartbeat("q", [Claim(job.descriptor, job.token)])
    assert renewed.outcome is Outcome.APPLIED


@on_shards()
async def test_a_claim_that_waits_behind_a_slow_one_waits_on(server: ShardedServer) -> None:
    """If it were refused as soon as the shard is seen to be slow, a dequeue would have to come in the right moment."""
    store = server.store("2")
    fault = store.hangs(ClaimJobs, done_first=True)
    first = asyncio.ensure_future(server.dequeue(limit=1, wait_ms=20_000))
    await server.pass_time(server.settings.slow_ms + 5)
    second = asyncio.ensure_future(server.dequeue(limit=1, wait_ms=20_000))
    await server.pass_time(server.settings.stall_ms + 400)
    assert (store.calls[ClaimJobs], server.lanes("2").claim.waiting) == (1, 1)
    fault.release()
    await server.turns()
    assert store.calls[ClaimJobs] > 1
    first.cancel()
    second.cancel()


@on_shards(draining=("1", "3"))
async def test_a_shard_is_asked_again_only_after_it_has_answered(server: ShardedServer) -> None:
    """The dequeue looks at the other shards meanwhile."""
    fault = server.store("2").hangs(ClaimJobs, done_first=True)
    waiting = asyncio.ensure_future(server.dequeue(wait_ms=20_000))
    await server.pass_time(4_000)
    assert server.store("2").calls[ClaimJobs] == 1
    assert server.store("1").calls[ClaimJobs] > 1
    fault.release()
    await server.pass_time(400)
    descriptor = await server.put("2")
    await server.pass_time(2_000)
    assert [job.descriptor for job in waiting.result().jobs] == [descriptor]


@on_shards()
async def test_a_shard_that_answers_late_without_jobs_during_a_look_at_the_others_is_asked_again(
    server: ShardedServer,
) -> None:
    """Within about a second: the wake that brought the dequeue to the others may have been for this shard."""
    server.shards.random = InOrder()
    slow = server.store("1").hangs(ClaimJobs, done_first=True)
    waiting = asyncio.ensure_future(server.dequeue(wait_ms=20_000))
    await server.pass_time(server.settings.slow_ms + 5)
    other = server.store("2").hangs(ClaimJobs, done_first=True)
    server.core.dispatcher.wakeups.jobs_ready("q", 1)
    await server.within(100, met(other))
    slow.release()
    await server.turns()
    other.release()
    await server.turns()
    assert server.store("1").calls[ClaimJobs] == 1
    await server.pass_time(1_500)
    assert server.store("1").calls[ClaimJobs] > 1
    waiting.cancel()


@on_shards()
async def test_jobs_that_come_late_from_two_shards_are_taken_from_the_first(server: ShardedServer) -> None:
    """The dequeue has asked each for as many as it takes; what the other brings goes back."""
    await server.put("1")
    await server.put("2")
    server.shards.random = InOrder()
    faults = [server.store(name).hangs(ClaimJobs, done_first=True) for name in "12"]
    waiting = asyncio.ensure_future(server.dequeue(limit=1, wait_ms=20_000))
    await server.pass_time(2 * server.settings.stall_ms + 400)
    assert not waiting.done()
    for fault in faults:
        fault.release()
    await server.turns()
    [job] = waiting.result().jobs
    await server.pass_time(400)
    assert [await server.in_progress_on(name) for name in "12"] == [shard_of(job.descriptor) == name for name in "12"]


@pytest.mark.parametrize("wait_ms", [20_000, 700])
def test_a_late_claim_goes_back_once_its_dequeue_has_ended(wait_ms: int) -> None:
    """Its caller has gone, or its time is over."""

    async def scenario(server: ShardedServer) -> None:
        await server.put("2")
        fault = server.store("2").hangs(ClaimJobs, done_first=True)
        waiting = asyncio.ensure_future(server.dequeue(wait_ms=wait_ms))
        await server.pass_time(server.settings.stall_ms + 400)
        assert waiting.cancel() or waiting.result().jobs == []
        await server.turns()
        assert await server.in_progress_on("2") == 1
        fault.release()
        await server.turns()
        assert await server.in_progress_on("2") == 0

    run_on_shards(scenario)


def asked_over(name: str, lane: Lane[ClaimRequest, Claimed]) -> ShardLanes:
    """A shard whose claims go over that lane."""
    return cast(ShardLanes, SimpleNamespace(name=name, lanes_of=lambda _: SimpleNamespace(claim=lane)))


async def test_a_lane_leaves_no_claim_out_before_the_dequeue_has_decided_whether_it_waits_on() -> None:
    """In the turn of the loop in which the time of the claim is over. A dequeue would wait for the answer in vain."""
    given_back: list[str] = []
    late = LateClaims(lambda shard, request, claimed: given_back.append(shard))
    request = ClaimRequest("q", ClaimCall(1, Holder("d", "source", "token")), 1_000)
    job = HandedOutJob(1, 1, b"x", 1, 1, 1, None, 0, 0, 1_000)

    async def execute(requests: list[ClaimRequest]) -> list[Claimed]:
        raise AssertionError

    lane, next_owner = Lane("before", execute), Lane("after", execute)
    asker = ClaimAsker("2", lane, request, late)
    asker.answer.set_exception(slow_to_answer("2"))
    assert not asker.done()
    with pytest.raises(ShardConnectionFailed):
        await asker.answer
    late.keep(asker)
    shard, moved = asked_over("2", lane), asked_over("2", next_owner)
    assert late.without_awaited([shard, moved], "q") == [moved]  # the owner that was asked may be lost
    asker.set_result(Claimed(((job,),)))
    assert asker.done()
    assert late.without_awaited([shard], "q") == [shard]
    late.end()
    assert given_back == ["2"]


@on_shards(shards=("1", "2"))
async def test_a_dequeue_waits_on_if_one_shard_answers_late_while_the_others_fail(server: ShardedServer) -> None:
    """It fails only if no shard answers."""
    server.shards.random = InOrder()
    slow = server.store("1").hangs(ClaimJobs, done_first=True)
    waiting = asyncio.ensure_future(server.dequeue(wait_ms=20_000))
    await server.pass_time(server.settings.slow_ms + 5)
    other = server.store("2").hangs(ClaimJobs, error=ShardConnectionFailed("gone"))
    server.core.dispatcher.wakeups.jobs_ready("q", 1)
    await server.within(100, met(other))
    slow.release()
    await server.turns()
    other.release()
    await server.turns()
    assert not waiting.done()
    waiting.cancel()


@on_shards()
async def test_a_search_for_jobs_past_the_owner_is_not_over_without_the_shard_that_is_awaited(
    server: ShardedServer,
) -> None:
    """The jobs may be there, and its owner does not know of them."""
    fault = server.store("2").hangs(ClaimJobs, done_first=True)
    waiting = asyncio.ensure_future(server.dequeue(wait_ms=20_000))
    await server.pass_time(server.settings.slow_ms + 5)
    wakeups = server.core.dispatcher.wakeups
    for past_owner in (False, True):
        wakeups.jobs_ready("q", 1, past_owner=past_owner)
        await server.turns()
    assert wakeups.waiters_of("q").search
    fault.release()
    await server.pass_time(1_500)
    assert not wakeups.waiters_of("q").search
    waiting.cancel()


@pytest.mark.parametrize("before", [True, False])
def test_a_queue_that_was_paused_meanwhile_hands_out_nothing_late(before: bool) -> None:
    """Whether the shard claims the jobs before the pause or after it."""

    async def scenario(server: ShardedServer) -> None:
        await server.put("2")
        fault = server.store("2").hangs(ClaimJobs, done_first=before)
        waiting = asyncio.ensure_future(server.dequeue(wait_ms=20_000))
        await server.pass_time(server.settings.stall_ms + 400)
        await server.service.queues.set_paused("q", True)
        await server.turns()
        fault.release()
        await server.pass_time(400)
        assert not waiting.done()
        assert await server.in_progress_on("2") == 0
        await server.service.queues.set_paused("q", False)
        await server.turns()
        assert len(waiting.result().jobs) == 1

    run_on_shards(scenario)


@on_shards()
async def test_a_job_whose_claim_has_ended_is_not_handed_out_late(server: ShardedServer) -> None:
    """Another worker may have it by then. The others of the same answer are handed out."""
    await server.service.enqueuing.enqueue("q", [Job(b"x", claim_timeout_ms=ms) for ms in (1_000, 60_000)])
    faults = [server.store(name).hangs(ClaimJobs, done_first=True) for name in "123"]
    waiting = asyncio.ensure_future(server.dequeue(wait_ms=20_000))
    await server.pass_time(4_000)
    for fault in faults:
        fault.release()
    await server.turns()
    [job] = waiting.result().jobs
    assert job.job.claim_deadline_ms > server.clock.now_ms()
    assert sum([await server.in_progress_on(name) for name in "123"]) == 1


@on_shards(shards=("1", "2"))
async def test_a_dequeue_of_one_shard_of_several_does_not_wait_behind_a_call_that_hangs(server: ShardedServer) -> None:
    """Nothing of it has happened, and another try may go to another shard."""
    fault = server.store("1").hangs(ClaimJobs)
    server.store("2").hangs(ClaimJobs)
    both = [asyncio.ensure_future(server.dequeue(limit=1, coverage=0.1)) for _ in range(2)]
    await fault.met.wait()
    both += [asyncio.ensure_future(server.dequeue(limit=1, coverage=0.1)) for _ in range(4)]
    await server.pass_time(2 * server.settings.stall_ms)
    assert [isinstance(each.exception(), ShardConnectionFailed) for each in both] == [True] * len(both)
