"""The cookies of the console: the id of a session, and the queues that a person has pinned to the top of the overview.

Scripts can't read them, and a browser sends them with no request that a page of another site makes. Cookies of one host are shared by all
its ports, so the name of the session's has the port: two consoles of one machine do not end each other's sessions. Over TLS it begins with
`__Host-`, so that no page without TLS and no other name of the same domain can set it; below a path it begins with `__Secure-`, since
browsers accept `__Host-` only for whole hosts. A browser also sends the cookies of `/` to consoles below a path, so the names differ there.

Values need no quotes, so they are read as received: some versions of Python take quadratic time to read one in quotes, and any caller may
send it. The cookie of pins holds names only, and no server keeps them.
"""

from __future__ import annotations

from collections.abc import Set
from urllib.parse import quote, unquote

from starlette.requests import Request
from starlette.responses import Response

from pinlater.console.arrival import arrival_of
from pinlater.domain.host_names import host_name

PINS_BYTES_MAX = 3_500
"""Bytes of the names in the cookie: browsers keep cookies of 4 KiB."""
_PINS = "pinlater-pins"
_PINS_KEPT_S = 400 * 86_400  # browsers keep no cookie for longer


def session_id_of(request: Request) -> str:
    """The id of a session that the browser sends; '' for none."""
    return _value(request, _session(request, secure=True)) or _value(request, _session(request, secure=False))


def give_session_id(request: Request, response: Response, session_id: str) -> None:
    """Lets the browser keep the id until it is closed."""
    _give(request, response, _session(request, secure=_is_secure(request)), session_id)


def take_session_id(request: Request, response: Response) -> None:
    """Lets the browser forget the id."""
    for secure in (False, True):
        name = _session(request, secure=secure)
        if _value(request, name):
            response.delete_cookie(name, path=_path(request), secure=secure, httponly=True, samesite="strict")


def pins_of(request: Request) -> frozenset[str]:
    """The names of pinned queues; the queues need not exist."""
    kept = _value(request, _below_path(request, _PINS))[:PINS_BYTES_MAX]
    return frozenset(name for name in map(unquote, kept.split(":")) if name)


def give_pins(request: Request, response: Response, pins: Set[str]) -> None:
    """Lets the browser keep the names of pinned queues."""
    _give(request, response, _below_path(request, _PINS), _packed(pins), _PINS_KEPT_S)


def fits(pins: Set[str]) -> bool:
    """Returns whether a cookie can hold these names."""
    return len(_packed(pins)) <= PINS_BYTES_MAX


def _packed(pins: Set[str]) -> str:
    return ":".join(quote(name, safe="") for name in sorted(pins))


def _value(request: Request, name: str) -> str:
    """The value of a cookie; '' if there is none. If several have that name, the last one counts."""
    found = ""
    for header in request.headers.getlist("cookie"):
        for part in header.split(";"):
            key, _, value = part.partition("=")
            if key.strip() == name:
                found = value.strip()
    return found


def _give(request: Request, response: Response, name: str, value: str, kept_s: int | None = None) -> None:
    secure, path = _is_secure(request), _path(request)
    response.set_cookie(name, value, kept_s, path=path, secure=secure, httponly=True, samesite="strict")


def _session(request: Request, *, secure: bool) -> str:
    host = host_name(arrival_of(request).host)
    port = f"-{host.port}" if host is not None and host.port is not None else ""
    prefix = ("__Host-" if _path(request) == "/" else "__Secure-") if secure else ""
    return prefix + _below_path(request, f"pinlater-session{port}")


def _below_path(request: Request, name: str) -> str:
    """The name of a cookie below the path of the request's proxy."""
    return name + arrival_of(request).prefix.replace("/", ".")


def _path(request: Request) -> str:
    """The path below which the browser sends the cookies: other applications of the host do not get them."""
    return arrival_of(request).prefix or "/"


def _is_secure(request: Request) -> bool:
    """Returns whether the browser uses TLS: as the console itself sees, a proxy reports, or the browser reports about its own page.

    A caller that claims it falsely gets a cookie that its own browser does not send without TLS.
    """
    return arrival_of(request).scheme == "https" or request.headers.get("origin", "").startswith("https://")
