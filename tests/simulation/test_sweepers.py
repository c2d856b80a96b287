"""Which server sweeps a shard: one of them, the others now and then, and another one soon after it is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from pinlater.client import Job
from pinlater.domain.job import JobState
from pinlater.server.maintenance.settings import MaintenanceSettings
from pinlater.server.storage.commands import AdvanceDue, CollectGarbage, ExpireJobs, TimeOutClaims
from pinlater.simulation.loop import ProcessLoop
from pinlater.simulation.store_calls import CallKind
from pinlater.simulation.store_session import Session
from tests.commands import everywhere
from tests.simulation.test_owners import MOVED_WITHIN_S, Scene, address_of

pytestmark = pytest.mark.usefixtures("collected")

EVERY_MS = MaintenanceSettings()
# Sweeps, each with its interval, and the place of the number of rows among its arguments.
SWEEPS: dict[CallKind, tuple[int, int]] = {
    TimeOutClaims: (EVERY_MS.sweep_interval_ms, 1),
    ExpireJobs: (EVERY_MS.expiry_interval_ms, 1),
    AdvanceDue: (EVERY_MS.due_interval_ms, 1),
    CollectGarbage: (EVERY_MS.garbage_interval_ms, 2),
}
# A shard is left to its sweeper for this number of turns; then another server sweeps it at its next turn.
LEFT_TURNS = 30


def sweeps_of(kind: CallKind, monkeypatch: pytest.MonkeyPatch) -> dict[str, Counter[str]]:
    """How often which server sweeps a shard from now on, by shard. A call that may touch no row is no sweep."""
    swept: dict[str, Counter[str]] = {}
    plain, (_, place) = Session.table[kind], SWEEPS[kind]

    async def sweep(self: Session, *args: Any) -> Any:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ProcessLoop)
        if args[place]:
            swept.setdefault(self.store.name, Counter())[loop.host] += 1
        return await plain(self, *args)

    everywhere(monkeypatch, Session, kind, sweep)
    return swept


@pytest.mark.parametrize("kind", SWEEPS)
def test_each_shard_is_swept_by_one_server_and_now_and_then_by_the_others(
    kind: CallKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    every_s = SWEEPS[kind][0] / 1000

    async def work(scene: Scene) -> None:
        await asyncio.sleep(40.0)
        swept = sweeps_of(kind, monkeypatch)
        await asyncio.sleep(2 * LEFT_TURNS * every_s)
        for store in scene.stores:
            (sweeper, most), *others = swept[store.name].most_common()
            first_owner = next(s for s in scene.cluster.servers if address_of(s) == store.owners.by_slice[0])
            assert sweeper == first_owner.name
            assert most >= 2 * LEFT_TURNS * 0.8
            assert len(others) == 2
            assert all(1 <= count <= 2 for _, count in others)

    Scene(3, 2).run(work)


@pytest.mark.parametrize("how", ["killed, told", "killed, untold", "paused", "cut off from the shard"])
def test_claims_of_a_shard_whose_sweeper_is_gone_go_back_soon(how: str) -> None:
    async def work(scene: Scene) -> None:
        store = scene.stores[0]
        sweeper = next(s for s in scene.cluster.servers if address_of(s) == store.owners.by_slice[0])
        other = next(s for s in scene.cluster.servers if s is not sweeper)
        client = scene.client("client", other)
        await scene.done(client, client.client.create_queue("q"))
        for _ in range(8):  # on both shards
            await scene.done(client, client.client.enqueue("q", [Job(b"x", claim_timeout_ms=1_000)]))
        await scene.done(client, client.client.dequeue("q", 8))
        assert store.jobs()
        assert all(row.job.state is JobState.IN_PROGRESS for row in store.jobs())
        if how == "paused":
            assert sweeper.loop is not None
            sweeper.loop.pause()
        elif how.startswith("killed"):
            sweeper.stays_down = True
            sweeper.kill(told=how == "killed, told")
        else:
            store.gone_for.add(sweeper.name)
        await asyncio.sleep(1.0 + MOVED_WITHIN_S)
        assert all(row.job.state is JobState.PENDING for row in store.jobs())

    Scene(3, 2).run(work)
