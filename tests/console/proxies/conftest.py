"""A server with access control, and consoles before it that know their proxy or do not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest_asyncio

from pinlater.client import Ack, AsyncClient
from pinlater.console.app import Console
from pinlater.console.browser_guard import LOOPBACK_NAMES
from pinlater.console.run import ConsoleServer, listening
from pinlater.domain.access import Role
from pinlater.domain.clock import SystemClock
from pinlater.server.access.control import AccessControl
from pinlater.server.main.app import thrift_server
from pinlater.server.main.core import Core
from pinlater.server.storage.sqlite.memory import MemoryShard
from tests.assembly import open_core
from tests.console.pages.guarded import Tokens
from tests.console.proxies.proxy_process import NAME


@dataclass
class ServedConsoles:
    """Ports: `bare` of a console without settings, `trusting` of one with a name and trusted proxies, `with_users` of one that takes users
    from these, too. `token`: for people."""

    core: Core
    bare: int
    trusting: int
    with_users: int
    token: str


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def served() -> AsyncIterator[ServedConsoles]:
    core = await open_core(MemoryShard(), clock=SystemClock())
    control = AccessControl((), (), core.clock.now_ms, core.clock.monotonic)
    server = thrift_server(core, access=control)
    await server.start()
    address, tokens = f"127.0.0.1:{server.port}", Tokens(control)
    ops, users = tokens.make("ops", Role.ADMIN), tokens.make("console", Role.OPERATE, speaks_for_others=True)
    async with AsyncClient(address, source="web", token=ops) as client:
        await client.create_queue("mail")
        await client.enqueue("mail", [b"{}"] * 3)
        [job] = (await client.dequeue("mail", 1)).jobs
        await client.ack("mail", [Ack(job.descriptor, succeeded=False, token=job.token, final=True, error_text="no")])
    trust: dict[str, Any] = {"hosts": LOOPBACK_NAMES, "names": [NAME], "proxies": ("127.0.0.1", "::1")}
    async with (
        _console(address, hosts=LOOPBACK_NAMES) as bare,
        _console(address, **trust) as trusting,
        _console(address, **trust, user_token=lambda: users) as with_users,
    ):
        yield ServedConsoles(core, bare, trusting, with_users, ops)
    await server.drain(0)
    await core.close()


@asynccontextmanager
async def _console(server: str, **options: Any) -> AsyncIterator[int]:
    listener = listening("127.0.0.1", 0)
    client = AsyncClient(server, wait_for_servers=False, token="")
    console = ConsoleServer(Console(client, SystemClock().now_ms, **options))
    serving = asyncio.create_task(console._serve([listener]))  # without its handlers of signals
    yield listener.getsockname()[1]
    console.should_exit = True
    await serving
