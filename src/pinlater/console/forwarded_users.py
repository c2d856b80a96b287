"""The users that a proxy has authenticated, which it names in a header of each request.

Only a request whose connection comes from a trusted proxy may name a user; from other addresses the header is ignored, counted and logged.
All forwarded users have the rights of one token of the console's own. If that token may speak for others, the servers' audit has the user
beside the name of the token. Its source has the proxy's address. Nothing of a user is kept: each request says anew who it is from, and a
log-out is the proxy's.

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
from pinlater.domain.refusals import Refusals
from pinlater.domain.trusted_proxies import USER_HEADER, TrustedProxies, checked_header

_log = logging.getLogger("pinlater.console")


class ForwardedUser(NamedTuple):
    """A user, and the address of the proxy that names it. `name`: '' for none."""

    name: str = ""
    proxy: str = ""

    def calls_of(self, client: AsyncClient, token: str) -> AsyncClient:
        """A client whose calls the servers' audit shows as made for this user, by this proxy."""
        if not self.name:
            return client.with_token(token)
        return client.with_token(token, self.name, through=f"proxy {self.proxy}")


NO_USER = ForwardedUser()


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

    def user_of(self, request: Request) -> ForwardedUser:
        """The user that a trusted proxy names, or `NO_USER`. Raises RequestRefused for a name that can't be one, and for two."""
        if not self._proxies:
            return NO_USER
        given = request.headers.getlist(self._header)
        if not given:
            return NO_USER
        host = "" if request.client is None else request.client.host
        if not self._proxies.trusts(host):
            self._ignore(host)
            return NO_USER
        if given == [""]:  # some proxies say so that the request is of no user
            return NO_USER
        if len(given) > 1 or not is_user_name(given[0]):
            detail = f"The proxy names no user in {self._header}, or several: a name has {USER_RULE}"
            raise refused(HTTPStatus.BAD_REQUEST, "FORWARDED_USER_INVALID", detail, field=self._header)
        return ForwardedUser(given[0], host)

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


def no_forwarded_users() -> ForwardedUsers:
    """Trusts no proxy."""
    return ForwardedUsers((), USER_HEADER, str, float)
