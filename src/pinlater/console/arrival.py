"""How a request arrived: the address of the console as the caller uses it, the client, and the user that a proxy has authenticated.

This is the only module that reads the headers of proxies. A proxy is trusted by its address; the values that others send in these headers
are ignored. A trusted proxy writes `X-Forwarded-For`, `-Host`, `-Proto`, `-Prefix` and `-User`, or `Forwarded` (RFC 7239), which has no
prefix and no user. If both are present, they must agree. If a header has several values, the one that the trusted proxy nearest to the
client has added counts: as many from the end as there are trusted proxies in `X-Forwarded-For`. Any other value is refused with the
header's name: a proxy that passes on what clients send would let them choose.

While no proxy is named, a proxy on this machine may still report that it has TLS: `browser_guard` explains why this is safe.

Weakness: every program on the machine of a trusted proxy may claim anything.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import NamedTuple

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Scope

from pinlater.client import AsyncClient
from pinlater.console.forwarded_header import forwarded
from pinlater.console.problems import RequestRefused, refused
from pinlater.domain.caller_address import named_address
from pinlater.domain.caller_names import USER_RULE, is_user_name
from pinlater.domain.host_names import host_name
from pinlater.domain.refusals import Refusals
from pinlater.domain.trusted_proxies import CLIENT_HEADER, ClientRoute, TrustedProxies, checked_header

HOST, FORWARDED, HOST_HEADER = "Host", "Forwarded", "X-Forwarded-Host"
SCHEME_HEADER, PREFIX_HEADER = "X-Forwarded-Proto", "X-Forwarded-Prefix"
_OF_PROXIES = (FORWARDED, CLIENT_HEADER, HOST_HEADER, SCHEME_HEADER, PREFIX_HEADER)
_PREFIX = re.compile(r"(?:/(?!\.\.?(?:/|$))[A-Za-z0-9._~-]+)*/?", re.ASCII)
_PREFIX_CHARS_MAX = 200
_THIS_MACHINE = TrustedProxies(["127.0.0.0/8", "::1"])
_KEY = "pinlater.arrival"
_log = logging.getLogger("pinlater.console")


class Arrival(NamedTuple):
    """`host`: with its port, and `host_header`: the header that names it. `prefix`: the path below which the proxy serves the console, ''
    for its root. `address`: of the client. `proxy`: the address of the proxy that has named the client or the user, '' for none. `user`:
    the one that the proxy has authenticated, '' for none."""

    scheme: str
    host: str
    host_header: str = HOST
    prefix: str = ""
    address: str = ""
    proxy: str = ""
    user: str = ""

    def calls_of(self, client: AsyncClient, token: str) -> AsyncClient:
        """Returns a client whose calls appear in the audit as made for this user, from this address, through this proxy."""
        through = f"proxy {self.proxy}" if self.proxy else ""
        return client.with_token(token, self.user, address=self.address, through=through)

    @property
    def url(self) -> str:
        """Returns the URL of the console, for people."""
        return f"{self.scheme}://{self.host}{self.prefix}"


def arrival_of(request: Request) -> Arrival:
    """Returns how the request arrived. The guard has determined it."""
    arrival: Arrival = request.scope[_KEY]
    return arrival


class Arrivals:
    """`proxies`: the networks of trusted proxies. `user_header`: the header in which they name users; '' if the console takes no users
    from them.
    `monotonic`: seconds. Raises ValueError for an invalid network or header name."""

    def __init__(self, proxies: Sequence[str], user_header: str, monotonic: Callable[[], float]) -> None:
        self._proxies = TrustedProxies(proxies)
        self._user_header = checked_header(user_header) if user_header else ""
        self._ignored = Refusals(monotonic)

    def take(self, scope: Scope) -> Arrival:
        """Returns how the request arrived; from now on `arrival_of` returns the same. Raises RequestRefused for wrong headers of a trusted
        proxy; then `arrival_of` returns what is known without them."""
        headers, peer = Headers(scope=scope), scope["client"][0] if scope.get("client") else ""
        arrival = scope[_KEY] = Arrival(scope["scheme"], headers.get("host", ""), address=named_address(peer))
        if self._proxies.trusts(peer):
            arrival = self._through_proxy(arrival, peer, headers)
        elif self._proxies:
            self._note_ignored(peer, headers)
        elif _THIS_MACHINE.trusts(peer) and _claims_tls(headers):
            arrival = arrival._replace(scheme="https")
        scope[_KEY] = arrival
        return arrival

    def _through_proxy(self, arrival: Arrival, peer: str, headers: Headers) -> Arrival:
        said = _said_in_forwarded(headers)
        route = self._route(peer, CLIENT_HEADER, _values(headers, CLIENT_HEADER))
        rfc = self._route(peer, FORWARDED, [one.get("for", "") for one in said])
        clients = {route.client, rfc.client} - {peer}
        if len(clients) > 1:
            raise _conflict(CLIENT_HEADER)
        own = {
            "host": _newest(_values(headers, HOST_HEADER), route),
            "proto": _newest(_values(headers, SCHEME_HEADER), route),
        }
        other = {name: _newest([one[name] for one in said[-max(1, rfc.proxies) :] if name in one], rfc) for name in own}
        host = _agreed(HOST_HEADER, own["host"], other["host"], _checked_host)
        scheme = _agreed(SCHEME_HEADER, own["proto"], other["proto"], _checked_scheme)
        user, client = self._user(headers), next(iter(clients), peer)
        return Arrival(
            scheme or arrival.scheme,
            host or arrival.host,
            (HOST_HEADER if own["host"] else FORWARDED) if host else HOST,
            _checked_prefix(_values(headers, PREFIX_HEADER)[-max(1, route.proxies, rfc.proxies) :]),
            named_address(client),
            peer if user or client != peer else "",
            user,
        )

    def _route(self, peer: str, header: str, nodes: Sequence[str]) -> ClientRoute:
        try:
            return self._proxies.route_of(peer, nodes)
        except ValueError as error:
            raise _invalid(header, str(error)) from None

    def _user(self, headers: Headers) -> str:
        given = headers.getlist(self._user_header) if self._user_header else []
        if given in ([], [""]):  # some proxies send it empty for a request of no user
            return ""
        if len(given) > 1 or not is_user_name(given[0]):
            detail = f"The proxy names no user in {self._user_header}, or several: a name has {USER_RULE}"
            raise refused(HTTPStatus.BAD_REQUEST, "FORWARDED_USER_INVALID", detail, field=self._user_header)
        return given[0]

    def _note_ignored(self, peer: str, headers: Headers) -> None:
        given = [name for name in (self._user_header, *_OF_PROXIES) if name and name in headers]
        ignored = self._ignored.one(peer).log if given else 0
        if ignored:
            _log.warning(
                "a header of a proxy was ignored: it did not come from a trusted proxy (console_trusted_proxies)",
                extra={"host": peer, "header": given[0], "ignored": ignored},
            )


def _values(headers: Headers, name: str) -> Sequence[str]:
    """The values of a header to which each proxy may add one, the last one at the end."""
    return [text for line in headers.getlist(name) for part in line.split(",") if (text := part.strip())]


def _newest(values: Sequence[str], route: ClientRoute) -> str:
    """The value of the trusted proxy that is nearest to the client; '' without one. Not each proxy adds one."""
    return values[-min(len(values), max(1, route.proxies))] if values else ""


def _said_in_forwarded(headers: Headers) -> Sequence[Mapping[str, str]]:
    try:
        return forwarded(", ".join(line for line in headers.getlist(FORWARDED) if line.strip()))
    except ValueError as error:
        raise _invalid(FORWARDED, str(error)) from None


def _claims_tls(headers: Headers) -> bool:
    """Returns whether the client's connection to the first proxy has TLS, according to the proxy."""
    try:
        said = forwarded(headers.get(FORWARDED, ""))
    except ValueError:
        said = ()
    told = headers.get(SCHEME_HEADER, "").partition(",")[0].strip()
    return "https" in (told.lower(), said[0].get("proto", "").lower() if said else "")


def _agreed(header: str, own: str, other: str, checked: Callable[[str, str], str]) -> str:
    """Returns the value of `header`, or of `Forwarded`, and both if both are present."""
    own, other = own and checked(header, own), other and checked(FORWARDED, other)
    if own and other and own != other:
        raise _conflict(header)
    return own or other


def _checked_host(header: str, text: str) -> str:
    if host_name(text) is None:
        raise _invalid(header, f"{text[:100]!r} is not a host such as jobs.example:8443")
    return text.lower()


def _checked_scheme(header: str, text: str) -> str:
    if text.lower() not in ("http", "https"):
        raise _invalid(header, f"{text[:100]!r} is neither http nor https")
    return text.lower()


def _checked_prefix(values: Sequence[str]) -> str:
    """Joins the prefixes: each proxy strips its own from the path, so the first proxy's comes first."""
    for text in values:
        if len(text) > _PREFIX_CHARS_MAX or not text.startswith("/") or not _PREFIX.fullmatch(text):
            raise _invalid(
                PREFIX_HEADER,
                f"{text[:100]!r} is not a path such as /jobs, of letters, digits and the characters . _ ~ -",
            )
    return "".join(text.rstrip("/") for text in values)


def _invalid(header: str, what: str) -> RequestRefused:
    detail = f"The header {header} of the proxy is wrong: {what}. Let the proxy set it, and remove what clients send under this name."
    return refused(HTTPStatus.BAD_REQUEST, "FORWARDED_HEADER_INVALID", detail, field=header)


def _conflict(header: str) -> RequestRefused:
    detail = f"The headers {header} and {FORWARDED} say different things. Let the proxy set one of them, and remove the other."
    return refused(HTTPStatus.BAD_REQUEST, "FORWARDED_HEADERS_DIFFER", detail, field=header)
