"""Sentinel says where the master is: at the start, and after a failover, of which an answer tells nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
import redis

from pinlater.client import Ack, Client, Job
from pinlater.client.errors import PinLaterError
from pinlater.testing.real_server import RealServer
from tests.databases.redis import RedisServer
from tests.databases.redis_users import ADMIN, PASSWORD, USER, WITH_USERS, as_admin, url_of
from tests.databases.sentinel import Sentinels

_DEADLINE_S = 30.0


class MasterAndReplica(NamedTuple):
    """A master and its replica, with Sentinels that watch over them."""

    master: RedisServer
    replica: RedisServer
    sentinels: Sentinels


@pytest.fixture
def pair(start_redis: Callable[..., RedisServer], tmp_path: Path) -> Iterator[MasterAndReplica]:
    master = start_redis(**WITH_USERS, repl_diskless_sync_delay=0)
    replica = start_redis(**WITH_USERS, replicaof=f"{master.host} {master.port}")
    wait_until(lambda: replication_of(replica)["master_link_status"] == "up")
    with Sentinels(tmp_path / "sentinels", master, ADMIN, PASSWORD) as sentinels:
        yield MasterAndReplica(master, replica, sentinels)


def replication_of(server: RedisServer) -> dict[str, str]:
    with as_admin(server) as client:
        found: dict[str, str] = client.info("replication")
        return found


def wait_until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not what():
        assert time.monotonic() < deadline


def store_of(pair: MasterAndReplica) -> str:
    """Of the data's user; Sentinels ask for no login."""
    return url_of(pair.master, f"/0?{pair.sentinels.query}")


def enqueued(client: Client, body: bytes) -> bool:
    try:
        client.enqueue("emails", [Job(body)])
    except PinLaterError:
        return False
    return True


def work_off(client: Client) -> set[bytes]:
    bodies: set[bytes] = set()
    while jobs := client.dequeue("emails", limit=100).jobs:
        bodies |= {job.body for job in jobs}
        client.ack("emails", [Ack(job.descriptor, token=job.token) for job in jobs])
    return bodies


def test_a_server_finds_the_master_and_after_its_death_the_next(pair: MasterAndReplica, tmp_path: Path) -> None:
    with RealServer(tmp_path, store=store_of(pair)) as server, Client(server.address, timeout_ms=2_000) as client:
        client.create_queue("emails")
        before = {b"%d" % number for number in range(20)}
        client.enqueue("emails", [Job(body) for body in sorted(before)])
        wait_until(lambda: not behind(pair))
        pair.master.kill()
        pair.sentinels.wait_for_master(pair.replica.port)
        wait_until(lambda: enqueued(client, b"after"))
        assert before | {b"after"} <= work_off(client)


def test_sentinels_and_logins_may_come_from_the_settings(
    pair: MasterAndReplica, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The password is the master's; Sentinels that ask for none aren't told it. The URL says no more than the master's name."""
    monkeypatch.setenv("PINLATER_REDIS_USER", USER)
    monkeypatch.setenv("PINLATER_REDIS_PASSWORD", PASSWORD)
    monkeypatch.setenv("PINLATER_REDIS_SENTINELS", ",".join(["127.0.0.1:1", *pair.sentinels.addresses]))
    store = f"redis:///0?master={pair.sentinels.name}"
    with RealServer(tmp_path, store=store) as server, Client(server.address, timeout_ms=2_000) as client:
        client.create_queue("emails")
        client.enqueue("emails", [Job(b"x")])
        assert work_off(client) == {b"x"}


def test_a_master_that_became_a_replica_is_left_for_the_next(pair: MasterAndReplica, tmp_path: Path) -> None:
    """An orderly change of masters: the old one lives, and takes no writes any more."""
    with RealServer(tmp_path, store=store_of(pair)) as server, Client(server.address, timeout_ms=2_000) as client:
        client.create_queue("emails")
        client.enqueue("emails", [Job(b"before")])
        wait_until(lambda: not behind(pair))
        with redis.Redis("127.0.0.1", pair.sentinels.ports[0]) as sentinel:
            sentinel.sentinel_failover(pair.sentinels.name)
        pair.sentinels.wait_for_master(pair.replica.port)
        wait_until(lambda: replication_of(pair.master)["role"] == "slave")  # what it takes before that is lost
        wait_until(lambda: enqueued(client, b"after"))
        assert {b"before", b"after"} <= work_off(client)


def test_a_failover_loses_changes_that_the_replica_lacks_and_work_continues(
    pair: MasterAndReplica, tmp_path: Path
) -> None:
    """Replication is asynchronous: jobs enqueued, and acks given, while it was cut, never were."""
    with ExitStack() as stack:
        server = stack.enter_context(RealServer(tmp_path, store=store_of(pair)))
        client = stack.enter_context(Client(server.address, timeout_ms=2_000))
        client.create_queue("emails")
        client.enqueue("emails", [Job(b"kept"), Job(b"done again")])
        wait_until(lambda: not behind(pair))
        pair.replica.suspend()
        with as_admin(pair.master) as admin:
            admin.client_kill_filter(_type="replica")
        jobs = {job.body: job for job in client.dequeue("emails", limit=2).jobs}
        job = jobs[b"done again"]
        client.ack("emails", [Ack(job.descriptor, token=job.token)])
        client.enqueue("emails", [Job(b"lost")])
        pair.master.kill()
        pair.replica.resume()
        pair.sentinels.wait_for_master(pair.replica.port)
        wait_until(lambda: enqueued(client, b"after"))
        assert work_off(client) == {b"kept", b"done again", b"after"}


def behind(pair: MasterAndReplica) -> int:
    """Bytes that the replica has not taken over yet."""
    at_master, at_replica = replication_of(pair.master), replication_of(pair.replica)
    return int(at_master["master_repl_offset"]) - int(at_replica["slave_repl_offset"])
