"""The sessions of people who logged in: from the id in a browser's cookie to the token that the person gave.

A session is in the memory of this process only, so it ends when the console does. A log-in always makes a new id: an id that a browser
brought is never taken over. Sessions are found by the SHA-256 of their id or token, so the time of a look-up reveals nothing about the
existing ones.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from pinlater.domain.access import digest_of

SESSIONS_MAX = 1_000
SESSIONS_OF_A_TOKEN_MAX = 20
IDLE_MS = 3_600_000
LENGTH_MS = 12 * 3_600_000
_BYTES = 32


@dataclass(slots=True)
class LoginSession:
    """`form_token`: in each form of the session's pages. `used_at_ms`: when the person last opened a page or used an action."""

    token: str = field(repr=False)
    token_digest: str
    form_token: str = field(repr=False)
    started_at_ms: int
    used_at_ms: int


class Sessions:
    """The number is bounded; beyond it, the session that was used longest ago ends. Beyond the bound per token, that session of
    the token ends which was used longest ago."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._by_digest: dict[str, LoginSession] = {}  # the one that was used longest ago comes first

    def __len__(self) -> int:
        return len(self._by_digest)

    def start(self, token: str) -> tuple[str, LoginSession]:
        """The id of a new session, and the session."""
        self._end_old()
        token_digest = digest_of(token)
        of_token = self._of_token(token_digest)
        if len(of_token) >= SESSIONS_OF_A_TOKEN_MAX:
            del self._by_digest[of_token[0]]
        elif len(self._by_digest) >= SESSIONS_MAX:
            del self._by_digest[next(iter(self._by_digest))]
        name, now_ms = secrets.token_urlsafe(_BYTES), self._now_ms()
        session = LoginSession(token, token_digest, secrets.token_urlsafe(_BYTES), now_ms, now_ms)
        self._by_digest[digest_of(name)] = session
        return name, session

    def find(self, name: str, *, renews: bool) -> LoginSession | None:
        """The session with this id, unless it has ended. `renews`: whether the person does something, which restarts the idle time."""
        digest = digest_of(name)
        session = self._by_digest.get(digest)
        if session is None:
            return None
        if self._has_ended(session):
            del self._by_digest[digest]
            return None
        if renews:
            session.used_at_ms = self._now_ms()
            self._by_digest[digest] = self._by_digest.pop(digest)
        return session

    def end(self, name: str) -> None:
        """Ends the session with this id, if there is one."""
        self._by_digest.pop(digest_of(name), None)

    def end_all_of(self, token: str) -> None:
        """Ends the sessions of a token that servers refuse."""
        for digest in self._of_token(digest_of(token)):
            del self._by_digest[digest]

    def _of_token(self, token_digest: str) -> list[str]:
        return [digest for digest, one in self._by_digest.items() if one.token_digest == token_digest]

    def _end_old(self) -> None:
        for digest in [digest for digest, one in self._by_digest.items() if self._has_ended(one)]:
            del self._by_digest[digest]

    def _has_ended(self, session: LoginSession) -> bool:
        now_ms = self._now_ms()
        return now_ms - session.used_at_ms >= IDLE_MS or now_ms - session.started_at_ms >= LENGTH_MS
