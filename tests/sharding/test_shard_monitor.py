"""The shard monitor: servers do not use unreachable shards, probe them, and bring them up to date once they answer."""

from __future__ import annotations

import asyncio
import logging

import pytest

from pinlater.domain.errors import Draining, OutcomeUnknown, QueueNotFound, ShardConnectionFailed
from pinlater.domain.job import JobState
from pinlater.domain.queue import QueueConfig
from pinlater.server.sharding.settings import ShardingSettings
from pinlater.server.storage.commands import (
    ConfigureQueue,
    CountJobs,
    DeleteQueues,
    FinishJobs,
    InsertJobs,
    ListQueues,
    MergeQueues,
    create_queues,
)
from pinlater.wire.generated.structs import CountRequest
from tests.sharding.sharded_server import PASSWORD, ShardedServer, on_shards, run_on_shards, shards_of


@on_shards()
async def test_a_shard_that_is_gone_is_out_of_use_after_one_error_and_its_probe(server: ShardedServer) -> None:
    server.store("1").dead = "connection refused"
    await server.put("2")
    while server.lanes("1").health.failed_at is None:
        await server.enqueue(b"x")
    await server.pass_time(200)
    assert not server.lanes("1").healthy
    assert server.lanes("1").health.reason == "connection refused"


@on_shards()
async def test_a_shard_out_of_use_is_left_alone(server: ShardedServer) -> None:
    """But for its probes."""
    server.store("1").dead = "gone"
    await server.core.shard_monitor.ping_all()
    server.store("1").calls.clear()
    for _ in range(20):
        await server.enqueue(b"x")
        await server.dequeue()
    await server.core.sweeps.time_out_claims()
    await server.core.rates.sample()
    await server.service.queue_cache.refresh()
    await server.service.job_queries.count(CountRequest("q", JobState.PENDING))
    with pytest.raises(ShardConnectionFailed):
        await server.lanes("1").store.submit(ListQueues())
    assert not server.store("1").calls
    await server.pass_time(9_000)
    assert set(server.store("1").calls) == {"ping"}
    assert server.store("1").calls["ping"] == 3  # after 1, 2 and 4 s


@on_shards()
async def test_a_shard_comes_back_after_a_good_probe(server: ShardedServer) -> None:
    job = await server.put("1")
    server.store("1").dead = "gone"
    await server.core.shard_monitor.ping_all()
    server.store("1").dead = None
    await server.pass_time(2_000)
    assert server.lanes("1").healthy
    assert [each.descriptor for each in (await server.dequeue()).jobs] == [job]


def test_transitions_are_logged_and_counted_once_each(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pinlater.server.sharding")

    async def scenario(server: ShardedServer) -> None:
        server.store("1").dead = "gone"
        await server.core.shard_monitor.ping_all()
        await server.pass_time(10_000)
        server.store("1").dead = None
        await server.pass_time(10_000)
        assert server.counted("shard_unhealthy_1") == server.counted("shard_recovered_1") == 1

    run_on_shards(scenario)
    texts = [record.message for record in caplog.records]
    assert texts.count("a shard is unreachable") == 1
    assert texts.count("a shard is reachable again") == 1


def test_another_reason_of_an_unreachable_shard_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """A database that was off and then refuses the login needs another remedy than one that is off."""
    caplog.set_level(logging.INFO, "pinlater.server.sharding")

    async def scenario(server: ShardedServer) -> None:
        server.store("1").dead = "connection refused"
        await server.core.shard_monitor.ping_all()
        await server.pass_time(10_000)
        server.store("1").dead = "wrong password"
        await server.pass_time(20_000)

    run_on_shards(scenario)
    said = [(record.message, getattr(record, "reason", None)) for record in caplog.records if "reach" in record.message]
    assert said == [
        ("a shard is unreachable", "connection refused"),
        ("a shard is still unreachable, for another reason", "wrong password"),
    ]


def test_the_reason_logged_at_the_start_is_not_logged_again(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(server: ShardedServer) -> None:
        probes = server.store("1").calls["open"]
        await server.pass_time(10_000)
        assert server.store("1").calls["open"] > probes
        assert server.lanes("1").health.reason == "connection refused"

    run_on_shards(scenario, dead=("1",))
    said = [record.getMessage() for record in caplog.records if getattr(record, "reason", None) == "connection refused"]
    assert said == ["a shard is unreachable"]


@on_shards()
async def test_a_stopped_server_is_out_of_use_within_three_seconds(server: ShardedServer) -> None:
    """As by SIGSTOP: nothing is refused, nothing is answered. The stall has it probed, and the probe fails."""
    fault = server.store("1").stops()
    calls = []
    for _ in range(20):  # what comes in one turn of the loop goes to one shard
        calls.append(asyncio.ensure_future(server.enqueue(b"x")))
        await server.turns()
    await server.pass_time(server.settings.stall_ms + server.settings.probe_timeout_ms + 600)
    assert not server.lanes("1").healthy
    assert "1" not in shards_of(await server.enqueue(b"x"))
    await server.pass_time(server.settings.call_timeout_ms)
    assert all(call.done() for call in calls)
    for call in calls:
        assert call.exception() is None or isinstance(call.exception(), OutcomeUnknown)
    fault.release()
    await server.pass_time(6_000)
    assert server.lanes("1").healthy


@on_shards()
async def test_requests_that_wait_in_a_lane_fail_when_the_shard_goes_out_of_use(server: ShardedServer) -> None:
    jobs = [await server.put("1") for _ in range(3)]
    await server.dequeue()
    server.store("1").hangs(FinishJobs)
    first = asyncio.ensure_future(server.ack(jobs[0]))
    await server.turns()
    others = [asyncio.ensure_future(server.ack(job)) for job in jobs[1:]]
    server.store("1").dead = "gone"
    await server.pass_time(server.settings.stall_ms + 600)
    assert not first.done()  # what it did is still unknown
    for call in others:
        assert type(call.exception()) is ShardConnectionFailed


@on_shards()
async def test_a_process_that_stood_still_does_not_blame_the_shards(server: ShardedServer) -> None:
    """A suspended machine, a blocked loop: the answers may be here by now, but were not looked at."""
    fault = server.store("1").hangs(InsertJobs)
    calls = []
    while not fault.met.is_set():
        calls.append(asyncio.ensure_future(server.enqueue(b"x")))
        await server.turns()
    await server.core.shard_monitor.look()
    server.clock.advance(hours=1)
    await server.core.shard_monitor.look()
    await server.turns()
    assert server.lanes("1").healthy
    fault.release()
    await asyncio.gather(*calls)


@on_shards()
async def test_a_hung_probe_holds_up_no_other(server: ShardedServer) -> None:
    server.store("1").stops()
    server.store("2").dead = "gone"
    looking = asyncio.ensure_future(server.core.shard_monitor.ping_all())
    await server.turns()
    assert not server.lanes("2").healthy
    await server.pass_time(server.settings.probe_timeout_ms + 400)
    assert looking.done()
    assert not server.lanes("1").healthy


@on_shards(settings=ShardingSettings(probe_interval_ms=60_000, probe_interval_max_ms=60_000))
async def test_queues_made_and_set_while_a_shard_was_away_are_there_when_it_is_back(server: ShardedServer) -> None:
    server.store("1").dead = "gone"
    await server.core.shard_monitor.ping_all()
    await server.service.queues.create_queue("new")
    await server.service.queues.configure_queue("q", QueueConfig(claim_timeout_ms=5))
    await server.service.queues.set_paused("new", True)
    server.store("1").dead = None
    await server.pass_time(80_000)
    assert list(await server.store("1").within.submit(ListQueues())) == list(
        await server.store("2").within.submit(ListQueues())
    )


@on_shards()
async def test_a_queue_is_not_deleted_while_a_shard_that_has_it_is_unreachable(server: ShardedServer) -> None:
    """The caller is told so; repeating is safe."""
    server.store("1").dead = "gone"
    await server.core.shard_monitor.ping_all()
    with pytest.raises(ShardConnectionFailed, match="deleted from the others"):
        await server.service.queues.delete_queue("q", PASSWORD)
    server.store("1").dead = None
    await server.pass_time(3_000)
    await server.service.queues.delete_queue("q", PASSWORD)
    assert await server.service.queues.queue_names() == []


@on_shards()
async def test_changes_of_queues_reach_the_others_though_one_shard_fails(server: ShardedServer) -> None:
    server.store("1").fails(MergeQueues)
    with pytest.raises(ShardConnectionFailed):
        await server.service.queues.create_queue("new")
    assert len(await server.store("3").within.submit(ListQueues())) == 2
    await server.service.queues.create_queue("new")
    assert len(await server.store("1").within.submit(ListQueues())) == 2


@on_shards()
async def test_a_shard_that_does_not_know_a_queue_yet_fails_no_call(server: ShardedServer) -> None:
    """Another server makes the queue at this moment."""
    await server.store("2").within.submit(create_queues(["new"], 0))
    await server.service.queue_cache.refresh()
    for _ in range(10):
        assert shards_of(await server.enqueue(b"x", queue="new")) == ["2"]
    await server.service.queues.set_paused("new", False)
    with pytest.raises(QueueNotFound):
        await server.within(1_000, server.enqueue(b"x", queue="unknown"))


@on_shards()
async def test_the_stats_of_all_queues_include_one_that_another_server_has_just_made(server: ShardedServer) -> None:
    await server.store("2").within.submit(create_queues(["new"], 0))
    assert [stats.queue for stats in await server.service.queues.queue_stats([])] == ["new", "q"]


@on_shards(dead=("2",))
async def test_a_server_starts_without_a_shard_that_is_gone_and_takes_it_in_later(server: ShardedServer) -> None:
    assert not server.lanes("2").healthy
    await server.enqueue(b"x")
    server.store("2").dead = None
    await server.pass_time(3_000)
    assert server.lanes("2").healthy
    assert [queue.name for queue in await server.store("2").within.submit(ListQueues())] == ["q"]
    await server.put("2")


def test_a_server_does_not_start_where_no_shard_can_be_opened() -> None:
    async def never(server: ShardedServer) -> None:
        raise AssertionError

    with pytest.raises(ShardConnectionFailed, match="refused"):
        run_on_shards(never, dead=("1", "2", "3"))


@on_shards()
async def test_closing_waits_only_so_long_for_a_shard_that_hangs(server: ShardedServer) -> None:
    fault = server.store("1").hangs(InsertJobs)
    calls = []
    while not fault.met.is_set():
        calls.append(asyncio.ensure_future(server.enqueue(b"x")))
        await server.turns()
    closing = asyncio.ensure_future(server.shards.close())
    await server.pass_time(server.settings.close_timeout_ms + 2_000)
    await closing
    assert sum(call.exception() is not None for call in calls) == 1
    with pytest.raises(Draining):
        await server.enqueue(b"x")


@on_shards()
async def test_at_the_start_missing_queues_are_made_and_settings_stay_as_they_are(server: ShardedServer) -> None:
    """Which of two settings is newer is unknown."""
    await server.store("2").within.submit(create_queues(["new"], 0))
    await server.store("2").within.submit(ConfigureQueue("new", paused=True))
    await server.store("3").within.submit(ConfigureQueue("q", paused=True))
    await server.service.queue_cache.refresh()
    await server.core.shard_monitor.bring_all_up_to_date()
    for name in "13":
        [new, *_] = await server.store(name).within.submit(ListQueues())
        assert (new.name, new.paused) == ("new", True)
    [_, q] = await server.store("3").within.submit(ListQueues())
    assert q.paused


@on_shards(shards=("1",))
async def test_an_only_shard_that_is_back_is_left_as_other_servers_have_made_it(server: ShardedServer) -> None:
    """What this server remembers is older: it brings back no deleted queue and undoes no change of settings."""
    store = server.store("1")
    await server.service.queues.create_queue("kept")
    store.dead = "cut off"
    await server.core.shard_monitor.ping_all()
    await store.within.submit(DeleteQueues(["q"]))
    await store.within.submit(ConfigureQueue("kept", paused=True))
    store.dead = None
    await server.pass_time(3_000)
    assert server.lanes("1").healthy
    assert [(queue.name, queue.paused) for queue in await store.within.submit(ListQueues())] == [("kept", True)]


@on_shards(shards=("1", "2"))
async def test_a_shard_that_is_back_gets_what_the_others_have_now(server: ShardedServer) -> None:
    """Other servers made changes while this one could not reach it, and has not read them from the others either."""
    await server.service.queues.create_queue("kept")
    server.store("1").dead = "cut off"
    await server.core.shard_monitor.ping_all()
    for name in "12":
        await server.store(name).within.submit(DeleteQueues(["q"]))
    await server.store("2").within.submit(create_queues(["new"], 0))
    await server.store("2").within.submit(ConfigureQueue("kept", paused=True))
    server.store("1").dead = None
    await server.pass_time(3_000)
    assert server.lanes("1").healthy
    found = await server.store("1").within.submit(ListQueues())
    assert [(queue.name, queue.paused) for queue in found] == [("kept", True), ("new", False)]


@on_shards(shards=("1", "2"))
async def test_a_shard_that_is_back_first_gets_what_the_next_one_has(server: ShardedServer) -> None:
    """A queue was made on the second while the first was away, and then both were."""
    server.store("1").dead = "cut off"
    await server.core.shard_monitor.ping_all()
    await server.service.queues.create_queue("new")
    server.store("2").dead = "cut off"
    await server.core.shard_monitor.ping_all()
    server.store("1").dead = None
    await server.pass_time(6_000)
    assert server.lanes("1").healthy
    server.store("2").dead = None
    await server.pass_time(6_000)
    assert [queue.name for queue in await server.store("1").within.submit(ListQueues())] == ["new", "q"]


@on_shards()
async def test_a_shard_just_opened_is_not_on_probation(server: ShardedServer) -> None:
    server.store("1").fails(CountJobs)
    await server.service.queues.queue_stats(["q"])
    assert server.lanes("1").healthy


@on_shards()
async def test_a_shard_that_takes_long_to_open_is_not_begun_anew(server: ShardedServer) -> None:
    """Its schema is brought forward: it joins when that is done, and meanwhile the others serve."""
    fault = server.store("4").hangs("open")
    desired = [server.desired(name) for name in "1234"]
    change = await server.within(server.settings.work_timeout_ms + 400, server.replace(*desired))
    assert "not open yet" in change.unopened["4"]
    await server.enqueue(b"x")
    await server.pass_time(60_000)
    fault.release()
    await server.pass_time(6_000)
    assert server.lanes("4").healthy
    assert server.store("4").calls["open"] == 1
    await server.put("4")


def test_a_start_waits_for_a_shard_that_takes_long_to_open_where_there_is_no_other() -> None:
    servers: list[ShardedServer] = []

    def prepare(server: ShardedServer) -> None:
        servers.append(server)
        fault = server.store("1").hangs("open")
        asyncio.get_running_loop().call_later(60, fault.release)

        async def pass_time() -> None:
            while fault.left:
                await asyncio.sleep(0)
                server.clock.advance(ms=100)

        server.turning = asyncio.ensure_future(pass_time())

    async def scenario(server: ShardedServer) -> None:
        await server.enqueue(b"x")
        assert server.store("1").calls["open"] == 1

    run_on_shards(scenario, shards=("1",), prepare=prepare)


@on_shards()
async def test_a_new_shard_gets_all_queues_with_their_settings_in_one_call(server: ShardedServer) -> None:
    for number in range(5):
        await server.service.queues.create_queue(f"q{number}")
    await server.service.queues.set_paused("q3", True)
    await server.replace(*[server.desired(name) for name in "1234"])
    assert server.store("4").calls[MergeQueues] == 1
    assert server.store("4").calls[ConfigureQueue] == 0
    assert await server.store("4").within.submit(ListQueues()) == await server.store("1").within.submit(ListQueues())


@on_shards(shards=("1", "2"))
async def test_a_shard_that_fails_again_while_its_last_probe_brings_another_up_to_date_comes_back(
    server: ShardedServer,
) -> None:
    """The probe continues for a while after it has found the shard well; that the next one is due meanwhile is not forgotten."""
    for name in "12":
        server.store(name).dead = "connection refused"
        server.lanes(name).put_out_of_use("test")
    server.store("1").dead = None
    server.lanes("1").health.suspect()
    await server.pass_time(3_000)
    assert server.lanes("1").is_behind
    await server.store("2").within.submit(create_queues(["made_elsewhere"], server.clock.now_ms()))
    slow = server.store("1").hangs(MergeQueues)
    server.store("2").dead = None
    server.lanes("2").health.suspect()
    while not slow.met.is_set():
        await server.pass_time(200)
    assert server.lanes("2").healthy
    server.store("2").dead = "connection refused"
    server.lanes("2").put_out_of_use("test")
    server.lanes("2").health.suspect()
    await server.pass_time(1_000)
    server.store("2").dead = None
    slow.release()
    await server.pass_time(30_000)
    assert server.lanes("2").healthy
