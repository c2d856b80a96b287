"""Every contract test runs on every store, through `desk` (a shard with short words) or `shard` (the bare shard)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pinlater.storage.interface import Shard
from tests.contract.desk import QUEUE, Desk
from tests.contract.stores import STORES, make_store, needs_server


@pytest.fixture(params=list(STORES))
def store_kind(request: pytest.FixtureRequest) -> str:
    kind = str(request.param)
    needs_server(kind, request)
    return kind


@pytest.fixture
async def desk(store_kind: str, tmp_path: Path) -> AsyncIterator[Desk]:
    """A desk whose shard is open and has the queue `emails`."""
    desk = Desk(lambda: make_store(store_kind, tmp_path))
    await desk.open()
    await desk.shard.create_queues([QUEUE], desk.now)
    yield desk
    await desk.shard.close()


@pytest.fixture
def shard(desk: Desk) -> Shard:
    return desk.shard
