"""Queues: made, deleted, configured."""

from __future__ import annotations

import pytest

from pinlater.domain.errors import QueueNotFound
from pinlater.domain.job import JobState, Outcome
from pinlater.domain.queue import Queue, QueueConfig, Versions
from pinlater.server.storage.commands import (
    ConfigureQueue,
    CountJobs,
    DeleteJobs,
    DeleteQueues,
    ExpireJobs,
    ListQueues,
    LookupJobs,
    MergeQueues,
    TimeOutClaims,
    create_queues,
)
from pinlater.server.storage.values import Inserted, InsertRequest
from tests.contract.desk import ALL, QUEUE, Desk, unique

CONFIG = QueueConfig(
    max_jobs_per_second=0.1,
    claim_timeout_ms=1,
    succeeded_ttl_ms=2,
    failed_ttl_ms=3,
    max_backlog=4,
    default_attempts=5,
    default_expiry_ms=6,
)


async def test_queues_are_listed_by_name(desk: Desk) -> None:
    await desk.shard.submit(create_queues(["zeta", "Alpha", "alpha"], desk.now))

    queues = await desk.shard.submit(ListQueues())

    assert [queue.name for queue in queues] == sorted(["zeta", "Alpha", "alpha", QUEUE])
    assert {queue.config for queue in queues} == {QueueConfig()}
    assert {queue.paused for queue in queues} == {False}


@pytest.mark.differs("collation")
async def test_names_are_case_sensitive(desk: Desk) -> None:
    await desk.shard.submit(create_queues(["Emails"], desk.now))
    await desk.put(queue="Emails")

    assert await desk.claim(queue=QUEUE) == []
    assert len(await desk.claim(queue="Emails")) == 1


@pytest.mark.differs("collation")
async def test_all_legal_names_work(desk: Desk) -> None:
    for name in ("a", "_", "0", "q" * 50, "Q_9" * 16):
        await desk.shard.submit(create_queues([name], desk.now))
        key = await desk.put(queue=name)

        held = await desk.take(queue=name)
        assert held.key == key
        await desk.succeed(key)
        assert (await desk.look(key)).descriptor == key.on(desk.shard.name)


async def test_making_queues_answers_with_all_of_them_as_they_are(desk: Desk) -> None:
    """So a server knows a queue that it made, or that was there, without reading the list of all."""
    await desk.shard.submit(ConfigureQueue(QUEUE, config=CONFIG, paused=True))

    made = await desk.shard.submit(create_queues(["new", QUEUE, "newer"], desk.now))

    assert list(made) == [Queue("new"), Queue(QUEUE, CONFIG, paused=True), Queue("newer")]
    assert set(made) == set(await desk.shard.submit(ListQueues()))


async def test_a_queue_that_exists_stays_as_it_is(desk: Desk) -> None:
    key = await desk.put()
    await desk.shard.submit(ConfigureQueue(QUEUE, config=CONFIG, paused=True))

    await desk.shard.submit(create_queues([QUEUE, "new", QUEUE], desk.now))

    queues = {queue.name: queue for queue in await desk.shard.submit(ListQueues())}
    assert set(queues) == {QUEUE, "new"}
    assert (queues[QUEUE].config, queues[QUEUE].paused) == (CONFIG, True)
    assert await desk.find(key) is not None


async def test_who_paused_a_queue_is_kept_until_it_goes_on(desk: Desk) -> None:
    await desk.shard.submit(ConfigureQueue(QUEUE, paused=True, version="0000000000003.1", by="ops@desk"))
    await desk.shard.submit(ConfigureQueue(QUEUE, paused=True, version="0000000000002.1", by="late"))
    await desk.shard.submit(ConfigureQueue(QUEUE, config=CONFIG, version="0000000000004.1"))
    [queue] = await desk.shard.submit(ListQueues())
    assert (queue.paused_by, queue.paused_at_ms) == ("ops@desk", 3)

    other = queue._replace(name="other")
    await desk.shard.submit(MergeQueues([Queue("other")], desk.now))
    await desk.shard.submit(MergeQueues([other], desk.now))
    assert {found.name: found.paused_by for found in await desk.shard.submit(ListQueues())}["other"] == "ops@desk"

    await desk.shard.submit(ConfigureQueue(QUEUE, paused=False, version="0000000000005.1", by="ops@desk"))
    found = {queue.name: queue for queue in await desk.shard.submit(ListQueues())}[QUEUE]
    assert (found.paused_by, found.paused_at_ms) == ("", None)


async def test_the_newest_automatic_number_of_partitions_is_kept_and_the_settings_beside_it(desk: Desk) -> None:
    await desk.shard.submit(ConfigureQueue(QUEUE, config=CONFIG, version="0000000000009.1"))
    [before] = await desk.shard.submit(ListQueues())
    for version, number, kept in (("4.1", 2, 2), ("3.1", 8, 2), ("5.1", 4, 4), ("5.1", 1, 4)):
        given = Queue(QUEUE, life=before.life).changed(None, None, f"000000000000{version}", auto_partitions=number)
        [answer] = await desk.shard.submit(MergeQueues([given], desk.now))
        [queue] = await desk.shard.submit(ListQueues())
        assert queue == answer
        assert (queue.config, queue.auto_partitions) == (CONFIG, kept)
    await desk.shard.submit(ConfigureQueue(QUEUE, config=CONFIG._replace(partitions=3), version="0000000000010.1"))
    await desk.shard.submit(ConfigureQueue(QUEUE, paused=True, version="0000000000011.1"))
    [queue] = await desk.shard.submit(ListQueues())
    assert (queue.config.partitions, queue.auto_partitions, queue.paused) == (3, 4, True)


async def test_settings_and_the_pause_switch_are_kept_apart(desk: Desk) -> None:
    await desk.shard.submit(ConfigureQueue(QUEUE, paused=True))
    await desk.shard.submit(ConfigureQueue(QUEUE, config=CONFIG))
    [queue] = await desk.shard.submit(ListQueues())
    assert (queue.config, queue.paused) == (CONFIG, True)

    await desk.shard.submit(ConfigureQueue(QUEUE, paused=False))
    await desk.shard.submit(ConfigureQueue(QUEUE))
    [queue] = await desk.shard.submit(ListQueues())
    assert (queue.config, queue.paused) == (CONFIG, False)


async def test_new_settings_replace_the_old_ones_whole(desk: Desk) -> None:
    """None means the server's default again; zero does not."""
    await desk.shard.submit(ConfigureQueue(QUEUE, config=CONFIG))
    await desk.shard.submit(ConfigureQueue(QUEUE, config=QueueConfig(max_jobs_per_second=0.0, max_backlog=0)))

    [queue] = await desk.shard.submit(ListQueues())
    assert queue.config == QueueConfig(max_jobs_per_second=0.0, max_backlog=0)


@pytest.mark.differs("ON DUPLICATE KEY UPDATE")
async def test_only_a_later_change_replaces_settings_and_each_counts_for_itself(desk: Desk) -> None:
    """Changes may reach a shard late and in any order: from servers that work at once, or that bring it up to date."""
    later = QueueConfig(max_backlog=2)
    await desk.shard.submit(ConfigureQueue(QUEUE, config=later, version="2"))
    await desk.shard.submit(ConfigureQueue(QUEUE, paused=True, version="3"))
    await desk.shard.submit(ConfigureQueue(QUEUE, config=CONFIG, paused=False, version="2"))
    await desk.shard.submit(ConfigureQueue(QUEUE, config=CONFIG, paused=False, version="1"))

    [queue] = await desk.shard.submit(ListQueues())
    assert queue == Queue(QUEUE, later, True, Versions("2", "3"))

    await desk.shard.submit(ConfigureQueue(QUEUE, config=CONFIG, paused=False, version="4"))
    await desk.shard.submit(create_queues([QUEUE], desk.now))
    [queue] = await desk.shard.submit(ListQueues())
    assert queue == Queue(QUEUE, CONFIG, False, Versions("4", "4"))

    await desk.shard.submit(ConfigureQueue(QUEUE, config=later))
    [queue] = await desk.shard.submit(ListQueues())
    assert queue == Queue(QUEUE, later, False, Versions("", "4"))


async def test_a_missing_queue_can_not_be_configured(desk: Desk) -> None:
    with pytest.raises(QueueNotFound):
        await desk.shard.submit(ConfigureQueue("missing", paused=True))
    with pytest.raises(QueueNotFound):
        await desk.shard.submit(ConfigureQueue("missing", config=CONFIG))


async def test_a_deleted_queue_is_gone_at_once_with_all_its_jobs(desk: Desk) -> None:
    """For every caller, though its rows are deleted later."""
    keys = [await desk.put_in(state) for state in list(JobState)[::-1]]

    await desk.shard.submit(DeleteQueues([QUEUE, "missing"]))

    assert list(await desk.shard.submit(ListQueues())) == []
    assert list(await desk.shard.submit(LookupJobs(keys, bodies=True))) == [None] * 4
    assert isinstance(await desk.request(InsertRequest(QUEUE, [desk.job()])), QueueNotFound)
    assert list(await desk.shard.submit(CountJobs())) == []


async def test_a_claim_on_a_deleted_queues_job_is_not_found(desk: Desk) -> None:
    held = await desk.put_and_take()
    await desk.shard.submit(DeleteQueues([QUEUE]))

    assert (await desk.succeed(held.key)).outcome is Outcome.NOT_FOUND
    assert (await desk.heartbeat(held.ref)).outcome is Outcome.NOT_FOUND
    assert (await desk.release(held.ref)).outcome is Outcome.NOT_FOUND
    assert (await desk.cancel(held.key)).outcome is Outcome.NOT_FOUND
    assert await desk.shard.submit(DeleteJobs([held.key])) == 0


async def test_a_queue_made_again_under_an_old_name_is_empty(desk: Desk) -> None:
    keys = [await desk.put_in(state) for state in list(JobState)[::-1]]
    keys.append(await desk.put(unique=unique("k"), expires_in_ms=5))
    await desk.shard.submit(ConfigureQueue(QUEUE, config=CONFIG, paused=True))
    held = await desk.claim(1)
    await desk.shard.submit(DeleteQueues([QUEUE]))
    await desk.shard.submit(create_queues([QUEUE], desk.now))

    for _ in range(3):
        [queue] = await desk.shard.submit(ListQueues())
        assert (queue.config, queue.paused) == (QueueConfig(), False)
        assert await desk.claim(10) == []
        assert list(await desk.shard.submit(LookupJobs(keys, bodies=False))) == [None] * 5
        assert (await desk.succeed(held[0].key)).outcome is Outcome.NOT_FOUND
        counts = await desk.counts()
        assert (counts.pending, counts.in_progress, counts.succeeded, counts.failed) == (0, 0, 0, 0)
        assert (counts.enqueued_total, counts.claimed_total) == (0, 0)
        desk.clock.advance(hours=1000)
        assert list(await desk.shard.submit(TimeOutClaims(desk.now, ALL))) == []
        assert list(await desk.shard.submit(ExpireJobs(desk.now, ALL))) == []
        await desk.collect(limit=2)


async def test_an_old_queues_keys_do_not_bind_a_new_one(desk: Desk) -> None:
    first = desk.job(unique=unique("k"))
    await desk.request(InsertRequest(QUEUE, [first], request_key="r", fingerprint=b"f"))
    await desk.shard.submit(DeleteQueues([QUEUE]))
    await desk.shard.submit(create_queues([QUEUE], desk.now))

    second = desk.job(unique=unique("k"))
    result = await desk.request(InsertRequest(QUEUE, [second], request_key="r", fingerprint=b"other"))

    assert isinstance(result, Inserted)
    assert (list(result.ids), result.existing, result.repeated) == ([second.id], {}, False)
    await desk.collect()
    assert [held.job.id for held in await desk.claim(10)] == [second.id]


@pytest.mark.differs("SKIP LOCKED, and SRANDMEMBER in a script")
async def test_garbage_of_a_deleted_queue_never_touches_a_new_one(desk: Desk) -> None:
    """The old rows are deleted while the new queue works."""
    await desk.insert(*[desk.job() for _ in range(50)])
    await desk.shard.submit(DeleteQueues([QUEUE]))
    await desk.shard.submit(create_queues([QUEUE], desk.now))
    new = [await desk.put() for _ in range(5)]

    for _ in range(20):
        await desk.collect(limit=7)

    assert [held.key for held in await desk.claim(100)] == new
    await desk.assert_counters_exact()


async def test_the_shard_says_that_it_can_serve(desk: Desk) -> None:
    await desk.shard.ping()


async def test_a_shard_can_be_closed_twice(desk: Desk) -> None:
    await desk.shard.close()
    await desk.shard.close()


async def test_a_new_shard_gives_a_slot_for_ids(desk: Desk) -> None:
    """The slot is part of every id that this server makes."""
    assert 0 <= desk.shard.slot < 1024
    assert desk.shard.highest_id == 0
