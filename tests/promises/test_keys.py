"""Unique keys, ordering keys and request keys, alone and from many connections at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.promises.running_server import RunningServer
from tests.promises.test_queues import refused
from tests.promises.wire import Wire, ttypes

Connect = Callable[..., Awaitable[Wire]]


async def offer(wire: Wire, key: str, queue: str = "q", **more: object) -> tuple[str, bool]:
    """Enqueues one job with this unique key: its descriptor, and whether it was there already."""
    answer = await wire.enqueue_jobs(queue, [ttypes.PinLaterJob(uniqueKey=key, **{"body": b"x"} | more)])
    return answer.jobDescriptors[0], bool(answer.existing)


# --- unique keys --------------------------------------------------------------------------------------------------------
async def test_duplicates_in_one_batch_get_one_descriptor(here: Wire, running: RunningServer) -> None:
    jobs = [ttypes.PinLaterJob(body=b"a", uniqueKey=key) for key in ("k", "other", "k", "k")]
    answer = await here.enqueue_jobs("q", [*jobs, ttypes.PinLaterJob(body=b"plain")])
    names = answer.jobDescriptors
    assert names[0] == names[2] == names[3]
    assert (len(set(names)), answer.existing) == (3, [2, 3])
    assert running.core.metrics.queue("q").unique_existing == 2
    assert await here.count("q") == 3


async def test_sixty_four_connections_with_one_unique_key_make_one_job(
    connect: Connect, wire: Wire, queue: str
) -> None:
    wires = [await connect() for _ in range(64)]
    answers = await asyncio.gather(*(offer(each, "same", queue, body=b"%d" % n) for n, each in enumerate(wires)))
    assert len({descriptor for descriptor, _ in answers}) == 1
    assert [existed for _, existed in answers].count(False) == 1
    assert await wire.count(queue) == 1


async def test_a_key_taken_and_freed_by_many_at_once_is_never_held_twice(
    connect: Connect, wire: Wire, queue: str
) -> None:
    """While jobs are claimed and finished beside it, no two unfinished jobs share the key."""
    wires = [await connect() for _ in range(16)]

    async def produce_and_finish(one: Wire) -> set[str]:
        made = set()
        for _ in range(10):
            made.add((await offer(one, "same", queue))[0])
            for descriptor, token in await one.claim(queue):
                assert await one.ack(queue, descriptor, claimToken=token) == [0]
        return made

    await asyncio.gather(*(produce_and_finish(one) for one in wires))
    assert await wire.count(queue) + await wire.count(queue, 1) <= 1


# --- request keys -------------------------------------------------------------------------------------------------------
def batch(*bodies: bytes, **more: object) -> list[object]:
    return [ttypes.PinLaterJob(body=body, **more) for body in bodies]


async def test_a_resend_gets_the_first_answer_and_stores_nothing(here: Wire) -> None:
    first = await here.enqueue_jobs("q", batch(b"a", b"b"), requestKey="r")
    for repeat in (None, True, False):
        again = await here.enqueue_jobs("q", batch(b"a", b"b"), requestKey="r", repeated=repeat)
        assert again == first
    assert await here.count("q") == 2


@pytest.mark.parametrize(
    "other",
    [
        batch(b"b"),
        batch(b"a", b"a"),
        batch(),
        batch(b"a", priority=2),
        batch(b"a", headers={"x": "y"}),
        batch(b"a", customStatus="s"),
    ],
    ids=["body", "more", "fewer", "priority", "headers", "status"],
)
async def test_the_same_key_with_other_content_is_an_error(here: Wire, other: list[object]) -> None:
    await here.enqueue_jobs("q", batch(b"a"), requestKey="r")
    error = await refused(here.enqueue_jobs("q", other, requestKey="r"))
    assert (error.detail, error.retryable) == ("REQUEST_KEY_CONFLICT", False)
    assert await here.count("q") == 1


async def test_a_resend_after_a_conflict_or_a_refusal_is_a_first_request(here: Wire) -> None:
    await refused(here.enqueue_jobs("q", batch(b"a", priority=9), requestKey="r"))
    await here.enqueue_jobs("q", batch(b"a"), requestKey="r")
    assert await here.count("q") == 1


async def test_sixty_four_connections_with_one_request_key_store_it_once(
    connect: Connect, wire: Wire, queue: str
) -> None:
    """A repeat that arrives during the first waits for it: all get the first one's answer."""
    wires = [await connect() for _ in range(64)]
    calls = [
        each.enqueue_jobs(queue, batch(b"a", b"b", b"c"), requestKey="same", repeated=number > 0)
        for number, each in enumerate(wires)
    ]
    answers = await asyncio.gather(*calls)
    assert len({tuple(answer.jobDescriptors) for answer in answers}) == 1
    assert await wire.count(queue) == 3


async def test_a_caller_who_left_before_the_answer_finds_it_by_the_key(
    connect: Connect, wire: Wire, queue: str
) -> None:
    for number in range(10):
        gone = await connect()
        request = ttypes.PinLaterEnqueueRequest(queue, batch(b"%d" % number), requestKey=f"r{number}")
        gone.send("enqueueJobs", request=request)
        await gone.close()
        await wire.enqueue_jobs(queue, batch(b"%d" % number), requestKey=f"r{number}", repeated=True)
    assert await wire.count(queue) == 10


async def test_a_stopped_ordering_key_is_let_go_and_no_other(here: Wire) -> None:
    await here.configure("q", afterFailure="stop")
    await here.enqueue_jobs("q", [ttypes.PinLaterJob(body=key.encode(), orderingKey=key) for key in "abab"])
    for descriptor, _ in await here.claim("q"):
        await here.ack("q", failed=[descriptor], finalFailure=True)
    assert await here.claim("q") == []
    for key, let_go in (("c", 0), ("a", 1), ("a", 0)):
        assert await here.call("unblockKey", queueName="q", orderingKey=key) == let_go
    assert await here.bodies("q") == [b"a"]
