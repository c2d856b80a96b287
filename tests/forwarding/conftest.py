"""An owner and a server that asks it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.forwarding.two_servers import Asker, Owner


@pytest.fixture
def owner_class() -> type[Owner]:
    """What answers; a module may have its own."""
    return Owner


@pytest.fixture
async def owner(owner_class: type[Owner]) -> AsyncIterator[Owner]:
    owner = owner_class()
    owner.port = await owner.listener.open("127.0.0.1")
    yield owner
    owner.listener.close()
    await asyncio.sleep(0)


@pytest.fixture
async def asker(owner: Owner) -> AsyncIterator[Asker]:
    """Connected."""
    asker = Asker()
    await asker.connect(owner)
    yield asker
    asker.link.abort()
    await asyncio.sleep(0)
