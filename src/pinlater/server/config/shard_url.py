"""A single shard, named by a URL: `mysql://USER@HOST:PORT/DATABASE?tls=true`, `rediss://USER@HOST:PORT/DB`.

Instead of the host there may be a socket (`?socket=PATH`) or, for Redis, Sentinels with the master's name
(`?sentinel=HOST:PORT&master=NAME`). No error shows a value: if a password is not encoded, parts of it may be anywhere in the URL.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from pinlater.server.config.errors import did_you_mean
from pinlater.server.config.shard_entry import ShardAddress, parse_sentinels

if TYPE_CHECKING:
    from pinlater.server.config.kinds.kind import ShardedKind

YES, NO = frozenset({"true", "yes", "on", "1"}), frozenset({"false", "no", "off", "0"})
_HOST_FORBIDDEN = re.compile(r"[\s/@\x00-\x1f]")


def parse_url(text: str, kind: ShardedKind) -> ShardAddress:
    """The address in the URL. Raises `ValueError` with a text that contains no password."""
    encode = f"a password that holds one of / ? # @ % has to be percent-encoded, or given by PINLATER_{kind.name.upper()}_PASSWORD"
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise ValueError(f"is not a URL with a host and a port: {kind.url_form} ({encode})") from None
    if parts.fragment or text.endswith("#"):
        raise ValueError(f"has a # in it, which ends a URL: {encode}")
    if port == 0:
        raise ValueError("has port 0, where no server listens")
    user, password = (None if part is None else _decoded(part, "user or password", encode) for part in _login(parts))
    options = _options(parts.query, kind)
    host = _decoded(host, "host", encode)
    socket, master, tls = (_single(options, name) for name in ("socket", "master", "tls"))
    sentinels = parse_sentinels(options.get("sentinel", ()))
    if tls is not None and tls.lower() not in YES | NO:
        raise ValueError("has a tls= that is neither true nor false")
    if sentinels and master is None:
        raise ValueError("names Sentinels and not which master to ask them for: &master=NAME")
    if host and master is not None:
        raise ValueError("names a host and a master: Sentinels say where the master is, so write redis://USER@/DB?…")
    if not host and socket is None and master is None:
        places = " or ".join(f"?{kind.url_options[name]}" for name in ("socket", "master") if name in kind.url_options)
        raise ValueError(f"names no host: {kind.url_form}, or {places} behind it")
    if socket is not None and master is not None:
        raise ValueError("names a socket and a master: only one of them can be where Redis is")
    if _HOST_FORBIDDEN.search(host):
        raise ValueError(f"has an invalid host ({encode})")
    encrypted = True if parts.scheme == "rediss" else None if tls is None else tls.lower() in YES
    database = kind.database_of_url(_decoded(parts.path.removeprefix("/"), "database", encode))
    return ShardAddress(
        parts.scheme, host, port or kind.port, user, password, database, socket, encrypted, sentinels, master
    )


def _decoded(text: str, what: str, encode: str) -> str:
    """Returns `text` without its escapes. Raises `ValueError`."""
    try:
        found = unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise ValueError(f"has a {what} that is not UTF-8 when decoded") from None
    if "\0" in found or re.search(r"%(?![0-9A-Fa-f]{2})", text):
        raise ValueError(f"has a % in its {what} that is not an escape such as %25: {encode}")
    return found


def _single(options: Mapping[str, Sequence[str]], name: str) -> str | None:
    """The value of an option that may occur once. Raises `ValueError` if it occurs twice, or names no socket or master."""
    values = options.get(name, ())
    if len(values) > 1:
        raise ValueError(f"has the option {name} twice")
    if name != "tls" and "" in values:
        raise ValueError(f"names no {name} behind {name}=")
    return values[0] if values else None


def _login(parts: SplitResult) -> tuple[str | None, str | None]:
    """Returns user and password as written; `None` for a part that is absent, an empty password for one that is present and empty."""
    before, at, _ = parts.netloc.rpartition("@")
    if not at:
        return None, None
    user, colon, password = before.partition(":")
    return user or None, password if colon else None


def _options(query: str, kind: ShardedKind) -> Mapping[str, Sequence[str]]:
    """Returns the options by name. Values are not shown: the value of a misspelt option may be a password."""
    given: dict[str, list[str]] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in kind.url_options:
            possible = " and ".join(f"?{option}" for option in kind.url_options.values())
            raise ValueError(f"has an unknown option: {possible} are possible{did_you_mean(name, kind.url_options)}")
        given.setdefault(name, []).append(value)
    return given
