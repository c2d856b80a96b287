"""The cookie with the id of a session.

Scripts can't read it, and a browser sends it with no request that a page of another site makes. Cookies of one host are shared by all its
ports, so the name has the port: two consoles of one machine do not end each other's sessions. Over TLS the name begins with `__Host-`, so
that no page without TLS and no other name of the same domain can set it.
"""

from __future__ import annotations

import re

from starlette.requests import Request
from starlette.responses import Response

from pinlater.console.cookies import cookie_of

_PORT = re.compile(r":(\d{1,5})$", re.ASCII)
_SECURE = "__Host-"


def session_id_of(request: Request) -> str:
    """The id that the browser sends; '' for none."""
    name = _name(request)
    return cookie_of(request, _SECURE + name) or cookie_of(request, name)


def give_session_id(request: Request, response: Response, session_id: str) -> None:
    """Lets the browser keep the id until it is closed."""
    secure = is_secure(request)
    name = _SECURE + _name(request) if secure else _name(request)
    response.set_cookie(name, session_id, path="/", secure=secure, httponly=True, samesite="strict")


def take_session_id(request: Request, response: Response) -> None:
    """Lets the browser forget the id."""
    for name in (_name(request), _SECURE + _name(request)):
        if cookie_of(request, name):
            secure = name.startswith(_SECURE)
            response.delete_cookie(name, path="/", secure=secure, httponly=True, samesite="strict")


def is_secure(request: Request) -> bool:
    """Whether the browser uses TLS: as the console sees it, a proxy says, or the browser says of its own page.

    A caller that says so falsely gets a cookie that its own browser does not send without TLS.
    """
    told = request.headers.get("x-forwarded-proto", "").partition(",")[0].strip().lower()
    return "https" in (request.url.scheme, told) or request.headers.get("origin", "").startswith("https://")


def _name(request: Request) -> str:
    found = _PORT.search(request.headers.get("host", ""))
    return f"pinlater-session-{found[1]}" if found else "pinlater-session"
