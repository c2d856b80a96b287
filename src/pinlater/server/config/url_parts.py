"""What URLs of every kind of store have in common: who logs in, signs that are encoded, options behind the `?`.

No error shows a value: if a password is not encoded, parts of it may stand anywhere in the URL.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from pinlater.server.config.errors import did_you_mean

_HOST_FORBIDDEN = re.compile(r"[\s/@\x00-\x1f]")


class UrlKind(NamedTuple):
    """How complaints speak of a kind of URL: its form, what to do with a password's signs, and the options with their forms."""

    form: str
    encode: str
    options: Mapping[str, str]


class Taken(NamedTuple):
    """A URL's parts, decoded; None is what it leaves out. The password may be there and empty. Never shown."""

    host: str
    port: int | None
    user: str | None
    password: str | None
    path: str
    options: Mapping[str, Sequence[str]]


def take_apart(text: str, kind: UrlKind) -> Taken:
    """The parts. Raises `ValueError` in words, without any of them."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise ValueError(f"is no URL with a host and a port: {kind.form} ({kind.encode})") from None
    if parts.fragment or text.endswith("#"):
        raise ValueError(f"has a # in it, which ends a URL: {kind.encode}")
    if port == 0:
        raise ValueError("has port 0, where no server listens")
    user, password = (
        None if part is None else decoded(part, "user or password", kind.encode) for part in _login(parts)
    )
    options = _options(parts.query, kind)
    return Taken(decoded(host, "host", kind.encode), port, user, password, parts.path.removeprefix("/"), options)


def check_host(host: str, kind: UrlKind) -> None:
    """Raises `ValueError` for one that none can be called so."""
    if _HOST_FORBIDDEN.search(host):
        raise ValueError(f"has a host that none can be called so ({kind.encode})")


def decoded(text: str, what: str, encode: str) -> str:
    """`text` without its escapes. Raises `ValueError`."""
    try:
        found = unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise ValueError(f"has a {what} that is not UTF-8 when decoded") from None
    if "\0" in found or re.search(r"%(?![0-9A-Fa-f]{2})", text):
        raise ValueError(f"has a % in its {what} that is no escape such as %25: {encode}")
    return found


def single(options: Mapping[str, Sequence[str]], name: str) -> str | None:
    """The value of an option that may come once. Raises `ValueError` if it comes twice."""
    values = options.get(name, ())
    if len(values) > 1:
        raise ValueError(f"has the option {name} twice")
    return values[0] if values else None


def named_socket(options: Mapping[str, Sequence[str]]) -> str | None:
    """The option `socket`. Raises `ValueError` if it names none."""
    socket = single(options, "socket")
    if socket == "":
        raise ValueError("names no socket behind socket=")
    return socket


def _login(parts: SplitResult) -> tuple[str | None, str | None]:
    """Returns user and password as written; `None` for a part that is absent, an empty password for one that is there and empty."""
    before, at, _ = parts.netloc.rpartition("@")
    if not at:
        return None, None
    user, colon, password = before.partition(":")
    return user or None, password if colon else None


def _options(query: str, kind: UrlKind) -> Mapping[str, Sequence[str]]:
    """Returns the options by name. A value isn't shown: the value of a misspelt option may be a password."""
    given: dict[str, list[str]] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in kind.options:
            possible = " and ".join(f"?{option}" for option in kind.options.values())
            raise ValueError(
                f"has an option that there is not: {possible} are possible{did_you_mean(name, kind.options)}"
            )
        given.setdefault(name, []).append(value)
    return given
