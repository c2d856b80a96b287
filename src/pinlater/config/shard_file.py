"""Where the MySQL store's shards are: the original's shard file, read again when it changes, or the one database of a URL.

    {"pinlaterdb001": {"master": {"host": "10.0.0.1", "port": 3306}, "slave": …, "user": "…", "passwd": "…", "dequeueOnly": false}}

A key is a prefix and the replica set's number; every one of its databases is a shard. `slave` is not used. Ours also understands
`socket` and `tls`, and takes user and password from the settings where an entry has none. Errors name the key, and never a password.
A misspelt word of an entry is an error where it is near a known one (a `dequeuOnly` must not be overlooked); others are let be, since
such files also serve other programs.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pinlater.config.errors import did_you_mean
from pinlater.config.files import WatchedFile, read_bytes, understood
from pinlater.config.settings import Settings
from pinlater.storage.mysql.settings import Endpoint, MysqlSettings

log = logging.getLogger(__name__)

FIELDS = ("master", "slave", "user", "passwd", "dequeueOnly", "socket", "tls")
_NUMBERED = re.compile(r"(.*?)([0-9]+)", re.ASCII | re.DOTALL)
_NUMBER_MAX = 999_999_999


class ShardPlace(NamedTuple):
    """One shard: its name, the key it stands under in the shard file (empty for a URL's), and where it is."""

    name: str
    key: str
    endpoint: Endpoint
    takes_enqueues: bool = True


class ShardSource:
    """The shards that the settings name, and whether they have changed since. Raises `FileBroken` where they can't be told at the start."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._find = _finder(settings)
        path, password_file = settings.store.shard_file, settings.mysql.password_file
        self._shards = None if path is None else WatchedFile(path, lambda content: parse(content, settings.mysql))
        self._password = None if password_file is None else WatchedFile(password_file, parse_password)
        self.places = self._found()

    @property
    def last_error(self) -> str | None:
        """What is wrong with the files as they are now; None when they are good."""
        errors = [file.last_error for file in (self._shards, self._password) if file is not None and file.last_error]
        return "; ".join(errors) or None

    def refresh(self) -> bool:
        """Looks at the files again; whether the shards are others now. Never raises; a broken file changes nothing."""
        for file in (self._shards, self._password):
            if file is not None:
                file.refresh()
        before, self.places = self.places, self._found()
        return before != self.places

    def _found(self) -> Sequence[ShardPlace]:
        entries = () if self._shards is None else self._shards.value
        return self._find(entries, None if self._password is None else self._password.value)


def find_shards(settings: Settings) -> Sequence[ShardPlace]:
    """The shards that the settings name now. Raises `FileBroken`."""
    path, password_file = settings.store.shard_file, settings.mysql.password_file
    entries = () if path is None else understood(path, lambda c: parse(c, settings.mysql), read_bytes(path))
    password = None if password_file is None else understood(password_file, parse_password, read_bytes(password_file))
    return _finder(settings)(entries, password)


# --- from entries to shards -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, repr=False)
class Entry:
    """A replica set of the shard file. What it leaves out is None."""

    key: str
    number: int
    host: str
    port: int
    user: str | None
    password: str | None
    dequeue_only: bool
    socket: str | None
    tls: bool | None

    def __repr__(self) -> str:
        return f"Entry({self.key})"


def _finder(settings: Settings) -> Callable[[Sequence[Entry], str | None], Sequence[ShardPlace]]:
    """How the shards follow from the entries of the shard file and what the password file holds."""
    mysql, url = settings.mysql, settings.store.url

    def login(user: str | None, password: str | None, from_file: str | None) -> tuple[str, str]:
        found = next((one for one in (password, from_file, mysql.password) if one is not None), "")
        return user or mysql.user, found

    def find(entries: Sequence[Entry], from_file: str | None) -> Sequence[ShardPlace]:
        if url is not None:
            user, password = login(url.user, url.password, from_file)
            database = url.database or mysql.database_of("1")
            return [ShardPlace("1", "", Endpoint(url.host, url.port, user, password, database, url.socket, url.tls))]
        places = []
        for entry in entries:
            user, password = login(entry.user, entry.password, from_file)
            for name in shard_names(entry.number, mysql.databases_per_server):
                where = Endpoint(
                    entry.host, entry.port, user, password, mysql.database_of(name), entry.socket, entry.tls
                )
                places.append(ShardPlace(name, entry.key, where, not entry.dequeue_only))
        return places

    return find


def shard_names(number: int, databases: int) -> list[str]:
    """The shards on one replica set: `3`, `3d1`, `3d2` …"""
    return [f"{number}d{database}" if database else str(number) for database in range(databases)]


# --- the file -------------------------------------------------------------------------------------------------------------------


def parse(content: bytes, settings: MysqlSettings) -> Sequence[Entry]:
    """The entries in the order of their numbers. Raises ValueError that names the key."""
    try:
        document = json.loads(content.decode("utf-8-sig"), object_pairs_hook=_without_twins)
    except UnicodeDecodeError:
        raise ValueError("not text in UTF-8") from None
    if not isinstance(document, dict):
        raise ValueError("it holds no object of shards by name")  # noqa: TRY004 (what is wrong is the file's content)
    found = [_entry(key, number, document[key]) for key, number in _numbered(document, settings.host_prefix)]
    if not found:
        prefix = settings.host_prefix
        raise ValueError(
            "it names no shard" + (f": no key begins with {prefix!r} (mysql.host_prefix)" if prefix else "")
        )
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


def _entry(key: str, number: int, value: Any) -> Entry:
    if not isinstance(value, dict):
        raise ValueError(f"{key!r} is no object with master, user and passwd")  # noqa: TRY004
    for name in value:
        hint = "" if name in FIELDS else did_you_mean(name, FIELDS)
        if hint:
            raise ValueError(f"{key!r} has an unknown {name!r}{hint}")
    socket = _optional(key, value, "socket", str)
    host, port = _master(key, value.get("master"), socket)
    return Entry(
        key=key,
        number=number,
        host=host,
        port=port,
        user=_optional(key, value, "user", str),
        password=_optional(key, value, "passwd", str),
        dequeue_only=bool(_optional(key, value, "dequeueOnly", bool)),
        socket=socket,
        tls=_optional(key, value, "tls", bool),
    )


def _master(key: str, master: Any, socket: str | None) -> tuple[str, int]:
    if master is None and socket is not None:
        return "localhost", 3306
    if not isinstance(master, dict):
        raise ValueError(f"{key!r} has no master with host and port")  # noqa: TRY004
    host, port = master.get("host"), master.get("port")
    if not isinstance(host, str) or not host.strip() or re.search(r"[\s/@\x00]", host):
        raise ValueError(f"{key!r}: master's host is no name or address of a host")
    if isinstance(port, str) and re.fullmatch(r"[0-9]{1,5}", port, re.ASCII):
        port = int(port)
    if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65_535:
        raise ValueError(f"{key!r}: master's port is no number from 1 to 65535")
    return host, port


def _optional(key: str, value: Mapping[str, Any], name: str, kind: type) -> Any:
    """The value, or None where it is left out or null. Empty text is a user's or socket's absence, and a password."""
    found = value.get(name)
    if found is None:
        return None
    if not isinstance(found, kind):
        expected = "true or false" if kind is bool else "text"
        raise ValueError(f"{key!r}: {name} is not {expected}")  # noqa: TRY004
    if isinstance(found, str) and "\0" in found:
        raise ValueError(f"{key!r}: {name} has a zero byte in it")
    return None if found == "" and name != "passwd" else found


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name!r} is there twice")
        found[name] = value
    return found


def parse_password(content: bytes) -> str:
    """The first line. Raises ValueError."""
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError:
        raise ValueError("not text in UTF-8") from None
    if not lines or not lines[0]:
        raise ValueError("its first line, where the password belongs, is empty")
    return lines[0]
