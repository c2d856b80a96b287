"""Where a shard is, from an entry of a shard file or a URL, and how the words of such an entry are parsed.

Messages name the entry and the word, never its value. An unknown word is an error if it is similar to a known one (a `dequeuOnly` must not
be overlooked). Other unknown words are ignored, since such files also serve other programs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pinlater.server.config.errors import did_you_mean

_SENTINEL_PORT = 26379
_SENTINEL = re.compile(
    r"(?:\[(?P<six>[^\]\s/@]+)\]|(?P<host>[^:\[\]\s/@\x00-\x1f]+))(?::(?P<port>[0-9]{1,5}))?", re.ASCII
)


class SentinelAddress(NamedTuple):
    """Host and port of a Sentinel."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, repr=False)
class ShardAddress:
    """Where a shard is and with which user and password to log in there. An absent part is None or empty: the settings supply it. Never
    shown with its password.

    The text is a URL.
    """

    scheme: str
    host: str
    port: int
    user: str | None = None
    password: str | None = None
    database: str | None = None
    socket: str | None = None
    tls: bool | None = None
    sentinels: tuple[SentinelAddress, ...] = ()
    master: str | None = None

    def __str__(self) -> str:
        user = f"{self.user}@" if self.user is not None else ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = f":{self.port}" if self.host else ""
        options = [
            ("socket", self.socket),
            *(("sentinel", str(one)) for one in self.sentinels),
            ("master", self.master),
        ]
        if self.tls is not None and self.scheme != "rediss":
            options.append(("tls", str(self.tls).lower()))
        query = "&".join(f"{name}={value}" for name, value in options if value is not None)
        return f"{self.scheme}://{user}{host}{port}/{self.database or ''}{'?' if query else ''}{query}"

    def __repr__(self) -> str:
        return f"ShardAddress({self})"


class ShardEntry(NamedTuple):
    """An entry of a shard file, or a URL. `key` is empty for a URL. `names`: its shards. `lost`: their data are gone for good; the entry
    only records that."""

    key: str
    names: Sequence[str]
    address: ShardAddress
    dequeue_only: bool = False
    lost: bool = False


class ConfiguredShard(NamedTuple):
    """One shard: its name, the entry of the shard file it comes from, and where it is."""

    name: str
    key: str
    endpoint: Any  # a value of the kind of store; its text is the address, without the password
    takes_enqueues: bool = True
    lost: bool = False


def read_document(content: bytes) -> dict[str, Any]:
    """The object in a shard file. Raises ValueError."""
    try:
        document = json.loads(content.decode("utf-8-sig"), object_pairs_hook=_without_duplicates)
    except UnicodeDecodeError:
        raise ValueError("not text in UTF-8") from None
    if not isinstance(document, dict):
        raise ValueError("it is not an object of shards by name")  # noqa: TRY004 (what is wrong is the file's content)
    return document


def read_entry(
    key: str, names: Sequence[str], value: Mapping[str, Any], scheme: str, place: tuple[str, int], **more: Any
) -> ShardEntry:
    """The entry with the words that every kind has. `place`: host and port; `more`: fields of the address. Raises ValueError."""
    user, password = (optional_text(key, value, word) for word in ("user", "passwd"))
    socket, tls = optional_text(key, value, "socket"), _optional_flag(key, value, "tls")
    address = ShardAddress(scheme, *place, user, password, socket=socket, tls=tls, **more)
    dequeue_only, lost = (bool(_optional_flag(key, value, word)) for word in ("dequeueOnly", "lostForGood"))
    return ShardEntry(key, names, address, dequeue_only, lost)


def check_words(key: str, value: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raises ValueError for a word that is probably a misspelling of one of the `known` words."""
    for name in value:
        hint = "" if name in known else did_you_mean(name, known)
        if hint:
            raise ValueError(f"{key!r} has an unknown {name!r}{hint}")


def master_of(key: str, value: Mapping[str, Any]) -> tuple[str, int]:
    """Returns host and port from `master`. Raises ValueError."""
    master = value.get("master")
    if not isinstance(master, dict):
        raise ValueError(f"{key!r} has no master with host and port")  # noqa: TRY004
    host, port = master.get("host"), master.get("port")
    if not isinstance(host, str) or not host.strip() or re.search(r"[\s/@\x00]", host):
        raise ValueError(f"{key!r}: master's host is not the name or address of a host")
    if isinstance(port, str) and re.fullmatch(r"[0-9]{1,5}", port, re.ASCII):
        port = int(port)
    if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65_535:
        raise ValueError(f"{key!r}: master's port is not a number from 1 to 65535")
    return host, port


def optional_text(key: str, value: Mapping[str, Any], name: str) -> str | None:
    """Returns the string, or None if it is left out or null. An empty string counts as left out, but is a valid password."""
    found = value.get(name)
    if found is None:
        return None
    if not isinstance(found, str):
        raise ValueError(f"{key!r}: {name} is not a string")  # noqa: TRY004
    if "\0" in found:
        raise ValueError(f"{key!r}: {name} has a zero byte in it")
    return None if found == "" and name != "passwd" else found


def parse_sentinels(texts: Sequence[str]) -> tuple[SentinelAddress, ...]:
    """Parses strings with one `HOST:PORT` each, or several with commas between them. Raises `ValueError` with a text that does not
    contain the string."""
    return tuple(_sentinel(part) for text in texts for part in text.split(","))


def _sentinel(text: str) -> SentinelAddress:
    found = _SENTINEL.fullmatch(text.strip())
    port = _SENTINEL_PORT if found is None or found["port"] is None else int(found["port"])
    if found is None or not 1 <= port <= 65_535:
        raise ValueError("has an address of a Sentinel that is not HOST:PORT")
    return SentinelAddress(found["six"] or found["host"], port)


def _optional_flag(key: str, value: Mapping[str, Any], name: str) -> bool | None:
    """Returns the value, or None if it is left out or null."""
    found = value.get(name)
    if found is not None and not isinstance(found, bool):
        raise ValueError(f"{key!r}: {name} is not true or false")
    return found


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name!r} occurs twice")
        found[name] = value
    return found
