"""A server with access control in the test's own process, on a memory shard, with a clock that the test advances."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from itertools import count

import pytest

from pinlater.client._token import TOKEN_FILE_VARIABLE, TOKEN_VARIABLE
from pinlater.domain.access import ALL_QUEUES, Role, digest_of, new_secret
from pinlater.domain.body_masks import NO_MASKS, BodyMasks
from pinlater.domain.clock import ManualClock
from pinlater.domain.refusals import Refusals
from pinlater.server.access.control import AccessControl
from pinlater.server.access.quotas import NO_QUOTA, OwnQuota, Quota, TokenUse
from pinlater.server.access.tokens import Token
from pinlater.server.main.app import thrift_server
from pinlater.server.main.core import Core
from pinlater.server.sharding.reload import DesiredShard
from pinlater.server.storage.sqlite.memory import MemoryShard
from pinlater.server.thrift.server import ThriftServer
from pinlater.server.thrift.settings import ThriftSettings
from pinlater.tls.certificate import CertificateSource
from pinlater.tls.settings import TlsSettings
from tests.assembly import open_core
from tests.tls.certificates import Authority

QUEUES = ("mail_new", "mail_old", "other")


class GuardedServer:
    """A started server; `control` is its access control."""

    def __init__(self, core: Core, server: ThriftServer, control: AccessControl, clock: ManualClock) -> None:
        self.core = core
        self.server = server
        self.control = control
        self.clock = clock
        self._tokens: list[Token] = []
        self.callers: list[asyncio.StreamWriter] = []  # closed at the end of the test

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def token(
        self,
        *roles: Role,
        queues: Sequence[str] = (ALL_QUEUES,),
        name: str = "",
        expires_at_ms: int | None = None,
        quota: OwnQuota = OwnQuota(),  # noqa: B008 - a value
        speaks_for_others: bool = False,
    ) -> str:
        """Adds a token, and returns its secret."""
        secret = new_secret()
        name = name or f"token-{len(self._tokens)}"
        self._tokens.append(
            Token(name, digest_of(secret), roles, tuple(queues), 0, expires_at_ms, quota, speaks_for_others)
        )
        self.control.replace(self._tokens)
        return secret

    def refuses_at_once(self) -> None:
        """Refusals of one address no longer get slower."""
        passed = count(step=100)
        self.control.refusals = Refusals(lambda: next(passed))

    def limit(self, name: str, quota: OwnQuota) -> None:
        """Gives the token another quota, as a change of the file does."""
        self._tokens = [token._replace(quota=quota) if token.name == name else token for token in self._tokens]
        self.control.replace(self._tokens)

    def use(self, name: str) -> TokenUse:
        """What the callers with the token use now; '' stands for those without one."""
        return next(use for use in self.control.uses() if use.name == name)

    def counted(self, name: str) -> int:
        """A counter's value."""
        return self.server.metrics.read().counters.get(name, 0)

    def revoke(self, name: str) -> Token:
        """Removes the token, and returns it."""
        removed = next(token for token in self._tokens if token.name == name)
        self._tokens.remove(removed)
        self.control.replace(self._tokens)
        return removed

    def restore(self, token: Token) -> None:
        """Adds a token that was removed."""
        self._tokens.append(token)
        self.control.replace(self._tokens)


@pytest.fixture(autouse=True)
def no_token_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what a test sets: a command that another test ran in this process may have left one."""
    for name in (TOKEN_VARIABLE, TOKEN_FILE_VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def start() -> AsyncIterator[Callable[..., Awaitable[GuardedServer]]]:
    """Starts a server with the queues of `QUEUES`. `default_roles`: of callers without a token. `masks`: of bodies."""
    started: list[GuardedServer] = []

    async def start_one(
        *default_roles: Role,
        each_token: Quota = NO_QUOTA,
        without_token: Quota = NO_QUOTA,
        thrift: ThriftSettings | None = None,
        tls: TlsSettings | None = None,
        masks: BodyMasks = NO_MASKS,
    ) -> GuardedServer:
        clock = ManualClock()
        core = await open_core(DesiredShard("1", lambda: MemoryShard("1")), clock=clock, thrift=thrift)
        for queue in QUEUES:
            await core.service.queues.create_queue(queue)
        control = AccessControl(
            (), default_roles, clock.now_ms, clock.monotonic, masks, each_token=each_token, without_token=without_token
        )
        certificate = None if tls is None else CertificateSource(tls, time.time)
        server = thrift_server(core, access=control, certificate=certificate)
        await server.start()
        started.append(GuardedServer(core, server, control, clock))
        return started[-1]

    yield start_one
    for one in started:
        for writer in one.callers:
            writer.close()
        one.core.dispatcher.drain()
        await one.server.drain(5)
        await one.core.close()


@pytest.fixture
async def guarded(start: Callable[..., Awaitable[GuardedServer]]) -> GuardedServer:
    """A server whose callers need a token."""
    return await start()


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def certificate_files(authority: Authority) -> TlsSettings:
    """Of a server for 127.0.0.1."""
    pair = authority.sign("127.0.0.1", "localhost")
    return TlsSettings(pair.certificate, pair.key)
