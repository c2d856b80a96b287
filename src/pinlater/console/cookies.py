"""The cookies of a request, and their path. A browser also sends those of `/` to consoles below a path, so the names
differ there. Those of the console need no quotes, so a value is read as received: some versions of Python take quadratic time to read one
in quotes, and any caller may send it.
"""

from __future__ import annotations

from starlette.requests import Request

from pinlater.console.arrival import arrival_of


def cookie_of(request: Request, name: str) -> str:
    """The value of a cookie; '' if there is none. If several have that name, the last one counts."""
    found = ""
    for header in request.headers.getlist("cookie"):
        for part in header.split(";"):
            key, _, value = part.partition("=")
            if key.strip() == name:
                found = value.strip()
    return found


def name_below(request: Request, name: str) -> str:
    """The name of the console's cookie below the path of the request's proxy."""
    return name + arrival_of(request).prefix.replace("/", ".")


def path_of(request: Request) -> str:
    """The path below which the browser sends the console's cookies: other applications of the host do not get them."""
    return arrival_of(request).prefix or "/"


def is_secure(request: Request) -> bool:
    """Returns whether the browser uses TLS: as the console itself sees, a proxy reports, or the browser reports about its own page.

    A caller that claims it falsely gets a cookie that its own browser does not send without TLS.
    """
    return arrival_of(request).scheme == "https" or request.headers.get("origin", "").startswith("https://")
