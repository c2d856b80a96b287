"""Refuses requests that a page of another site makes a browser send.

A browser on the same machine reaches loopback, and a browser with a session sends its cookie: without this, any page that an operator
opens could enqueue, delete and read jobs. The `Host` of a request must be a name of this console, or a site whose name resolves to
loopback would be of the same origin. A change must come from a page of the console: a browser over TLS proves that with `Sec-Fetch-Site`,
which no page can write; otherwise the `Origin` must be the host that the request names. A form whose sender sends neither is refused, so
a browser that omits both can't act, and no page can act through it. A link of another site to a page of the dashboard is allowed: it
changes nothing, and the other site can't read or frame it. Headers of each answer tell a browser to treat it as data, unless the answer
is a page, which has a policy of its own.

Names of the console are those of this machine and those of the setting. Without the setting, a proxy on this machine may use any name with
which people reach it over TLS, at the usual port: another site has no certificate with which a browser would connect it to this machine.
Such a site reaches the console only at the console's own port, which the browser then adds to `Host`, and its `Origin` has `http`. A
proxy without TLS can't be distinguished from that site, so its name must be in the setting.

With a session, `pages.site` also requires the session's token in each form, which no other site can read. So three things must fail
together before another site can act: the cookie, which browsers keep from its requests; this check; and that token. Other ports of the
same host are the same site for cookies, but another origin here. `/v1` takes no cookie at all. The log-in form has no session yet, so
this check alone keeps another site from logging a browser in with a token of its own.

Weakness: without the setting, forwarding port 80 to the console without TLS and without a proxy lets such a site read pages.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from http import HTTPStatus

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pinlater.client.errors import InvalidArgument
from pinlater.console.arrival import HOST, Arrival, Arrivals
from pinlater.console.problems import Problem, RequestRefused, refused
from pinlater.domain.host_names import host_name

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
# An answer is data: no browser caches it, guesses its type, or executes its content.
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
_SAME_SITE = ("same-origin", "none")
_CHANGES_NOTHING = ("GET", "HEAD")
_HTTP_PORT, _HTTPS_PORT = 80, 443
STATIC = "/static/"
_LET_PROXY = (
    "let the proxy pass on the header Host as it comes, with the port. Or let it send X-Forwarded-Host and X-Forwarded-Proto, and add its "
    "address to the setting console_trusted_proxies (--trusted-proxy)"
)


class BrowserGuard:
    """`hosts`: the names that are accepted in `Host`, and others over TLS; None accepts all. `names`: if there are any, only these and
    those of loopback are accepted. `answer`: the answer to a request that is refused."""

    def __init__(
        self,
        app: ASGIApp,
        hosts: Collection[str] | None,
        names: Collection[str],
        arrivals: Arrivals,
        answer: Callable[[Request, Problem], Response],
    ) -> None:
        self._app = app
        self._hosts = LOOPBACK_NAMES.union(names) if names else hosts
        self._others_over_tls = not names
        self._arrivals = arrivals
        self._answer = answer

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
            self._check(scope, Headers(scope=scope))
        except RequestRefused as error:
            app = response = self._answer(Request(scope), error.problem)
            response.headers["Connection"] = "close"  # if a request has two ends, what follows may be a part of it
        await app(scope, receive, send_as_data)

    def _check(self, scope: Scope, headers: Headers) -> None:
        check_end(headers)
        if scope["path"].startswith(STATIC):  # the same for all, and an error page needs its style
            check_site(headers)
            with suppress(RequestRefused):
                self._arrivals.take(scope)
            return
        arrival = self._arrivals.take(scope)
        if self._hosts is not None:
            check_host(scope, arrival, self._hosts, others_over_tls=self._others_over_tls)
        if scope["path"].startswith("/v1/"):
            check_sender(headers, arrival)
        else:
            check_page_sender(scope["method"], headers, arrival)


def check_end(headers: Headers) -> None:
    """Raises RequestRefused for a request with two indications of the end of its body: a proxy in front of the console may use the other
    one, and treat the rest of the body as the request of another caller.
    """
    if "content-length" in headers and "transfer-encoding" in headers:
        raise refused(
            HTTPStatus.BAD_REQUEST,
            InvalidArgument.detail,
            "A body has either Content-Length or Transfer-Encoding",
            field="Transfer-Encoding",
        )


def check_host(scope: Scope, arrival: Arrival, hosts: Collection[str], *, others_over_tls: bool) -> None:
    """Raises RequestRefused for a request that names a host which is not ours: in `Host`, or to the proxy."""
    headers = Headers(scope=scope)
    over_tls = (
        others_over_tls and arrival.scheme == "https" and headers.get("origin", "https://").startswith("https://")
    )
    own_port = scope["server"][1] if scope.get("server") else None
    for header, text in ((HOST, headers.get("host", "")), (arrival.host_header, arrival.host)):
        host = host_name(text)
        usual_port = host is not None and host.port in (None, _HTTPS_PORT) and own_port != _HTTP_PORT
        if host is None or not (host.name in hosts or (over_tls and (usual_port or header != HOST))):
            raise refused(
                HTTPStatus.MISDIRECTED_REQUEST, "HOST_REFUSED", _host_refused(header, text, arrival), field=header
            )


def _host_refused(header: str, text: str, arrival: Arrival) -> str:
    host = host_name(text)
    if host is None:
        return f"The header {header} has {text[:200]!r}, which names no host"
    return (
        f"The header {header} has {text[:200]!r}, which is not a name of this console, so that the page of another site may have made "
        f"this request. If people reach the console by this name, add {host.name!r} to the setting console_names (--name)"
    )


def check_sender(headers: Headers, arrival: Arrival) -> None:
    """Raises RequestRefused for a request that another site's page made."""
    check_site(headers)
    origin = headers.get("origin")
    if origin is None or headers.get("sec-fetch-site") == "same-origin" or _is_of(origin, arrival):
        return
    detail = (
        f"The header Origin says that a page of {origin[:200]!r} made this request, and the header {arrival.host_header} that the console "
        f"is {arrival.url[:300]!r}. If you have opened the console at the first of these addresses, {_LET_PROXY}"
    )
    raise refused(HTTPStatus.FORBIDDEN, "CROSS_SITE_REQUEST", detail, field="Origin")


def check_site(headers: Headers) -> None:
    """Checks the same as `check_sender`, from the headers that browsers send over TLS."""
    if headers.get("sec-fetch-site", "none") not in _SAME_SITE:
        detail = "The header Sec-Fetch-Site says that a page of another site made this request"
        raise refused(HTTPStatus.FORBIDDEN, "CROSS_SITE_REQUEST", detail, field="Sec-Fetch-Site")


def check_page_sender(method: str, headers: Headers, arrival: Arrival) -> None:
    """Checks the same as `check_sender` for the pages of the dashboard: another site may link to a page, and a form must prove its
    origin.
    """
    if method in _CHANGES_NOTHING:
        if not (headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"):
            check_sender(headers, arrival)
        return
    check_sender(headers, arrival)
    if "origin" not in headers and headers.get("sec-fetch-site") != "same-origin":
        raise refused(
            HTTPStatus.FORBIDDEN,
            "ORIGIN_REQUIRED",
            "The header Origin is missing, with which browsers tell the page that a change comes from. Programs use /v1 with a token",
            field="Origin",
        )


def _is_of(origin: str, arrival: Arrival) -> bool:
    """Returns whether a page of this origin is one of the console. Whether the proxy has TLS is not always known, but the browser knows."""
    scheme, _, text = origin.partition("://")
    usual = _HTTPS_PORT if scheme == "https" else _HTTP_PORT
    page, console = host_name(text), host_name(arrival.host)
    if page is None or console is None:
        return False
    return (page.name, page.port or usual) == (console.name, console.port or usual)
