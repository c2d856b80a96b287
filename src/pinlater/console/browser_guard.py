"""Refuses what a page of another site makes a browser send.

A browser on the same machine reaches loopback, and a browser with a session sends its cookie: without this, any page that an operator
opens could enqueue, delete and read jobs. The `Host` of a request must be a name of this machine, or a site whose name resolves to
loopback would be of the same origin. And the `Origin`, which browsers send with every request that changes something, must be that host.
A form whose sender says neither `Origin` nor `Sec-Fetch-Site` is refused, so a browser that omits both can't act, and no page can act
through it. A link of another site to a page of the dashboard is allowed: it changes nothing, and the other site can't read or frame it.
Headers of each answer tell a browser to treat it as data, unless the answer is a page, which has a policy of its own.

With a session, `pages.site` also wants the session's token in each form, which no other site can read. So three things must fail together
before another site can act: the cookie, which browsers keep from its requests; this check; and that token. Other ports of the same host
are the same site for cookies, but another origin here. `/v1` takes no cookie at all. The log-in form has no session yet, so this check
alone keeps another site from logging a browser in with a token of its own.
"""

from __future__ import annotations

from collections.abc import Collection
from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pinlater.client.errors import InvalidArgument
from pinlater.console.problems import RequestRefused, refused, response_of

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
# An answer is data: no browser keeps it, guesses its type, or runs what it holds.
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
_SAME_SITE = ("same-origin", "none")
_CHANGES_NOTHING = ("GET", "HEAD")


class BrowserGuard:
    """`hosts`: the names in `Host` that are accepted; None accepts all."""

    def __init__(self, app: ASGIApp, hosts: Collection[str] | None) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_as_data(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)  # a page has a policy of its own
            await send(message)

        app: ASGIApp = self._app
        try:
            headers = Headers(scope=scope)
            check_end(headers)
            check_host(headers, self._hosts)
            if scope["path"].startswith("/v1/"):
                check_sender(headers)
            else:
                check_page_sender(scope["method"], headers)
        except RequestRefused as error:
            app = response_of(error.problem)
            app.headers["Connection"] = "close"  # of a request with two ends, what follows may be a part of it
        await app(scope, receive, send_as_data)


def check_end(headers: Headers) -> None:
    """Raises RequestRefused for a request that says in two ways where its body ends: a proxy before the console may go by the other one,
    and take the rest of the body for the request of another caller."""
    if "content-length" in headers and "transfer-encoding" in headers:
        raise refused(
            HTTPStatus.BAD_REQUEST,
            InvalidArgument.detail,
            "A body has either Content-Length or Transfer-Encoding",
            field="Transfer-Encoding",
        )


def check_host(headers: Headers, hosts: Collection[str] | None) -> None:
    """Raises RequestRefused for a request that names a host which is not ours."""
    host = headers.get("host", "")
    if hosts is not None and _name_of(f"//{host}") not in hosts:
        raise refused(
            HTTPStatus.MISDIRECTED_REQUEST, "HOST_REFUSED", f"This console is not {host[:200]!r}", field="Host"
        )


def check_sender(headers: Headers) -> None:
    """Raises RequestRefused for a request that another site's page made."""
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2] != headers.get("host", ""):
        raise _of_another_site("Origin")
    if headers.get("sec-fetch-site", "none") not in _SAME_SITE:
        raise _of_another_site("Sec-Fetch-Site")


def check_page_sender(method: str, headers: Headers) -> None:
    """As `check_sender`, for the pages of the dashboard: another site may link to a page, and a form must prove where it comes from."""
    if method in _CHANGES_NOTHING:
        if not (headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"):
            check_sender(headers)
        return
    check_sender(headers)
    if "origin" not in headers and headers.get("sec-fetch-site") != "same-origin":
        raise refused(
            HTTPStatus.FORBIDDEN,
            "ORIGIN_REQUIRED",
            "The header Origin is missing, with which browsers tell the page that a change comes from. Programs use /v1 with a token",
            field="Origin",
        )


def _of_another_site(header: str) -> RequestRefused:
    return refused(HTTPStatus.FORBIDDEN, "CROSS_SITE_REQUEST", "A page of another site made this request", field=header)


def _name_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
