"""A server that changes a queue and does not say so, which no version of the servers does."""

from __future__ import annotations

import pytest

from pinlater.server.cluster.forwarding.peer_connection import PeerConnection
from tests.simulation.test_calm import all_paused, is_paused_at, quiet
from tests.simulation.test_owners import Scene

pytestmark = pytest.mark.usefixtures("collected")


def test_a_changed_queue_is_seen_though_no_message_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(scene: Scene) -> None:
        await quiet(scene)
        monkeypatch.setattr(PeerConnection, "_runs", _runs_without_queue_changes)
        client = scene.client("client2", scene.cluster.servers[1])
        await scene.done(client, client.client.pause_queue("q3"))
        assert not is_paused_at(scene.cluster.servers[0], "q3")
        await all_paused(scene, "q3", 40.0)

    Scene(3, 2).run(work)


_runs = PeerConnection._runs


def _runs_without_queue_changes(self: PeerConnection, told: object) -> None:
    assert self.told is not None
    _runs(self, told._replace(queue_changes=self.told.queue_changes))  # type: ignore[attr-defined]
