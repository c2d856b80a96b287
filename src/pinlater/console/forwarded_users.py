"""The caller of a request: the address of its client, and the user that a proxy has authenticated and names in a header of each request.

Only a request whose connection comes from a trusted proxy may name a user; from other addresses the header is ignored, counted and logged.
All forwarded users have the rights of one token of the console's own. If that token may speak for others, the servers' audit has the user
beside the name of the token. Nothing of a user is kept: each request says anew who it is from, and a log-out is the proxy's.

The client's address is the one that trusted proxies have added to `X-Forwarded-For`, else that of the connection. The audit shows it. The
source of the calls has the address of the proxy that has named the user or the address.

A request with a name that can't be a user's, or with two of the headers, is refused: a proxy that appends its header to the client's own
would let people choose their names.

Weakness: each program on the machine of a trusted proxy may say what it wants.
"""

from __future__ import annotations

import hmac
import logging
import secrets
from collections.abc import Callable, Sequence
from hashlib import sha256
from http import HTTPStatus
from typing import NamedTuple

from starlette.requests import Request

from pinlater.client import AsyncClient
from pinlater.console.problems import refused
from pinlater.domain.audit import USER_RULE, is_user_name
from pinlater.domain.caller_address import named_address
from pinlater.domain.refusals import Refusals
from pinlater.domain.trusted_proxies import CLIENT_HEADER, USER_HEADER, TrustedProxies, checked_header

_log = logging.getLogger("pinlater.console")


class RequestCaller(NamedTuple):
    """The caller of a request. `user`: the one that a trusted proxy names, '' for none. `address`: of the client. `proxy`: the address of
    the proxy that has named either, '' for none."""

    user: str = ""
    address: str = ""
    proxy: str = ""

    def calls_of(self, client: AsyncClient, token: str) -> AsyncClient:
        """A client whose calls the servers' audit shows as made for this user, from this address, by this proxy."""
        through = f"proxy {self.proxy}" if self.proxy else ""
        return client.with_token(token, self.user, address=self.address, through=through)


NO_CALLER = RequestCaller()


class ForwardedUsers:
    """`proxies`: the networks whose addresses may name users; none if no proxy is trusted. `token()`: with which the servers are asked for
    these users. `monotonic`: seconds. Raises ValueError for what is no network or no name of a header."""

    def __init__(
        self, proxies: Sequence[str], header: str, token: Callable[[], str], monotonic: Callable[[], float]
    ) -> None:
        self._proxies = TrustedProxies(proxies)
        self._header = checked_header(header)
        self._token = token
        self._secret = secrets.token_bytes(32)
        self._ignored = Refusals(monotonic)
        self._has_warned = False

    @property
    def token(self) -> str:
        """With which the servers are asked."""
        return self._token()

    def caller_of(self, request: Request) -> RequestCaller:
        """The caller, with the user if a trusted proxy names one. Raises RequestRefused for a name that can't be one, and for two."""
        caller = self.without_user(request)
        if not self._proxies:
            return caller
        given = request.headers.getlist(self._header)
        if not given:
            return caller
        host = _host_of(request)
        if not self._proxies.trusts(host):
            self._ignore(host)
            return caller
        if given == [""]:  # some proxies say so that the request is of no user
            return caller
        if len(given) > 1 or not is_user_name(given[0]):
            detail = f"The proxy names no user in {self._header}, or several: a name has {USER_RULE}"
            raise refused(HTTPStatus.BAD_REQUEST, "FORWARDED_USER_INVALID", detail, field=self._header)
        return caller._replace(user=given[0], proxy=host)

    def without_user(self, request: Request) -> RequestCaller:
        """The caller of a request with a token of its own, whatever user a proxy names."""
        host = _host_of(request)
        named = ",".join(request.headers.getlist(CLIENT_HEADER)).split(",") if self._proxies else ()
        address = self._proxies.client_of(host, named)
        return RequestCaller("", named_address(address), "" if address == host else host)

    def form_token(self, user: str) -> str:
        """What is in each form of the user's pages, while this console runs. No other site can read it."""
        return hmac.new(self._secret, user.encode(), sha256).hexdigest()

    def warn_of_token(self) -> None:
        """Says once that the servers ignore the names, because the token may not speak for others."""
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "the audit will not name the users of proxies: make their token by `pinlater token create --speaks-for-others`"
            )

    def _ignore(self, host: str) -> None:
        ignored = self._ignored.one(host).log
        if ignored:
            _log.warning(
                "a name of a user was ignored: it did not come from a trusted proxy",
                extra={"host": host, "header": self._header, "ignored": ignored},
            )


def _host_of(request: Request) -> str:
    """The address of the connection."""
    return "" if request.client is None else request.client.host


def no_forwarded_users() -> ForwardedUsers:
    """Trusts no proxy."""
    return ForwardedUsers((), USER_HEADER, str, float)
