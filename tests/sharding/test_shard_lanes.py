"""What the lanes of one shard hand to its store in one call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import ClassVar

import pytest

from pinlater.domain.clock import ManualClock
from pinlater.domain.errors import PinLaterError, RequestTooOld
from pinlater.domain.job import Holder
from pinlater.server.sharding.joined_claims import ClaimRequest
from pinlater.server.sharding.shards import ShardLanes, Shards
from pinlater.server.storage.commands import ClaimJobs, InsertJobs, create_queues
from pinlater.server.storage.options import Options
from pinlater.server.storage.request_keys import InsertAge
from pinlater.server.storage.sqlite.memory import MemoryShard
from pinlater.server.storage.table import Table, entry_of
from pinlater.server.storage.values import ClaimCall, Claimed, ClaimOrder, Inserted, InsertRequest, NewJob
from tests.sharding.sharded_server import ShardedServer, on_shards

MIB = 1 << 20


class WatchedShard(MemoryShard):
    """Notes how many jobs and bytes of bodies each insert brings. `shared`: says that it is a database that others use, too."""

    def __init__(self, *, shared: bool = False) -> None:
        super().__init__()
        self.capabilities = self.capabilities._replace(shared=shared, in_order=False)
        self.jobs: list[int] = []
        self.bytes: list[int] = []

    async def _insert(self, requests: Sequence[InsertRequest], now_ms: int) -> Sequence[Inserted | PinLaterError]:
        self.jobs.append(sum(len(request.jobs) for request in requests))
        self.bytes.append(sum(len(job.body) for request in requests for job in request.jobs))
        answers: Sequence[Inserted | PinLaterError] = await MemoryShard.table[InsertJobs](self, requests, now_ms)
        return answers

    table: ClassVar[Table] = MemoryShard.table | dict([entry_of(InsertJobs)(_insert)])


class ClaimingShard(MemoryShard):
    """Notes how many bytes of bodies each claim brings."""

    capabilities = MemoryShard.capabilities._replace(in_order=False)

    def __init__(self) -> None:
        super().__init__()
        self.claimed_bytes: list[int] = []

    async def _claim(self, orders: Sequence[ClaimOrder], now_ms: int) -> Sequence[Claimed | PinLaterError]:
        answers: Sequence[Claimed | PinLaterError] = await MemoryShard.table[ClaimJobs](self, orders, now_ms)
        given = [jobs for answer in answers if isinstance(answer, Claimed) for jobs in answer.jobs]
        self.claimed_bytes.append(sum(len(job.body) for jobs in given for job in jobs))
        return answers

    table: ClassVar[Table] = MemoryShard.table | dict([entry_of(ClaimJobs)(_claim)])


async def test_large_bodies_are_spread_over_several_calls() -> None:
    clock, shard = ManualClock(), WatchedShard()
    await shard.open(clock.now_ms())
    await shard.submit(create_queues(["q"], clock.now_ms()))
    lanes = ShardLanes(shard, clock)
    body = b"x" * MIB
    requests = [InsertRequest("q", [NewJob(i, body, 1, clock.now_ms(), 1)]) for i in lanes.ids.make(100)]
    await asyncio.gather(*[lanes.insert.submit(request) for request in requests])
    assert sum(shard.bytes) == 100 * MIB
    assert max(shard.bytes) <= 20 * MIB
    await lanes.close()


@pytest.mark.parametrize(
    ("shared", "requests_of", "calls"),
    [
        (True, [50] * 32, [1_200, 400]),
        (True, [1] * 100, [50, 25, 24, 1]),
        (True, [1] * 24, [24]),
        (True, [400] * 8, [3_200]),
        (False, [50] * 32, [1_600]),
        (False, [1] * 100, [100]),
    ],
)
async def test_a_database_works_on_some_of_what_waits_while_the_answers_to_the_rest_go_out(
    shared: bool, requests_of: list[int], calls: list[int]
) -> None:
    """With all of it in one call, callers that each wait for their answer would leave the database idle until the last has it."""
    clock, shard = ManualClock(), WatchedShard(shared=shared)
    await shard.open(clock.now_ms())
    await shard.submit(create_queues(["q"], clock.now_ms()))
    lanes = ShardLanes(shard, clock)
    requests = [
        InsertRequest("q", [NewJob(i, b"x", 1, clock.now_ms(), 1) for i in lanes.ids.make(jobs)])
        for jobs in requests_of
    ]
    await asyncio.gather(*[lanes.insert.submit(request) for request in requests])
    assert shard.jobs == calls
    await lanes.close()


async def test_wishes_for_many_jobs_share_a_call_to_a_database() -> None:
    """A hundred workers that find nothing are no hundred calls, however much each would take."""
    clock, shard = ManualClock(), WatchedShard(shared=True)
    await shard.open(clock.now_ms())
    await shard.submit(create_queues(["q"], clock.now_ms()))
    lanes = ShardLanes(shard, clock)
    wishes = [ClaimRequest("q", ClaimCall(500, Holder("h", "s", f"t{n}"), 1 << 20), 1_000) for n in range(100)]
    await asyncio.gather(*[lanes.claim.submit(wish) for wish in wishes])
    assert lanes.claim.calls == 10
    await lanes.close()


async def test_dequeues_of_one_large_job_each_share_several_claims_and_all_get_theirs() -> None:
    """In the order in which they came."""
    clock, shard = ManualClock(), ClaimingShard()
    await shard.open(clock.now_ms())
    await shard.submit(create_queues(["q"], clock.now_ms()))
    lanes = ShardLanes(shard, clock)
    body = b"x" * MIB
    for job_id in lanes.ids.make(200):
        await lanes.insert.submit(InsertRequest("q", [NewJob(job_id, body, 1, clock.now_ms(), 1)]))
    wishes = [ClaimRequest("q", ClaimCall(1, Holder("h", "s", f"t{n}"), 12 * MIB), 1_000) for n in range(201)]
    claimed = await asyncio.gather(*[lanes.claim.submit(wish) for wish in wishes])
    assert [len(each.jobs[0]) for each in claimed] == [1] * 200 + [0]
    ids = [each.jobs[0][0].id for each in claimed[:200]]
    assert ids == sorted(ids)
    assert shard.claimed_bytes == [64 * MIB, 64 * MIB, 64 * MIB, 8 * MIB]
    assert lanes.claim.length == 0
    await lanes.close()


async def test_jobs_that_claims_found_expired_are_counted_once_each() -> None:
    """Also where some of the calls get nothing yet, because others took all the bytes of a claim."""
    clock, shard, counted = ManualClock(), ClaimingShard(), []
    await shard.open(clock.now_ms())
    await shard.submit(create_queues(["q"], clock.now_ms()))
    lanes = ShardLanes(shard, clock)
    lanes.hooks.expired = lambda queue, jobs: counted.append((queue, jobs))
    now_ms = clock.now_ms()
    jobs = [NewJob(i, b"", 1, now_ms, 1, Options(expires_ms=now_ms + 10)) for i in lanes.ids.make(3)]
    jobs += [NewJob(i, b"x" * 30 * MIB, 1, now_ms, 1) for i in lanes.ids.make(4)]
    await asyncio.gather(*[lanes.insert.submit(InsertRequest("q", [job])) for job in jobs])
    clock.advance(ms=20)
    claims = [ClaimRequest("q", ClaimCall(1, Holder(f"h{n}", "w", f"t{n}"), 64 * MIB), 1_000) for n in range(4)]
    await asyncio.gather(*[lanes.claim.submit(claim) for claim in claims])
    assert len(shard.claimed_bytes) > 1
    assert counted == [("q", 3)]


@on_shards(shards=("1",))
async def test_jobs_that_a_claim_found_expired_are_in_the_queue_s_metrics(server: ShardedServer) -> None:
    now_ms = server.clock.now_ms()
    job = NewJob(1, b"", 1, now_ms, 1, Options(expires_ms=now_ms + 10))
    await server.store("1").within.submit(InsertJobs([InsertRequest("q", [job])], now_ms))
    server.clock.advance(ms=20)
    assert not (await server.dequeue()).jobs
    assert server.core.metrics.queue("q").expired == 1


async def test_dequeues_that_come_together_begin_on_one_shard() -> None:
    """Otherwise each shard would be asked for what one call could have given; the next ones begin on another while that one is busy."""
    clock = ManualClock()
    shards = Shards([ShardLanes(MemoryShard(name), clock) for name in ("1", "2", "3")], Random(7))
    for lanes in shards:
        await lanes.unguarded.open(clock.now_ms())
        await lanes.unguarded.submit(create_queues(["q"], clock.now_ms()))
    starts = set()
    for _ in range(50):
        first = shards.for_claim("q", 1.0)
        waiting = first[0].claim.submit(ClaimRequest("q", ClaimCall(1, Holder("h", "s", "t"), 1 << 20), 1_000))
        assert {shards.for_claim("q", 1.0)[0].name for _ in range(20)} == {first[0].name}
        assert {shard.name for shard in shards.for_claim("q", 1.0)} == {"1", "2", "3"}
        await waiting
        starts.add(first[0].name)
    assert starts == {"1", "2", "3"}
    await shards.close()


async def test_a_keyed_request_that_waited_too_long_in_its_lane_is_not_begun() -> None:
    """Another server may have answered its repeat, so long ago that the key is forgotten. Others in the same call are stored."""
    clock, shard = ManualClock(), WatchedShard(shared=True)
    await shard.open(clock.now_ms())
    await shard.submit(create_queues(["q"], clock.now_ms()))
    lanes = ShardLanes(shard, clock)
    ids = lanes.ids.make(3)
    late_ms = clock.now_ms() + 20_000
    keyed, plain, late = [NewJob(job_id, b"", 1, clock.now_ms(), 1) for job_id in ids]
    waiting = [
        lanes.insert.submit(InsertRequest("q", [late], "key", b"", begin_by_ms=late_ms)),
        lanes.insert.submit(InsertRequest("q", [plain])),
        lanes.insert.submit(InsertRequest("q", [keyed], "other", b"", begin_by_ms=late_ms + 2)),
    ]
    clock.advance(ms=20_001)
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(results[0], RequestTooOld)
    assert [result.ids for result in results[1:] if isinstance(result, Inserted)] == [[plain.id], [keyed.id]]
    assert shard.jobs == [2]
    await lanes.close()


def test_a_keyed_request_that_waited_too_long_for_its_stores_turn_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may stand still when its lane has looked already."""
    now_s = 100.0
    monkeypatch.setattr("pinlater.server.storage.request_keys.time.perf_counter", lambda: now_s)
    turn, keyed, plain = InsertAge(), InsertRequest("q", [], "key"), InsertRequest("q", [])
    now_s += 19.0
    turn.check([plain, keyed])
    now_s += 2.0
    turn.check([plain])
    with pytest.raises(RequestTooOld):
        turn.check([plain, keyed])
