"""Each claim call has a token of its own: what is given back for one claim never ends another one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from pinlater.domain.errors import OutcomeUnknown, PinLaterError
from pinlater.domain.job import Outcome
from pinlater.domain.queue import QueueConfig
from pinlater.server.dispatch.identity import Identity
from pinlater.server.storage.commands import ClaimJobs, ReleaseJobs
from pinlater.server.storage.values import Claimed, ClaimOrder
from pinlater.wire.generated.structs import Claim, ClaimsRequest
from tests.commands import instead
from tests.sharding.sharded_server import ShardedServer, on_shards, shard_of
from tests.sharding.test_trouble import InOrder

_TOKEN_BYTES_MAX = 64


class RecordedHolders:
    """Notes the holder of every claim call that reaches the store below."""

    def __init__(self, server: ShardedServer, *names: str) -> None:
        self.tokens: list[str] = []
        self.descriptors: set[str] = set()
        for name in names:
            self._watch(server.store(name).within)

    def _watch(self, store: Any) -> None:
        carry_out = store.submit

        async def noting(orders: Sequence[ClaimOrder], now_ms: int) -> Sequence[Claimed | PinLaterError]:
            for holder in [call.holder for order in orders for call in order.calls]:
                self.tokens.append(holder.token)
                self.descriptors.add(holder.descriptor)
            answer: Sequence[Claimed | PinLaterError] = await carry_out(ClaimJobs(orders, now_ms))
            return answer

        store.submit = instead(store, ClaimJobs, noting)


@on_shards()
async def test_no_two_claim_calls_of_a_long_poll_share_a_token(server: ShardedServer) -> None:
    """Nor do calls of one dequeue on several shards. Its claim descriptor stays one, as in the original."""
    watched = RecordedHolders(server, "1", "2", "3")
    waiting = asyncio.ensure_future(server.dequeue(wait_ms=60_000))
    for _ in range(20):
        await server.turns()
        server.core.dispatcher.wakeups.look_again()
    await server.turns()
    assert len(watched.tokens) == 3 * 21
    assert len(set(watched.tokens)) == len(watched.tokens)
    assert len(watched.descriptors) == 1
    assert max(len(token) for token in watched.tokens) <= _TOKEN_BYTES_MAX
    await server.enqueue(b"x")
    await server.turns()
    [job] = waiting.result().jobs
    assert job.token in watched.tokens


def test_a_token_of_a_long_lived_server_is_no_longer_than_the_contract_says() -> None:
    token = Identity("host", 9010, 2**42, 1023, 2**32 - 1).holder("worker", 2**42).token
    assert len(f"{token}.{2**31:x}.{1000:x}") <= _TOKEN_BYTES_MAX


@on_shards()
async def test_each_job_has_the_token_of_the_claim_that_gave_it(server: ShardedServer) -> None:
    for name in "123":
        await server.put(name)
    jobs = (await server.dequeue()).jobs
    assert len({job.token for job in jobs}) == 3
    renewals = await server.service.claimed_jobs.heartbeat(
        ClaimsRequest("q", [Claim(job.descriptor, job.token) for job in jobs])
    )
    assert {renewed.outcome for renewed in renewals} == {Outcome.APPLIED}


@on_shards()
async def test_an_answer_from_several_shards_that_can_not_be_written_is_given_back_whole(server: ShardedServer) -> None:
    for name in "123":
        await server.put(name)
        await server.put(name)
    dequeued = await server.dequeue()
    assert len(dequeued.jobs) == 6
    server.service.dequeuing.undelivered("q", dequeued.claimed)
    await server.turns()
    assert [await server.in_progress_on(name) for name in "123"] == [0, 0, 0]


@on_shards(shards=("1", "2"))
async def test_a_release_that_is_repeated_does_not_end_a_later_claim_of_the_same_poll(server: ShardedServer) -> None:
    """A slow shard's late claim is given back, since the queue has a limit; the release was carried out and its answer lost; the poll gets
    the job again."""
    await server.service.queues.configure_queue("q", QueueConfig(max_jobs_per_second=1_000.0, partitions=2))
    descriptor = await server.put("2")
    server.shards.random = InOrder()
    claim = server.store("2").hangs(ClaimJobs, done_first=True)
    waiting = asyncio.ensure_future(server.dequeue(wait_ms=60_000))
    await server.pass_time(server.settings.stall_ms + 400)  # the poll goes on without that shard
    assert not waiting.done()
    server.store("2").fails(ReleaseJobs, error=OutcomeUnknown("lost"), done_first=True)
    again = server.store("2").hangs(ReleaseJobs)
    claim.release()
    await server.pass_time(2_000)
    assert again.met.is_set()
    [job] = waiting.result().jobs
    assert job.descriptor == descriptor
    again.release()
    await server.turns()
    assert await server.in_progress_on("2") == 1
    assert (await server.dequeue()).jobs == []
    [renewed] = await server.service.claimed_jobs.heartbeat(ClaimsRequest("q", [Claim(job.descriptor, job.token)]))
    assert renewed.outcome is Outcome.APPLIED


@on_shards()
async def test_a_fault_of_ours_on_one_shard_gives_the_others_jobs_back(server: ShardedServer) -> None:
    """The dequeue fails; the jobs that it had from other shards reached no caller."""
    for name in "12":
        await server.put(name)
    server.shards.random = InOrder()
    server.store("3").fails(ClaimJobs, error=RuntimeError("a bug"))
    with pytest.raises(RuntimeError, match="a bug"):
        await server.dequeue()
    await server.turns()
    assert [await server.in_progress_on(name) for name in "123"] == [0, 0, 0]
    assert sorted(shard_of(job.descriptor) for job in (await server.dequeue()).jobs) == ["1", "2"]
