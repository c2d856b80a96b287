"""Every contract test runs on every store, through `desk` (a shard with short words) or `shard` (the bare shard).

`make test` runs all of them on one version of each engine. On the other versions it runs the tests with the marker `differs`,
which names what each version implements in its own way, and a sample of the rest that another seed draws anew. `make test-all`
runs every test on every version.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pinlater.server.storage.commands import create_queues
from pinlater.server.storage.interface import Shard
from tests.contract.desk import QUEUE, Desk
from tests.contract.stores import STORES, make_store, needs_server
from tests.databases.fixtures import OTHER_REDIS_SERVERS

OTHER_VERSIONS = {"mysql8", *OTHER_REDIS_SERVERS}
SAMPLE = 1 / 10


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks what only `make test-all` runs. The run's seed draws the sample, since all workers must draw the same one."""
    seed = config.getoption("randomly_seed", 0)
    for item in items:
        call = getattr(item, "callspec", None)
        kind = None if call is None else call.params.get("store_kind")
        if kind not in OTHER_VERSIONS or item.get_closest_marker("differs"):
            continue
        if random.Random(f"{seed} {item.nodeid}").random() >= SAMPLE:
            item.add_marker(pytest.mark.thorough)


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
    await desk.shard.submit(create_queues([QUEUE], desk.now))
    yield desk
    await desk.shard.close()


@pytest.fixture
def shard(desk: Desk) -> Shard:
    return desk.shard
