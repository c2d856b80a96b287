"""The cookie with the id of a session.

Scripts can't read it, and a browser sends it with no request that a page of another site makes. Cookies of one host are shared by all its
ports, so the name has the port: two consoles of one machine do not end each other's sessions. Over TLS the name begins with `__Host-`, so
that no page without TLS and no other name of the same domain can set it; below a path it begins with `__Secure-`, since browsers accept
`__Host-` only for whole hosts.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from pinlater.console.arrival import arrival_of
from pinlater.console.cookies import cookie_of, is_secure, name_below, path_of
from pinlater.domain.host_names import host_name


def session_id_of(request: Request) -> str:
    """The id that the browser sends; '' for none."""
    return cookie_of(request, _secure_name(request)) or cookie_of(request, _name(request))


def give_session_id(request: Request, response: Response, session_id: str) -> None:
    """Lets the browser keep the id until it is closed."""
    secure = is_secure(request)
    name = _secure_name(request) if secure else _name(request)
    response.set_cookie(name, session_id, path=path_of(request), secure=secure, httponly=True, samesite="strict")


def take_session_id(request: Request, response: Response) -> None:
    """Lets the browser forget the id."""
    for name in (_name(request), _secure_name(request)):
        if cookie_of(request, name):
            secure = name == _secure_name(request)
            response.delete_cookie(name, path=path_of(request), secure=secure, httponly=True, samesite="strict")


def _secure_name(request: Request) -> str:
    return ("__Host-" if path_of(request) == "/" else "__Secure-") + _name(request)


def _name(request: Request) -> str:
    host = host_name(arrival_of(request).host)
    port = f"-{host.port}" if host is not None and host.port is not None else ""
    return name_below(request, f"pinlater-session{port}")
