"""Servers whose clocks differ a little, as clocks do that were agreed upon over a network."""

from __future__ import annotations

import pytest

from pinlater.client import Ack, Claim, Job
from pinlater.domain.clock import CATCH_UP_MS_MAX
from pinlater.domain.job import JobState
from tests.simulation.test_owners import Scene

pytestmark = pytest.mark.usefixtures("collected")

QUEUES = 12


@pytest.mark.parametrize("behind", [0, 1])
def test_a_job_that_was_stored_as_due_is_there_for_the_next_claim(behind: int) -> None:
    """Whichever server owns its queue."""

    async def work(scene: Scene) -> None:
        client = scene.client("client", scene.cluster.servers[0])
        scene.cluster.servers[behind].clocks[-1].shift(-CATCH_UP_MS_MAX)
        for number in range(QUEUES):
            queue = f"q{number}"
            await scene.done(client, client.client.create_queue(queue))
            found: list[bytes] = []

            async def put_and_take(queue: str = queue, found: list[bytes] = found) -> None:
                await client.client.enqueue(queue, [Job(b"x")])
                found += [job.body for job in (await client.client.dequeue(queue, limit=1)).jobs]

            await scene.done(client, put_and_take())
            assert found == [b"x"], queue

    Scene(2, 2).run(work)


def test_a_clock_that_is_far_ahead_is_not_followed() -> None:
    async def work(scene: Scene) -> None:
        ahead, follower = (server.clocks[-1] for server in scene.cluster.servers)
        ahead.shift(10 * CATCH_UP_MS_MAX)
        before_ms = ahead.now_ms() - follower.now_ms()
        client = scene.client("client", scene.cluster.servers[0])
        for number in range(QUEUES):
            await scene.done(client, client.client.create_queue(f"q{number}"))
            await scene.done(client, client.client.enqueue(f"q{number}", [Job(b"x")]))
        assert abs(ahead.now_ms() - follower.now_ms() - before_ms) <= 1

    Scene(2, 2).run(work)


@pytest.mark.parametrize("behind", [0, 1])
def test_a_server_whose_clock_is_far_behind_serves_queues_that_another_one_owns(behind: int) -> None:
    """As that of a machine that was suspended: its calls come too late for the owner, and go to the shards."""

    async def work(scene: Scene) -> None:
        late = scene.cluster.servers[behind]
        late.clocks[-1].shift(-60_000)
        client = scene.client("client", late)
        done: list[str] = []

        async def one_job(queue: str) -> None:
            await client.client.enqueue(queue, [Job(b"x")])
            [claimed] = (await client.client.dequeue(queue, limit=1)).jobs
            claim = Claim(claimed.descriptor, claimed.token)
            await client.client.heartbeat(queue, [claim])
            await client.client.release(queue, [claim])
            [again] = (await client.client.dequeue(queue, limit=1)).jobs
            await client.client.ack(queue, [Ack(again.descriptor, token=again.token)])
            done.append(queue)

        before = late.forwarded
        for number in range(QUEUES):
            await scene.done(client, client.client.create_queue(f"q{number}"))
            await scene.done(client, one_job(f"q{number}"))
        assert len(done) == QUEUES
        assert not client.errors
        assert late.forwarded > before
        assert {row.job.state for store in scene.stores for row in store.jobs()} == {JobState.SUCCEEDED}

    Scene(2, 1).run(work)
