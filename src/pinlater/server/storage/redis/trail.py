"""The trail: one sorted set of strings, each an id and its content, so that the order of the strings is that of the ids."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.server.storage.redis.arguments import strings
from pinlater.server.storage.redis.readers import Readers
from pinlater.server.storage.redis.writer import Writer
from pinlater.server.storage.values import TrailEntry

_BEHIND_ID = b"|"


async def add(writer: Writer, records: Sequence[TrailEntry], records_max: int) -> None:
    await writer.run("add_to_trail", records_max, strings(b"%b|%b" % (one.id.encode(), one.content) for one in records))


async def prune(writer: Writer, readers: Readers, before: str, limit: int) -> int:
    """Deletes old entries. Reads first, because a change makes all servers refresh the shard."""
    oldest = await readers.run("list_trail", "", before, 1)
    if not oldest:
        return 0
    [deleted] = await writer.run("prune_trail", before, limit)
    return int(deleted)


async def read(readers: Readers, since: str, before: str, limit: int) -> list[TrailEntry]:
    found = await readers.run("list_trail", since, before, limit)
    parts = (entry.partition(_BEHIND_ID) for entry in found)
    return [TrailEntry(name.decode(), content) for name, _, content in parts]
