"""Enqueue: all checks before anything is stored, and descriptors in order."""

from __future__ import annotations

import asyncio

import pytest

from pinlater.domain.descriptor import parse_descriptor
from pinlater.domain.errors import (
    BodyTooLarge,
    InvalidArgument,
    PriorityNotSupported,
    QueueFull,
    QueueNotFound,
    RequestKeyConflict,
    RequestTooOld,
)
from pinlater.domain.job import JobState, UniqueScope
from pinlater.domain.queue import QueueConfig
from pinlater.server.storage.commands import FindRequests
from pinlater.server.storage.values import Inserted, RequestRef
from pinlater.wire.generated.structs import CountRequest, EnqueueRequest, Job, LookupRequest
from tests.service.conftest import ServiceUnderTest

PENDING = CountRequest("q", JobState.PENDING)

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


async def test_descriptors_come_back_in_the_order_of_the_jobs(world: ServiceUnderTest) -> None:
    jobs = [Job(b"%d" % i, priority=1 + i % 3) for i in range(20)]
    enqueued = await world.service.enqueuing.enqueue(EnqueueRequest("q", jobs))
    assert [parse_descriptor(text).priority for text in enqueued.descriptors] == [job.priority for job in jobs]
    found = await world.service.job_queries.lookup(LookupRequest(enqueued.descriptors, True))
    assert [job.body for job in found.values()] == [job.body for job in jobs]


@pytest.mark.parametrize(
    ("job", "error"),
    [
        (Job(b"x", priority=0), PriorityNotSupported),
        (Job(b"x", priority=4), PriorityNotSupported),
        (Job(b"x", priority=-128), PriorityNotSupported),
        (Job(b"x" * 1001), BodyTooLarge),
        (Job(b"x", attempts_allowed=0), InvalidArgument),
        (Job(b"x", attempts_allowed=-(2**31)), InvalidArgument),
        (Job(b"x", headers={"k": "v" * 20_000}), InvalidArgument),
        (Job(b"x", unique_key="k", unique_scope=3), InvalidArgument),
        (Job(b"x", unique_key="k", unique_scope=UniqueScope.TIME), InvalidArgument),
        (Job(b"x", claim_timeout_ms=0), InvalidArgument),
        (Job(b"x", claim_timeout_ms=2**63 - 1), InvalidArgument),
    ],
)
async def test_one_bad_job_refuses_the_whole_enqueue(world: ServiceUnderTest, job: Job, error: type[Exception]) -> None:
    """The original stored half of such a request."""
    with pytest.raises(error):
        await world.service.enqueuing.enqueue(EnqueueRequest("q", [Job(b"good"), job]))
    assert await world.service.job_queries.count(PENDING) == 0


@pytest.mark.parametrize("attempts", [0, 2**31])
async def test_the_error_of_too_few_or_too_many_attempts_names_both_bounds(
    world: ServiceUnderTest, attempts: int
) -> None:
    with pytest.raises(InvalidArgument, match=f"must be from 1 to {2**31 - 1}, not {attempts}"):
        await world.service.enqueuing.enqueue(EnqueueRequest("q", [Job(b"x", attempts_allowed=attempts)]))


async def test_a_missing_queue_is_said_so(world: ServiceUnderTest) -> None:
    with pytest.raises(QueueNotFound):
        await world.enqueue(b"x", queue="nope")


async def test_no_jobs_is_no_error(world: ServiceUnderTest) -> None:
    assert not (await world.service.enqueuing.enqueue(EnqueueRequest("q", []))).descriptors


async def test_a_repeat_gets_the_first_answer_and_stores_nothing(world: ServiceUnderTest) -> None:
    jobs = [Job(b"a"), Job(b"b")]
    first, second = await asyncio.gather(
        world.service.enqueuing.enqueue(EnqueueRequest("q", jobs, request_key="k")),
        world.service.enqueuing.enqueue(EnqueueRequest("q", jobs, request_key="k", repeated=True)),
    )
    assert first.descriptors == second.descriptors
    assert await world.service.job_queries.count(PENDING) == 2


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


async def test_a_request_key_with_other_content_is_an_error(world: ServiceUnderTest) -> None:
    await world.service.enqueuing.enqueue(EnqueueRequest("q", [Job(b"a")], request_key="k"))
    with pytest.raises(RequestKeyConflict):
        await world.service.enqueuing.enqueue(EnqueueRequest("q", [Job(b"b")], request_key="k"))


async def test_duplicates_in_one_batch_get_one_descriptor(world: ServiceUnderTest) -> None:
    jobs = [Job(b"a", unique_key="k"), Job(b"b", priority=2, unique_key="k")]
    enqueued = await world.service.enqueuing.enqueue(EnqueueRequest("q", jobs))
    assert enqueued.descriptors[0] == enqueued.descriptors[1]
    assert enqueued.existing == [1]
    assert world.metrics.queue("q").unique_existing == 1


async def test_a_full_queue_says_what_would_help(world: ServiceUnderTest) -> None:
    await world.service.queues.configure_queue("q", QueueConfig(max_backlog=2))
    await world.enqueue(b"a", b"b")
    with pytest.raises(QueueFull, match="add workers, or raise max_backlog"):
        await world.enqueue(b"c")
    assert world.metrics.queue("q").enqueue_rejected == 1
    await world.dequeue(1)
    await world.enqueue(b"c")


async def test_the_queues_defaults_hold_where_a_job_says_nothing(world: ServiceUnderTest) -> None:
    await world.service.queues.configure_queue("q", QueueConfig(default_attempts=7, default_expiry_ms=1000))
    descriptors = await world.enqueue(b"a")
    descriptors += await world.enqueue(b"b", attempts_allowed=3)
    jobs = list((await world.service.job_queries.lookup(LookupRequest(descriptors))).values())
    assert [job.attempts_allowed for job in jobs] == [7, 3]
    world.clock.advance(seconds=2)
    assert not (await world.dequeue()).jobs


async def test_future_jobs_are_not_handed_out_before_their_time(world: ServiceUnderTest) -> None:
    await world.enqueue(b"later", run_after_ms=world.clock.now_ms() + 1000)
    assert not (await world.dequeue()).jobs
    world.clock.advance(seconds=1)
    assert len((await world.dequeue()).jobs) == 1


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
