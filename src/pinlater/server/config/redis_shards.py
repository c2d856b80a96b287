"""Where the Redis store's shards are: the original's shard file, or the one Redis of a URL.

    {"shards": [{"name": "1", "shardConfig": {"master": {"host": "10.0.0.1", "port": 6379}, "slave": …, "dequeueOnly": false}}]}

`slave` is not used. Ours also understands, beside `master`: `lostForGood`, `user`, `passwd`, `db`, `socket`, `tls`, and
`sentinelMaster` with `sentinels` (`["host:port", …]`), which say where the master is in the place of `master`. What an entry leaves
out the settings have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pinlater.server.config.addresses import SENTINEL_PORT, SentinelAddress, parse_addresses
from pinlater.server.config.configured_shard import ConfiguredShard
from pinlater.server.config.entry_words import check_words, master_of, optional_flag, optional_text, read_document
from pinlater.server.config.redis_url import DATABASE_MAX, RedisUrl
from pinlater.server.storage.redis.settings import RedisEndpoint, RedisSettings

FIELDS = ("name", "shardConfig")
CONFIG_FIELDS = (
    *("master", "slave", "dequeueOnly", "lostForGood", "user", "passwd", "db", "socket", "tls", "sentinels"),
    "sentinelMaster",
)
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True, repr=False)
class RedisEntry:
    """A shard of the file. What it leaves out is None or empty."""

    name: str
    host: str
    port: int
    dequeue_only: bool
    lost: bool
    user: str | None
    password: str | None
    db: int
    socket: str | None
    tls: bool | None
    sentinels: tuple[SentinelAddress, ...]
    master: str | None

    def __repr__(self) -> str:
        return f"RedisEntry({self.name})"


class RedisShards:
    """How shards follow from a file's entries, or a URL, and the settings."""

    def __init__(self, settings: RedisSettings) -> None:
        self.password_file = settings.password_file
        self._settings = settings

    def parse(self, content: bytes) -> Sequence[RedisEntry]:
        """What the shard file says. Raises ValueError that names the shard."""
        return parse(content, self._settings)

    def of_url(self, url: Any, from_file: str | None) -> ConfiguredShard:
        """The one shard. `from_file`: the password in the password file."""
        if not isinstance(url, RedisUrl):
            raise TypeError(f"no URL of ours: {url}")
        user, password = self._login(url.user, url.password, from_file)
        sentinels = () if url.master is None else url.sentinels or default_sentinels(self._settings)
        return ConfiguredShard(
            "1",
            "",
            RedisEndpoint(url.host, url.port, user, password, url.db, url.socket, url.tls, sentinels, url.master or ""),
        )

    def of_entries(self, entries: Sequence[Any], from_file: str | None) -> Iterator[ConfiguredShard]:
        """All of them, in the file's order."""
        for entry in entries:
            user, password = self._login(entry.user, entry.password, from_file)
            sentinels = () if entry.master is None else entry.sentinels or default_sentinels(self._settings)
            where = RedisEndpoint(
                *(entry.host, entry.port, user, password, entry.db, entry.socket, entry.tls),
                sentinels,
                entry.master or "",
            )
            yield ConfiguredShard(entry.name, entry.name, where, not entry.dequeue_only, entry.lost)

    def _login(self, user: str | None, password: str | None, from_file: str | None) -> tuple[str, str]:
        given = (password, from_file, self._settings.password)
        return user or self._settings.user, next((one for one in given if one is not None), "")


def default_sentinels(settings: RedisSettings) -> tuple[SentinelAddress, ...]:
    """The addresses of `redis.sentinels`. Raises ValueError."""
    return parse_addresses(settings.sentinels, SENTINEL_PORT)


def parse(content: bytes, settings: RedisSettings) -> Sequence[RedisEntry]:
    """The entries in the file's order. Raises ValueError that names the shard."""
    shards = read_document(content).get("shards")
    if not isinstance(shards, list):
        raise ValueError('it has no list "shards", as a file of Redis shards has')  # noqa: TRY004
    found: dict[str, RedisEntry] = {}
    for number, value in enumerate(shards, 1):
        entry = _entry(number, value, settings)
        if entry.name in found:
            raise ValueError(f"the shard {entry.name!r} is there twice")
        found[entry.name] = entry
    if not found:
        raise ValueError("it names no shard")
    if all(entry.lost for entry in found.values()):
        raise ValueError("every shard in it is lost (lostForGood)")
    return list(found.values())


def _entry(number: int, value: Any, settings: RedisSettings) -> RedisEntry:
    place = f"shard {number} of the list"
    if not isinstance(value, dict):
        raise ValueError(f"{place} is no object with name and shardConfig")  # noqa: TRY004
    name = value.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"{place} has no name of letters, digits and the signs _ . -")
    check_words(name, value, FIELDS)
    config = value.get("shardConfig")
    if not isinstance(config, dict):
        raise ValueError(f"{name!r} has no shardConfig with a master in it")  # noqa: TRY004
    check_words(name, config, CONFIG_FIELDS)
    sentinels, master = _sentinels(name, config), optional_text(name, config, "sentinelMaster")
    if sentinels and master is None:
        raise ValueError(f"{name!r} has sentinels, and no sentinelMaster that says which master to ask them for")
    if master is not None and not sentinels and not settings.sentinels:
        raise ValueError(
            f"{name!r} has a sentinelMaster, and neither it nor the settings (redis.sentinels) name Sentinels"
        )
    socket = optional_text(name, config, "socket")
    if socket is not None and master is not None:
        raise ValueError(f"{name!r} has a socket and a sentinelMaster: only one of them can be where Redis is")
    named_elsewhere = socket is not None or master is not None
    host, port = ("", 6379) if named_elsewhere else master_of(name, config.get("master"))
    return RedisEntry(
        name=name,
        host=host,
        port=port,
        dequeue_only=bool(optional_flag(name, config, "dequeueOnly")),
        lost=bool(optional_flag(name, config, "lostForGood")),
        user=optional_text(name, config, "user"),
        password=optional_text(name, config, "passwd"),
        db=_database(name, config.get("db")),
        socket=socket,
        tls=optional_flag(name, config, "tls"),
        sentinels=sentinels,
        master=master,
    )


def _sentinels(name: str, config: Mapping[str, Any]) -> tuple[SentinelAddress, ...]:
    found = config.get("sentinels")
    if found is None:
        return ()
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ValueError(f'{name!r}: sentinels is no list of "host:port"')
    try:
        return parse_addresses(found, SENTINEL_PORT)
    except ValueError as error:
        raise ValueError(f"{name!r} {error}") from None


def _database(name: str, db: Any) -> int:
    if db is None:
        return 0
    if isinstance(db, bool) or not isinstance(db, int) or not 0 <= db <= DATABASE_MAX:
        raise ValueError(f"{name!r}: db is no number of a database: 0, 1, 2 …")
    return db
