"""Which other servers share the shards, and the secret for each."""

from __future__ import annotations

import asyncio
import logging
from typing import ClassVar

import pytest

from pinlater.domain.clock import ManualClock
from pinlater.server.cluster.peers import Peers
from pinlater.server.sharding.shard_lanes import ShardLanes
from pinlater.server.storage.commands import Announce
from pinlater.server.storage.sqlite.memory import MemoryShard
from pinlater.server.storage.table import Table, entry_of
from pinlater.server.storage.values import Member


class Shared(MemoryShard):
    capabilities = MemoryShard.capabilities._replace(shared=True)
    turns = 0  # of the loop, that an announcement takes

    async def _announce(self, address: str) -> str:
        for _ in range(self.turns):
            await asyncio.sleep(0)
        return "secret"

    table: ClassVar[Table] = MemoryShard.table | dict([entry_of(Announce)(_announce)])


async def test_each_other_server_with_an_address_is_known_by_the_secret_of_a_shard() -> None:
    shard = Shared()
    await shard.open(0)
    lanes = ShardLanes(shard, ManualClock())
    addresses = ("127.0.0.1:9", "localhost:7", "127.0.0.1:8", "")
    members = [Member(slot, "name", address, 0, 0) for slot, address in enumerate(addresses)]
    peers = Peers("127.0.0.1:9")

    await peers.look({lanes: members})

    assert peers.secret_of == {"localhost:7": b"secret", "127.0.0.1:8": b"secret"}
    assert peers.secrets == [b"secret"]
    await peers.look({lanes: members[:1]})
    assert peers.secret_of == {}
    await lanes.close()


async def test_two_looks_at_once_may_know_of_different_shards() -> None:
    """A shard that answered only the second of them is announced by it while the first one waits for its shard."""
    stores = [Shared(), Shared()]
    for store in stores:
        await store.open(0)
    stores[0].turns = 10
    first, second = [ShardLanes(store, ManualClock()) for store in stores]
    members = [Member(7, "other", "localhost:7", 0, 0)]
    peers = Peers("127.0.0.1:9")

    await asyncio.gather(peers.look({first: members}), peers.look({second: members}))

    assert peers.secret_of == {"localhost:7": b"secret"}
    for lanes in (first, second):
        await lanes.close()


async def test_a_server_that_lives_and_has_the_same_address_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """Not one that was killed, whose place is taken by a server with its address."""
    shard = Shared()
    await shard.open(0)
    lanes, peers = ShardLanes(shard, ManualClock()), Peers("a:9")

    def members(seen_at_ms: int, *slots: int) -> list[Member]:
        return [Member(shard.slot, "own", "a:9", 0, seen_at_ms)] + [
            Member(slot, "other", "a:9", 0, 500 if slot == 7 else seen_at_ms) for slot in slots
        ]

    for seen_at_ms, slots in ((1000, (7,)), (2000, (7,)), (3000, (7, 8)), (4000, ())):
        await peers.look({lanes: members(seen_at_ms, *slots)})
    assert not caplog.records
    for seen_at_ms in (5000, 6000, 7000):
        await peers.look({lanes: members(seen_at_ms, 8)})
    [record] = caplog.records
    assert (record.levelno, record.__dict__["address"]) == (logging.WARNING, "a:9")
    assert "same address" in record.message
    await lanes.close()
