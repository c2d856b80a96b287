"""The store in Redis or Valkey."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pinlater.server.config.files import read_bytes
from pinlater.server.config.kinds.kind import Driver
from pinlater.server.config.redis_shards import RedisShards, default_sentinels, parse
from pinlater.server.config.redis_url import RedisUrl, parse_redis_url
from pinlater.server.storage.tls import wants_tls

if TYPE_CHECKING:
    from pinlater.server.config.configured_shard import ConfiguredShard
    from pinlater.server.config.settings import Settings
    from pinlater.server.storage.interface import SharedShard
    from pinlater.server.storage.offline import LiveJobs, Look, Migrated

_HINT = "Valkey's are called redis, too (did you mean redis://…?)"


class _RedisKind:
    name = "redis"
    title = "Redis"
    url_form = "redis://USER@HOST:PORT/DB"
    schemes = ("redis", "rediss")
    nicknames: ClassVar[Mapping[str, str]] = {"valkey": _HINT, "valkeys": _HINT}
    driver = Driver(("redis", "hiredis"), "Redis' client library")

    def parse_url(self, text: str) -> RedisUrl:
        return parse_redis_url(text)

    def holds(self, document: Any) -> bool:
        return isinstance(document, dict) and isinstance(document.get("shards"), list)

    def entries(self, settings: Settings) -> RedisShards:
        return RedisShards(settings.redis)

    def has_password(self, path: Path, settings: Settings) -> bool:
        return any(entry.password is not None for entry in parse(read_bytes(path), settings.redis))

    def wants_tls(self, place: ConfiguredShard, settings: Settings) -> bool:
        return wants_tls(place.endpoint, settings.redis)

    def problems(self, settings: Settings) -> Iterator[tuple[str, str]]:
        """About the Sentinels."""
        try:
            default_sentinels(settings.redis)
        except ValueError as error:
            yield "redis.sentinels", str(error)
        url = settings.store.url
        if isinstance(url, RedisUrl) and url.master is not None and not url.sentinels and not settings.redis.sentinels:
            yield (
                "store",
                f"{settings.store} names a master, and neither it nor redis.sentinels name Sentinels to ask for it",
            )

    def make(self, place: ConfiguredShard, settings: Settings) -> SharedShard:
        from pinlater.server.storage.redis.shard import RedisShard

        return RedisShard(place.endpoint, settings.redis, place.name)

    async def look_at(self, place: ConfiguredShard, settings: Settings, now_ms: int) -> Look:
        from pinlater.server.storage.redis.offline import look_at_shard

        return await look_at_shard(place.endpoint, settings.redis, place.name, now_ms)

    async def live_jobs(self, place: ConfiguredShard, settings: Settings, now_ms: int, limit: int) -> LiveJobs:
        from pinlater.server.storage.redis.offline import live_jobs

        return await live_jobs(place.endpoint, settings.redis, place.name, now_ms, limit)

    async def forget_timed_keys(self, place: ConfiguredShard, settings: Settings, now_ms: int) -> int:
        from pinlater.server.storage.redis.offline import forget_timed_keys

        return await forget_timed_keys(place.endpoint, settings.redis, place.name)

    async def migrate(self, place: ConfiguredShard, settings: Settings) -> Migrated:
        from pinlater.server.storage.redis.offline import migrate_shard

        return await migrate_shard(place.endpoint, settings.redis, place.name)


REDIS = _RedisKind()
