"""The cookie with the queues that a person has pinned to the top of the overview. It holds names only, and no server keeps them."""

from __future__ import annotations

from collections.abc import Set
from urllib.parse import quote, unquote

from starlette.requests import Request
from starlette.responses import Response

from pinlater.console.cookies import cookie_of, is_secure, name_below, path_of

PINS_BYTES_MAX = 3_500
"""Bytes of the names in the cookie: browsers keep cookies of 4 KiB."""
_NAME = "pinlater-pins"
_KEPT_S = 400 * 86_400  # browsers keep no cookie for longer


def pins_of(request: Request) -> frozenset[str]:
    """The names of pinned queues; the queues need not exist."""
    kept = cookie_of(request, name_below(request, _NAME))[:PINS_BYTES_MAX]
    return frozenset(name for name in map(unquote, kept.split(":")) if name)


def fits(pins: Set[str]) -> bool:
    """Returns whether a cookie can hold these names."""
    return len(_packed(pins)) <= PINS_BYTES_MAX


def give_pins(request: Request, response: Response, pins: Set[str]) -> None:
    """Lets the browser keep the names."""
    name, secure = name_below(request, _NAME), is_secure(request)
    response.set_cookie(
        name, _packed(pins), _KEPT_S, path=path_of(request), secure=secure, httponly=True, samesite="strict"
    )


def _packed(pins: Set[str]) -> str:
    return ":".join(quote(name, safe="") for name in sorted(pins))
