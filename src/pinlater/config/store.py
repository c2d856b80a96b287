"""Which store a server keeps its jobs in, from one word: `sqlite:PATH`, `memory:`, `mysql:FILE` or `mysql://user@host/database`.

A URL may hold a password. It is never part of what is shown: not of a location's text, not of a complaint about one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from pinlater.config.errors import did_you_mean
from pinlater.config.paths import resolved
from pinlater.storage.mysql.settings import DATABASE_NAME

POSSIBLE = "sqlite:PATH, memory:, mysql:FILE (a shard file) or mysql://USER@HOST:PORT/DATABASE is possible"
_KINDS = ("sqlite", "memory", "mysql")
_LATER = {"redis": "Redis"}
_MYSQL_PORT = 3306
_YES, _NO = {"true", "yes", "on", "1"}, {"false", "no", "off", "0"}
_ENCODE = "a password that holds one of / ? # @ % has to be percent-encoded, or given by PINLATER_MYSQL_PASSWORD"


@dataclass(frozen=True, slots=True, repr=False)
class MysqlUrl:
    """A single database. What the URL leaves out is None: the settings have it. Never shown with its password."""

    host: str
    port: int = _MYSQL_PORT
    user: str | None = None
    password: str | None = None
    database: str | None = None
    socket: str | None = None
    tls: bool | None = None

    def __str__(self) -> str:
        user = f"{self.user}@" if self.user is not None else ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        options = {"socket": self.socket, "tls": None if self.tls is None else str(self.tls).lower()}
        query = "&".join(f"{name}={value}" for name, value in options.items() if value is not None)
        place = f"mysql://{user}{host}:{self.port}/{self.database or ''}"
        return f"{place}?{query}" if query else place

    def __repr__(self) -> str:
        return f"MysqlUrl({self})"


class StoreLocation(NamedTuple):
    """A store and where it is: `path` is the file of an SQLite store, `shard_file` or `url` say where MySQL's shards are."""

    kind: str
    path: Path | None = None
    shard_file: Path | None = None
    url: MysqlUrl | None = None

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
        return StoreLocation("mysql", url=_url(text.strip()))
    if kind == "mysql" and colon:
        return StoreLocation("mysql", shard_file=_shard_file(rest, base))
    if kind in _LATER:
        raise ValueError(f"names a {_LATER[kind]} store, which is not in this build yet: {POSSIBLE}")
    if kind in ("mariadb", "mysql+asyncmy"):
        raise ValueError("is not a store: MariaDB's are called mysql, too (did you mean mysql://…?)")
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


# --- files ------------------------------------------------------------------------------------------------------------


def _file(rest: str, base: Path | None) -> Path:
    if not rest:
        raise ValueError("names no file: write sqlite:PATH, for example sqlite:pinlater.db")
    if rest == ":memory:":
        raise ValueError("is not possible: a store in memory is called memory:")
    if rest.startswith("//") and not rest.startswith("///"):
        raise ValueError("names a host, but an SQLite store is a file: write sqlite:PATH")
    return resolved(rest, base)


def _shard_file(rest: str, base: Path | None) -> Path:
    if not rest:
        raise ValueError(
            "names no shard file: write mysql:FILE, or mysql://USER@HOST:PORT/DATABASE for a single database"
        )
    if "@" in rest and ":" in rest:
        raise ValueError("is neither a file nor a URL: a URL begins with mysql://")
    return resolved(rest, base)


# --- URLs -------------------------------------------------------------------------------------------------------------


def _url(text: str) -> MysqlUrl:
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise ValueError(f"is no URL with a host and a port: mysql://USER@HOST:PORT/DATABASE ({_ENCODE})") from None
    if parts.fragment or text.endswith("#"):
        raise ValueError(f"has a # in it, which ends a URL: {_ENCODE}")
    if port == 0:
        raise ValueError("has port 0, where nobody listens")
    user, password = (None if part is None else _decoded(part, "user or password") for part in _login(parts))
    socket, tls = _options(parts.query)
    host = _decoded(host, "host")
    if not host and socket is None:
        raise ValueError("names no host: mysql://USER@HOST:PORT/DATABASE, or ?socket=PATH behind it")
    if re.search(r"[\s/@\x00-\x1f]", host):
        raise ValueError(f"has a host that none can be called so ({_ENCODE})")
    return MysqlUrl(host, port or _MYSQL_PORT, user, password, _database(parts.path), socket, tls)


def _login(parts: SplitResult) -> tuple[str | None, str | None]:
    """As written; `None` for what is left out, an empty password for one that is there and empty."""
    before, at, _ = parts.netloc.rpartition("@")
    if not at:
        return None, None
    user, colon, password = before.partition(":")
    return user or None, password if colon else None


def _decoded(text: str, what: str) -> str:
    try:
        found = unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise ValueError(f"has a {what} that is not UTF-8 when decoded") from None
    if "\0" in found or re.search(r"%(?![0-9A-Fa-f]{2})", text):
        raise ValueError(f"has a % in its {what} that is no escape such as %25: {_ENCODE}")
    return found


def _database(path: str) -> str | None:
    name = _decoded(path.removeprefix("/"), "database")
    if not name:
        return None
    if not DATABASE_NAME.fullmatch(name):
        raise ValueError("has a database's name with other signs than letters, digits, _ $ and -, or over 64 of them")
    return name


def _options(query: str) -> tuple[str | None, bool | None]:
    """`socket` and `tls`. A value isn't shown: whoever misspells an option may have meant a password by it."""
    given: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in ("socket", "tls"):
            hint = did_you_mean(name, ("socket", "tls"))
            raise ValueError(f"has an option that there is not: ?socket=PATH and ?tls=true are possible{hint}")
        if name in given:
            raise ValueError(f"has the option {name} twice")
        given[name] = value
    socket, tls = given.get("socket"), given.get("tls")
    if socket == "":
        raise ValueError("names no socket behind socket=")
    if tls is not None and tls.lower() not in _YES | _NO:
        raise ValueError("has a tls= that is neither true nor false")
    return socket, None if tls is None else tls.lower() in _YES
