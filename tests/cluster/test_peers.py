"""Which other servers share the shards, and the secret for each."""

from __future__ import annotations

from pinlater.domain.clock import ManualClock
from pinlater.server.cluster.peers import Peers
from pinlater.server.sharding.shard_lanes import ShardLanes
from pinlater.server.storage.memory import MemoryShard
from pinlater.server.storage.values import Member


class Shared(MemoryShard):
    capabilities = MemoryShard.capabilities._replace(shared=True)

    async def announce(self, address: str) -> str:
        return "secret"


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
