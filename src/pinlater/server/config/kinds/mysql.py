"""The store in MySQL or MariaDB databases.

Its shard file is the original's:

    {"pinlaterdb001": {"master": {"host": "10.0.0.1", "port": 3306}, "slave": …, "user": "…", "passwd": "…", "dequeueOnly": false}}

A key is a prefix and the replica set's number; every one of its databases is a shard. `slave` is not used. Ours also understands
`lostForGood`, `socket` and `tls`, and takes user and password from the settings if an entry has none.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pinlater.server.config.kinds.kind import ShardedKind
from pinlater.server.config.shard_entry import (
    ConfiguredShard,
    ShardAddress,
    ShardEntry,
    check_words,
    master_of,
    optional_text,
    read_entry,
)
from pinlater.server.storage.mysql.ready_jobs import ReadyBytes
from pinlater.server.storage.mysql.settings import DATABASE_NAME, MysqlEndpoint

if TYPE_CHECKING:
    from pinlater.server.config.settings import Settings
    from pinlater.server.storage.interface import SharedShard
    from pinlater.server.storage.offline import Offline

log = logging.getLogger(__name__)

_HINT = "MariaDB's are called mysql, too (did you mean mysql://…?)"
_WORDS = ("master", "slave", "user", "passwd", "dequeueOnly", "lostForGood", "socket", "tls")
_NUMBERED = re.compile(r"(.*?)([0-9]+)", re.ASCII | re.DOTALL)
_NUMBER_MAX = 999_999_999


class _MysqlKind(ShardedKind):
    name = "mysql"
    title = "MySQL"
    schemes = ("mysql",)
    url_form = "mysql://USER@HOST:PORT/DATABASE"
    url_options: ClassVar[Mapping[str, str]] = {"socket": "socket=PATH", "tls": "tls=true"}
    port = 3306
    nicknames: ClassVar[Mapping[str, str]] = {"mariadb": _HINT, "mysql+asyncmy": _HINT}
    driver = ("asyncmy",)
    driver_title = "MySQL's driver"

    def __init__(self) -> None:
        self._ready_bytes = ReadyBytes(0)  # one server a process

    def database_of_url(self, name: str) -> str | None:
        if name and not DATABASE_NAME.fullmatch(name):
            raise ValueError(
                "has a database name that is longer than 64 characters or has other characters than letters, digits, _ $ and -"
            )
        return name or None

    def holds(self, document: Mapping[str, Any]) -> bool:
        return not isinstance(document.get("shards"), list)

    def entries(self, document: Mapping[str, Any], settings: Settings) -> Iterator[ShardEntry]:
        """Returns the entries in the order of their numbers."""
        prefix = settings.mysql.host_prefix
        if not self.holds(document) and not prefix:
            raise ValueError("it is a file of Redis shards: redis:FILE is the store that goes with it")
        numbered = sorted(_numbered(document, prefix))
        if not numbered and prefix:
            raise ValueError(f"it names no shard: no key begins with {prefix!r} (mysql.host_prefix)")
        for number, _, key in numbered:
            yield _entry(key, shard_names(number, settings.mysql.databases_per_server), document[key])

    def endpoint(self, address: ShardAddress, shard: str, password: str, settings: Settings) -> MysqlEndpoint:
        user, database = address.user or settings.mysql.user, address.database or settings.mysql.database_of(shard)
        return MysqlEndpoint(address.host, address.port, user, password, database, address.socket, address.tls)

    def make(self, place: ConfiguredShard, settings: Settings) -> SharedShard:
        from pinlater.server.storage.mysql.shard import MysqlShard

        self._ready_bytes.most = settings.mysql.ready_bytes_max
        return MysqlShard(place.endpoint, settings.mysql, place.name, ready_bytes=self._ready_bytes)

    def offline(self) -> Offline:
        from pinlater.server.storage.mysql import offline

        return offline


def shard_names(number: int, databases: int) -> Sequence[str]:
    """The shards on one replica set: `3`, `3d1`, `3d2` …"""
    return [f"{number}d{database}" if database else str(number) for database in range(databases)]


def _numbered(document: Mapping[str, Any], prefix: str | None) -> Iterator[tuple[int, int, str]]:
    """The keys that are shards, behind their numbers and places in the file."""
    for place, key in enumerate(document):
        if prefix is not None and not key.startswith(prefix):
            log.debug("the key %r of the shard file is not for us", key)
            continue
        match = (
            _NUMBERED.fullmatch(key) if prefix is None else re.fullmatch(r"()([0-9]+)", key[len(prefix) :], re.ASCII)
        )
        if match is None:
            what = "no number at its end" if prefix is None else f"no number behind {prefix!r}"
            hint = " (mysql.host_prefix makes others' keys be ignored)" if prefix is None else ""
            raise ValueError(f"{key!r} has {what}{hint}")
        number = int(match[2]) if len(match[2]) <= 12 else _NUMBER_MAX + 1
        if number > _NUMBER_MAX:
            raise ValueError(f"{key!r} has a number above {_NUMBER_MAX:,}")
        yield number, place, key


def _entry(key: str, names: Sequence[str], value: Any) -> ShardEntry:
    if not isinstance(value, dict):
        raise ValueError(f"{key!r} is not an object with master, user and passwd")  # noqa: TRY004
    check_words(key, value, _WORDS)
    on_socket = value.get("master") is None and optional_text(key, value, "socket") is not None
    place = ("localhost", MYSQL.port) if on_socket else master_of(key, value)
    return read_entry(key, names, value, MYSQL.name, place)


MYSQL = _MysqlKind()
