"""The users that proxies have authenticated, and the callers that servers see.

All these users have the rights of one token of the console's own. If that token may act for others, the servers' audit has the user
beside the name of the token. No data about a user is kept: each request names its user again, and the log-out is the proxy's.

The audit shows the client's address. The source of the calls has the address of the proxy that has named the user or the address.
"""

from __future__ import annotations

import hmac
import logging
import secrets
from collections.abc import Callable
from hashlib import sha256
from typing import NamedTuple

from starlette.requests import Request

from pinlater.client import AsyncClient
from pinlater.console.arrival import arrival_of

_log = logging.getLogger("pinlater.console")


class RequestCaller(NamedTuple):
    """The caller of a request. `user`: the one that a trusted proxy names, '' for none. `address`: the client's. `proxy`: the address of
    the proxy that has named either, '' for none."""

    user: str = ""
    address: str = ""
    proxy: str = ""

    def calls_of(self, client: AsyncClient, token: str) -> AsyncClient:
        """Returns a client whose calls appear in the audit as made for this user, from this address, through this proxy."""
        through = f"proxy {self.proxy}" if self.proxy else ""
        return client.with_token(token, self.user, address=self.address, through=through)


NO_CALLER = RequestCaller()


def caller_of(request: Request) -> RequestCaller:
    """The caller, with the user if a trusted proxy names one. With a token in the request, the user does not count."""
    arrival = arrival_of(request)
    return RequestCaller(arrival.user, arrival.address, arrival.proxy)


class ForwardedUsers:
    """The users that proxies name. `token()`: the token for calls on their behalf."""

    def __init__(self, token: Callable[[], str]) -> None:
        self._token = token
        self._secret = secrets.token_bytes(32)
        self._has_warned = False

    @property
    def token(self) -> str:
        """The token for calls on their behalf."""
        return self._token()

    def form_token(self, user: str) -> str:
        """Returns the secret in each form of the user's pages, while this console runs. No other site can read it."""
        return hmac.new(self._secret, user.encode(), sha256).hexdigest()

    def warn_of_token(self) -> None:
        """Logs once that the servers ignore the names, because the token may not act for others."""
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "the audit will not name the users of proxies: make their token by `pinlater token create --speaks-for-others`"
            )
