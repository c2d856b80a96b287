"""What a server says of each shard to operators: health, jobs, size, drain, calls."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from pinlater.domain.errors import ShardConnectionFailed
from pinlater.server.features.status.status import Status
from pinlater.server.storage.commands import InsertJobs, ListTrail
from pinlater.wire.generated.structs import ClusterStatus, ShardDetails, ShardDrain, ShardLane, ShardMemory, ShardSize
from tests.sharding.sharded_server import ShardedServer, on_shards

MANY = [str(number) for number in range(1, 65)]


def of(status: ClusterStatus, name: str) -> ShardDetails:
    [details] = [shard.details for shard in status.shards if shard.name == name]
    assert details is not None
    return details


async def details_of(server: ShardedServer, name: str) -> ShardDetails:
    return of(await server.within(0, server.service.of(Status).cluster()), name)


def lane_of(server: ShardedServer, name: str, kind: str) -> ShardLane:
    lanes = server.service.of(Status).shard_reports.lane_minute.of(server.lanes(name))
    return next(lane for lane in lanes if lane.kind == kind)


# --- health ---------------------------------------------------------------------------------------------------------------


@on_shards()
async def test_an_unreachable_shard_is_described_with_the_reason_and_the_time_and_without_a_call(
    server: ShardedServer,
) -> None:
    await server.put("1")
    await server.core.rates.sample()
    began_ms = (await details_of(server, "1")).since_ms
    server.clock.advance(seconds=90)
    server.store("1").dead = "connection refused"
    await server.core.shard_monitor.ping_all()
    gone_ms = server.clock.now_ms()
    server.clock.advance(seconds=40)
    server.store("1").calls.clear()
    details = await details_of(server, "1")
    assert began_ms == gone_ms - 90_000
    assert (details.probing, details.since_ms) == (True, gone_ms)
    assert (details.failure, details.failed_at_ms) == ("connection refused", gone_ms)
    assert details.jobs is not None
    assert (details.jobs.due, details.jobs.at_ms) == (1, began_ms)
    assert not server.store("1").calls


@on_shards()
async def test_a_shard_that_is_back_says_since_when_and_why_it_was_gone(server: ShardedServer) -> None:
    server.store("1").dead = "connection refused"
    await server.core.shard_monitor.ping_all()
    failed_ms = server.clock.now_ms()
    server.store("1").dead = None
    await server.pass_time(2_000)
    details = await details_of(server, "1")
    assert (details.probing, details.failure) == (False, "connection refused")
    assert details.failed_at_ms == failed_ms < details.since_ms


@on_shards()
async def test_a_single_failure_is_told_though_the_shard_stays_in_use(server: ShardedServer) -> None:
    server.store("1").fails(ListTrail, error=ShardConnectionFailed("reset"))
    with pytest.raises(ShardConnectionFailed):
        await server.lanes("1").store.submit(ListTrail("", "~", 1))
    details = await details_of(server, "1")
    assert (details.probing, details.failure, details.failed_at_ms) == (False, "reset", server.clock.now_ms())


@on_shards()
async def test_a_long_reason_is_cut(server: ShardedServer) -> None:
    server.store("1").dead = "x" * 10_000
    await server.core.shard_monitor.ping_all()
    assert (await details_of(server, "1")).failure == "x" * 500


@on_shards()
async def test_the_kind_of_a_failure_tells_what_happened_without_names(server: ShardedServer) -> None:
    store = server.store("1")
    for fault, kind in (
        (ShardConnectionFailed("db-1: reset"), "connection"),
        (ShardConnectionFailed("db-1: Access denied for user 'pinlater'", retryable=False), "refused"),
        (ValueError("a bug"), "internal"),
    ):
        store.fails("ping", error=fault)
        server.lanes("1").health.suspect()
        await server.pass_time(400)
        assert (await details_of(server, "1")).failure_kind == kind
        await server.pass_time(20_000)
    store.hangs("ping")
    server.lanes("1").health.suspect()
    await server.pass_time(4_000)
    assert (await details_of(server, "1")).failure_kind == "timeout"


# --- memory ---------------------------------------------------------------------------------------------------------------


@on_shards()
async def test_a_store_that_answers_claims_from_memory_says_how_many_and_others_say_nothing(
    server: ShardedServer,
) -> None:
    found = {
        "transactions": 9,
        "remembered_jobs": 2,
        "remembered_bytes": 700,
        "claims_from_memory": 5,
        "stale_claims": 1,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server.lanes("1").unguarded, "figures", lambda: found, raising=False)
        assert (await details_of(server, "1")).memory == ShardMemory(2, 700, 5, 1)
        found = {"transactions": 9, "claims_from_memory": 5}
        assert (await details_of(server, "1")).memory == ShardMemory(0, 0, 5, 0), "of a store that remembers no jobs"
    assert (await details_of(server, "2")).memory is None


# --- size -----------------------------------------------------------------------------------------------------------------


@on_shards()
async def test_a_store_that_hangs_delays_an_answer_once_and_a_little(server: ShardedServer) -> None:
    hung = server.store("1").hangs("size")
    status = await server.within(600, server.service.of(Status).cluster())
    assert (of(status, "1").size, of(status, "2").size.late) == (ShardSize(late=True), None)
    assert of(status, "2").size.at_ms is not None
    assert (await details_of(server, "1")).size.late
    hung.release()
    await server.turns()
    assert not (await details_of(server, "1")).size.late


@on_shards()
async def test_a_look_at_sizes_does_not_count_for_the_health_of_a_shard(server: ShardedServer) -> None:
    server.store("1").hangs("size")
    await server.within(600, server.service.of(Status).cluster())
    await server.pass_time(10_000)
    assert server.lanes("1").healthy
    assert server.lanes("1").health.failure == ""


@on_shards()
async def test_a_store_that_refuses_is_marked_and_keeps_its_last_size(server: ShardedServer) -> None:
    before = (await details_of(server, "1")).size
    server.clock.advance(seconds=30)
    server.store("1").fails("size")
    await details_of(server, "1")
    assert (await details_of(server, "1")).size == replace(before, late=True)
    server.clock.advance(seconds=30)
    await details_of(server, "1")
    assert not (await details_of(server, "1")).size.late


@on_shards()
async def test_a_size_from_hours_ago_is_not_shown_as_that_of_now(server: ShardedServer) -> None:
    """No operator has looked meanwhile."""
    await details_of(server, "1")
    server.clock.advance(seconds=7_200)
    status = await server.within(600, server.service.of(Status).cluster())
    assert of(status, "1").size.at_ms == server.clock.now_ms()


@on_shards()
async def test_the_size_of_an_unreachable_shard_is_marked_as_old(server: ShardedServer) -> None:
    before = (await details_of(server, "1")).size
    server.store("1").dead = "connection refused"
    await server.core.shard_monitor.ping_all()
    assert (await details_of(server, "1")).size == replace(before, late=True)


@on_shards(shards=MANY)
async def test_operators_cost_each_store_one_call_in_half_a_minute(server: ShardedServer) -> None:
    for store in server.stores.values():
        store.calls.clear()
    for _ in range(10):
        status = await server.within(0, server.service.of(Status).cluster())
    assert [shard.details is None for shard in status.shards] == [False] * len(MANY)
    assert [dict(store.calls) for store in server.stores.values()] == [{"size": 1}] * len(MANY)
    server.clock.advance(seconds=30)
    await server.within(0, server.service.of(Status).cluster())
    await server.turns()
    assert [dict(store.calls) for store in server.stores.values()] == [{"size": 2}] * len(MANY)


@on_shards()
async def test_a_shard_that_has_left_the_map_is_forgotten(server: ShardedServer) -> None:
    await server.within(0, server.service.of(Status).cluster())
    hung = server.store("3").hangs("size")
    server.clock.advance(seconds=30)
    await server.within(0, server.service.of(Status).cluster())
    await server.replace(server.desired("1"), server.desired("2"))
    server.clock.advance(ms=server.settings.removal_grace_ms)
    await server.turns()
    await server.core.shard_map.tidy()
    hung.release()
    status = await server.within(600, server.service.of(Status).cluster())
    assert [shard.name for shard in status.shards] == ["1", "2"]
    assert server.service.of(Status).shard_reports.sizes.of("3") == ShardSize()


# --- drain ----------------------------------------------------------------------------------------------------------------


async def drain_of(server: ShardedServer, name: str) -> ShardDrain:
    drain = (await details_of(server, name)).drain
    assert drain is not None
    return drain


async def finish(server: ShardedServer, jobs: int) -> None:
    await server.ack(*(job.descriptor for job in (await server.dequeue(jobs)).jobs))


@on_shards()
async def test_a_shard_that_drains_shows_its_progress_and_when_it_is_empty(server: ShardedServer) -> None:
    for _ in range(20):
        await server.put("1")
    assert (await details_of(server, "1")).drain is None
    await server.replace(server.desired("1", takes_enqueues=False), server.desired("2"), server.desired("3"))
    began_ms = server.clock.now_ms()
    assert await drain_of(server, "1") == ShardDrain(began_ms, False)
    await server.core.rates.sample()
    assert await drain_of(server, "1") == ShardDrain(began_ms, False, live_at_first=20)
    server.clock.advance(seconds=20)
    await finish(server, 5)
    await server.core.rates.sample()
    assert await drain_of(server, "1") == ShardDrain(began_ms, False, 20, 0.25, server.clock.now_ms() + 60_000)
    await finish(server, 15)
    server.clock.advance(seconds=20)
    await server.core.rates.sample()
    assert await drain_of(server, "1") == ShardDrain(began_ms, False, 20, 0.5)
    details = await details_of(server, "1")
    assert details.jobs is not None
    assert (details.jobs.due, details.jobs.succeeded) == (0, 20)


@on_shards()
async def test_the_rate_of_a_drain_is_that_of_the_last_ten_minutes(server: ShardedServer) -> None:
    for _ in range(12):
        await server.put("1")
    await server.replace(server.desired("1", takes_enqueues=False), server.desired("2"), server.desired("3"))
    await server.core.rates.sample()
    await finish(server, 6)
    for _ in range(62):
        server.clock.advance(seconds=10)
        await server.core.rates.sample()
    drain = await drain_of(server, "1")
    assert (drain.live_at_first, drain.jobs_per_second, drain.empty_at_ms) == (12, 0.0, None)


@on_shards()
async def test_a_drain_that_is_undone_and_begun_again_starts_anew(server: ShardedServer) -> None:
    others = (server.desired("2"), server.desired("3"))
    for _ in range(4):
        await server.put("1")
    await server.replace(server.desired("1", takes_enqueues=False), *others)
    await server.core.rates.sample()
    await server.replace(server.desired("1"), *others)
    assert (await details_of(server, "1")).drain is None
    server.clock.advance(seconds=60)
    await finish(server, 1)
    await server.replace(server.desired("1", takes_enqueues=False), *others)
    await server.core.rates.sample()
    assert await drain_of(server, "1") == ShardDrain(server.clock.now_ms(), False, live_at_first=3)


@on_shards()
async def test_a_shard_out_of_the_map_leaves_once_it_is_empty(server: ShardedServer) -> None:
    await server.put("1")
    await server.replace(server.desired("2"), server.desired("3"))
    assert (await drain_of(server, "1")).leaving
    assert not (await details_of(server, "1")).takes_enqueues


@on_shards()
async def test_a_draining_shard_that_is_unreachable_has_no_new_numbers(server: ShardedServer) -> None:
    for _ in range(3):
        await server.put("1")
    await server.replace(server.desired("1", takes_enqueues=False), server.desired("2"), server.desired("3"))
    await server.core.rates.sample()
    before = await drain_of(server, "1")
    server.store("1").dead = "gone"
    await server.core.shard_monitor.ping_all()
    server.clock.advance(seconds=30)
    await server.core.rates.sample()
    assert await drain_of(server, "1") == before


@on_shards()
async def test_an_unreachable_shard_has_no_forecast(server: ShardedServer) -> None:
    """Nothing leaves it, and a time that passes by would look like its end."""
    for _ in range(20):
        await server.put("1")
    await server.replace(server.desired("1", takes_enqueues=False), server.desired("2"), server.desired("3"))
    await server.core.rates.sample()
    server.clock.advance(seconds=20)
    await finish(server, 5)
    await server.core.rates.sample()
    assert (await drain_of(server, "1")).empty_at_ms is not None
    server.clock.advance(seconds=60)
    assert (await drain_of(server, "1")).empty_at_ms is None, "it would be over now"
    server.store("1").dead = "gone"
    await server.core.shard_monitor.ping_all()
    assert (await drain_of(server, "1")).empty_at_ms is None


# --- calls ----------------------------------------------------------------------------------------------------------------


@on_shards(shards=["1"])
async def test_a_lane_tells_what_waits_what_is_under_way_and_for_how_long(server: ShardedServer) -> None:
    held = server.store("1").hangs(InsertJobs)
    calls = [asyncio.ensure_future(server.enqueue(b"x"))]
    await server.pass_time(200)
    calls += [asyncio.ensure_future(server.enqueue(b"x")) for _ in range(3)]
    await server.pass_time(200)
    lane = lane_of(server, "1", "insert")
    assert (lane.waiting, lane.running, lane.calls, lane.mean_ms) == (3, 1, 0, None)
    assert lane.running_ms == pytest.approx(400)
    held.release()
    await asyncio.gather(*calls)
    lane = lane_of(server, "1", "insert")
    assert (lane.waiting, lane.running, lane.running_ms, lane.calls, lane.requests) == (0, 0, None, 2, 4)
    assert lane.mean_ms == pytest.approx(200)


@on_shards(shards=["1"])
async def test_a_minute_of_calls_has_their_mean_and_that_of_the_slowest_five_seconds(server: ShardedServer) -> None:
    minute = server.service.of(Status).shard_reports.lane_minute
    for ms in (200, 400):
        held = server.store("1").hangs(InsertJobs)
        call = asyncio.ensure_future(server.enqueue(b"x"))
        await server.pass_time(ms)
        held.release()
        await call
        minute.sample()
    lane = lane_of(server, "1", "insert")
    assert lane.calls == 2
    assert lane.mean_ms == pytest.approx(300)
    assert lane.slowest_ms == pytest.approx(400)
    for _ in range(12):
        minute.sample()
    lane = lane_of(server, "1", "insert")
    assert (lane.calls, lane.requests, lane.mean_ms, lane.slowest_ms) == (0, 0, None, None)


@on_shards()
async def test_a_shard_that_has_moved_begins_a_new_minute(server: ShardedServer) -> None:
    minute = server.service.of(Status).shard_reports.lane_minute
    await server.put("1")
    minute.sample()
    del server.stores["1"]
    await server.replace(server.desired("1", address="elsewhere"), server.desired("2"), server.desired("3"))
    assert lane_of(server, "1", "insert").calls == 0
