"""The visitor of a page: the session or the token of the request, and the rights that the servers grant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hmac import compare_digest
from typing import NamedTuple

from starlette.requests import Request

from pinlater.client import AsyncClient, ServerInfo
from pinlater.client.errors import PinLaterError, TokenInvalid
from pinlater.console.arrival import Arrival, arrival_of
from pinlater.console.cookies import session_id_of
from pinlater.console.forwarded_users import ForwardedUsers
from pinlater.console.reading import bearer_of
from pinlater.console.sessions import LoginSession, Sessions
from pinlater.domain.access import Role, allowed, digest_of, needed_for

UPDATE = "PinLater-Update"
"""The header of a request that a page makes by itself. It does not renew the session, so an unattended screen is logged out."""
_KNOWN_MS = 5_000
_KNOWN_MAX = 1_000


class Rights(NamedTuple):
    """The rights that the servers grant a caller, as far as they are known. `controlled`: the servers have access control. `insecure`:
    they have none, and the network reaches them. `name`: of the token."""

    controlled: bool = False
    insecure: bool = False
    known: bool = False
    name: str = ""
    roles: Sequence[str] = ()
    queues: Sequence[str] = ()
    expires_at_ms: int | None = None
    speaks_for_others: bool = False

    def may(self, method: str) -> bool:
        """Returns whether the roles allow a method of the protocol. True if that is not known: the servers decide."""
        return not self.known or method in allowed(Role(role) for role in self.roles)


UNKNOWN = Rights()
_NOWHERE = Arrival("", "")


@dataclass(frozen=True, slots=True)
class Visitor:
    """`token`: the token for calls to the servers. `is_guest`: it is the console's own token for people without a log-in, which allows no
    action. `caller`: if a trusted proxy has named a user, `token` is the console's own for such users. `form_token`: in each form of the
    visitor's pages; '' if nothing that authorizes a form is added to it on its way."""

    token: str = field(repr=False)
    session: LoginSession | None = None
    rights: Rights = UNKNOWN
    is_guest: bool = False
    caller: Arrival = _NOWHERE
    form_token: str = field(default="", repr=False)

    def has_form_token(self, given: str) -> bool:
        """Returns whether a form is one of this visitor's pages, in a time that does not depend on the text."""
        return compare_digest(self.form_token.encode(), given.encode())

    def may(self, method: str) -> bool:
        """Returns whether a page offers an action that calls this method."""
        return not self.is_guest and self.rights.may(method)

    def why_not(self, method: str) -> str:
        """Returns why a page does not offer an action."""
        needed = f"need the role {needed_for(method)}"
        if self.session is None and not self.caller.user:
            return f"{needed}; log in with a token that has it"
        return f"{needed}; token {self.rights.name} has {', '.join(self.rights.roles) or 'none'}"


class Visitors:
    """`client`: of the console. `guest_token`: people without a log-in see what this token may see; '' means nothing. `forwarded`: the
    users of trusted proxies."""

    def __init__(
        self,
        client: AsyncClient,
        sessions: Sessions,
        now_ms: Callable[[], int],
        guest_token: Callable[[], str],
        forwarded: ForwardedUsers,
    ) -> None:
        self.sessions = sessions
        self._forwarded = forwarded
        self._client = client
        self._now_ms = now_ms
        self._guest_token = guest_token
        self._known: dict[str, tuple[int, Rights]] = {}  # by the digest of the token

    def seen(self, request: Request) -> Visitor:
        """The visitor, with the rights that are known without a call: of the token in the request, of the user that a trusted proxy names,
        or of the session of the cookie; the first of them. Raises RequestRefused for a string that can't be a token."""
        bearer, caller = bearer_of(request), arrival_of(request)
        if bearer:
            return Visitor(bearer, None, self._remembered(bearer), caller=caller._replace(user=""))
        if caller.user:
            token, form_token = self._forwarded.token, self._forwarded.form_token(caller.user)
            return Visitor(token, None, self._remembered(token), caller=caller, form_token=form_token)
        session = self.sessions.find(session_id_of(request), renews=UPDATE not in request.headers)
        if session is not None:
            rights = self._remembered(session.token)
            return Visitor(session.token, session, rights, caller=caller, form_token=session.form_token)
        guest = self._guest_token() if request.method in ("GET", "HEAD") else ""
        return Visitor(guest, None, self._remembered(guest), is_guest=bool(guest), caller=caller)

    async def of(self, request: Request) -> Visitor:
        """The visitor, with rights that are at most some seconds old. Raises RequestRefused, and TokenInvalid for a token that is wrong."""
        seen = self.seen(request)
        rights = seen.rights if seen.rights is not UNKNOWN else await self._ask(seen.token, seen.caller)
        if seen.caller.user and rights.known and not rights.speaks_for_others:
            self._forwarded.warn_of_token()
        return replace(seen, rights=rights)

    async def rights_of(self, token: str, caller: Arrival) -> Rights:
        """Returns the present rights from the servers. Raises PinLaterError."""
        rights = rights_in(await caller.calls_of(self._client, token).server_info())
        digest = digest_of(token)
        self._known.pop(digest, None)
        if len(self._known) >= _KNOWN_MAX:
            del self._known[next(iter(self._known))]
        self._known[digest] = (self._now_ms(), rights)
        return rights

    def refused(self, token: str) -> None:
        """The servers refuse the token: its sessions end."""
        self.sessions.end_all_of(token)
        self._known.pop(digest_of(token), None)

    def _remembered(self, token: str) -> Rights:
        at_ms, rights = self._known.get(digest_of(token), (0, UNKNOWN))
        return rights if self._now_ms() - at_ms < _KNOWN_MS else UNKNOWN

    async def _ask(self, token: str, caller: Arrival) -> Rights:
        try:
            return await self.rights_of(token, caller)
        except TokenInvalid:
            raise
        except PinLaterError:
            return UNKNOWN  # the page says what is wrong


def rights_in(info: ServerInfo) -> Rights:
    """Returns the rights that a server reports. Older servers with access control do not report them."""
    if info.caller is None:
        return Rights(info.access == "tokens", info.access == "insecure")
    caller = info.caller
    known = [role.value for role in Role]
    roles = [role for role in caller.roles if role in known]
    return Rights(
        True, False, True, caller.token_name, roles, caller.queues, caller.expires_at_ms, caller.speaks_for_others
    )
