"""Acks, heartbeats, checkpoints and releases with jobs on several shards, one of which is away: each item has an outcome of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from pinlater.domain.errors import OutcomeUnknown, ShardConnectionFailed
from pinlater.domain.job import JobState, Outcome
from pinlater.server.operations.addressing import KEYS_A_CALL
from pinlater.server.storage import values as stored
from pinlater.server.storage.commands import ExtendClaims, FinishJobs
from pinlater.server.storage.values import Acked
from pinlater.wire.generated.structs import (
    Ack,
    AckBatch,
    AckResult,
    Checkpoint,
    CheckpointBatch,
    Claim,
    ClaimsRequest,
    CountRequest,
    ReleaseRequest,
)
from tests.commands import instead
from tests.handed_out import HandedOut
from tests.sharding.sharded_server import CALLER, ShardedServer, on_shards, shard_of

APPLIED, STALE, ERROR = Outcome.APPLIED, Outcome.STALE_CLAIM, Outcome.ERROR
_SUCCEEDED = CountRequest("q", JobState.SUCCEEDED)


async def claim_one_of_each(server: ShardedServer, shards: str = "123") -> list[HandedOut]:
    """A job of each shard, in the shards' order."""
    for name in shards:
        await server.put(name)
    return sorted((await server.dequeue()).jobs, key=lambda job: shard_of(job.descriptor))


def acks_of(jobs: Sequence[HandedOut], *, each: bool = True) -> AckBatch:
    return AckBatch("q", [Ack(job.descriptor, token=job.token) for job in jobs], per_item_errors=each)


def claims_of(jobs: Sequence[HandedOut]) -> list[Claim]:
    return [Claim(job.descriptor, job.token) for job in jobs]


def outcomes(results: Sequence[AckResult]) -> list[Outcome]:
    return [Outcome(result.outcome) for result in results]


def details(results: Sequence[AckResult]) -> list[str]:
    return [result.error_detail or "" for result in results]


# --- acks that ride on a dequeue -------------------------------------------------------------------------------------------------


@on_shards()
async def test_a_dequeue_claims_although_the_shard_of_one_of_its_acks_is_unreachable(server: ShardedServer) -> None:
    jobs = await claim_one_of_each(server)
    await server.put("3")
    server.lanes("2").put_out_of_use("test")
    dequeued = await server.dequeue(acks=acks_of(jobs))
    assert outcomes(dequeued.ack_results) == [APPLIED, ERROR, APPLIED]
    assert details(dequeued.ack_results) == ["", "SHARD_UNREACHABLE", ""]
    assert [shard_of(job.descriptor) for job in dequeued.jobs] == ["3"]
    assert await server.service.job_queries.count(_SUCCEEDED) == 2


@on_shards()
async def test_without_per_item_errors_the_dequeue_fails_as_it_ever_did(server: ShardedServer) -> None:
    """An old client's answer has no place for an ack's error: nothing is claimed, and it sends its acks again."""
    jobs = await claim_one_of_each(server)
    await server.put("3")
    server.lanes("2").put_out_of_use("test")
    with pytest.raises(ShardConnectionFailed, match=r"Shard 2 is unreachable \(the acks that rode along failed"):
        await server.dequeue(acks=acks_of(jobs, each=False))
    assert await server.in_progress_on("3") == 0  # acked, and the other was not claimed
    assert await server.jobs_on("3") == 1


@on_shards()
async def test_an_ack_whose_shard_hangs_holds_up_no_claim_for_long(server: ShardedServer) -> None:
    """It may have been carried out; sent again, it counts once."""
    jobs = await claim_one_of_each(server)
    await server.put("3")
    fault = server.store("2").hangs(FinishJobs, done_first=True)
    dequeued = await server.within(server.settings.stall_ms + 200, server.dequeue(acks=acks_of(jobs)))
    assert outcomes(dequeued.ack_results) == [APPLIED, ERROR, APPLIED]
    assert details(dequeued.ack_results) == ["", "OUTCOME_UNKNOWN", ""]
    assert [shard_of(job.descriptor) for job in dequeued.jobs] == ["3"]
    fault.release()
    await server.pass_time(400)
    [again] = (await server.dequeue(acks=acks_of([jobs[1]]))).ack_results
    assert again.outcome is Outcome.ALREADY_FINAL
    assert await server.service.job_queries.count(_SUCCEEDED) == 3


@on_shards()
async def test_acks_behind_a_call_that_hangs_are_refused_at_once_and_not_sent(server: ShardedServer) -> None:
    jobs = await claim_one_of_each(server)
    server.store("2").hangs(FinishJobs)
    await server.within(server.settings.stall_ms + 200, server.dequeue(acks=acks_of(jobs)))
    answered = asyncio.ensure_future(server.dequeue(acks=acks_of(jobs)))
    await server.turns()
    results = answered.result().ack_results
    assert outcomes(results) == [Outcome.ALREADY_FINAL, ERROR, Outcome.ALREADY_FINAL]
    assert details(results)[1] == "SHARD_UNREACHABLE"
    assert server.store("2").calls[FinishJobs] == 1


@on_shards()
async def test_a_long_poll_whose_acks_had_errors_says_so_within_a_second(server: ShardedServer) -> None:
    jobs = await claim_one_of_each(server)
    server.lanes("2").put_out_of_use("test")
    dequeued = await server.within(1_400, server.dequeue(acks=acks_of(jobs), wait_ms=60_000))
    assert (dequeued.jobs, outcomes(dequeued.ack_results)) == ([], [APPLIED, ERROR, APPLIED])


@on_shards()
async def test_an_ack_that_fails_on_its_shard_is_an_error_of_its_own(server: ShardedServer) -> None:
    jobs = await claim_one_of_each(server)
    server.store("2").fails(FinishJobs, error=OutcomeUnknown("lost"), done_first=True)
    results = (await server.dequeue(acks=acks_of(jobs))).ack_results
    assert (outcomes(results), details(results)) == ([APPLIED, ERROR, APPLIED], ["", "OUTCOME_UNKNOWN", ""])


@on_shards(shards=("1",))
async def test_with_one_shard_the_ack_is_waited_for_as_ever(server: ShardedServer) -> None:
    """There is nothing that it holds up: a slow disk makes no errors."""
    [job] = await claim_one_of_each(server, "1")
    fault = server.store("1").hangs(FinishJobs)
    answered = asyncio.ensure_future(server.dequeue(acks=acks_of([job])))
    await server.pass_time(3_000)
    assert not answered.done()
    fault.release()
    await server.turns()
    assert outcomes(answered.result().ack_results) == [APPLIED]


@on_shards()
async def test_a_caller_that_goes_leaves_nothing_behind(server: ShardedServer) -> None:
    jobs = await claim_one_of_each(server)
    fault = server.store("2").hangs(FinishJobs)
    call = asyncio.ensure_future(server.dequeue(acks=acks_of(jobs)))
    await server.turns()
    call.cancel()
    await server.turns()
    assert call.cancelled()
    fault.release()
    await server.turns()
    assert server.lanes("2").finish.length == 0


@on_shards(shards=("1", "2"))
async def test_a_request_with_very_many_items_is_carried_out_piece_by_piece(server: ShardedServer) -> None:
    """As without errors of their own: no call to a shard grows with the request."""
    sizes: list[int] = []
    for name in "12":
        _note_sizes(server.store(name).within, sizes)
    bodies = [b"x"] * KEYS_A_CALL
    for name in "12":
        for _ in range(2):
            await server.replace(*[server.desired(each, takes_enqueues=each == name) for each in "12"])
            await server.enqueue(*bodies)
    jobs = [job for _ in range(4) for job in (await server.dequeue(limit=KEYS_A_CALL)).jobs]
    assert len(jobs) == 4 * KEYS_A_CALL
    server.lanes("2").put_out_of_use("test")
    results = await server.service.claimed_jobs.acknowledge(CALLER, acks_of(jobs))
    there = [shard_of(job.descriptor) for job in jobs]
    assert outcomes(results) == [APPLIED if name == "1" else ERROR for name in there]
    assert max(sizes) <= KEYS_A_CALL
    assert sum(sizes) == 2 * KEYS_A_CALL


def _note_sizes(store: Any, sizes: list[int]) -> None:
    carry_out = store.submit

    async def noting(acks: Sequence[stored.JobAck], now_ms: int) -> Sequence[Acked]:
        sizes.append(len(acks))
        answer: Sequence[Acked] = await carry_out(FinishJobs(acks, now_ms))
        return answer

    store.submit = instead(store, FinishJobs, noting)


# --- the other words ---------------------------------------------------------------------------------------------------------------


@on_shards()
async def test_acks_alone_are_answered_item_by_item(server: ShardedServer) -> None:
    jobs = await claim_one_of_each(server)
    server.store("1").hangs(FinishJobs)
    results = await server.within(
        server.settings.stall_ms + 200, server.service.claimed_jobs.acknowledge(CALLER, acks_of(jobs))
    )
    assert outcomes(results) == [ERROR, APPLIED, APPLIED]


@on_shards()
async def test_a_lost_claim_is_reported_while_another_shard_is_unreachable(server: ShardedServer) -> None:
    jobs = await claim_one_of_each(server)
    await server.service.claimed_jobs.release(ReleaseRequest("q", claims_of(jobs[2:]), 0))
    server.lanes("2").put_out_of_use("test")
    results = await server.service.claimed_jobs.heartbeat(ClaimsRequest("q", claims_of(jobs), per_item_errors=True))
    assert outcomes(results) == [APPLIED, ERROR, STALE]
    assert results[0].claim_deadline_ms is not None


@on_shards()
async def test_a_heartbeat_is_not_held_up_by_a_shard_that_hangs(server: ShardedServer) -> None:
    jobs = await claim_one_of_each(server)
    server.store("2").hangs(ExtendClaims)
    heartbeat = server.service.claimed_jobs.heartbeat(ClaimsRequest("q", claims_of(jobs), per_item_errors=True))
    results = await server.within(server.settings.stall_ms + 200, heartbeat)
    assert (outcomes(results), details(results)) == ([APPLIED, ERROR, APPLIED], ["", "OUTCOME_UNKNOWN", ""])


@on_shards()
async def test_checkpoints_and_releases_have_outcomes_of_their_own(server: ShardedServer) -> None:
    jobs = await claim_one_of_each(server)
    server.lanes("2").put_out_of_use("test")
    items = [Checkpoint(job.descriptor, token=job.token, new_body=b"half") for job in jobs]
    results = await server.service.claimed_jobs.checkpoint(CALLER, CheckpointBatch("q", items, per_item_errors=True))
    assert outcomes(results) == [APPLIED, ERROR, APPLIED]
    results = await server.service.claimed_jobs.release(ReleaseRequest("q", claims_of(jobs), 0, per_item_errors=True))
    assert outcomes(results) == [APPLIED, ERROR, APPLIED]
    assert [await server.in_progress_on(name) for name in "123"] == [0, 1, 0]
