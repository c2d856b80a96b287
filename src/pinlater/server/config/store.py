"""Which store a server keeps its jobs in, from one word: `sqlite:PATH`, `memory:`, `mysql:FILE`, `mysql://user@host/database` …

A URL may hold a password. It is never part of what is shown: not of a location's text, not of a complaint about one.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from pinlater.server.config.errors import did_you_mean
from pinlater.server.config.mysql_url import MysqlUrl, parse_mysql_url
from pinlater.server.config.paths import resolved
from pinlater.server.config.redis_url import RedisUrl, parse_redis_url

POSSIBLE = (
    "sqlite:PATH, memory:, mysql:FILE or redis:FILE (a shard file), mysql://USER@HOST:PORT/DATABASE"
    " or redis://USER@HOST:PORT/DB is possible"
)
SHARDED = ("mysql", "redis")
"""Kinds of stores that have any number of shards, and any number of servers on each."""

_KINDS = ("sqlite", "memory", *SHARDED)
_URLS = {"mysql": "mysql://USER@HOST:PORT/DATABASE", "redis": "redis://USER@HOST:PORT/DB"}


class StoreLocation(NamedTuple):
    """A store and where it is: `path` is the file of an SQLite store, `shard_file` or `url` say where another's shards are."""

    kind: str
    path: Path | None = None
    shard_file: Path | None = None
    url: MysqlUrl | RedisUrl | None = None

    @property
    def is_sharded(self) -> bool:
        """Whether it may have several shards, and several servers."""
        return self.kind in SHARDED

    def __str__(self) -> str:
        return str(self.url) if self.url is not None else f"{self.kind}:{self.path or self.shard_file or ''}"


def parse_store(text: str, base: Path | None = None) -> StoreLocation:
    """The location that `text` names; a relative path counts from `base`. Raises `ValueError` in words, without any password."""
    kind, colon, rest = text.strip().partition(":")
    if kind == "memory" and not rest:
        return StoreLocation("memory")
    if kind == "sqlite" and colon:
        return StoreLocation("sqlite", _file(rest, base))
    if kind == "mysql" and rest.startswith("//"):
        return StoreLocation("mysql", url=parse_mysql_url(text.strip()))
    if kind in ("redis", "rediss") and rest.startswith("//"):
        return StoreLocation("redis", url=parse_redis_url(text.strip()))
    if kind in SHARDED and colon:
        return StoreLocation(kind, shard_file=_shard_file(kind, rest, base))
    if kind in ("mariadb", "mysql+asyncmy"):
        raise ValueError("is not a store: MariaDB's are called mysql, too (did you mean mysql://…?)")
    if kind in ("valkey", "valkeys"):
        raise ValueError("is not a store: Valkey's are called redis, too (did you mean redis://…?)")
    near = did_you_mean(kind, _KINDS) if colon else f" (did you mean sqlite:{text.strip()}?)"
    raise ValueError(f"is not a store: {POSSIBLE}{near}")


def without_password(text: str) -> str:
    """`text` as a complaint may show it: of what could be a URL with a password, nothing up to the last `@` and no query."""
    kind, colon, rest = text.strip().partition(":")
    if not colon or kind == "sqlite" or ("@" not in rest and not rest.startswith("//")):
        return text
    slashes = "//" if rest.startswith("//") else ""
    place = rest.rpartition("@")[2].partition("?")[0] if "@" in rest else ""
    return f"{kind}:{slashes}…" + (f"@{place}" if place else "")


def _file(rest: str, base: Path | None) -> Path:
    if not rest:
        raise ValueError("names no file: write sqlite:PATH, for example sqlite:pinlater.db")
    if rest == ":memory:":
        raise ValueError("is not possible: a store in memory is called memory:")
    if rest.startswith("//") and not rest.startswith("///"):
        raise ValueError("names a host, but an SQLite store is a file: write sqlite:PATH")
    return resolved(rest, base)


def _shard_file(kind: str, rest: str, base: Path | None) -> Path:
    if not rest:
        raise ValueError(f"names no shard file: write {kind}:FILE, or {_URLS[kind]} for a single database")
    if "@" in rest and ":" in rest:
        raise ValueError(f"is neither a file nor a URL: a URL begins with {kind}://")
    return resolved(rest, base)
