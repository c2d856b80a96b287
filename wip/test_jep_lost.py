"""A server that is gone from the list of peers while claims are under way to it, and comes back: its connection is told of by nobody."""
from __future__ import annotations
import asyncio
from typing import Any, cast
import pytest
from pinlater.domain.clock import SystemClock
from pinlater.domain.errors import OutcomeUnknown
from pinlater.server.cluster.forwarding.forward_lane import ForwardLane
from pinlater.server.cluster.forwarding.forwarding import Forwarding
from pinlater.server.cluster.forwarding.messages import CallKind
from pinlater.server.sharding.peers import Peer
from pinlater.server.sharding.settings import ShardingSettings
from tests.forwarding.test_unconfirmed_claims import answer, ids_of, wish
from tests.forwarding.two_servers import SECRET, Owner, until

class NoShards(list[Any]):
    settings = ShardingSettings()
    clock = SystemClock()

@pytest.mark.parametrize("leaves", [False, True])
async def test_lost_after_the_peer_left_the_list(owner: Owner, leaves: bool) -> None:
    owner.at_once = False
    forwarding = Forwarding(cast("Any", NoShards()), "127.0.0.1:1", lambda _: [])
    address = f"127.0.0.1:{owner.port}"
    peers = {address: Peer(("127.0.0.1", owner.port), SECRET)}
    forwarding.know(peers)
    await until(lambda: forwarding.connections)
    link = forwarding.connections[address]
    lane = ForwardLane(link, CallKind.CLAIM, "1", takes_lists=False)
    asked = lane.submit(wish("a"))
    await until(lambda: owner.answers)
    link._transport.pause_reading()      # the network between them is cut
    owner.answers[0].set_result([__import__("tests.forwarding.test_unconfirmed_claims", fromlist=["claimed"]).claimed(1)])
    [incoming] = owner.listener.connections
    await until(lambda: len(incoming._unconfirmed) == 1)
    if leaves:
        forwarding.know({})                  # its heartbeats don't reach the database either
        await asyncio.sleep(0.05)
    link._transport.abort()              # ... and the connection ends
    with pytest.raises(OutcomeUnknown):
        await asked
    await until(lambda: not owner.listener.connections or not leaves)
    forwarding.know(peers)               # it is back within a minute
    await until(lambda: forwarding.connections.get(address) not in (None, link))
    await asyncio.sleep(0.5)
    try:
        assert ids_of(owner) == [1]
    finally:
        await forwarding.close()


class HastyShards(list[Any]):
    settings = ShardingSettings(call_timeout_ms=1_000)
    clock = SystemClock()


@pytest.mark.parametrize("leaves", [False, True])
async def test_a_call_under_way_to_a_peer_that_leaves_the_list_ends_in_time(owner: Owner, leaves: bool) -> None:
    owner.at_once = False
    forwarding = Forwarding(cast("Any", HastyShards()), "127.0.0.1:1", lambda _: [])
    address = f"127.0.0.1:{owner.port}"
    forwarding.know({address: Peer(("127.0.0.1", owner.port), SECRET)})
    await until(lambda: forwarding.connections)
    lane = ForwardLane(forwarding.connections[address], CallKind.CLAIM, "1", takes_lists=False)
    asked = lane.submit(wish("a"))
    await until(lambda: owner.answers)
    if leaves:
        forwarding.know({})
    try:
        for _ in range(60):
            await asyncio.sleep(0.05)
            forwarding.look_at_calls()
        assert asked.done()
        asked.exception()
    finally:
        await forwarding.close()


async def test_the_list_of_peers_is_empty_while_no_shard_is_in_reach() -> None:
    """How a peer leaves the list at once, and not after a lease: this server reaches no shard for some seconds."""
    from pinlater.server.sharding.peers import Peers
    from pinlater.server.sharding.cluster_members import ClusterMembers
    class Unreachable(list[Any]):
        clock = SystemClock()
        def in_reach(self): return []
    members = ClusterMembers(cast("Any", Unreachable()))
    await members.look()
    peers = Peers("127.0.0.1:1")
    peers.by_address = {"127.0.0.1:2": Peer(("127.0.0.1", 2), SECRET)}
    peers._found = {"127.0.0.1:2": ("127.0.0.1", 2)}
    await peers.look(members.by_shard)
    assert peers.by_address
