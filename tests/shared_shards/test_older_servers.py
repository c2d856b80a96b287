"""No server of the version before ordering keys uses a shard that has jobs with them: it would let no next job of a key go."""

from __future__ import annotations

import pytest

from pinlater.domain.errors import EnqueueRejected, SchemaRefused, ShardConnectionFailed, ShardRefused
from pinlater.domain.queue import Home, Life, Queue
from pinlater.server.storage.commands import InsertJobs, ListMembers, ListQueues, MergeQueues, MoveHome, create_queues
from pinlater.server.storage.values import Inserted, InsertRequest
from tests.contract.desk import QUEUE, Desk
from tests.shared_shards.conftest import AnyDatabase
from tests.shared_shards.proxied_database import stats_of


async def beside_older(database: AnyDatabase) -> tuple[Desk, Desk]:
    """A server, and one of the version before on the same shard, which takes the queue's jobs with ordering keys."""
    desk, older = await database.desk(), await database.desk(direct=True)
    await desk.shard.submit(MergeQueues([Queue(QUEUE, home=Home(desk.shard.name, 1))], desk.now))
    await database.make_older(older.shard.slot)
    return desk, older


def ordered(desk: Desk) -> InsertRequest:
    return InsertRequest(QUEUE, [desk.job(ordering_key="a")])


async def test_jobs_with_ordering_keys_are_refused_while_an_older_server_uses_the_shard_which_is_named(
    database: AnyDatabase,
) -> None:
    """The other requests of the call are stored."""
    desk, older = await beside_older(database)
    plain = InsertRequest(QUEUE, [desk.job(b"plain")])
    before = await database.schema()
    first, other, second = await desk.shard.submit(InsertJobs([ordered(desk), plain, ordered(desk)], desk.now))
    assert isinstance(other, Inserted)
    assert isinstance(first, EnqueueRejected)
    assert isinstance(second, EnqueueRejected)
    [_, member] = await desk.shared.submit(ListMembers())
    assert f"servers of the version before use this shard ({member.name})" in str(first)
    assert await database.schema() == before
    assert [held.job.body for held in await desk.claim(5)] == [b"plain"]

    await older.shard.close()
    assert isinstance(await desk.request(ordered(desk)), Inserted)


async def test_no_shard_becomes_the_home_of_jobs_with_ordering_keys_while_an_older_server_uses_it(
    database: AnyDatabase,
) -> None:
    """It would drop what it does not know with the next change of the settings."""
    desk, older = await beside_older(database)
    [_, member] = await desk.shared.submit(ListMembers())
    move = MoveHome(QUEUE, Home(desk.shard.name, 1), Home("2", 2, desk.shard.name))
    refusal = await desk.shard.submit(move)
    assert isinstance(refusal, EnqueueRejected)
    assert member.name in str(refusal)
    await older.shard.close()
    assert await desk.shard.submit(move) == move.home


async def test_no_ordered_queue_is_made_while_an_older_server_uses_the_shard_which_then_refuses_it(
    database: AnyDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, older = await beside_older(database)
    creation = create_queues(["bookings"], desk.now, Life(1), asks_order=True)
    [_, member] = await desk.shared.submit(ListMembers())
    with pytest.raises(ShardRefused, match=rf"servers of the version before use this shard \({member.name}\)"):
        await desk.shard.submit(creation)
    assert [queue.name for queue in await desk.shard.submit(ListQueues())] == [QUEUE]
    await older.shard.close()
    await desk.shard.submit(creation)
    database.become_older(monkeypatch)
    with pytest.raises(SchemaRefused):
        await database.open(direct=True)


async def test_a_server_of_the_version_before_that_starts_after_the_first_job_with_an_ordering_key_refuses_the_shard(
    database: AnyDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs on the schema of a shard without such jobs."""
    desk = await database.desk()
    await database.make_older(desk.shard.slot)
    with monkeypatch.context() as older:
        database.become_older(older)
        await (await database.open(direct=True)).close()
    await desk.shard.close()
    desk = await database.desk()
    await desk.become_home()
    assert isinstance(await desk.request(ordered(desk)), Inserted)
    with monkeypatch.context() as older:
        database.become_older(older)
        with pytest.raises(SchemaRefused, match=f"has schema {await database.schema()}; this version of pinlater is"):
            await database.open(direct=True)
    await database.open(direct=True)


async def test_an_older_server_that_was_suspended_past_its_lease_changes_nothing_any_more(
    database: AnyDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its slot is taken away, and it gets no other one."""
    desk, older = await beside_older(database)
    await database.expire_leases()
    await desk.shard.ping()
    assert isinstance(await desk.request(ordered(desk)), Inserted)
    database.become_older(monkeypatch)
    with pytest.raises((ShardConnectionFailed, SchemaRefused)):
        await older.put()
    assert stats_of(older).slots_lost == 1
    [member] = await desk.shared.submit(ListMembers())
    assert member.slot == desk.shard.slot


async def test_a_server_looks_for_older_ones_once(database: AnyDatabase) -> None:
    desk = await database.desk()
    await desk.become_home()
    assert isinstance(await desk.request(ordered(desk)), Inserted)
    await database.make_older(desk.shard.slot)
    before = await database.schema()
    assert isinstance(await desk.request(ordered(desk)), Inserted)
    assert await database.schema() == before
