"""A single Redis or Valkey, named by a URL: `redis://USER@HOST:PORT/DB`, `rediss://` if connections are encrypted.

In the place of the host there may be a socket (`?socket=PATH`) or Sentinels with the master's name (`?sentinel=HOST:PORT&master=NAME`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pinlater.server.config.addresses import SENTINEL_PORT, SentinelAddress, parse_addresses
from pinlater.server.config.url_parts import UrlKind, check_host, decoded, named_socket, single, take_apart

DATABASE_MAX = 1_000_000
_PORT = 6379
_KIND = UrlKind(
    "redis://USER@HOST:PORT/DB",
    "a password that holds one of / ? # @ % has to be percent-encoded, or given by PINLATER_REDIS_PASSWORD",
    {"socket": "socket=PATH", "sentinel": "sentinel=HOST:PORT", "master": "master=NAME"},
)


@dataclass(frozen=True, slots=True, repr=False)
class RedisUrl:
    """A single Redis. What the URL leaves out is None or empty: the settings have it. Never shown with its password."""

    host: str
    port: int = _PORT
    user: str | None = None
    password: str | None = None
    db: int = 0
    socket: str | None = None
    tls: bool | None = None
    sentinels: tuple[SentinelAddress, ...] = ()
    master: str | None = None

    def __str__(self) -> str:
        user = f"{self.user}@" if self.user is not None else ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = f":{self.port}" if self.host else ""
        options = [("socket", self.socket), *(("sentinel", str(one)) for one in self.sentinels)]
        query = "&".join(f"{name}={value}" for name, value in [*options, ("master", self.master)] if value is not None)
        place = f"{'rediss' if self.tls else 'redis'}://{user}{host}{port}/{self.db}"
        return f"{place}?{query}" if query else place

    def __repr__(self) -> str:
        return f"RedisUrl({self})"


def parse_redis_url(text: str) -> RedisUrl:
    """Raises `ValueError` in words, without any password."""
    taken = take_apart(text, _KIND)
    socket, master = named_socket(taken.options), single(taken.options, "master")
    sentinels = parse_addresses(taken.options.get("sentinel", ()), SENTINEL_PORT)
    if master == "":
        raise ValueError("names no master behind master=")
    if sentinels and master is None:
        raise ValueError("names Sentinels and not which master to ask them for: &master=NAME")
    if taken.host and master is not None:
        raise ValueError("names a host and a master: Sentinels say where the master is, so write redis://USER@/DB?…")
    if not taken.host and socket is None and master is None:
        raise ValueError("names no host: redis://USER@HOST:PORT/DB, or ?socket=PATH or ?master=NAME behind it")
    if socket is not None and master is not None:
        raise ValueError("names a socket and a master: only one of them can be where Redis is")
    check_host(taken.host, _KIND)
    tls = True if text[:7].lower() == "rediss:" else None
    return RedisUrl(
        taken.host,
        taken.port or _PORT,
        taken.user,
        taken.password,
        _database(taken.path),
        socket,
        tls,
        sentinels,
        master,
    )


def _database(path: str) -> int:
    number = decoded(path, "database", _KIND.encode)
    if not number:
        return 0
    if not re.fullmatch(r"[0-9]{1,7}", number, re.ASCII) or int(number) > DATABASE_MAX:
        raise ValueError("has a database that is no number: Redis' are called 0, 1, 2 …")
    return int(number)
