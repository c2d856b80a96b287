"""The store in memory: the SQLite store on a database that one process has and that ends with its shard.

Users' own tests, `--store memory:` and the simulator run on it. No method waits for anything, so each is atomic for all other callers.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from functools import cache
from typing import cast
from weakref import finalize

from pinlater.server.storage.sqlite import migration
from pinlater.server.storage.sqlite.connection import connect
from pinlater.server.storage.sqlite.inline import IN_MEMORY, InlineReaders, InlineWriter
from pinlater.server.storage.sqlite.queue_cache import SqliteQueueCache
from pinlater.server.storage.sqlite.settings import SqliteSettings
from pinlater.server.storage.sqlite.shard import SqliteShard, _OpenShard
from pinlater.wire.generated.structs import ShardSize


class _OpenMemory:
    """What an open shard has, on a new database with one connection."""

    def __init__(self, shard: str, settings: SqliteSettings) -> None:
        self.connection = connect(IN_MEMORY, settings)
        with closing(sqlite3.connect(IN_MEMORY)) as empty:
            empty.deserialize(_empty_database())  # alone it would be limited to 1 GB
            empty.backup(self.connection)
        self.queue_cache = SqliteQueueCache(shard)
        self.queue_cache.reload(self.connection.execute)
        self.writer = InlineWriter(self.connection, self.queue_cache)
        self.readers = InlineReaders(self.connection)


@cache
def _empty_database() -> bytes:
    """Returns the newest schema. Copying it takes a tenth of the time of the migrations."""
    with closing(connect(IN_MEMORY, SqliteSettings())) as connection:
        migration.migrate(connection, IN_MEMORY)
        return connection.serialize()


class MemoryShard(SqliteShard):
    """Implements `storage.interface.Shard`. May be used without `open`; stored jobs outlive `close`, but not the object."""

    capabilities = SqliteShard.capabilities._replace(kind="memory", durable=False)

    def __init__(self, name: str = "1") -> None:
        super().__init__(IN_MEMORY, name=name)
        opened = _OpenMemory(name, self._settings)
        self._opened = cast("_OpenShard", opened)  # operations use only the common part of both
        finalize(self, opened.connection.close)

    async def open(self, now_ms: int) -> None:
        """Finds the database open."""

    async def close(self) -> None:
        """Leaves the database open."""

    async def ping(self, now_ms: int | None = None) -> None:
        """Finds the database."""

    @property
    def highest_id(self) -> int:
        return self._open.queue_cache.highest_id

    def figures(self) -> Mapping[str, float]:
        return {}

    async def size(self) -> ShardSize:
        """Returns nothing: the space of jobs is not measured."""
        return ShardSize()
