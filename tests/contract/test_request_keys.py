"""Request keys: an enqueue that is sent again stores nothing twice."""

from __future__ import annotations

import pytest

from pinlater.domain.errors import PinLaterError, QueueFull, RequestKeyConflict
from pinlater.server.storage.commands import DeleteJobs, InsertJobs, create_queues
from pinlater.server.storage.values import Inserted, InsertRequest
from tests.contract.desk import QUEUE, Desk, unique

TWO_MINUTES_MS = 120_000


def keyed(desk: Desk, *, key: str = "r", fingerprint: bytes = b"f", jobs: int = 2, queue: str = QUEUE) -> InsertRequest:
    return InsertRequest(queue, [desk.job() for _ in range(jobs)], request_key=key, fingerprint=fingerprint)


def stored(result: Inserted | PinLaterError) -> Inserted:
    assert isinstance(result, Inserted), result
    return result


async def test_a_resend_gets_the_first_answer_and_stores_nothing(desk: Desk) -> None:
    """After a lost answer the client asks again; the server has made new ids for it meanwhile."""
    first = stored(await desk.request(keyed(desk)))
    desk.clock.advance(ms=TWO_MINUTES_MS - 1)
    again = stored(await desk.request(keyed(desk)))

    assert list(again.ids) == list(first.ids)
    assert (first.repeated, again.repeated) == (False, True)
    assert (await desk.counts()).pending == 2
    assert (await desk.counts()).enqueued_total == 2


async def test_the_answer_is_the_same_though_the_jobs_have_gone(desk: Desk) -> None:
    first = stored(await desk.request(keyed(desk)))
    for held in await desk.claim(10):
        await desk.succeed(held.key)
        await desk.shard.submit(DeleteJobs([held.key]))

    assert list(stored(await desk.request(keyed(desk))).ids) == list(first.ids)
    assert await desk.claim(10) == []


async def test_the_same_key_with_other_content_is_an_error(desk: Desk) -> None:
    """One key was used for two requests by mistake: neither may be lost without an error."""
    await desk.request(keyed(desk))

    assert isinstance(await desk.request(keyed(desk, fingerprint=b"other")), RequestKeyConflict)
    assert (await desk.counts()).pending == 2


async def test_a_key_is_forgotten_after_its_time(desk: Desk) -> None:
    """Two minutes; then it is free for other content, swept or not."""
    first = stored(await desk.request(keyed(desk)))
    desk.clock.advance(ms=TWO_MINUTES_MS + 1000)

    again = stored(await desk.request(keyed(desk, fingerprint=b"other")))

    assert not again.repeated
    assert set(again.ids).isdisjoint(first.ids)
    assert (await desk.counts()).pending == 4


async def test_garbage_collection_takes_only_keys_past_their_time(desk: Desk) -> None:
    await desk.request(keyed(desk, key="old"))
    desk.clock.advance(ms=TWO_MINUTES_MS)
    await desk.request(keyed(desk, key="new"))
    desk.clock.advance(ms=1000)

    await desk.collect()

    assert stored(await desk.request(keyed(desk, key="new"))).repeated
    assert not stored(await desk.request(keyed(desk, key="old"))).repeated


async def test_keys_are_per_queue(desk: Desk) -> None:
    await desk.shard.submit(create_queues(["other"], desk.now))
    await desk.request(keyed(desk))

    assert not stored(await desk.request(keyed(desk, queue="other", fingerprint=b"other"))).repeated


async def test_a_refused_request_leaves_its_key_free(desk: Desk) -> None:
    refused = await desk.request(keyed(desk)._replace(max_backlog=1))
    assert isinstance(refused, QueueFull)

    assert not stored(await desk.request(keyed(desk))).repeated


async def test_a_resend_is_answered_though_the_queue_is_full_now(desk: Desk) -> None:
    await desk.request(keyed(desk))

    assert stored(await desk.request(keyed(desk)._replace(max_backlog=1))).repeated


async def test_a_resend_within_one_call_is_recognised(desk: Desk) -> None:
    """A repeat that arrives during the first may be in the same transaction."""
    results = await desk.shard.submit(InsertJobs([keyed(desk), keyed(desk), keyed(desk, fingerprint=b"x")], desk.now))

    assert list(stored(results[0]).ids) == list(stored(results[1]).ids)
    assert stored(results[1]).repeated
    assert isinstance(results[2], RequestKeyConflict)
    assert (await desk.counts()).pending == 2


async def test_the_first_answers_existing_jobs_are_said_again(desk: Desk) -> None:
    old = desk.job(priority=2, unique=unique("k"))
    await desk.insert(old)

    def request() -> InsertRequest:
        return InsertRequest(
            QUEUE,
            [desk.job(), desk.job(unique=unique("k")), desk.job(unique=unique("new")), desk.job(unique=unique("new"))],
            request_key="r",
            fingerprint=b"f",
        )

    first, again = stored(await desk.request(request())), stored(await desk.request(request()))

    assert first.existing == again.existing == {1: (old.id, 2), 3: (first.ids[2], 1)}
    assert list(first.ids) == list(again.ids)


@pytest.mark.differs("collation")
async def test_any_text_can_be_a_key(desk: Desk) -> None:
    for key in ("", "r" * 64, "☂ key\x00with anything", "'; --"):
        first = stored(await desk.request(keyed(desk, key=key, jobs=1)))
        again = stored(await desk.request(keyed(desk, key=key, jobs=1)))

        assert again.repeated
        assert list(first.ids) == list(again.ids)


async def test_a_keyed_request_without_jobs_is_known_too(desk: Desk) -> None:
    assert list(stored(await desk.request(keyed(desk, jobs=0))).ids) == []
    assert isinstance(await desk.request(keyed(desk, fingerprint=b"x")), RequestKeyConflict)
