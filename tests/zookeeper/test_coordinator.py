"""Servers whose owners of slices are in a real ZooKeeper ensemble, on a real Redis."""

from __future__ import annotations

import threading
from functools import partial

import pytest
from kazoo.security import OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, Permissions
from msgspec import json

from pinlater.client import AsyncClient
from pinlater.domain.slices import SLICES
from pinlater.server.config.errors import SettingsError
from pinlater.server.main.app import App
from pinlater.server.storage.commands import ListOwners
from pinlater.server.storage.values import NO_OWNERS
from tests.databases.proxy import Proxy
from tests.databases.zookeeper import ZooKeeperEnsemble
from tests.shared_shards.proxied_database import until
from tests.shared_shards.test_hand_over import share_all, slices_of
from tests.zookeeper.conftest import Nodes, StartHere


async def test_servers_share_the_slices_by_what_the_ensemble_says_and_the_shard_keeps_no_owners(
    shared_ensemble: ZooKeeperEnsemble, start_here: StartHere
) -> None:
    apps = [await start_here(shared_ensemble.address) for _ in range(3)]
    await until(partial(share_all, apps))
    [shard] = apps[0].core.shards
    assert await shard.store.submit(ListOwners()) == NO_OWNERS


async def test_a_server_that_stops_gives_its_slices_to_the_others(
    shared_ensemble: ZooKeeperEnsemble, start_here: StartHere
) -> None:
    stops, *others = [await start_here(shared_ensemble.address) for _ in range(3)]
    await until(partial(share_all, [stops, *others]))
    await stops.stop(5.0)
    await until(partial(share_all, others))


async def test_a_server_whose_address_another_one_has_owns_nothing_and_says_why(
    shared_ensemble: ZooKeeperEnsemble, start_here: StartHere, nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    first = await start_here(shared_ensemble.address)
    await until(partial(share_all, [first]))
    holder, _ = nodes.get(f"members/{first.cluster.address}")
    nodes.delete(f"members/{first.cluster.address}")
    nodes.create(f"members/{first.cluster.address}", json.encode([first.cluster.address, "another"]), ephemeral=True)
    await until(lambda: says(first, f"is registered with the address {first.cluster.address}"))
    nodes.delete(f"members/{first.cluster.address}")
    await until(lambda: says(first, ""))
    assert nodes.get(f"members/{first.cluster.address}")[0] == holder
    assert caplog.text.count("is registered with the address") == 1


@pytest.mark.parametrize("name", ["cluster", "leader"])
async def test_nodes_of_another_program_are_left_alone_and_named(
    shared_ensemble: ZooKeeperEnsemble, start_here: StartHere, nodes: Nodes, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    nodes.create(name, b"not ours")
    server = await start_here(shared_ensemble.address)
    await until(lambda: says(server, f"of another program: its node {name}"))
    assert nodes.get(name)[0] == b"not ours"
    nodes.delete(name)
    await until(partial(share_all, [server]))
    assert caplog.text.count("of another program") == 1


@pytest.mark.parametrize("data", [b"", b"not JSON", b'["a"]', json.encode(["a"] * (SLICES + 1)), b"[1]"])
async def test_owners_that_no_server_could_have_stored_are_replaced(
    shared_ensemble: ZooKeeperEnsemble, start_here: StartHere, nodes: Nodes, data: bytes
) -> None:
    server = await start_here(shared_ensemble.address)
    await until(partial(share_all, [server]))
    [shard] = nodes.get_children("owners")
    nodes.set(f"owners/{shard}", data)
    await until(lambda: aware(nodes.get(f"owners/{shard}")[0] == json.encode([server.cluster.address] * SLICES)))
    await until(partial(share_all, [server]))


async def test_a_server_that_may_not_make_its_nodes_does_not_start_and_says_why(
    shared_ensemble: ZooKeeperEnsemble, start_here: StartHere, nodes: Nodes
) -> None:
    nodes.ensure_path("/above")
    nodes.set_acls("/above", READ_ACL_UNSAFE)
    with pytest.raises(SettingsError, match="does not let a client without user read and change"):
        await start_here(
            shared_ensemble.address, **{"cluster.zookeeper": f"{shared_ensemble.address}{nodes.chroot}/above/below"}
        )
    await until(lambda: aware(all(thread.name != "zookeeper" for thread in threading.enumerate())))


@pytest.mark.parametrize("when", ["while a server runs", "while the ensemble does not answer a server that starts"])
async def test_a_server_whose_rights_are_taken_away_serves_and_says_why_it_changes_no_owners(
    shared_ensemble: ZooKeeperEnsemble, start_here: StartHere, nodes: Nodes, when: str
) -> None:
    runs = when == "while a server runs"
    [everything] = OPEN_ACL_UNSAFE
    all_but_reading = everything._replace(perms=everything.perms & ~Permissions.READ)
    async with Proxy(shared_ensemble.address) as proxy:
        if not runs:
            proxy.refuse()
        server = await start_here(proxy.address)
        if runs:
            await until(partial(share_all, [server]))
        nodes.ensure_path("members")
        for path in ("/", "members"):
            nodes.set_acls(path, [all_but_reading])
        if runs:  # ZooKeeper does not notify it of changes that it may not read: another one makes it look
            data, _ = nodes.get("leader")
            nodes.set("leader", data)
        proxy.accept()
        await until(lambda: says(server, "does not let a client without user read and change"))
        assert server.readiness().ok
        async with AsyncClient(f"127.0.0.1:{server.thrift.port}") as client:
            await client.ensure_queue("q")
            await client.enqueue("q", [b"x"])
            assert (await client.dequeue("q")).jobs
        for path in ("/", "members"):
            nodes.set_acls(path, OPEN_ACL_UNSAFE)
        await until(partial(share_all, [server]))


async def test_there_are_nodes_for_servers_and_shards_and_none_for_queues(
    shared_ensemble: ZooKeeperEnsemble, start_here: StartHere, nodes: Nodes
) -> None:
    servers = [await start_here(shared_ensemble.address) for _ in range(2)]
    await until(partial(share_all, servers))
    async with AsyncClient(f"127.0.0.1:{servers[0].thrift.port}") as client:
        for number in range(100):
            await client.create_queue(f"queue{number}")
    [shard] = servers[0].core.shards
    await until(partial(share_all, servers))
    assert {name: sorted(nodes.get_children(name)) for name in nodes.get_children("/")} == {
        "cluster": [],
        "leader": [],
        "members": sorted(str(server.cluster.address) for server in servers),
        "owners": [shard.name],
    }


async def test_a_server_that_is_cut_off_from_the_ensemble_loses_its_slices_and_gets_some_back(
    shared_ensemble: ZooKeeperEnsemble, start_here: StartHere
) -> None:
    async with Proxy(shared_ensemble.address) as proxy:
        cut_off, other = await start_here(proxy.address), await start_here(shared_ensemble.address)
        await until(partial(share_all, [cut_off, other]))
        proxy.swallow()
        await until(lambda: aware(slices_of(other, seen_by=other) == SLICES))
        await until(lambda: says(cut_off, "ZooKeeper does not answer"), every_s=0.1)
        proxy.heal()
        await until(partial(share_all, [cut_off, other]))
        await until(lambda: says(cut_off, ""))


async def test_readyz_and_the_status_of_the_cluster_say_since_when_the_ensemble_does_not_answer_and_calls_go_on(
    shared_ensemble: ZooKeeperEnsemble, start_here: StartHere
) -> None:
    async with Proxy(shared_ensemble.address) as proxy:
        server = await start_here(proxy.address)
        await until(partial(share_all, [server]))
        proxy.refuse()
        proxy.cut()
        await until(lambda: says(server, "ZooKeeper does not answer (since 20"))
        assert server.readiness().ok
        async with AsyncClient(f"127.0.0.1:{server.thrift.port}") as client:
            assert (await client.cluster()).coordinator_trouble in server.readiness().reasons


async def test_servers_for_dequeues_share_the_slices_though_a_server_for_enqueues_came_first_and_leads(
    shared_ensemble: ZooKeeperEnsemble, start_here: StartHere, nodes: Nodes
) -> None:
    enqueues = await start_here(shared_ensemble.address, role="enqueue")
    await until(partial(share_all, [enqueues]))
    dequeues = [await start_here(shared_ensemble.address, role="dequeue") for _ in range(2)]
    await until(partial(share_all, dequeues))
    assert enqueues.cluster.address in nodes.get("leader")[0].decode()
    await dequeues[0].stop(5.0)
    await until(partial(share_all, dequeues[1:]))


async def test_servers_that_race_for_the_lead_warn_of_nothing(
    shared_ensemble: ZooKeeperEnsemble, start_here: StartHere, nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    servers = [await start_here(shared_ensemble.address) for _ in range(4)]
    await until(partial(share_all, servers))
    for _ in range(10):
        nodes.delete("leader")
        await until(lambda: aware(nodes.exists("leader") is not None))
    assert "ZooKeeper" not in caplog.text


async def says(server: App, text: str) -> bool:
    """Whether the page of readiness names it; '': whether it names nothing."""
    reasons = "; ".join(server.readiness().reasons)
    return text in reasons if text else not reasons


async def aware(condition: bool) -> bool:
    return condition
