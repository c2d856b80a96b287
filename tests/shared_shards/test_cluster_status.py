"""What two servers of the same shards say of each other: `getCluster`, `pinlater cluster status` and /metrics."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from bench.raw_client import RawClient
from pinlater.client import Ack, Client, ClusterShard, ClusterStatus, Job
from pinlater.domain.slices import SLICES, slice_of
from pinlater.testing.real_server import RealServer
from pinlater.version import __version__
from pinlater.wire.codec import Decoder, encode_call
from pinlater.wire.framing import LENGTH_BYTES
from pinlater.wire.generated import structs as types
from tests.shared_shards.serving import metrics, place_of, wait_until, work_off

Pair = tuple[RealServer, RealServer]


@pytest.fixture
def pair(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Two servers on two Redis shards, each of which owns half of the slices."""
    place = place_of("redis", tmp_path, request)
    with ExitStack() as running:
        one, two = [running.enter_context(RealServer(tmp_path, *place.options, store=place.store)) for _ in range(2)]
        wait_until(lambda: settled(seen_by(one)) and settled(seen_by(two)))
        wait_until(lambda: owners_in(seen_by(one)) == owners_in(seen_by(two)))
        yield one, two


def seen_by(server: RealServer) -> ClusterStatus:
    with Client(server.address) as client:
        return client.cluster()


def owners_in(status: ClusterStatus) -> list[tuple[str, int, Sequence[str]]]:
    """The owners of each shard, with their version."""
    return [(shard.name, shard.version, shard.owners) for shard in status.shards]


def settled(status: ClusterStatus) -> bool:
    """Two servers that hear each other own half of the slices each."""
    owned = Counter(owner for shard in status.shards for owner in shard.owners)
    reached = [server for server in status.servers if server.heard and server.usable and server.address]
    return len(reached) == 2 and [owned[server.address] for server in reached] == [SLICES, SLICES]


def cluster_status(*arguments: str) -> Any:
    command = [sys.executable, "-m", "pinlater", "cluster", "status", "--json", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)


def test_each_server_knows_both_and_what_they_own(pair: Pair) -> None:
    views = [seen_by(server) for server in pair]
    assert {view.address for view in views} == {server.address for server in views[0].servers}
    for server, view in zip(pair, views, strict=True):
        [own, other] = view.servers
        assert (own.address, own.answers, own.heard_ms) == (view.address, True, None)
        assert own.name.endswith(f"-{server.process_id}")
        assert (other.answers, other.heard, other.usable) == (False, True, True)
        assert other.heard_ms is not None
        assert own.slots.keys() == other.slots.keys() == {"1", "2"}
        assert all(shard.in_reach and shard.version > 0 and not shard.misplaced for shard in view.shards)
        assert own.facts.version == __version__
        for shard in view.shards:
            assert shard.details is not None
            assert (shard.details.kind, shard.details.takes_enqueues, shard.details.drain) == ("redis", True, None)
            assert shard.details.address.startswith("127.0.0.1:")
            assert (shard.details.size.used_bytes or 0) > 0
            assert [lane.kind for lane in shard.details.lanes][:2] == ["insert", "claim"]


def test_each_server_tells_the_other_its_version_its_start_and_its_connections(pair: Pair) -> None:
    wait_until(lambda: all(server.facts.version for server in seen_by(pair[0]).servers))
    own, other = seen_by(pair[0]).servers
    [in_other] = [server for server in seen_by(pair[1]).servers if server.answers]
    assert own.facts.version == other.facts.version == __version__
    assert (other.address, other.facts.started_at_ms) == (in_other.address, in_other.facts.started_at_ms)
    assert in_other.facts.connections is not None
    assert in_other.facts.connections > 0
    assert in_other.facts.loop_lag_ms is not None


def test_calls_that_one_server_sends_the_other_takes(pair: Pair) -> None:
    queues = [f"q{number}" for number in range(20)]
    with Client(pair[0].address) as client:
        for queue in queues:
            client.create_queue(queue)
            client.enqueue(queue, [Job(b"x")])
            assert work_off(client, queue) == {b"x"}
    sent, taken = (
        {each.kind: (each.calls_sent, each.items_sent) for each in seen_by(pair[0]).forwarded},
        {each.kind: (each.calls_taken, each.items_taken) for each in seen_by(pair[1]).forwarded},
    )
    assert sent["claim"][1] > 0
    assert sent == taken
    assert seen_by(pair[0]).servers[1].items_sent == sum(items for _, items in sent.values())


def test_the_command_asks_both_servers_and_names_the_owner_of_a_queue(pair: Pair) -> None:
    asked = ["--server", ",".join(server.address for server in pair), "--queue", "emails"]
    assert "there is no queue emails" in json.loads(cluster_status(*asked).stderr)["note"]
    with Client(pair[0].address) as client:
        client.create_queue("emails")
    done = cluster_status(*asked)
    found = json.loads(done.stdout)
    assert (done.stderr, found["agree"], found["problems"]) == ("", True, [])
    assert sorted(asked for server in found["servers"] for asked in server["asked"]) == sorted(
        server.address for server in pair
    )
    assert [sum(server["owns"].values()) for server in found["servers"]] == [SLICES, SLICES]
    shards = {shard.name: shard.owners[slice_of("emails")] for shard in seen_by(pair[0]).shards}
    assert found["queue"]["owners"] == shards


def test_the_command_warns_while_the_shards_list_a_server_that_was_killed(pair: Pair) -> None:
    gone = seen_by(pair[1]).address
    pair[1].kill()
    wait_until(lambda: not seen_by(pair[0]).servers[-1].usable)
    done = cluster_status("--server", pair[0].address)
    assert json.loads(done.stderr) == {"warning": f"{pair[0].address} can't send calls to {gone}"}
    assert not json.loads(done.stdout)["agree"]
    assert seen_by(pair[0]).servers[-1].heard_ms is not None, "it was heard until then"


@pytest.mark.parametrize("kind", ["redis", "mysql"])
def test_servers_agree_soon_after_a_shard_is_added_and_list_no_server_without_an_address(
    tmp_path: Path, request: pytest.FixtureRequest, kind: str
) -> None:
    """They look at the new shard at once, though they tell each other of all changes and look at known shards once a minute."""
    place = place_of(kind, tmp_path, request)
    with ExitStack() as running:
        servers = [running.enter_context(RealServer(tmp_path, *place.options, store=place.store)) for _ in range(2)]
        wait_until(lambda: all(settled(seen_by(server)) for server in servers))
        wait_until(lambda: all(seen_by(server).servers[1].facts.version for server in servers))
        before = [seen_by(server).servers[1].facts.started_at_ms for server in servers]
        place.write({"1": {}, "2": {}, place.new_shard: {}})
        for server in servers:
            server.reload()

        def agree() -> bool:
            one, two = views = [seen_by(server) for server in servers]
            for view in views:
                assert len(view.servers) == 2
                assert all(server.address for server in view.servers)
            return owners_in(one) == owners_in(two) and len(one.shards) == 3 and not any(map(unowned, one.shards))

        wait_until(agree)
        assert [seen_by(server).servers[1].facts.started_at_ms for server in servers] == before
        done = cluster_status("--server", ",".join(server.address for server in servers))
        assert (done.stderr, json.loads(done.stdout)["agree"]) == ("", True)


def unowned(shard: ClusterShard) -> bool:
    """Whether some of its slices have no owner."""
    return not all(shard.owners)


@pytest.mark.thorough
def test_clients_that_follow_owners_make_no_server_forward_their_jobs(pair: Pair) -> None:
    """One that is given both servers, and one that is given one and learns of the other. On a machine that leaves no server busy."""
    addresses = {server.address for server in pair}
    wait_until(lambda: addresses <= {each.address for each in seen_owners(pair[0]).servers})
    with Client([server.address for server in pair]) as given_both:
        given_both.create_queue("emails")
        follows(given_both, pair)
    with Client(pair[0].address, follow_owners=True) as given_one:
        follows(given_one, pair)


def follows(client: Client, pair: Pair) -> None:
    """Returns once the client's enqueues and acks go to the owners."""
    before = -1

    def nothing_is_forwarded() -> bool:
        nonlocal before
        before = forwarded(pair)
        for number in range(20):
            # A random key, so that jobs go to both owners.
            client.enqueue("emails", [Job(str(number).encode())], request_key=token_hex(12))
        return forwarded(pair) == before

    wait_until(nothing_is_forwarded)
    while jobs := client.dequeue("emails").jobs:
        client.ack("emails", [Ack(job.descriptor, token=job.token) for job in jobs])
    assert forwarded(pair) == before


def forwarded(pair: Pair) -> int:
    """How many enqueues and acks the servers have sent to each other."""
    kinds = {"insert", "finish"}
    return sum(each.items_sent for server in pair for each in seen_by(server).forwarded if each.kind in kinds)


def seen_owners(server: RealServer) -> Any:
    with RawClient(int(server.address.rpartition(":")[2])) as client:
        client.send(encode_call("getQueueOwners", 1, context=types.RequestContext("tests")))
        return Decoder().reply(client.receive()[LENGTH_BYTES:]).value


def test_metrics_show_the_owners_and_what_went_from_one_server_to_the_other(pair: Pair) -> None:
    for server in pair:
        assert sum(metrics(server, "pinlater_slices_owned").values()) == SLICES
    with Client(pair[0].address) as client:
        for number in range(20):
            client.create_queue(f"q{number}")
            work_off(client, f"q{number}")
    sent = metrics(pair[0], "pinlater_forwarded_items")
    assert sent["claim"] > 0
    assert metrics(pair[1], "pinlater_taken_items") == sent
    assert metrics(pair[0], "pinlater_peer_unanswered_calls") == {seen_by(pair[1]).address: 0}
