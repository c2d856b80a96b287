"""A single MySQL or MariaDB database, named by a URL: `mysql://USER@HOST:PORT/DATABASE`, or with a socket in the place of the host."""

from __future__ import annotations

from dataclasses import dataclass

from pinlater.server.config.url_parts import UrlKind, check_host, decoded, named_socket, single, take_apart
from pinlater.server.storage.mysql.settings import DATABASE_NAME

_PORT = 3306
_YES, _NO = {"true", "yes", "on", "1"}, {"false", "no", "off", "0"}
_KIND = UrlKind(
    "mysql://USER@HOST:PORT/DATABASE",
    "a password that holds one of / ? # @ % has to be percent-encoded, or given by PINLATER_MYSQL_PASSWORD",
    {"socket": "socket=PATH", "tls": "tls=true"},
)


@dataclass(frozen=True, slots=True, repr=False)
class MysqlUrl:
    """A single database. What the URL leaves out is None: the settings have it. Never shown with its password."""

    host: str
    port: int = _PORT
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


def parse_mysql_url(text: str) -> MysqlUrl:
    """Raises `ValueError` in words, without any password."""
    taken = take_apart(text, _KIND)
    socket, tls = named_socket(taken.options), single(taken.options, "tls")
    if tls is not None and tls.lower() not in _YES | _NO:
        raise ValueError("has a tls= that is neither true nor false")
    if not taken.host and socket is None:
        raise ValueError("names no host: mysql://USER@HOST:PORT/DATABASE, or ?socket=PATH behind it")
    check_host(taken.host, _KIND)
    encrypted = None if tls is None else tls.lower() in _YES
    return MysqlUrl(
        taken.host, taken.port or _PORT, taken.user, taken.password, _database(taken.path), socket, encrypted
    )


def _database(path: str) -> str | None:
    name = decoded(path, "database", _KIND.encode)
    if not name:
        return None
    if not DATABASE_NAME.fullmatch(name):
        raise ValueError("has a database's name with other signs than letters, digits, _ $ and -, or over 64 of them")
    return name
