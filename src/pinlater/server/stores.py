"""Which shards the settings name, and how each is made: the one place that knows all kinds of stores. Imports only the room of the one
that is asked for, so that no driver need be installed for another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple
from hashlib import sha256

from pinlater.server.config.settings import Settings
from pinlater.server.config.shard_file import find_shards
from pinlater.server.config.shard_place import ShardPlace
from pinlater.server.sharding.reload import DesiredShard
from pinlater.server.storage.interface import Shard
from pinlater.server.storage.redis.settings import RedisEndpoint


def make_shards(settings: Settings) -> Sequence[DesiredShard]:
    """The shards that the settings name. Raises `FileBroken` where a shard file can't be read."""
    if settings.store.is_sharded:
        return sharded(find_shards(settings), settings)
    return [DesiredShard("1", lambda: make_shard(settings))]


def sharded(places: Sequence[ShardPlace], settings: Settings) -> Sequence[DesiredShard]:
    """Each place as a shard that is not opened yet. Two are the same shard only if their logins are the same, too."""

    def maker(place: ShardPlace) -> Callable[[], Shard]:
        return lambda: shard_at(place, settings)

    return [
        DesiredShard(
            place.name,
            maker(place),
            sha256(repr(astuple(place.endpoint)).encode()).hexdigest(),  # it has the password in it
            place.takes_enqueues,
        )
        for place in places
    ]


def shard_at(place: ShardPlace, settings: Settings) -> Shard:
    """The shard of a place, of the place's kind; not opened yet."""
    where = place.endpoint
    if isinstance(where, RedisEndpoint):
        from pinlater.server.storage.redis.shard import RedisShard

        return RedisShard(where, settings.redis, place.name)
    from pinlater.server.storage.mysql.shard import MysqlShard

    return MysqlShard(where, settings.mysql, place.name)


def make_shard(settings: Settings) -> Shard:
    """The store that the settings name, where it has one shard; not opened yet. Imports only that store's room."""
    if settings.store.kind == "memory":
        from pinlater.server.storage.memory import MemoryShard

        return MemoryShard()
    if settings.store.path is None:
        raise ValueError(f"{settings.store} names no file")
    from pinlater.server.storage.sqlite import SqliteShard

    return SqliteShard(settings.store.path, settings.sqlite)
