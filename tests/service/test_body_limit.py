"""How long a body may be where shards hold less than the settings say: one limit for all, told to the caller, the client and the log."""

from __future__ import annotations

import logging
from random import Random

import pytest

from pinlater.domain.clock import ManualClock
from pinlater.domain.errors import BodyTooLarge, PinLaterError
from pinlater.server.features.status.status import Status
from pinlater.server.operations.body_limit import BodyLimit
from pinlater.server.sharding.shards import ShardLanes, Shards
from pinlater.server.storage.sqlite.memory import MemoryShard
from pinlater.wire.generated.structs import Checkpoint, CheckpointBatch, EnqueueRequest, Job
from tests.service.conftest import CALLER, ServiceUnderTest
from tests.sharding.faulty import FaultyShard

LOGGER = "pinlater.server.operations.body_limit"


def shards_of(**most: int) -> tuple[Shards, dict[str, FaultyShard]]:
    clock = ManualClock()
    stores = {name: FaultyShard(MemoryShard(name)) for name in most}
    for name, store in stores.items():
        store.capabilities = store.capabilities._replace(body_bytes_max=most[name], body_bytes_bound="its cupboard")
    return Shards([ShardLanes(store.as_shard(), clock) for store in stores.values()], Random(1)), stores


def test_the_settings_bound_holds_where_every_shard_takes_as_much(caplog: pytest.LogCaptureFixture) -> None:
    shards, _ = shards_of(a=1_000, b=2_000)
    limit = BodyLimit(shards, 1_000)
    assert (limit.bytes, limit.bound_by) == (1_000, "setting jobs.max_body_bytes")
    assert not caplog.records


def test_the_least_of_the_shards_that_take_enqueues_holds_for_all(caplog: pytest.LogCaptureFixture) -> None:
    """A random shard gets a job: with a limit for each it would be chance whether it is taken."""
    shards, stores = shards_of(a=800, b=500, c=900)
    limit = BodyLimit(shards, 1_000)
    assert (limit.bytes, limit.bound_by) == (500, "shard b: its cupboard")
    [warning] = caplog.records
    assert warning.levelname == "WARNING"
    assert (warning.__dict__["limit_bytes"], warning.__dict__["bound_by"]) == (500, limit.bound_by)

    limit.look()  # nothing new, nothing said
    assert len(caplog.records) == 1

    b = shards.get("b")
    assert b is not None
    shards.change_enqueues(b, takes=False)
    limit.look()
    assert (limit.bytes, limit.bound_by) == (800, "shard a: its cupboard")
    assert len(caplog.records) == 2

    caplog.set_level(logging.INFO, LOGGER)
    for store in stores.values():
        store.capabilities = store.capabilities._replace(body_bytes_max=5_000)
    limit.look()
    assert (limit.bytes, limit.bound_by) == (1_000, "setting jobs.max_body_bytes")
    assert caplog.records[-1].levelname == "INFO"


async def test_longer_bodies_are_refused_before_anything_is_stored(
    world: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the number that holds, and its cause; a client that asks is told the same number."""
    [shard] = world.service.shards
    less = shard.unguarded.capabilities._replace(body_bytes_max=100, body_bytes_bound="its cupboard")
    monkeypatch.setattr(shard.unguarded, "capabilities", less)
    world.service.body_limit.look()
    with pytest.raises(BodyTooLarge, match=r"at most 100 \(shard 1: its cupboard\)"):
        await world.service.enqueuing.enqueue(EnqueueRequest("q", [Job(b"short"), Job(b"x" * 101)]))
    assert (await world.dequeue()).jobs == []
    await world.enqueue(b"x" * 100)
    [job] = (await world.dequeue()).jobs
    item = Checkpoint(job.descriptor, token=job.token, new_body=b"y" * 101)
    with pytest.raises(PinLaterError, match=r"at most 100 \(shard 1: its cupboard\)") as refused:
        await world.service.claimed_jobs.checkpoint(CALLER, CheckpointBatch("q", [item]))
    assert refused.value.detail == "BODY_TOO_LARGE"
    assert (await world.service.of(Status).server_info()).max_body_bytes == 100
