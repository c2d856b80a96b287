"""What counts as runnable is the store's to say, and a database that goes away is one more reason to say nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pinlater.domain.clock import ManualClock, SystemClock
from pinlater.domain.errors import Unavailable
from pinlater.server.storage.interface import Shard
from pinlater.wire.generated.structs import EnqueueRequest, Job
from tests.assembly import open_core
from tests.contract.stores import make_store, needs_server
from tests.demand.conftest import Port
from tests.history.conftest import ack, claim
from tests.shared_shards.conftest import SERVERS, proxied


async def served(*shards: Shard) -> AsyncIterator[Port]:
    clock = ManualClock()
    clock.advance(ms=SystemClock().now_ms() - clock.now_ms())
    core = await open_core(*shards, clock=clock)
    port = Port(core)
    await port.server.start()
    await core.service.queues.create_queue("q")
    await port.sample(2)
    yield port
    await port.server.stop()
    await core.close()


@pytest.fixture(params=["sqlite", "mariadb", "redis"])
async def stored(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Port]:
    needs_server(request.param, request)
    async for port in served(make_store(request.param, tmp_path)):
        yield port


async def test_jobs_behind_others_of_their_ordering_key_want_no_slot(stored: Port) -> None:
    core = stored.core
    for key, jobs in (("ada", 100), ("eve", 5)):
        await core.service.enqueuing.enqueue(EnqueueRequest("q", [Job(b"x", ordering_key=key)] * jobs))
    await stored.sample()
    assert await stored.slots() == 2
    acks = await claim(core, 10)
    await stored.sample()
    assert (len(acks), await stored.slots()) == (2, 2)
    await ack(core, acks)
    await stored.sample()
    assert await stored.slots() == 2


async def test_a_queue_that_is_ordered_as_a_whole_wants_one_slot(stored: Port) -> None:
    core = stored.core
    await core.service.queues.create_queue("bookings", ordered=True)
    await core.service.enqueuing.enqueue(EnqueueRequest("bookings", [Job(b"x")] * 50))
    await stored.sample()
    assert await stored.slots("bookings") == 1


@pytest.mark.parametrize("kind", ["mariadb", "redis"])
async def test_while_a_database_is_away_there_is_no_number_and_then_the_same_again(
    kind: str, request: pytest.FixtureRequest
) -> None:
    async with proxied(request.getfixturevalue(SERVERS[kind])) as database:
        async for port in served(database.shard()):
            await port.core.service.enqueuing.enqueue(EnqueueRequest("q", [Job(b"x")] * 7))
            await port.sample()
            assert await port.slots() == 7
            database.proxy.refuse()
            database.proxy.cut()
            async with asyncio.timeout(30):
                while (await port.get("/demand?queue=q"))[0] == 200:
                    assert await port.slots() == 7
                    await port.core.shard_monitor.ping_all()
            _, reason = await port.get("/demand?queue=q")
            assert "is unreachable" in reason
            database.proxy.heal()
            async with asyncio.timeout(30):
                while (await port.get("/demand?queue=q"))[0] != 200:
                    await port.core.shard_monitor.ping_all()
                    with contextlib.suppress(Unavailable):
                        await port.sample()
            assert await port.slots() == 7
