"""Where the MySQL store's shards are: the original's shard file, or the one database of a URL.

    {"pinlaterdb001": {"master": {"host": "10.0.0.1", "port": 3306}, "slave": …, "user": "…", "passwd": "…", "dequeueOnly": false}}

A key is a prefix and the replica set's number; every one of its databases is a shard. `slave` is not used. Ours also understands
`lostForGood`, `socket` and `tls`, and takes user and password from the settings if an entry has none.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pinlater.server.config.configured_shard import ConfiguredShard
from pinlater.server.config.entry_words import check_words, master_of, optional_flag, optional_text, read_document
from pinlater.server.config.mysql_url import MysqlUrl
from pinlater.server.storage.mysql.settings import MysqlEndpoint, MysqlSettings

log = logging.getLogger(__name__)

FIELDS = ("master", "slave", "user", "passwd", "dequeueOnly", "lostForGood", "socket", "tls")
_NUMBERED = re.compile(r"(.*?)([0-9]+)", re.ASCII | re.DOTALL)
_NUMBER_MAX = 999_999_999


@dataclass(frozen=True, slots=True, repr=False)
class MysqlEntry:
    """A replica set of the shard file. What it leaves out is None."""

    key: str
    number: int
    host: str
    port: int
    user: str | None
    password: str | None
    dequeue_only: bool
    lost: bool
    socket: str | None
    tls: bool | None

    def __repr__(self) -> str:
        return f"MysqlEntry({self.key})"


class MysqlShards:
    """How shards follow from a file's entries, or a URL, and the settings."""

    def __init__(self, settings: MysqlSettings) -> None:
        self.password_file = settings.password_file
        self._settings = settings

    def parse(self, content: bytes) -> Sequence[MysqlEntry]:
        """What the shard file says. Raises ValueError that names the key."""
        return parse(content, self._settings)

    def of_url(self, url: Any, from_file: str | None) -> ConfiguredShard:
        """The one shard. `from_file`: the password in the password file."""
        if not isinstance(url, MysqlUrl):
            raise TypeError(f"no URL of ours: {url}")
        user, password = self._login(url.user, url.password, from_file)
        database = url.database or self._settings.database_of("1")
        return ConfiguredShard(
            "1", "", MysqlEndpoint(url.host, url.port, user, password, database, url.socket, url.tls)
        )

    def of_entries(self, entries: Sequence[Any], from_file: str | None) -> Iterator[ConfiguredShard]:
        """All of them, in the entries' order."""
        for entry in entries:
            user, password = self._login(entry.user, entry.password, from_file)
            for name in shard_names(entry.number, self._settings.databases_per_server):
                database = self._settings.database_of(name)
                where = MysqlEndpoint(entry.host, entry.port, user, password, database, entry.socket, entry.tls)
                yield ConfiguredShard(name, entry.key, where, not entry.dequeue_only, entry.lost)

    def _login(self, user: str | None, password: str | None, from_file: str | None) -> tuple[str, str]:
        given = (password, from_file, self._settings.password)
        return user or self._settings.user, next((one for one in given if one is not None), "")


def shard_names(number: int, databases: int) -> list[str]:
    """The shards on one replica set: `3`, `3d1`, `3d2` …"""
    return [f"{number}d{database}" if database else str(number) for database in range(databases)]


def parse(content: bytes, settings: MysqlSettings) -> Sequence[MysqlEntry]:
    """The entries in the order of their numbers. Raises ValueError that names the key."""
    document = read_document(content)
    if isinstance(document.get("shards"), list) and not settings.host_prefix:
        raise ValueError("it is a file of Redis shards: redis:FILE is the store that goes with it")
    found = [_entry(key, number, document[key]) for key, number in _numbered(document, settings.host_prefix)]
    if not found:
        prefix = settings.host_prefix
        raise ValueError(
            "it names no shard" + (f": no key begins with {prefix!r} (mysql.host_prefix)" if prefix else "")
        )
    if all(entry.lost for entry in found):
        raise ValueError("every shard in it is lost (lostForGood)")
    keys: dict[int, str] = {}
    for entry in found:
        if entry.number in keys:
            raise ValueError(f"{keys[entry.number]!r} and {entry.key!r} have the same number")
        keys[entry.number] = entry.key
    return sorted(found, key=lambda entry: entry.number)


def _numbered(document: Mapping[str, Any], prefix: str | None) -> Iterator[tuple[str, int]]:
    """The keys that are shards, with their numbers."""
    for key in document:
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
        yield key, number


def _entry(key: str, number: int, value: Any) -> MysqlEntry:
    if not isinstance(value, dict):
        raise ValueError(f"{key!r} is no object with master, user and passwd")  # noqa: TRY004
    check_words(key, value, FIELDS)
    socket, master = optional_text(key, value, "socket"), value.get("master")
    host, port = ("localhost", 3306) if master is None and socket is not None else master_of(key, master)
    return MysqlEntry(
        key=key,
        number=number,
        host=host,
        port=port,
        user=optional_text(key, value, "user"),
        password=optional_text(key, value, "passwd"),
        dequeue_only=bool(optional_flag(key, value, "dequeueOnly")),
        lost=bool(optional_flag(key, value, "lostForGood")),
        socket=socket,
        tls=optional_flag(key, value, "tls"),
    )
