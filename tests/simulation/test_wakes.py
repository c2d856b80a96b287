"""Wakes between production servers on a simulated network. Times are virtual, and each run is the same."""

from __future__ import annotations

import asyncio

import pytest

from pinlater.client import Job
from pinlater.domain.slices import slice_of
from pinlater.server.cluster.forwarding import handshake, messages
from tests.simulation.test_owners import Scene, address_of
from tests.simulation.workload import Process

pytestmark = pytest.mark.usefixtures("collected")

# Some hundreds of a millisecond for each message and each call of the shard.
_BY_WAKE_S = 0.05
_BY_LOOK_S = 2.5


class Pickups:
    """A producer at the server that owns the queue, and a worker that waits at another one."""

    def __init__(self, scene: Scene) -> None:
        [store] = scene.stores
        self.scene = scene
        self.owner, self.other = scene.cluster.servers
        self.queue = next(f"q{i}" for i in range(99) if store.owners.by_slice[slice_of(f"q{i}")] == self.owner_address)
        self.producer: Process = scene.client("producer", self.owner)
        self.worker: Process = scene.client("worker", self.other)

    @property
    def owner_address(self) -> str:
        return address_of(self.owner)

    async def create_queue(self) -> None:
        await self.scene.done(self.producer, self.producer.client.create_queue(self.queue))
        await asyncio.sleep(2.0)  # the other server has read it

    async def one(self) -> float:
        """How many seconds after its enqueue the job comes."""
        timeline = self.scene.timeline
        waiting = self.worker.start(self.worker.client.dequeue(self.queue, 1, wait_ms=15_000))
        await asyncio.sleep(0.73)  # the look for changes of others is at no fixed distance
        began_s = timeline.now_s
        enqueuing = self.producer.start(self.producer.client.enqueue(self.queue, [Job(b"x")]))
        while not waiting.done():
            await asyncio.sleep(0.001)
        assert len(waiting.result().jobs) == 1
        took_s = timeline.now_s - began_s
        await self.scene.done(self.producer, _result_of(enqueuing))
        return took_s

    def break_off_wakes(self, *, told: bool) -> None:
        """Ends the connection on which the owner wakes the other server. `told`: both sides learn of it at once; else nothing that the
        owner sends on it arrives any more, and neither side learns why."""
        [link] = [
            each
            for each in self.scene.network.connections
            if (each.near.loop.host, each.far.loop.host) == (self.owner.name, self.other.name)
        ]
        if told:
            for end in (link.near, link.far):
                end.break_off(ConnectionResetError(104, "Connection reset by peer"))
        else:
            link.near.black_hole = True


async def _result_of(task: asyncio.Task[object]) -> None:
    while not task.done():
        await asyncio.sleep(0.001)
    task.result()


def test_a_wake_brings_each_job_much_sooner_than_the_look_for_changes() -> None:
    async def work(scene: Scene) -> None:
        pickups = Pickups(scene)
        await pickups.create_queue()
        took_s = [await pickups.one() for _ in range(10)]
        assert max(took_s) < _BY_WAKE_S, took_s

    Scene(2, 1).run(work)


@pytest.mark.parametrize("told", [True, False])
def test_a_wake_that_is_lost_with_its_connection_costs_about_a_second_and_the_next_connection_has_wakes_again(
    told: bool,
) -> None:
    async def work(scene: Scene) -> None:
        pickups = Pickups(scene)
        await pickups.create_queue()
        pickups.break_off_wakes(told=told)
        assert await pickups.one() < _BY_LOOK_S
        await asyncio.sleep(10.0)  # the owner notices that a connection is half open, and connects again
        took_s = [await pickups.one() for _ in range(10)]
        assert max(took_s) < _BY_WAKE_S, took_s

    Scene(2, 1).run(work)


@pytest.mark.parametrize("distance_s", [0.26, 0.3, 0.35, 0.6])
def test_a_dequeue_gets_a_job_although_the_owner_is_too_far_away_for_a_claim(distance_s: float) -> None:
    """The owner's answers would come after the time limit of a claim, and the jobs go back: it goes to the shard itself. The wake has one
    way to go, or the shard is looked at before it comes."""

    async def work(scene: Scene) -> None:
        pickups = Pickups(scene)
        await pickups.create_queue()
        scene.network.move_apart(pickups.owner.name, pickups.other.name, distance_s)
        await asyncio.sleep(2.0)
        took_s = [await pickups.one() for _ in range(10)]
        assert max(took_s) < distance_s + _BY_WAKE_S, took_s

    Scene(2, 1).run(work)


def test_a_server_of_the_version_before_finds_the_jobs_by_its_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "VERSION", messages.OLDEST_VERSION)

    async def work(scene: Scene) -> None:
        pickups = Pickups(scene)
        await pickups.create_queue()
        took_s = [await pickups.one() for _ in range(5)]
        assert _BY_WAKE_S < max(took_s) < _BY_LOOK_S, took_s
        app = pickups.owner.app
        assert app is not None
        assert app.cluster.wakes.sent == 0
        assert app.cluster.forwarding is not None
        assert app.cluster.forwarding.connections

    Scene(2, 1).run(work)
