"""Clocks jump: that of a server's machine, which no server follows, and that of a shard's database, by which leases are measured."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from random import Random

import pytest

from pinlater.client import Job
from pinlater.domain.clock import CLOCK_JUMP_MS
from pinlater.server.storage.commands import AskShardTime
from pinlater.simulation import effects
from pinlater.simulation.cluster import SimulatedServer
from pinlater.simulation.isolation import collected_at_the_end
from pinlater.simulation.loop import ProcessState
from pinlater.simulation.store_trouble import StoreTrouble
from tests.simulation.faults import Faults
from tests.simulation.run import CLOCKS, SimulationRun, carry_out, plan_of
from tests.simulation.test_owners import Scene

HOUR_S = 3_600.0
JUMPS = pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S], ids=["ahead", "back"])
CLAIM_S = 30.0
DUE_S = 60.0
SWEPT_WITHIN_S = 2.5
# From a jump until every server has told the shard its time: a heartbeat, six of which come in a lease.
TOLD_WITHIN_S = 11.0
QUEUE = "q"


@pytest.fixture
def collected() -> Iterator[None]:
    with collected_at_the_end():
        yield


def server_clocks_jump(scene: Scene, jump_s: float) -> None:
    for server in scene.cluster.servers:
        effects.server_clock_jumps(server, jump_s).begin()


def shard_clocks_jump(scene: Scene, jump_s: float) -> None:
    for store in scene.stores:
        effects.shard_clock_jumps(store, jump_s).begin()


def clocks_differ_ms(scene: Scene) -> int:
    times = [server.clocks[-1].now_ms() for server in scene.cluster.servers]
    return max(times) - min(times)


async def kill_and_start(server: SimulatedServer) -> None:
    """At once, whatever the shards say of the time."""
    server.kill(told=True)
    server.start()
    while not server.ready:
        assert server.loop is not None
        assert server.loop.state is not ProcessState.DEAD
        await asyncio.sleep(0.01)


@JUMPS
@pytest.mark.parametrize("jump", [server_clocks_jump, shard_clocks_jump])
@pytest.mark.usefixtures("collected")
def test_a_jump_ends_no_claim_and_moves_no_due_time(jump: Callable[[Scene, float], None], jump_s: float) -> None:
    async def work(scene: Scene) -> None:
        client = scene.client("client", scene.cluster.servers[0])
        api, began_s = client.client, scene.timeline.now_s
        later_ms = scene.cluster.wall_ms() + round(DUE_S * 1000)
        found: list[tuple[float, bytes]] = []

        async def put() -> None:
            await api.create_queue(QUEUE)
            await api.enqueue(QUEUE, [Job(b"held", claim_timeout_ms=round(CLAIM_S * 1000), attempts_allowed=9)])
            await api.enqueue(QUEUE, [Job(b"later", run_after_ms=later_ms)])

        async def take(limit_s: float) -> None:
            """Notes when which job comes, until that time."""
            while (elapsed_s := scene.timeline.now_s - began_s) < limit_s:
                taken = await api.dequeue(QUEUE, 1, wait_ms=round((limit_s - elapsed_s) * 1000))
                found.extend((scene.timeline.now_s - began_s, job.body) for job in taken.jobs)

        await scene.done(client, put())
        await scene.done(client, take(1.0))
        assert [body for _, body in found] == [b"held"]
        jump(scene, jump_s)
        await scene.done(client, take(DUE_S + SWEPT_WITHIN_S))
        jump(scene, -jump_s)
        (_, held), (due_s, later) = found[1:3]
        assert (held, later) == (b"held", b"later")
        assert CLAIM_S <= found[1][0] <= CLAIM_S + 1.0 + SWEPT_WITHIN_S
        assert DUE_S <= due_s <= DUE_S + SWEPT_WITHIN_S

    Scene(2, 2).run(work)


@pytest.mark.usefixtures("collected")
def test_a_server_notices_that_the_clock_of_its_machine_jumped() -> None:
    async def work(scene: Scene) -> None:
        server_clocks_jump(scene, HOUR_S)
        await asyncio.sleep(15.0)
        for server in scene.cluster.servers:
            assert server.app is not None
            assert server.app.metrics.read().counters["clock-jumps"] == 1

    Scene(2, 1).run(work)


@JUMPS
@pytest.mark.usefixtures("collected")
def test_a_server_that_starts_after_a_jump_goes_by_the_time_of_the_others(jump_s: float) -> None:
    """Of its own machine's clock, and of those of all databases."""

    async def work(scene: Scene) -> None:
        shard_clocks_jump(scene, jump_s)
        server_clocks_jump(scene, -jump_s)
        await asyncio.sleep(TOLD_WITHIN_S)
        await kill_and_start(scene.cluster.servers[1])
        assert clocks_differ_ms(scene) < CLOCK_JUMP_MS

    Scene(3, 2).run(work)


@JUMPS
@pytest.mark.parametrize("jumped", [0, 1])
@pytest.mark.usefixtures("collected")
def test_a_shard_to_which_no_server_has_told_its_time_does_not_outvote_another_one(jumped: int, jump_s: float) -> None:
    """Its clock has jumped a moment ago, so that all heartbeats there look old."""

    async def work(scene: Scene) -> None:
        effects.shard_clock_jumps(scene.stores[jumped], jump_s).begin()
        await kill_and_start(scene.cluster.servers[1])
        assert clocks_differ_ms(scene) < CLOCK_JUMP_MS

    Scene(3, 2).run(work)


@pytest.mark.usefixtures("collected")
def test_a_server_to_which_no_shard_tells_the_time_does_not_start() -> None:
    """Else it would go by the clock of its machine."""

    async def work(scene: Scene) -> None:
        late = scene.cluster.servers[1]
        effects.server_clock_jumps(late, HOUR_S).begin()
        late.kill(told=True)
        for store in scene.stores:
            store.trouble = StoreTrouble(refused=1.0, only=(AskShardTime,))
        late.restart_after(0.0)
        for _ in range(50):
            await asyncio.sleep(0.1)
            assert not late.ready
        for store in scene.stores:
            store.trouble = store.calm
        await scene.settled(20.0)
        assert clocks_differ_ms(scene) < CLOCK_JUMP_MS

    Scene(2, 2).run(work)


@JUMPS
@pytest.mark.usefixtures("collected")
def test_a_server_whose_slot_another_one_took_after_a_jump_gets_another_slot_and_works_on(jump_s: float) -> None:
    async def work(scene: Scene) -> None:
        [store] = scene.stores
        shard_clocks_jump(scene, jump_s)
        before = {lease.session: slot for slot, lease in store.leases.items()}
        scene.add_server("server3", Random(3)).start()
        while all(store.leases[slot].session is session for session, slot in before.items()):
            await asyncio.sleep(0.01)
        await asyncio.sleep(TOLD_WITHIN_S)
        assert sum(len(session.lost) for session in before) >= 1
        clients = [scene.client(f"client{n}", server) for n, server in enumerate(scene.cluster.servers[:2])]
        await scene.done(clients[0], clients[0].client.create_queue(QUEUE))
        for client in clients:
            await scene.done(client, client.client.enqueue(QUEUE, [Job(b"x")]))
        assert len({row.key.id for row in store.jobs()}) == 2

    Scene(2, 1).run(work)


@JUMPS
@pytest.mark.usefixtures("collected")
def test_servers_that_look_right_after_a_jump_know_each_other_again_within_seconds(jump_s: float) -> None:
    """No heartbeat of the third one has come since. The next look would come a minute later, since the servers hear each other."""

    async def work(scene: Scene) -> None:
        def counted() -> list[int]:
            return [server.app.cluster.members.servers for server in scene.cluster.servers if server.app is not None]

        shard_clocks_jump(scene, jump_s)
        while not all(len(store.members()) == 2 for store in scene.stores):
            await asyncio.sleep(0.01)
        for server in scene.cluster.servers:
            assert server.app is not None
            assert server.loop is not None
            server.loop.create_task(server.app.cluster.look())
        ends_s = scene.timeline.now_s + TOLD_WITHIN_S + 2.0
        await asyncio.sleep(0.1)
        assert min(counted()) < 3
        while counted() != [3, 3, 3]:
            assert scene.timeline.now_s < ends_s, counted()
            await asyncio.sleep(0.1)

    Scene(3, 1).run(work)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.usefixtures("collected")
def test_slices_end_where_they_should_though_clocks_jump_and_servers_come_and_go(seed: int) -> None:
    async def work(scene: Scene) -> None:
        dice = Random(seed)
        for _ in range(6):
            server, store = dice.choice(scene.cluster.servers), dice.choice(scene.stores)
            jump_s = dice.choice((30.0, 90.0, HOUR_S)) * dice.choice((1, -1))
            jumps = [effects.server_clock_jumps(server, jump_s), effects.shard_clock_jumps(store, jump_s)]
            for jump in jumps:
                jump.begin()
            if dice.random() < 0.5:
                server.kill(told=dice.random() < 0.5)
                server.restart_after(dice.uniform(0.1, 8.0))
            else:
                server.stop(grace_s=1.0)
            await asyncio.sleep(dice.uniform(0.1, 20.0))
            for jump in jumps:
                jump.end()
        await asyncio.sleep(30.0)
        await scene.settled(5.0)
        await scene.unchanged(10.0)
        assert clocks_differ_ms(scene) < CLOCK_JUMP_MS

    Scene(3, 2, seed).run(work)


@pytest.mark.timeout(900)  # the machine may be busy with other things
@pytest.mark.parametrize("first", [0, 40, 80, 500])
def test_histories_in_which_clocks_jump_while_servers_stop_and_start_keep_every_promise(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In 518 a call that tells a shard a server's time comes after a later one."""
    monkeypatch.setattr(Faults, "kinds", Faults.clock_kinds)
    broken = {}
    for seed in range(first, first + 40):
        result = carry_out(lambda seed=seed: SimulationRun(plan_of(seed, CLOCKS)))  # type: ignore[misc]
        if result.broken:
            broken[seed] = result.broken
    assert not broken
