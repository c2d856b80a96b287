"""Works on a shard without serving it: creates its schema by hand, reads its state, and gives up keys. Takes no slot and changes no
job."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from pinlater.server.storage.connections import WRITERS
from pinlater.server.storage.offline import LiveJobs, Look, find_live
from pinlater.server.storage.redis import migration, reading
from pinlater.server.storage.redis.access import ReadAccess
from pinlater.server.storage.redis.connection import connect
from pinlater.server.storage.redis.errors import StaleQueues
from pinlater.server.storage.redis.keys import front_of
from pinlater.server.storage.redis.membership import Membership
from pinlater.server.storage.redis.readers import Readers
from pinlater.server.storage.redis.server_requirements import (
    check_server,
    memory_size,
    read_info,
    refusal_of,
    warnings_of,
)
from pinlater.server.storage.redis.settings import RedisEndpoint, RedisSettings
from pinlater.server.storage.redis.stats import Stats

_KEYS_A_PIECE = 1_000


async def migrate_shard(endpoint: RedisEndpoint, settings: RedisSettings, name: str) -> tuple[int, int, Sequence[str]]:
    """Migrates the shard to this program's schema. Returns (version before, version after, migrations that were run).

    Raises `Unavailable` if that can't be done, or if the shard is not for this program.
    """
    async with _readers(endpoint, front_of(settings.tag_of(name)), settings) as readers:
        await check_server(readers, endpoint)
        before = await migration.version_of(readers)
        done = await migration.migrate(readers)
        return before, await migration.version_of(readers), done


async def look_at_shard(endpoint: RedisEndpoint, settings: RedisSettings, name: str, now_ms: int) -> Look:
    """Returns schema, servers, counts and keys. Raises `Unavailable` if it can't be asked."""
    async with _readers(endpoint, front_of(settings.tag_of(name)), settings) as readers:
        schema = await migration.version_of(readers)
        if not schema:
            return Look(0)
        info = read_info(await readers.command(b"INFO"))
        refused = refusal_of(info)
        warnings = warnings_of(info) if refused is None else [refused]
        servers, rows = (
            await Membership(settings.lease_ms, WRITERS).members(readers.run),
            await reading.count_rows(readers, None, 0),
        )
        keys = await reading.timed_keys(readers, now_ms)
        size = await memory_size(readers)
        return Look(schema, servers, reading.counts(rows, 0), timed_keys=keys, size=size, warnings=warnings)


async def live_jobs(endpoint: RedisEndpoint, settings: RedisSettings, name: str, now_ms: int, limit: int) -> LiveJobs:
    """Returns some of the jobs that wait or run; none if queues change meanwhile. Raises `Unavailable`."""
    async with _readers(endpoint, front_of(settings.tag_of(name)), settings) as readers:
        queues = await reading.list_queues(readers)
        access = ReadAccess(name, readers, {queue.name: number for number, queue in queues})
        counts = reading.counts(await reading.count_rows(readers, None, 0), 0)
        try:
            jobs = await find_live(lambda page: reading.scan(access, page), counts, now_ms, limit)
        except StaleQueues:
            return LiveJobs()
        return LiveJobs(jobs, {queue.name: queue for _, queue in queues})


async def forget_timed_keys(endpoint: RedisEndpoint, settings: RedisSettings, name: str, _now_ms: int) -> int:
    """Deletes the unique keys that only time would free. Returns how many there were. Raises `Unavailable`."""
    forgotten = 0
    async with _readers(endpoint, front_of(settings.tag_of(name)), settings) as readers:
        while done := int(await readers.run("forget_timed_keys", _KEYS_A_PIECE)):
            forgotten += done
    return forgotten


@asynccontextmanager
async def _readers(endpoint: RedisEndpoint, front: bytes, settings: RedisSettings) -> AsyncIterator[Readers]:
    stats = Stats()
    readers = Readers(lambda: connect(endpoint, front, settings, stats), endpoint, settings, stats)
    try:
        yield readers
    finally:
        await readers.close()
