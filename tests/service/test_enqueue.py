"""Enqueue: all checks before anything is stored, and descriptors in order."""

from __future__ import annotations

import pytest

from pinlater.domain.errors import (
    RequestKeyConflict,
    RequestTooOld,
)
from pinlater.server.storage.commands import FindRequests
from pinlater.server.storage.values import Inserted, RequestRef
from pinlater.wire.generated.structs import EnqueueRequest, Job
from tests.service.conftest import ServiceUnderTest

STATED = (
    "priority",
    "run_after_ms",
    "attempts_allowed",
    "custom_status",
    "headers",
    "unique_key",
    "claim_timeout_ms",
    "expires_at_ms",
    "ordering_key",
)


@pytest.mark.parametrize(
    "other",
    [
        Job(b"a", priority=2),
        Job(b"a", run_after_ms=1),
        Job(b"a", attempts_allowed=7),
        Job(b"a", custom_status="s"),
        Job(b"a", headers={"name": "value"}),
        Job(b"a", unique_key="k"),
        Job(b"a", claim_timeout_ms=5_000),
        Job(b"a", expires_at_ms=2**50),
        Job(b"a", ordering_key="k"),
    ],
    ids=lambda job: next(name for name in STATED if getattr(job, name) != getattr(Job(b"a"), name)),
)
async def test_each_field_of_a_job_tells_two_requests_with_one_key_apart(world: ServiceUnderTest, other: Job) -> None:
    await world.service.enqueuing.enqueue(EnqueueRequest("q", [other], request_key="k"))
    with pytest.raises(RequestKeyConflict):
        await world.service.enqueuing.enqueue(EnqueueRequest("q", [Job(b"a")], request_key="k"))


def test_every_field_of_a_job_is_tried_as_the_one_difference() -> None:
    """A unique key's scope and time are nothing without the key."""
    fields = set(Job.__struct_fields__) - {"body", "unique_scope", "unique_for_ms"}
    assert fields == set(STATED)


async def test_a_request_has_the_fingerprint_that_servers_of_other_versions_compute(world: ServiceUnderTest) -> None:
    """While servers are upgraded, a client that asks again may reach one of either version."""
    jobs = [
        Job(b"a"),
        Job(b"b", 2, 5, 3, "s"),
        Job(b"c", headers={"b": "2", "a": "1", "traceparent": "t"}),
        Job(b"d", unique_key="k", unique_scope=2, unique_for_ms=9, claim_timeout_ms=5, expires_at_ms=7),
    ]
    await world.service.enqueuing.enqueue(EnqueueRequest("q", jobs, request_key="k"))
    [shard] = world.service.shards
    request = RequestRef("q", "k", bytes.fromhex("08aaa2fdb4d5d1def1f50f5c0104ba82"))
    [answer] = await shard.store.submit(FindRequests([request], world.clock.now_ms()))
    assert isinstance(answer, Inserted)
    assert answer.repeated


async def test_a_request_with_a_key_is_begun_within_its_time_since_it_arrived(world: ServiceUnderTest) -> None:
    """Or never, on every store. Without a key no repeat is recognised, so that its age does not matter."""
    enqueue, arrived_s = world.service.enqueuing.enqueue, world.clock.monotonic()
    for _ in range(2):
        world.clock.advance(seconds=10)
        world.standstill.runs(world.clock.monotonic())
    await enqueue(EnqueueRequest("q", [Job(b"in time")], "one"), arrived_s)
    world.clock.advance(ms=2)
    with pytest.raises(RequestTooOld):
        await enqueue(EnqueueRequest("q", [Job(b"late")], "two"), arrived_s)
    await enqueue(EnqueueRequest("q", [Job(b"late without a key")]), arrived_s)
    await enqueue(EnqueueRequest("q", [Job(b"from a clock ahead")], "three"), arrived_s + 60)
    assert [one.job.body for one in (await world.dequeue()).jobs] == [
        b"in time",
        b"late without a key",
        b"from a clock ahead",
    ]
