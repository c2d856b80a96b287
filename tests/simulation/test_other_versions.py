"""Two servers that speak different versions to each other, as while servers are upgraded one after the other."""

from __future__ import annotations

import logging

import pytest

from pinlater.client import Ack, Job
from pinlater.domain.job import JobState
from pinlater.domain.slices import slice_of
from pinlater.server.cluster.forwarding import handshake, messages
from tests.simulation.test_owners import Scene, address_of

pytestmark = pytest.mark.usefixtures("collected")

_ANSWERED_WITHIN_S = 1.0
_hello = handshake.hello


def test_servers_of_different_versions_refuse_each_other_and_call_the_shards_themselves(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each refuses the other, since neither speaks the other's version."""
    monkeypatch.setattr(handshake, "hello", lambda address, lost=(): _hello(address, lost)._replace(versions=(98, 99)))
    caplog.set_level(logging.INFO, "pinlater")

    async def work(scene: Scene) -> None:
        [store] = scene.stores
        owner, asker = scene.cluster.servers
        queue = next(f"q{i}" for i in range(99) if store.owners.by_slice[slice_of(f"q{i}")] == address_of(owner))
        client = scene.client("client", asker)
        await scene.done(client, client.client.create_queue(queue))
        began_s = scene.timeline.now_s

        async def one_job() -> None:
            await client.client.enqueue(queue, [Job(b"x")])
            [claimed] = (await client.client.dequeue(queue, 1)).jobs
            await client.client.ack(queue, [Ack(claimed.descriptor, token=claimed.token)])

        await scene.done(client, one_job())
        assert scene.timeline.now_s - began_s < _ANSWERED_WITHIN_S
        assert not client.errors
        assert [row.job.state for row in store.jobs()] == [JobState.SUCCEEDED]
        for server in (owner, asker):
            assert server.app is not None
            assert server.app.cluster.forwarding is not None
            assert not server.app.cluster.forwarding.connections
        await scene.unchanged(30.0)  # by their heartbeats in the shard they know that both live

    Scene(2, 1).run(work)
    reasons = {record.__dict__["reason"] for record in caplog.records if "connection was closed" in record.message}
    assert reasons == {
        f"a server that speaks versions 98 to 99; this one speaks {messages.OLDEST_VERSION} to {messages.VERSION}"
    }
