"""What a server asks of a shard when a key may be on another one: it looks, and nothing changes."""

from __future__ import annotations

import pytest

from pinlater.domain.errors import RequestKeyConflict
from pinlater.domain.job import UniqueScope
from pinlater.server.storage.commands import (
    CancelJobs,
    CountTimedKeys,
    FindRequests,
    FindUnique,
    ListUniqueQueues,
    NoteMap,
    create_queues,
)
from pinlater.server.storage.values import Inserted, InsertRequest, RequestRef, TimedKeys, UniqueHeld, UniqueRef
from tests.contract.desk import QUEUE, Desk, unique

TWO_MINUTES_MS = 120_000


async def test_a_known_request_is_found_with_its_first_answer(desk: Desk) -> None:
    """A repeat may reach a server that would store the request on another shard now."""
    old = desk.job(priority=2, unique=unique("k"))
    await desk.insert(old)
    jobs = [desk.job(), desk.job(unique=unique("k"))]
    first = await desk.request(InsertRequest(QUEUE, jobs, request_key="r", fingerprint=b"f"))
    assert isinstance(first, Inserted)

    refs = [RequestRef(QUEUE, "other", b"f"), RequestRef(QUEUE, "r", b"f"), RequestRef("nowhere", "r", b"f")]
    nothing, found, no_queue = await desk.shard.submit(FindRequests(refs, desk.now))

    assert (nothing, no_queue) == (None, None)
    assert isinstance(found, Inserted)
    assert (list(found.ids), found.existing, found.repeated) == (list(first.ids), {1: (old.id, 2)}, True)
    assert (await desk.counts()).enqueued_total == 1


async def test_a_known_request_with_other_content_is_found_as_a_conflict(desk: Desk) -> None:
    await desk.request(InsertRequest(QUEUE, [desk.job()], request_key="r", fingerprint=b"f"))

    [found] = await desk.shard.submit(FindRequests([RequestRef(QUEUE, "r", b"other")], desk.now))

    assert isinstance(found, RequestKeyConflict)


async def test_a_request_is_not_found_after_its_two_minutes(desk: Desk) -> None:
    await desk.request(InsertRequest(QUEUE, [desk.job()], request_key="r", fingerprint=b"f"))
    ref = RequestRef(QUEUE, "r", b"f")
    desk.clock.advance(ms=TWO_MINUTES_MS - 1)
    assert await desk.shard.submit(FindRequests([ref], desk.now)) != [None]
    desk.clock.advance(ms=1_001)

    assert await desk.shard.submit(FindRequests([ref], desk.now)) == [None]


async def test_looking_for_nothing_finds_nothing(desk: Desk) -> None:
    assert list(await desk.shard.submit(FindRequests([], desk.now))) == []
    assert list(await desk.shard.submit(FindUnique([], desk.now))) == []


async def test_a_unique_key_is_found_in_many_queues_at_once(desk: Desk) -> None:
    """More than one statement takes, beside other keys and queues that do not exist."""
    names = [f"q{number}" for number in range(1_200)]
    await desk.shard.submit(create_queues(names, desk.now))
    holders = {name: desk.job(unique=unique("key")) for name in names[::400]}
    for name, job in holders.items():
        await desk.insert(job, desk.job(unique=unique("other")), queue=name)

    found = await desk.shard.submit(FindUnique([UniqueRef(name, "key") for name in [*names, "nowhere"]], desk.now))

    assert [holder and holder.job_id for holder in found] == [
        holders[name].id if name in holders else None for name in [*names, "nowhere"]
    ]


@pytest.mark.parametrize("scope", list(UniqueScope))
async def test_a_taken_unique_key_is_found_with_its_job(desk: Desk, scope: UniqueScope) -> None:
    job = desk.job(priority=3, unique=unique("k", scope, 5_000))
    await desk.insert(job)

    refs = [UniqueRef(QUEUE, "K"), UniqueRef(QUEUE, "k"), UniqueRef("nowhere", "k"), UniqueRef(QUEUE, "k")]

    assert list(await desk.shard.submit(FindUnique(refs, desk.now))) == [None, (job.id, 3), None, (job.id, 3)]


async def test_a_freed_unique_key_is_not_found(desk: Desk) -> None:
    scopes = {"p": UniqueScope.PENDING, "u": UniqueScope.UNFINISHED, "t": UniqueScope.TIME}
    jobs = {key: desk.job(unique=unique(key, scope, 5_000)) for key, scope in scopes.items()}
    await desk.insert(*jobs.values())
    refs = [UniqueRef(QUEUE, key) for key in scopes]

    async def found() -> list[bool]:
        return [answer is not None for answer in await desk.shard.submit(FindUnique(refs, desk.now))]

    claimed = await desk.claim(3)
    assert await found() == [False, True, True]
    for held in claimed:
        await desk.succeed(held.key)
    assert await found() == [False, False, True]
    desk.clock.advance(ms=5_000)
    assert await found() == [False, False, False]


async def test_queues_with_unique_keys_are_listed_with_their_oldest_job(desk: Desk) -> None:
    """A server learns from it which shards to ask after a change of the shard map."""
    await desk.shard.submit(create_queues(["other", "plain"], desk.now))
    assert list(await desk.shard.submit(ListUniqueQueues())) == []
    first, second, third = (desk.job(unique=unique(key)) for key in "abc")
    await desk.insert(desk.job(), second, first, desk.job())
    await desk.insert(third, queue="other")
    await desk.insert(desk.job(), queue="plain")

    assert list(await desk.shard.submit(ListUniqueQueues())) == [
        UniqueHeld(QUEUE, first.id),
        UniqueHeld("other", third.id),
    ]

    [held] = [held for held in await desk.claim(10) if held.job.id == first.id]
    await desk.succeed(held.key)
    assert (await desk.shard.submit(ListUniqueQueues()))[0] == UniqueHeld(QUEUE, second.id)


async def test_a_shard_remembers_since_when_the_shard_map_is_as_it_is(desk: Desk) -> None:
    """Also after a restart, where the store is durable."""
    start = desk.now
    assert await desk.shard.submit(NoteMap("1 2", start)) == start
    desk.clock.advance(seconds=5)
    assert await desk.shard.submit(NoteMap("1 2", desk.now)) == start
    changed = desk.now
    assert await desk.shard.submit(NoteMap("1 2 3", changed)) == changed
    desk.clock.advance(seconds=5)
    if desk.shard.capabilities.durable:
        await desk.reopen()
    assert await desk.shard.submit(NoteMap("1 2 3", desk.now)) == changed
    assert await desk.shard.submit(NoteMap("1 2", desk.now)) == desk.now


async def test_keys_that_time_alone_frees_are_counted_with_the_end_of_the_last(desk: Desk) -> None:
    """Removing a shard would forget these keys, though their jobs have ended."""
    assert await desk.shard.submit(CountTimedKeys(desk.now)) == TimedKeys()
    held = await desk.put(unique=unique("unfinished"))
    short = await desk.put(unique=unique("short", UniqueScope.TIME, 1_000))
    await desk.put(unique=unique("long", UniqueScope.TIME, 60_000))
    for key in (held, short):
        await desk.shard.submit(CancelJobs([key], desk.now))
    ends = desk.now + 60_000
    assert await desk.shard.submit(CountTimedKeys(desk.now)) == TimedKeys(2, ends)
    desk.clock.advance(ms=1_001)
    assert await desk.shard.submit(CountTimedKeys(desk.now)) == TimedKeys(1, ends)
    desk.clock.advance(ms=60_000)
    assert await desk.shard.submit(CountTimedKeys(desk.now)) == TimedKeys()
