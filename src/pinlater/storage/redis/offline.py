"""Work on a shard without serving it: its schema made by hand, and a look at how it is. Takes no slot and changes no job."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from pinlater.domain.errors import SchemaRefused
from pinlater.storage.offline import Look
from pinlater.storage.redis import reading
from pinlater.storage.redis.connection import connect
from pinlater.storage.redis.keys import front_of
from pinlater.storage.redis.membership import SCHEMA, members
from pinlater.storage.redis.readers import Readers
from pinlater.storage.redis.settings import RedisEndpoint, RedisSettings
from pinlater.storage.redis.stats import Stats

_MADE = "the first schema"


async def migrate_shard(endpoint: RedisEndpoint, settings: RedisSettings, name: str) -> tuple[int, int, Sequence[str]]:
    """Takes the shard to this program's schema: (version before, version after, what was done). There has been but one schema yet.

    Raises `WorldError` where that can't be done, or where the shard is not for this program.
    """
    front = front_of(settings.tag_of(name))
    async with _readers(endpoint, front, settings) as readers:
        made = await readers.command(b"HSETNX", front + b"meta", b"schema", SCHEMA)
        version = await _version_of(readers, front)
        if version != int(SCHEMA):
            raise SchemaRefused(f"{endpoint}: the shard has schema {version}, this program knows {SCHEMA}")
        return (0, version, [_MADE]) if made else (version, version, [])


async def look_at_shard(endpoint: RedisEndpoint, settings: RedisSettings, name: str) -> Look:
    """Schema, servers and counts. Raises `WorldError` where it can't be asked."""
    front = front_of(settings.tag_of(name))
    async with _readers(endpoint, front, settings) as readers:
        schema = await _version_of(readers, front)
        if not schema:
            return Look(0)
        return Look(schema, await members(readers.run, settings.lease_ms), await reading.counts(readers, None, 0))


async def _version_of(readers: Readers, front: bytes) -> int:
    """0 where there is nothing of ours yet."""
    return int(await readers.command(b"HGET", front + b"meta", b"schema") or 0)


@asynccontextmanager
async def _readers(endpoint: RedisEndpoint, front: bytes, settings: RedisSettings) -> AsyncIterator[Readers]:
    stats = Stats()
    readers = Readers(lambda: connect(endpoint, front, settings, stats), endpoint, settings, stats)
    try:
        yield readers
    finally:
        await readers.close()
