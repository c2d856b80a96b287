"""The store in MySQL or MariaDB databases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pinlater.server.config.kinds.kind import Driver
from pinlater.server.config.mysql_shards import MysqlShards
from pinlater.server.config.mysql_url import MysqlUrl, parse_mysql_url
from pinlater.server.storage.mysql.ready_jobs import ReadyBytes
from pinlater.server.storage.tls import wants_tls

if TYPE_CHECKING:
    from pinlater.server.config.configured_shard import ConfiguredShard
    from pinlater.server.config.settings import Settings
    from pinlater.server.storage.interface import SharedShard
    from pinlater.server.storage.offline import LiveJobs, Look, Migrated

_HINT = "MariaDB's are called mysql, too (did you mean mysql://…?)"


class _MysqlKind:
    name = "mysql"
    title = "MySQL"
    url_form = "mysql://USER@HOST:PORT/DATABASE"
    schemes = ("mysql",)
    nicknames: ClassVar[Mapping[str, str]] = {"mariadb": _HINT, "mysql+asyncmy": _HINT}
    driver = Driver(("asyncmy",), "MySQL's driver")

    def __init__(self) -> None:
        self._ready_bytes = ReadyBytes(0)  # one server a process

    def parse_url(self, text: str) -> MysqlUrl:
        return parse_mysql_url(text)

    def holds(self, document: Any) -> bool:
        return isinstance(document, dict) and not isinstance(document.get("shards"), list)

    def entries(self, settings: Settings) -> MysqlShards:
        return MysqlShards(settings.mysql)

    def has_password(self, path: Path, settings: Settings) -> bool:
        """Always counts as one that does, as the original's has a password in each entry."""
        return True

    def wants_tls(self, place: ConfiguredShard, settings: Settings) -> bool:
        return wants_tls(place.endpoint, settings.mysql)

    def problems(self, settings: Settings) -> Iterator[tuple[str, str]]:
        return iter(())

    def make(self, place: ConfiguredShard, settings: Settings) -> SharedShard:
        from pinlater.server.storage.mysql.shard import MysqlShard

        self._ready_bytes.most = settings.mysql.ready_bytes_max
        return MysqlShard(place.endpoint, settings.mysql, place.name, ready_bytes=self._ready_bytes)

    async def look_at(self, place: ConfiguredShard, settings: Settings, now_ms: int) -> Look:
        from pinlater.server.storage.mysql.offline import look_at_shard

        return await look_at_shard(place.endpoint, settings.mysql, now_ms)

    async def live_jobs(self, place: ConfiguredShard, settings: Settings, now_ms: int, limit: int) -> LiveJobs:
        from pinlater.server.storage.mysql.offline import live_jobs

        return await live_jobs(place.endpoint, settings.mysql, place.name, now_ms, limit)

    async def forget_timed_keys(self, place: ConfiguredShard, settings: Settings, now_ms: int) -> int:
        from pinlater.server.storage.mysql.offline import forget_timed_keys

        return await forget_timed_keys(place.endpoint, settings.mysql, now_ms)

    async def migrate(self, place: ConfiguredShard, settings: Settings) -> Migrated:
        from pinlater.server.storage.mysql.offline import migrate_shard

        return await migrate_shard(place.endpoint, settings.mysql)


MYSQL = _MysqlKind()
