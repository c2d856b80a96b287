"""A server with access control in the test's own process, on a memory shard, with a clock that the test advances."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest

from pinlater.domain.access import ALL_QUEUES, Role, digest_of, new_secret
from pinlater.domain.body_masks import NO_MASKS, BodyMasks
from pinlater.domain.clock import ManualClock
from pinlater.server.access.control import AccessControl
from pinlater.server.access.tokens import Token
from pinlater.server.main.app import thrift_server
from pinlater.server.main.core import Core
from pinlater.server.sharding.reload import DesiredShard
from pinlater.server.storage.memory import MemoryShard
from pinlater.server.thrift.server import ThriftServer
from tests.assembly import open_core

QUEUES = ("mail_new", "mail_old", "other")


class GuardedServer:
    """A started server; `control` is its access control."""

    def __init__(self, core: Core, server: ThriftServer, control: AccessControl, clock: ManualClock) -> None:
        self.core = core
        self.server = server
        self.control = control
        self.clock = clock
        self._tokens: list[Token] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def token(
        self,
        *roles: Role,
        queues: Sequence[str] = (ALL_QUEUES,),
        name: str = "",
        expires_at_ms: int | None = None,
        speaks_for_others: bool = False,
    ) -> str:
        """Adds a token, and returns its secret."""
        secret = new_secret()
        name = name or f"token-{len(self._tokens)}"
        self._tokens.append(Token(name, digest_of(secret), roles, tuple(queues), 0, expires_at_ms, speaks_for_others))
        self.control.replace(self._tokens)
        return secret

    def revoke(self, name: str) -> None:
        self._tokens = [token for token in self._tokens if token.name != name]
        self.control.replace(self._tokens)


@pytest.fixture
async def start() -> AsyncIterator[Callable[..., Awaitable[GuardedServer]]]:
    """Starts a server with the queues of `QUEUES`. `default_roles`: of callers without a token. `masks`: of bodies."""
    started: list[GuardedServer] = []

    async def start_one(*default_roles: Role, masks: BodyMasks = NO_MASKS) -> GuardedServer:
        clock = ManualClock()
        core = await open_core(DesiredShard("1", lambda: MemoryShard("1")), clock=clock)
        for queue in QUEUES:
            await core.service.queues.create_queue(queue)
        control = AccessControl((), default_roles, clock.now_ms, clock.monotonic, masks)
        server = thrift_server(core, access=control)
        await server.start()
        started.append(GuardedServer(core, server, control, clock))
        return started[-1]

    yield start_one
    for one in started:
        one.core.dispatcher.drain()
        await one.server.drain(5)
        await one.core.close()


@pytest.fixture
async def guarded(start: Callable[..., Awaitable[GuardedServer]]) -> GuardedServer:
    """A server whose callers need a token."""
    return await start()
