"""The users that proxies have authenticated.

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

_log = logging.getLogger("pinlater.console")


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
