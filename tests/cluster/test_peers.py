"""To which servers a server connects: it resolves names before it sends anything, and an unknown name does no harm."""

from __future__ import annotations

from pinlater.domain.clock import ManualClock
from pinlater.server.cluster.peers import Peer, Peers
from pinlater.server.sharding.shard_lanes import ShardLanes
from pinlater.server.storage.memory import MemoryShard
from pinlater.server.storage.values import Member


class Shared(MemoryShard):
    capabilities = MemoryShard.capabilities._replace(shared=True)

    async def announce(self, address: str) -> str:
        return "secret"


async def test_names_are_looked_up_and_unknown_ones_left_out() -> None:
    shard = Shared()
    await shard.open(0)
    lanes = ShardLanes(shard, ManualClock())
    addresses = ("127.0.0.1:9", "localhost:7", "127.0.0.1:8", "no such host:1", "nonsense", "")
    members = [Member(slot, "name", address, 0, 0) for slot, address in enumerate(addresses)]
    peers = Peers("127.0.0.1:9")

    await peers.look({lanes: members})

    assert peers.by_address == {
        "localhost:7": Peer(("127.0.0.1", 7), b"secret"),
        "127.0.0.1:8": Peer(("127.0.0.1", 8), b"secret"),
    }
    assert peers.secrets == [b"secret"]
    await peers.look({lanes: members[:1]})
    assert peers.by_address == {}
    await lanes.close()
