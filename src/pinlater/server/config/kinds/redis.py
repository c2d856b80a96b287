"""The store in Redis or Valkey.

Its shard file is the original's:

    {"shards": [{"name": "1", "shardConfig": {"master": {"host": "10.0.0.1", "port": 6379}, "slave": …, "dequeueOnly": false}}]}

`slave` is not used. Ours also understands, beside `master`: `lostForGood`, `user`, `passwd`, `db`, `socket`, `tls`, and `sentinelMaster`
with `sentinels` (`["host:port", …]`), which give the master instead of `master`. The settings supply what an entry leaves out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pinlater.server.config.kinds.kind import ShardedKind
from pinlater.server.config.shard_entry import (
    ConfiguredShard,
    SentinelAddress,
    ShardAddress,
    ShardEntry,
    check_words,
    master_of,
    optional_text,
    parse_sentinels,
    read_entry,
)
from pinlater.server.storage.redis.settings import RedisEndpoint

if TYPE_CHECKING:
    from pinlater.server.config.settings import Settings
    from pinlater.server.storage.interface import SharedShard
    from pinlater.server.storage.offline import Offline

_HINT = "Valkey's are called redis, too (did you mean redis://…?)"
_DATABASE_MAX = 1_000_000
_WORDS = ("name", "shardConfig")
_CONFIG_WORDS = (
    *("master", "slave", "dequeueOnly", "lostForGood", "user", "passwd", "db", "socket", "tls", "sentinels"),
    "sentinelMaster",
)
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)


class _RedisKind(ShardedKind):
    name = "redis"
    title = "Redis"
    schemes = ("redis", "rediss")
    url_form = "redis://USER@HOST:PORT/DB"
    url_options: ClassVar[Mapping[str, str]] = {
        "socket": "socket=PATH",
        "sentinel": "sentinel=HOST:PORT",
        "master": "master=NAME",
    }
    port = 6379
    nicknames: ClassVar[Mapping[str, str]] = {"valkey": _HINT, "valkeys": _HINT}
    driver = ("redis", "hiredis")
    driver_title = "Redis' client library"

    def database_of_url(self, name: str) -> str:
        if name and (not re.fullmatch(r"[0-9]{1,7}", name, re.ASCII) or int(name) > _DATABASE_MAX):
            raise ValueError("has a database that is not a number: 0, 1, 2 …")
        return str(int(name or 0))

    def holds(self, document: Mapping[str, Any]) -> bool:
        return isinstance(document.get("shards"), list)

    def entries(self, document: Mapping[str, Any], settings: Settings) -> Iterator[ShardEntry]:
        """Returns the entries in the order of the file."""
        if not self.holds(document):
            raise ValueError('it has no list "shards", as a file of Redis shards has')
        for number, value in enumerate(document["shards"], 1):
            yield _entry(f"shard {number} of the list", value, has_sentinels=bool(settings.redis.sentinels))

    def endpoint(self, address: ShardAddress, shard: str, password: str, settings: Settings) -> RedisEndpoint:
        sentinels = () if address.master is None else address.sentinels or parse_sentinels(settings.redis.sentinels)
        return RedisEndpoint(
            address.host,
            address.port,
            address.user or settings.redis.user,
            password,
            int(address.database or 0),
            address.socket,
            address.tls,
            sentinels,
            address.master or "",
        )

    def problems(self, settings: Settings) -> Iterator[tuple[str, str]]:
        """Returns the problems with the Sentinels."""
        try:
            parse_sentinels(settings.redis.sentinels)
        except ValueError as error:
            yield "redis.sentinels", str(error)
        url = settings.store.url
        if url is not None and url.master is not None and not url.sentinels and not settings.redis.sentinels:
            yield (
                "store",
                f"{settings.store} names a master, and neither it nor redis.sentinels name Sentinels to ask for it",
            )

    def make(self, place: ConfiguredShard, settings: Settings) -> SharedShard:
        from pinlater.server.storage.redis.shard import RedisShard

        return RedisShard(place.endpoint, settings.redis, place.name)

    def offline(self) -> Offline:
        from pinlater.server.storage.redis import offline

        return offline


def _entry(place: str, value: Any, *, has_sentinels: bool) -> ShardEntry:
    """`has_sentinels`: whether the settings name some."""
    if not isinstance(value, dict):
        raise ValueError(f"{place} is not an object with name and shardConfig")  # noqa: TRY004
    name = value.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"{place} has no name of letters, digits and the characters _ . -")
    check_words(name, value, _WORDS)
    config = value.get("shardConfig")
    if not isinstance(config, dict):
        raise ValueError(f"{name!r} has no shardConfig with a master in it")  # noqa: TRY004
    check_words(name, config, _CONFIG_WORDS)
    sentinels, master = _sentinels(name, config), optional_text(name, config, "sentinelMaster")
    if sentinels and master is None:
        raise ValueError(f"{name!r} has sentinels, and no sentinelMaster that says which master to ask them for")
    if master is not None and not sentinels and not has_sentinels:
        raise ValueError(
            f"{name!r} has a sentinelMaster, and neither it nor the settings (redis.sentinels) name Sentinels"
        )
    socket = optional_text(name, config, "socket")
    if socket is not None and master is not None:
        raise ValueError(f"{name!r} has a socket and a sentinelMaster: only one of them can be where Redis is")
    named_elsewhere = socket is not None or master is not None
    where = ("", REDIS.port) if named_elsewhere else master_of(name, config)
    more = {"database": _database(name, config.get("db")), "sentinels": sentinels, "master": master}
    return read_entry(name, (name,), config, REDIS.name, where, **more)


def _sentinels(name: str, config: Mapping[str, Any]) -> tuple[SentinelAddress, ...]:
    found = config.get("sentinels")
    if found is None:
        return ()
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ValueError(f'{name!r}: sentinels is not a list of "host:port"')
    try:
        return parse_sentinels(found)
    except ValueError as error:
        raise ValueError(f"{name!r} {error}") from None


def _database(name: str, db: Any) -> str:
    if db is None:
        return "0"
    if isinstance(db, bool) or not isinstance(db, int) or not 0 <= db <= _DATABASE_MAX:
        raise ValueError(f"{name!r}: db is not the number of a database: 0, 1, 2 …")
    return str(db)


REDIS = _RedisKind()
