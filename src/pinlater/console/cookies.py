"""The cookies of a request. Those of the console need no quotes, so a value is read as it came: some versions of Python take quadratic time
to read one in quotes, and any caller may send it.
"""

from __future__ import annotations

from starlette.requests import Request


def cookie_of(request: Request, name: str) -> str:
    """The value of a cookie; '' if there is none. Of several with that name the last one counts."""
    found = ""
    for header in request.headers.getlist("cookie"):
        for part in header.split(";"):
            key, _, value = part.partition("=")
            if key.strip() == name:
                found = value.strip()
    return found
