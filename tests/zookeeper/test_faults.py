"""Real servers beside an ensemble of three: killed, cut off, wiped. Enqueues and dequeues go on through all of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from pinlater.client import Client, JobState
from pinlater.domain.slices import SLICES
from pinlater.testing.real_server import RealServer
from tests.databases.proxy import Proxy, all_in_thread
from tests.databases.redis import RedisServer
from tests.databases.zookeeper import ZooKeeperEnsemble
from tests.shared_shards.real_cluster import address_among_servers, owners, share_all, until, work
from tests.zookeeper.conftest import SESSION_S, Start

ANY_PORTS = ("--thrift-port", "0", "--http-port", "0")
STORE = ("--set", "cluster.coordinator=store")


def test_the_slices_of_a_killed_server_have_another_owner_soon_after_its_session(
    shared_ensemble: ZooKeeperEnsemble, start: Start
) -> None:
    servers = [start(shared_ensemble) for _ in range(3)]
    until(lambda: share_all(servers))
    killed, *others = servers
    killed.kill()
    work(others)
    took_s = until(lambda: share_all(others))
    print(f"others own after {took_s:.1f} s of a session time-out of {SESSION_S} s")


def test_a_suspended_server_loses_its_slices_and_gets_some_back(
    shared_ensemble: ZooKeeperEnsemble, start: Start
) -> None:
    servers = [start(shared_ensemble) for _ in range(3)]
    until(lambda: share_all(servers))
    suspended, *others = servers
    os.kill(suspended.process_id, signal.SIGSTOP)
    until(lambda: share_all(others))
    work(others)
    os.kill(suspended.process_id, signal.SIGCONT)
    until(lambda: share_all(servers))
    work(servers)


def test_without_a_quorum_owners_stay_as_they_are_and_all_calls_go_on_also_those_for_a_killed_owner(
    ensemble: ZooKeeperEnsemble, start: Start
) -> None:
    servers = [start(ensemble) for _ in range(3)]
    until(lambda: share_all(servers))
    before = owners(servers[0])
    ensemble.kill()
    until(lambda: all(warnings(server) for server in servers))
    work(servers)
    killed, *left = servers
    killed.kill()
    work(left)
    assert owners(left[0]) == owners(left[1]) == before
    late = start(ensemble)
    work([late])
    assert [len(warnings(server)) for server in left] == [1, 1]
    ensemble.start()
    until(lambda: share_all([*left, late]))


def warnings(server: RealServer) -> list[str]:
    """That the ensemble does not answer."""
    return [line for line in server.said if "ZooKeeper does not answer" in line]


@pytest.mark.parametrize("lost", ["the leader is killed", "a follower stands still"])
def test_after_the_loss_of_one_member_of_the_ensemble_a_new_server_gets_its_share(
    ensemble: ZooKeeperEnsemble, start: Start, lost: str
) -> None:
    servers = [start(ensemble) for _ in range(2)]
    until(lambda: share_all(servers))
    leader = ensemble.leader()
    if lost == "the leader is killed":
        leader.kill()
    else:
        follower, *_ = [member for member in ensemble.servers if member is not leader]
        follower.suspend()
    servers.append(start(ensemble))
    until(lambda: share_all(servers))
    work(servers)


@pytest.mark.parametrize("leads", [True, False], ids=["the leader", "a follower"])
def test_servers_leave_a_member_that_is_cut_off_from_the_other_members_and_no_call_fails(
    ensemble: ZooKeeperEnsemble, start: Start, path: str, leads: bool
) -> None:
    leader = ensemble.leader()
    cut_off, *majority = sorted(ensemble.servers, key=lambda member: (member is leader) != leads)
    doors = [Proxy(member.address) for member in majority]
    with all_in_thread(doors):
        for door in doors:
            door.refuse()  # so the first server connects to the member that is cut off
        servers = [start(",".join([cut_off.address, *(door.address for door in doors)])), start(ensemble)]
        until(lambda: share_all(servers))
        for door in doors:
            door.accept()
        ensemble.cut_off(cut_off)
        servers.append(start(ensemble))
        warned = {server: set[str]() for server in servers}

        def share_all_at_work() -> bool:
            work(servers)
            for server, told in warned.items():
                told.update(warnings(server))
            return share_all(servers)

        until(share_all_at_work)
        assert "Mode:" not in cut_off.says("srvr")
        assert any(door.open for door in doors)
        ensemble.heal()
        cut_off.wait_until_ready()
        work(servers)
        with Client(servers[0].address) as client:
            [shard] = client.cluster().shards
            assert [client.count("q", state) for state in (JobState.PENDING, JobState.IN_PROGRESS)] == [0, 0]
        stored = json.dumps(shard.owners, separators=(",", ":")).encode()
        until(lambda: {ensemble.read(f"{path}/owners/{shard.name}", member) for member in ensemble.servers} == {stored})
        assert share_all(servers)
        assert max(map(len, warned.values())) <= 1


def test_all_servers_register_again_with_an_ensemble_that_has_lost_its_data(
    ensemble: ZooKeeperEnsemble, start: Start
) -> None:
    servers = [start(ensemble) for _ in range(3)]
    until(lambda: share_all(servers))
    ensemble.lose_data()
    ensemble.start()
    work(servers)
    servers.append(start(ensemble))
    until(lambda: share_all(servers))
    work(servers)


def test_two_clusters_at_one_path_do_not_share_slices_and_the_second_owns_its_own_once_the_first_is_gone(
    shared_ensemble: ZooKeeperEnsemble, start: Start, start_redis: Callable[..., RedisServer]
) -> None:
    first, second = start(shared_ensemble), start(shared_ensemble, "--store", f"redis://{start_redis().address}/0")
    until(lambda: "is that of servers with other shards" in " ".join(second.said))
    until(lambda: owners(first) == {address_among_servers(first): SLICES})
    assert owners(second) == {"": SLICES}
    work([first, second])
    first.stop()
    until(lambda: owners(second) == {address_among_servers(second): SLICES})


def test_shards_that_come_into_the_map_get_owners_and_those_that_leave_it_end_nothing(
    shared_ensemble: ZooKeeperEnsemble, start: Start, start_redis: Callable[..., RedisServer], tmp_path: Path
) -> None:
    databases = [start_redis() for _ in range(3)]
    shard_file = tmp_path / "shards.json"

    def use(*names: int, draining: int | None = None) -> None:
        shards = []
        for name in names:
            master = {"host": databases[name].host, "port": databases[name].port}
            shards.append({"name": str(name), "shardConfig": {"master": master, "dequeueOnly": name == draining}})
        shard_file.with_suffix(".new").write_text(json.dumps({"shards": shards}))
        shard_file.with_suffix(".new").replace(shard_file)
        until(lambda: all(owned_shards(server) >= set(map(str, names)) for server in servers))
        work(servers)

    use_file = ("--store", f"redis:{shard_file}")
    servers: list[RealServer] = []
    use(0, 1)
    servers += [start(shared_ensemble, *use_file) for _ in range(3)]
    use(0, 1)
    use(0, 1, 2)
    use(0, 1, 2, draining=0)
    use(1, 2)
    servers[0].kill()
    del servers[0]
    use(1, 2)
    use(0, 1, 2)


def owned_shards(server: RealServer) -> set[str]:
    """The shards that the server uses, if all of them have owners that live."""
    with Client(server.address) as client:
        status = client.cluster()
    alive = {each.address for each in status.servers if each.usable}
    return {shard.name for shard in status.shards if set(shard.owners) <= alive}


def test_servers_change_from_one_coordinator_to_the_other_and_back_while_jobs_run(
    shared_ensemble: ZooKeeperEnsemble, start: Start
) -> None:
    servers = [start(shared_ensemble, *STORE) for _ in range(3)]
    until(lambda: share_all(servers))
    for options in ((), STORE):
        for place in range(3):
            servers[place].stop()
            servers[place] = start(shared_ensemble, *options)
            work(servers)
            if place == 0:
                until(lambda: "most servers of these shards have another coordinator" in " ".join(servers[0].said))
                assert address_among_servers(servers[0]) not in owners(servers[1])
        until(lambda: share_all(servers))


def test_a_server_without_the_right_password_ends_with_78_and_says_why(
    shared_ensemble: ZooKeeperEnsemble, start: Start, start_redis: Callable[..., RedisServer], path: str, tmp_path: Path
) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_text("secret")
    bad.write_text("wrong")
    start(shared_ensemble, *user(good))
    place = f"cluster.zookeeper={shared_ensemble.address}/{path}"
    options = (
        "--set",
        "cluster.coordinator=zookeeper",
        "--set",
        place,
        "--store",
        f"redis://{start_redis().address}/0",
    )
    for processes in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-m", "pinlater", "serve", *options, *ANY_PORTS, *user(bad), "--processes", processes],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 78
        reason = "error: 1 problem with the settings:\n  cluster.zookeeper: ZooKeeper does not let the user jobs read"
        assert done.stderr.count(reason) == 1


def user(password_file: Path) -> Sequence[str]:
    return ("--set", "cluster.zookeeper_user=jobs", "--set", f"cluster.zookeeper_password_file={password_file}")
