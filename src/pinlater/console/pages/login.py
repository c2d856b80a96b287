"""Logging in and out: the servers decide whether a token is valid. The answers to refused tokens are delayed by the address of the
caller, as servers do.

The token is only in the memory of this process: in no cookie, no URL, no log.
"""

from __future__ import annotations

import logging
from asyncio import sleep
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import NamedTuple

from pinlater.client._token import checked
from pinlater.client.errors import TokenInvalid
from pinlater.console.arrival import Arrival
from pinlater.console.pages.visitors import Visitors
from pinlater.console.problems import refused
from pinlater.domain.caller_address import address_of
from pinlater.domain.errors import UnknownMethod
from pinlater.domain.refusals import Refusals

AT_ONCE_MAX = 4
"""How many log-ins of one address may be under way, including those that wait for their refusal."""
_log = logging.getLogger("pinlater.console")


class LoggedIn(NamedTuple):
    """`session_id`: '' if no log-in is needed."""

    session_id: str
    message: str


class Logins:
    """Checks tokens for log-ins. `now_ms`: a clock that never jumps."""

    def __init__(self, visitors: Visitors, now_ms: Callable[[], int]) -> None:
        self._visitors = visitors
        self._refusals = Refusals(lambda: now_ms() / 1000)
        self._under_way: Counter[str] = Counter()

    async def log_in(self, caller: Arrival, given: str) -> LoggedIn:
        """Starts a session. Raises TokenInvalid after some delay, PinLaterError if no server answers, and RequestRefused if too many
        log-ins of the address are under way."""
        address = address_of((caller.address, 0))
        with self._place(address):
            try:
                token = _token(given)
                rights = await self._visitors.rights_of(token, caller)
            except TokenInvalid as error:
                await self._slow_down(address, error)
                raise
            except UnknownMethod:  # an original server, which has no access control
                return LoggedIn("", "These servers have no access control: no log-in is needed.")
        if not rights.controlled:
            return LoggedIn("", "These servers have no access control: no log-in is needed.")
        session_id, _ = self._visitors.sessions.start(token)
        _log.info("logged in", extra={"token": rights.name, "host": address})
        return LoggedIn(
            session_id, f"You are logged in with token {rights.name}." if rights.name else "You are logged in."
        )

    @contextmanager
    def _place(self, address: str) -> Iterator[None]:
        if self._under_way[address] >= AT_ONCE_MAX:
            raise refused(
                HTTPStatus.TOO_MANY_REQUESTS,
                "TOO_MANY_LOGINS",
                f"{AT_ONCE_MAX} log-ins from your address are under way already. Try again in some seconds.",
                retryable=True,
            )
        self._under_way[address] += 1
        try:
            yield
        finally:
            self._under_way[address] -= 1
            if not self._under_way[address]:
                del self._under_way[address]

    async def _slow_down(self, address: str, error: TokenInvalid) -> None:
        refusal = self._refusals.one(address)
        if refusal.log:
            _log.warning("log-in refused: %s", error.message, extra={"host": address, "refusals": refusal.log})
        if refusal.delay_s:
            await sleep(refusal.delay_s)


def _token(given: str) -> str:
    """Raises TokenInvalid for a string that can't be a token."""
    try:
        token = checked(given.strip(), "The text")
    except ValueError as error:
        raise TokenInvalid(str(error)) from None
    if not token:
        raise TokenInvalid("The field is empty: paste a token, as `pinlater token create` prints it")
    return token
