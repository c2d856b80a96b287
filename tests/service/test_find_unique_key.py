"""The jobs that hold a unique key, by an index: few statements, whatever else is there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pinlater.domain.clock import ManualClock
from pinlater.domain.errors import QueueNotFound
from pinlater.domain.job import JobState, UniqueScope
from pinlater.server.operations.job_queries import HOLDERS_MAX
from pinlater.server.storage.commands import FindUnique, LookupJobs
from pinlater.server.storage.sqlite.memory import MemoryShard
from pinlater.server.storage.sqlite.settings import SqliteSettings
from pinlater.server.storage.sqlite.shard import SqliteShard
from pinlater.server.storage.values import JobKey, KeyHolder, UniqueRef
from pinlater.wire.generated.structs import ChangePriorityRequest, EnqueueRequest, Job, JobInfo
from tests.assembly import open_core
from tests.commands import everywhere, instead
from tests.service.conftest import ServiceUnderTest
from tests.sharding.sharded_server import ShardedServer, on_shards
from tests.statements import noted_statements

JOBS = 3_000
KEY = "key"


async def holders_of(world: ServiceUnderTest, *queues: str, key: str = "key") -> list[str]:
    found = await world.service.job_queries.find_unique_key(queues, key)
    assert not found.incomplete
    return [job.descriptor for job in found.jobs]


async def test_one_key_among_thousands_of_jobs_costs_two_statements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look into the index, and one at the job."""
    statements = noted_statements(monkeypatch)
    core = await open_core(SqliteShard(tmp_path / "jobs.db", SqliteSettings(wal_reserve_kib=64)), clock=ManualClock())
    await core.service.queues.create_queue("q")
    jobs = [Job(b"x", unique_key=f"key {number}") for number in range(JOBS)]
    named = (await core.service.enqueuing.enqueue(EnqueueRequest("q", jobs))).descriptors
    statements.clear()

    found = await core.service.job_queries.find_unique_key((), "key 2777")

    assert [job.descriptor for job in found.jobs] == [named[2_777]]
    assert len(statements) == 2
    await core.close()


async def test_a_key_is_looked_for_in_the_named_queues_or_in_all(world: ServiceUnderTest) -> None:
    await world.service.queues.create_queue("other")
    await world.service.queues.create_queue("empty")
    [mine] = await world.enqueue(b"x", unique_key=KEY)
    [others] = await world.enqueue(b"x", queue="other", unique_key=KEY)

    assert await holders_of(world) == [mine, others]
    assert await holders_of(world, "q") == [mine]
    assert await holders_of(world, "empty", "other", "other", "none") == [others]
    assert await holders_of(world, "empty") == await holders_of(world, key="Key") == []
    with pytest.raises(QueueNotFound):
        await holders_of(world, "none")


async def test_a_job_is_found_while_it_holds_the_key_and_is_there(world: ServiceUnderTest) -> None:
    await world.enqueue(b"x", unique_key=KEY)
    [timed] = await world.enqueue(b"x", unique_key="timed", unique_scope=UniqueScope.TIME, unique_for_ms=60_000)
    await world.service.claimed_jobs.cancel("q", await holders_of(world))

    assert await holders_of(world) == []
    [job] = (await world.service.job_queries.find_unique_key((), "timed")).jobs
    assert (job.descriptor, job.unique_key, job.body, job.state) == (timed, "timed", None, JobState.PENDING)
    await world.service.bulk.delete_jobs_by_descriptor("q", [timed])
    assert await holders_of(world, key="timed") == []


async def test_a_holder_that_gets_another_priority_meanwhile_is_found(
    world: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index names it under its former priority, and it is looked up afterwards."""
    [name] = await world.enqueue(b"x", unique_key=KEY)
    [timed] = await world.enqueue(b"x", unique_key="timed", unique_scope=UniqueScope.TIME, unique_for_ms=60_000)
    await world.service.bulk.delete_jobs_by_descriptor("q", [timed])
    look_up = MemoryShard.table[LookupJobs]

    async def move_first(shard: MemoryShard, keys: Sequence[JobKey], bodies: bool) -> Sequence[JobInfo | None]:
        everywhere(monkeypatch, MemoryShard, LookupJobs, look_up)
        await world.service.bulk.change_priority(ChangePriorityRequest("q", [name], 3))
        found: Sequence[JobInfo | None] = await look_up(shard, keys, bodies)
        return found

    everywhere(monkeypatch, MemoryShard, LookupJobs, move_first)
    assert await holders_of(world) == [name.replace(":p1:", ":p3:")]
    assert await holders_of(world, key="timed") == []


async def test_an_answer_shows_a_bounded_number_of_jobs_and_says_if_there_are_more(world: ServiceUnderTest) -> None:
    names = [f"queue{number}" for number in range(HOLDERS_MAX + 1)]
    for name in names:
        await world.service.queues.create_queue(name)
        await world.enqueue(b"x", queue=name, unique_key=KEY)

    found = await world.service.job_queries.find_unique_key((), "key")
    assert (len(found.jobs), found.incomplete) == (HOLDERS_MAX, True)
    assert len(await holders_of(world, *names[1:])) == HOLDERS_MAX


@on_shards(shards=("1", "2"))
async def test_each_shard_is_asked_and_one_that_is_unreachable_makes_the_answer_incomplete(
    server: ShardedServer,
) -> None:
    """Keys from before a change of the map are not on the first partition of their queue."""
    named = [await server.place("12"[number % 2], unique=f"key {number}") for number in range(8)]
    find = server.service.job_queries.find_unique_key
    for number, name in enumerate(named):
        found = await find(("q",), f"key {number}")
        assert ([job.descriptor for job in found.jobs], found.incomplete) == ([name], None)
    server.store("2").dead = "gone"
    await server.pass_time(3_000)

    for number, name in enumerate(named):
        found = await find(("q",), f"key {number}")
        assert [job.descriptor for job in found.jobs] == [name] * (name.split(":")[1] == "s1")
        assert found.incomplete


async def test_no_store_is_asked_for_a_key_that_no_job_can_have(
    world: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be in the question once for each queue."""
    [shard] = list(world.service.shards)
    look = shard.store.submit
    asked: list[int] = []

    async def counted(keys: Sequence[UniqueRef], now_ms: int) -> Sequence[KeyHolder | None]:
        asked.extend(len(ref.key) for ref in keys)
        return await look(FindUnique(keys, now_ms))

    monkeypatch.setattr(shard.store, "submit", instead(shard.store, FindUnique, counted))
    assert await holders_of(world, key="k" * 1_000_000) == []
    assert asked == []
    assert await holders_of(world, key="k" * 1_000) == []
    assert asked == [1_000]
    with pytest.raises(QueueNotFound):
        await holders_of(world, "none", key="k" * 1_000_000)
