"""The schema's version: made once, taken forward, and a newer one refused by the rules of all stores."""

from __future__ import annotations

import asyncio

import pytest

from pinlater.domain.errors import SchemaRefused
from pinlater.server.storage.commands import create_queues
from pinlater.server.storage.redis.migration import AT_ONCE, NEWEST, STEPS, MigrationStep, migrate, version_of
from pinlater.server.storage.redis.readers import Readers
from tests.redis.proxied_redis import FRONT, ProxiedRedis

META = FRONT + b"meta"


def readers_of(database: ProxiedRedis) -> Readers:
    return database.shard(direct=True)._connections.readers


async def test_a_schema_that_is_newer_by_one_is_used_on_redis(database: ProxiedRedis) -> None:
    """So one step back is possible."""
    first = await database.open()
    await first.close()
    database.server.execute("HSET", META, "schema", NEWEST + 1)
    shard = await database.open()
    await shard.submit(create_queues(["emails"], 0))
    assert database.server.execute("HGET", META, "schema") == b"%d" % (NEWEST + 1)


async def test_a_schema_that_is_newer_by_two_is_refused_on_redis_with_both_numbers(database: ProxiedRedis) -> None:
    database.server.execute("HSET", META, "schema", NEWEST + 2)
    with pytest.raises(
        SchemaRefused, match=rf"schema {NEWEST + 2}.*schema {NEWEST} and runs on {NEWEST} and {NEWEST + 1}"
    ):
        await database.open()
    assert database.server.execute("KEYS", "*") == [META]  # and nothing was touched


async def test_servers_that_start_on_an_empty_redis_at_once_make_its_schema_once(database: ProxiedRedis) -> None:
    shards = [database.shard(direct=True) for _ in range(5)]
    done = await asyncio.gather(*(migrate(shard._connections.readers) for shard in shards))
    assert sorted(done, reverse=True) == [["0001_first"], [], [], [], []]
    assert database.server.execute("HGET", META, "schema") == b"%d" % AT_ONCE


async def test_an_older_schema_is_taken_forward_step_by_step_and_what_was_cut_off_is_begun_anew(
    database: ProxiedRedis,
) -> None:
    """There is but one schema yet, so the steps are the test's own."""
    await database.open()
    tried: list[int] = []

    def step(number: int, *, breaks: bool = False) -> MigrationStep:
        async def run(readers: Readers) -> None:
            tried.append(number)
            if breaks:
                raise ConnectionError

        return MigrationStep(number, f"{number:04}", run)

    readers, second = readers_of(database), NEWEST + 1
    with pytest.raises(ConnectionError):
        await migrate(readers, [*STEPS, step(second), step(second + 1, breaks=True)])
    assert await version_of(readers) == second
    assert await migrate(readers, [*STEPS, step(second), step(second + 1)]) == [f"{second + 1:04}"]
    assert tried == [second, second + 1, second + 1]
    assert await version_of(readers) == second + 1
    await readers.close()


async def test_a_version_never_goes_back(database: ProxiedRedis) -> None:
    """Of two servers that migrate at once, the slower one writes an older version."""
    database.server.execute("HSET", META, "schema", 5)
    readers = readers_of(database)
    assert await readers.run("set_schema", 4) == 0
    assert await version_of(readers) == 5
    await readers.close()
