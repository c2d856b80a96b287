"""A visitor of the console's pages, and jobs to look at."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from pinlater.client import Ack, AsyncClient
from pinlater.console.app import Console
from pinlater.console.browser_guard import LOOPBACK_NAMES
from pinlater.domain.access import Role
from pinlater.domain.body_masks import NO_MASKS, BodyMasks
from pinlater.domain.clock import ManualClock
from pinlater.server.access.control import AccessControl
from pinlater.server.main.app import thrift_server
from pinlater.server.main.core import Core
from tests.console.pages.browser import BrowsedConsole, browsed_console
from tests.console.pages.guarded import GuardedConsole, Tokens
from tests.console.pages.visitor import PageVisitor


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browsed() -> AsyncIterator[BrowsedConsole]:
    """Chromium before a console, for the tests of a file."""
    async with browsed_console() as browsed:
        yield browsed


@pytest.fixture
def visitor(console: Console) -> PageVisitor:
    return PageVisitor(console.app)


async def stored(client: AsyncClient, body: bytes = b"x", queue: str = "mail") -> str:
    """A job that waits; its descriptor."""
    return (await client.enqueue(queue, [body])).descriptors[0]


async def failed_job(client: AsyncClient, error: str = "boom", error_type: str = "ValueError") -> str:
    """A job that has failed; its descriptor."""
    await stored(client)
    [job] = (await client.dequeue("mail", 1)).jobs
    await client.ack(
        "mail",
        [Ack(job.descriptor, succeeded=False, token=job.token, final=True, error_type=error_type, error_text=error)],
    )
    return job.descriptor


@pytest_asyncio.fixture
async def guarded(core: Core, clock: ManualClock) -> AsyncIterator[GuardedConsole]:
    """A console whose server wants tokens."""
    async with guarded_console(core, clock) as guarded:
        yield guarded


@asynccontextmanager
async def guarded_console(
    core: Core, clock: ManualClock, masks: BodyMasks = NO_MASKS, default_roles: Sequence[Role] = ()
) -> AsyncIterator[GuardedConsole]:
    """A console whose server wants tokens, masks bodies so, and gives these roles to callers without a token."""
    control = AccessControl((), default_roles, clock.now_ms, clock.monotonic, masks)
    server = thrift_server(core, access=control)
    await server.start()
    async with AsyncClient(f"127.0.0.1:{server.port}", source="console", token="", wait_for_servers=False) as client:
        yield GuardedConsole(
            Console(client, clock.now_ms, LOOPBACK_NAMES), Tokens(control), control, client, clock.now_ms
        )
    await server.drain(0)
