"""What of a stage depends on the store behind it: its servers, the shard file, our settings, and how a shard's own sums are looked at."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar, NamedTuple

from pinlater.server.storage.redis.scripts import script
from tests.databases.database import DatabaseServer
from tests.databases.mariadb import MariaDb
from tests.databases.mysql import MySql8
from tests.databases.proxy import Proxy
from tests.databases.redis import RedisServer
from tests.databases.redis_users import PASSWORD, USER, WITH_USERS
from tests.databases.servers import DatabaseServers
from tests.mysql import consistency as mysql_consistency
from tests.redis import consistency as redis_consistency

AnyServer = DatabaseServer | RedisServer


@dataclass(slots=True)
class ShardLocation:
    """Where a shard is now. `entry` is what else the shard file says of it."""

    database: Any
    proxy: Proxy
    entry: dict[str, Any]


class Sums(NamedTuple):
    """A shard's own, over all its queues: jobs enqueued ever, succeeded ever, succeeded and kept, and not succeeded."""

    enqueued: int
    succeeded: int
    kept: int
    unfinished: int


class DatabaseKind(ABC):
    """One kind of server and how PinLater uses it."""

    name: ClassVar[str]
    settings: ClassVar[str]  # `{prefix}` and `{password_hash}` in it

    @abstractmethod
    def start(self, database_servers: DatabaseServers) -> AnyServer:
        """A new server that runs."""

    async def kill(self, database: Any) -> None:
        """kill -9, at a moment at which nothing that was answered may be lost."""
        database.kill()

    @abstractmethod
    def copy(self, database_servers: DatabaseServers, dead: Any) -> AnyServer:
        """A new one, not yet started, that has all that the dead one had."""

    @abstractmethod
    def start_as_replica(self, database: Any, of: Any) -> None:
        """A dead one returns, and refuses writes."""

    @abstractmethod
    def document(self, places: Mapping[str, ShardLocation]) -> dict[str, Any]:
        """The shard file."""

    @property
    @abstractmethod
    def claim(self) -> bytes:
        """What is in a request that claims jobs, and in no other."""

    @abstractmethod
    def change(self, dice: Random) -> bytes:
        """What is in a request that changes something, and in no other."""

    @abstractmethod
    async def inconsistencies(self, place: ShardLocation, prefix: str, shard: str) -> list[str]:
        """What doesn't agree within the shard, in words. Nothing is under way."""

    @abstractmethod
    async def sums(self, place: ShardLocation, prefix: str, shard: str) -> Sums:
        """As the shard's counters have them."""


# On a shard that has been closed for longer than the grace, no server looks for a repeated enqueue. The load repeats one for long.
_SWEEPS = """
[maintenance]
sweep_interval_ms = 200
file_interval_ms = 1000

[sharding]
removal_grace_ms = 20000
"""


class MySqlKind(DatabaseKind):
    """MariaDB or MySQL 8."""

    settings = (
        """\
store = "mysql:shards.json"
admin_password_hash = "{password_hash}"

[mysql]
database_prefix = "{prefix}"
lease_ms = 10000
"""
        + _SWEEPS
    )

    def __init__(self, kind: type[DatabaseServer]) -> None:
        self._kind = kind

    def start(self, database_servers: DatabaseServers) -> DatabaseServer:
        return database_servers.start(self._kind)

    def copy(self, database_servers: DatabaseServers, dead: Any) -> DatabaseServer:
        replica: DatabaseServer = database_servers.copy(dead)
        return replica

    def start_as_replica(self, database: Any, of: Any) -> None:
        database.start(read_only=True)

    def document(self, places: Mapping[str, ShardLocation]) -> dict[str, Any]:
        return {
            f"pinlaterdb{int(name):03}": {
                "master": {"host": place.proxy.host, "port": place.proxy.port},
                "user": place.database.user,
                "passwd": place.database.password,
                **place.entry,
            }
            for name, place in places.items()
        }

    @property
    def claim(self) -> bytes:
        return b"INSERT INTO claims"

    def change(self, dice: Random) -> bytes:
        return b";COMMIT"  # not that of READ COMMITTED

    async def inconsistencies(self, place: ShardLocation, prefix: str, shard: str) -> list[str]:
        return await mysql_consistency.inconsistencies(place.database, f"{prefix}_{shard}")

    async def sums(self, place: ShardLocation, prefix: str, shard: str) -> Sums:
        async with (
            place.database.connect(database=f"{prefix}_{shard}") as connection,
            connection.cursor() as cursor,
        ):
            await cursor.execute(_TOTALS)
            return Sums(*(int(number or 0) for number in await cursor.fetchone()))


_TOTALS = """
SELECT SUM(enqueued_total), SUM(succeeded_total), SUM(succeeded), SUM(pending) + SUM(in_progress) + SUM(failed) FROM counters
"""

_CHANGES = tuple(script(name).sha for name in ("insert_jobs", "claim_jobs", "finish_jobs", "change_jobs"))


class RedisKind(DatabaseKind):
    """Redis, or what TEST_REDIS_PROGRAM names, flushing once a second."""

    name = "redis"
    settings = (
        """\
store = "redis:shards.json"
admin_password_hash = "{password_hash}"

[redis]
key_prefix = "{prefix}"
lease_ms = 10000
"""
        + _SWEEPS
    )

    def start(self, database_servers: DatabaseServers) -> RedisServer:
        return database_servers.start_redis(**WITH_USERS, appendfsync="everysec", repl_diskless_sync_delay=0)

    async def kill(self, database: Any) -> None:
        await asyncio.to_thread(database.kill_once_written)

    def copy(self, database_servers: DatabaseServers, dead: Any) -> RedisServer:
        return database_servers.copy_redis(dead)

    def start_as_replica(self, database: Any, of: Any) -> None:
        database.start(replicaof=f"{of.host} {of.port}")

    def document(self, places: Mapping[str, ShardLocation]) -> dict[str, Any]:
        shards = []
        for name, place in places.items():
            here = {"host": place.proxy.host, "port": place.proxy.port}
            config = {"master": here, "slave": here, "user": USER, "passwd": PASSWORD, **place.entry}
            shards.append({"name": name, "shardConfig": config})
        return {"shards": shards}

    @property
    def claim(self) -> bytes:
        return script("claim_jobs").sha

    def change(self, dice: Random) -> bytes:
        return dice.choice(_CHANGES)

    async def inconsistencies(self, place: ShardLocation, prefix: str, shard: str) -> list[str]:
        return await asyncio.to_thread(redis_consistency.inconsistencies, place.database, _front(prefix, shard))

    async def sums(self, place: ShardLocation, prefix: str, shard: str) -> Sums:
        return await asyncio.to_thread(_redis_sums, place.database, _front(prefix, shard))


def _front(prefix: str, shard: str) -> bytes:
    return f"{prefix}{{{shard}}}:".encode()


def _redis_sums(server: RedisServer, front: bytes) -> Sums:
    """Of the queues that exist; a sweep frees the keys of deleted ones."""
    with server.session() as ask:
        queues = set(ask("HKEYS", front + b"qn"))
        names = [name for name in ask("KEYS", front + b"n*") if name.removeprefix(front + b"n")[:4] in queues]
        totals = [[int(number or 0) for number in ask("HMGET", name, "e", "s")] for name in names]
        lines = [name.removeprefix(front + b"n") for name in names]
        sizes = {index: sum(ask("ZCARD", front + index + line) for line in lines) for index in (b"r", b"i", b"s", b"f")}
    enqueued, succeeded = (sum(column) for column in zip(*totals, strict=True)) if totals else (0, 0)
    return Sums(enqueued, succeeded, sizes[b"s"], sizes[b"r"] + sizes[b"i"] + sizes[b"f"])


STORES: dict[str, DatabaseKind] = {"mariadb": MySqlKind(MariaDb), "mysql8": MySqlKind(MySql8), "redis": RedisKind()}
