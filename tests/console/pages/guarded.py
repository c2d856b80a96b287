"""A console before a server with access control, and people with cookies."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from http.cookies import SimpleCookie
from typing import Any

from starlette.types import ASGIApp

from pinlater.client import AsyncClient
from pinlater.console.app import Console
from pinlater.console.browser_guard import LOOPBACK_NAMES
from pinlater.domain.access import ALL_QUEUES, Role, digest_of, new_secret
from pinlater.domain.trusted_proxies import USER_HEADER
from pinlater.server.access.control import AccessControl
from pinlater.server.access.tokens import Token
from tests.console.caller import Answer
from tests.console.pages.visitor import PageReader, PageVisitor

_FORM_TOKEN = re.compile(r'name="form-token" value="([^"]+)"')


class Tokens:
    """The tokens of a server."""

    def __init__(self, control: AccessControl) -> None:
        self._control = control
        self._tokens: list[Token] = []

    def make(
        self, name: str, *roles: Role, queues: Sequence[str] = (ALL_QUEUES,), speaks_for_others: bool = False
    ) -> str:
        """The secret of a new token."""
        secret = new_secret()
        self._tokens.append(
            Token(name, digest_of(secret), roles, tuple(queues), 0, None, speaks_for_others=speaks_for_others)
        )
        self._control.replace(self._tokens)
        return secret

    def revoke(self, name: str) -> None:
        """The server does not know it from now on."""
        self._tokens = [token for token in self._tokens if token.name != name]
        self._control.replace(self._tokens)


class Person(PageVisitor):
    """A browser with cookies. `set_cookies`: as they came, in order."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(app)
        self.cookies: dict[str, str] = {}
        self.set_cookies: list[str] = []

    async def interrupted(
        self, method: str, path: str, *pieces: bytes, headers: Mapping[str, str] = {}, **others: Any
    ) -> Answer:
        """One request with the cookies of before."""
        cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        answer = await super().interrupted(
            method, path, *pieces, headers={**({"cookie": cookies} if cookies else {}), **headers}, **others
        )
        if "set-cookie" in answer.headers:
            self.set_cookies.append(answer.headers["set-cookie"])
            for name, morsel in SimpleCookie(answer.headers["set-cookie"]).items():
                if morsel["max-age"] == "0":
                    self.cookies.pop(name, None)
                else:
                    self.cookies[name] = morsel.value
        return answer

    async def logs_in(self, token: str, back: str = "", **headers: str) -> Answer:
        """Submits the log-in page."""
        return await self.submit("/login", {"token": token, "back": back}, **headers)

    async def form_token(self, path: str = "/") -> str:
        """That of the forms of a page."""
        found = _FORM_TOKEN.search((await self.get(path, accept="text/html")).body.decode())
        assert found is not None
        return found[1]

    async def presses(self, path: str, page: str = "/", **fields: Any) -> Answer:
        """Submits a form of a page as the page has it."""
        return await self.submit(path, {"form-token": await self.form_token(page), **fields})


class ProxiedPerson(Person):
    """A person whose requests come through a proxy, which adds `added` to their headers."""

    def __init__(self, app: ASGIApp, added: Mapping[str, str]) -> None:
        super().__init__(app)
        self.added = added

    async def interrupted(
        self, method: str, path: str, *pieces: bytes, headers: Mapping[str, str] = {}, **others: Any
    ) -> Answer:
        """One request with the headers of the proxy."""
        return await super().interrupted(method, path, *pieces, headers={**self.added, **headers}, **others)


class GuardedConsole:
    """`tokens`: of its server, whose access control is `control`."""

    def __init__(
        self, console: Console, tokens: Tokens, control: AccessControl, client: AsyncClient, now_ms: Callable[[], int]
    ) -> None:
        self._client = client
        self._now_ms = now_ms
        self.console = console
        self.tokens = tokens
        self.control = control

    def person(self, guest_token: str = "") -> Person:
        """A person with a browser of their own. `guest_token`: before another console, which has a token of its own."""
        if not guest_token:
            return Person(self.console.app)
        return Person(Console(self._client, self._now_ms, LOOPBACK_NAMES, lambda: guest_token).app)

    def behind_proxy(
        self, user: str, token: str, *, proxies: Sequence[str] = ("127.0.0.1",), header: str = USER_HEADER
    ) -> ProxiedPerson:
        """A person that a proxy on this machine names, before a console that trusts `proxies` and has `token` for their users."""
        console = Console(
            self._client,
            self._now_ms,
            LOOPBACK_NAMES,
            proxies=proxies,
            user_header=header,
            user_token=lambda: token,
        )
        return ProxiedPerson(console.app, {header: user})

    async def logged_in(self, name: str, *roles: Role, queues: Sequence[str] = (ALL_QUEUES,)) -> Person:
        """A person who has logged in with a new token."""
        person = self.person()
        answer = await person.logs_in(self.tokens.make(name, *roles, queues=queues))
        assert answer.status == 303, answer
        return person


def text_of(answer: Answer) -> str:
    """What a person reads."""
    return " ".join(PageReader(answer.body.decode()).text.split())
