"""What servers that hear each other ask the shards for while nothing happens, and how they learn of what happens all the same."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from pinlater.client import Job, QueueConfig
from pinlater.domain.job import JobState
from pinlater.server.cluster.forwarding.peer_connection import PeerConnection
from pinlater.server.cluster.forwarding.peer_listener import PeerListener
from pinlater.server.storage.commands import ConfigureQueue, CountJobs, ListQueues, create_queues
from pinlater.simulation.cluster import SimulatedServer
from pinlater.simulation.store_calls import CallKind
from tests.simulation.test_owners import MOVED_WITHIN_S, Scene, address_of

pytestmark = pytest.mark.usefixtures("collected")

# From the answer of a change to the time when every other server has it, while they hear each other.
TOLD_WITHIN_S = 1.0
QUEUES = 20


def is_paused_at(server: SimulatedServer, queue: str) -> bool:
    assert server.app is not None
    known = server.app.core.service.queue_cache.queues.get(queue)
    return known is not None and known.paused


async def all_paused(scene: Scene, queue: str, within_s: float) -> None:
    ends_s = scene.timeline.now_s + within_s
    while not all(is_paused_at(server, queue) for server in scene.alive):
        assert scene.timeline.now_s < ends_s
        await asyncio.sleep(0.01)


async def quiet(scene: Scene) -> None:
    """With queues, and nothing to do for long enough that no server asks because of what happened before."""
    client = scene.client("client", scene.cluster.servers[0])
    for i in range(QUEUES):
        await scene.done(client, client.client.create_queue(f"q{i}"))
    await asyncio.sleep(150.0)


async def calls_of_a_minute(scene: Scene, queues: int) -> list[Counter[CallKind]]:
    """What each shard is asked by servers with that many idle queues."""
    for store in scene.stores:  # without a call for each
        await store.data.submit(create_queues([f"more{i}" for i in range(queues - QUEUES)], scene.cluster.wall_ms()))
        store.changed += 1
    await quiet(scene)
    for server in scene.alive:
        assert server.app is not None
        assert len(server.app.core.service.queue_cache.queues) == queues
    before = [store.called.copy() for store in scene.stores]
    await asyncio.sleep(60.0)
    return [store.called - calls for store, calls in zip(scene.stores, before, strict=True)]


@pytest.mark.parametrize("queues", [QUEUES, 2_000, pytest.param(10_000, marks=pytest.mark.thorough)])
def test_an_idle_cluster_asks_each_shard_less_than_once_a_second_however_many_queues_there_are(queues: int) -> None:
    """57 or 58 times a minute: where a minute begins decides about one look more or less."""

    async def work(scene: Scene) -> None:
        for calls in await calls_of_a_minute(scene, queues):
            assert calls.total() < 60, calls
            assert calls[ListQueues] + calls[CountJobs] == 0, calls

    Scene(4, 4).run(work)


@pytest.mark.parametrize("servers", [2, 3])
def test_a_changed_queue_reaches_the_other_servers_by_message(servers: int) -> None:
    async def work(scene: Scene) -> None:
        await quiet(scene)
        client = scene.client("client2", scene.cluster.servers[-1])
        await scene.done(client, client.client.pause_queue("q3"))
        await all_paused(scene, "q3", TOLD_WITHIN_S)
        await scene.done(client, client.client.configure_queue("q4", QueueConfig(max_backlog=7)))
        await asyncio.sleep(TOLD_WITHIN_S + 1.0)
        for server in scene.alive:
            assert server.app is not None
            known = server.app.core.service.queue_cache.queues.get("q4")
            assert known is not None
            assert known.config.max_backlog == 7

    Scene(servers, 2).run(work)


def test_a_deleted_queue_and_a_new_one_reach_the_other_servers_by_message() -> None:
    async def work(scene: Scene) -> None:
        await quiet(scene)
        client = scene.client("client2", scene.cluster.servers[1])
        await scene.done(client, client.client.create_queue("new"))
        await scene.done(client, client.client.delete_queue("q3", "open sesame"))
        await asyncio.sleep(TOLD_WITHIN_S + 1.0)
        for server in scene.alive:
            assert server.app is not None
            cache = server.app.core.service.queue_cache
            assert cache.queues.get("new") is not None
            assert cache.queues.get("q3") is None

    Scene(3, 2).run(work)


def test_what_an_operator_writes_into_a_shard_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(scene: Scene) -> None:
        await quiet(scene)
        for store in scene.stores:
            await store.data.submit(ConfigureQueue("q3", paused=True, version="9" * 16))
            store.changed += 1
        await all_paused(scene, "q3", 40.0)

    Scene(3, 2).run(work)


def test_where_servers_do_not_say_what_they_change_the_queues_are_read_every_five_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work(scene: Scene) -> None:
        await quiet(scene)
        monkeypatch.setattr(PeerListener, "tell", lambda self: None)
        monkeypatch.setattr(PeerConnection, "says_what_it_changes", lambda self, within_s: False)
        client = scene.client("client2", scene.cluster.servers[1])
        await scene.done(client, client.client.pause_queue("q3"))
        await all_paused(scene, "q3", 7.0)

    Scene(3, 2).run(work)


def test_a_change_at_a_server_that_was_cut_off_is_seen_once_it_is_heard_again() -> None:
    async def work(scene: Scene) -> None:
        await quiet(scene)
        cut = scene.cluster.servers[2]
        others = [server.name for server in scene.cluster.servers if server is not cut]
        for other in others:
            scene.network.cut(cut.name, other)
        await asyncio.sleep(10.0)
        client = scene.client("client2", cut)
        await scene.done(client, client.client.pause_queue("q3"))
        await all_paused(scene, "q3", 7.0)

    Scene(3, 2).run(work)


@pytest.mark.parametrize("by", ["the server that sweeps", "another one"])
def test_a_claim_on_a_quiet_shard_times_out_in_time(by: str) -> None:
    async def work(scene: Scene) -> None:
        [store] = scene.stores
        await quiet(scene)
        sweeper = next(s for s in scene.cluster.servers if address_of(s) == store.owners.by_slice[0])
        other = next(s for s in scene.cluster.servers if s is not sweeper)
        client = scene.client("client2", sweeper if by == "the server that sweeps" else other)
        for queue in [f"q{i}" for i in range(QUEUES)]:
            await scene.done(client, client.client.enqueue(queue, [Job(b"x", claim_timeout_ms=1_000)]))
            await scene.done(client, client.client.dequeue(queue, 1))
        assert all(row.job.state is JobState.IN_PROGRESS for row in store.jobs()[-5:])
        await asyncio.sleep(1.0 + 2.5)
        assert all(row.job.state is JobState.PENDING for row in store.jobs())

    Scene(3, 1).run(work)


def test_a_server_that_joins_is_seen_at_once() -> None:
    async def work(scene: Scene) -> None:
        await quiet(scene)
        down = scene.cluster.servers[2]
        down.stays_down = True
        down.stop(grace_s=1.0)
        await asyncio.sleep(150.0)
        down.stays_down = False
        down.restart_after(0.1)
        await asyncio.sleep(1.0)
        await scene.settled(MOVED_WITHIN_S)

    Scene(3, 2).run(work)
