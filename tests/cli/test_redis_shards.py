"""`pinlater shards` and `pinlater migrate` on Redis shards, with and without a server beside them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pinlater.cli import exits
from pinlater.client import Ack, Client, Job, UniqueKey, UniqueScope
from pinlater.testing.real_server import RealServer
from tests.cli.conftest import Done, Pinlater
from tests.redis.shard_file import ShardFile
from tests.servers.ports import free_port
from tests.servers.redis import RedisServer
from tests.servers.redis_users import PASSWORD, as_admin, url_of


@pytest.fixture
def shard_file(
    tmp_path: Path, redis_with_users: RedisServer, redis_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> ShardFile:
    """Two shards on the session's Redis, and settings to go with it in the environment."""
    monkeypatch.setenv("PINLATER_REDIS_KEY_PREFIX", redis_prefix)
    monkeypatch.setenv("PINLATER_HTTP_PORT", str(free_port()))
    return ShardFile(tmp_path / "shards.json", redis_with_users, "1", "2")


@pytest.fixture
def shards(offline: Pinlater, shard_file: ShardFile) -> Callable[..., Done]:
    """The command, with the shard file."""
    return lambda *arguments: offline("shards", *arguments, "--shards", str(shard_file.path))


@pytest.fixture
def serve(tmp_path: Path, shard_file: ShardFile, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], RealServer]]:
    """Starts a server on the shard file; its HTTP port is where the command looks."""
    with ExitStack() as running:

        def start() -> RealServer:
            server = running.enter_context(RealServer(tmp_path, store=f"redis:{shard_file.path}"))
            monkeypatch.setenv("PINLATER_HTTP_PORT", str(server.http_port))
            return server

        yield start


def nobody() -> dict[str, object]:
    """Where no Redis listens."""
    return {"master": {"host": "127.0.0.1", "port": free_port()}}


def test_migrate_makes_every_shard_and_the_second_time_nothing(offline: Pinlater, shard_file: ShardFile) -> None:
    first = offline.ok("migrate", "--shards", str(shard_file.path), "--json").json
    assert [(shard["name"], shard["schema_before"], shard["schema_after"]) for shard in first["shards"]] == [
        ("1", 0, 1),
        ("2", 0, 1),
    ]
    lines = offline.ok("migrate", "--store", f"redis:{shard_file.path}").out.splitlines()
    assert len(lines) == 2
    assert all(line.endswith(": schema 1, nothing to do") for line in lines)


def test_a_newer_schema_is_refused_by_migrate_with_both_numbers(
    offline: Pinlater, redis_with_users: RedisServer, redis_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PINLATER_REDIS_KEY_PREFIX", redis_prefix)
    with as_admin(redis_with_users) as admin:
        admin.hset(f"{redis_prefix}{{1}}:meta", "schema", 7)
    done = offline("migrate", "--store", url_of(redis_with_users))
    assert done.code == exits.REFUSED
    assert "has schema 7; this version of pinlater is written for schema 1 and runs on 1 and 2" in done.err
    assert PASSWORD not in done.out + done.err


def test_migrate_says_which_shard_it_could_not_reach_and_does_the_others(
    offline: Pinlater, shard_file: ShardFile
) -> None:
    """One that is away must not hold up the rest, and not go unnoticed."""
    shard_file.write(s1={}, s2=nobody())
    done = offline("migrate", "--shards", str(shard_file.path), "--json")
    assert done.code == exits.BUSY
    assert [shard["name"] for shard in done.json["shards"]] == ["1"]
    assert done.err.startswith("error: shard 2: 127.0.0.1:")


def test_list_shows_what_the_file_says(
    shards: Callable[..., Done], shard_file: ShardFile, redis_with_users: RedisServer
) -> None:
    """Never with a password."""
    shard_file.write(s1={}, s12={"dequeueOnly": True})
    done = shards("list", "--json")
    assert [(shard["name"], shard["key"], shard["dequeue_only"]) for shard in done.json["shards"]] == [
        ("1", "1", False),
        ("12", "12", True),
    ]
    assert redis_with_users.address in done.out
    table = shards("list").out
    assert table.splitlines()[0] == "shard\tkey\taddress\tdequeue only"
    assert PASSWORD not in done.out + table


def test_status_asks_redis_and_the_server(
    shards: Callable[..., Done], serve: Callable[[], RealServer], shard_file: ShardFile
) -> None:
    """What each says of itself, and what the server makes of it."""
    before = shards("status", "--json")
    assert (before.code, [shard["schema"] for shard in before.json["shards"]]) == (0, [0, 0])
    with Client(serve().address) as client:
        client.create_queue("emails")
        descriptors = [client.enqueue("emails", [Job(b"x")]).descriptors[0] for _ in range(20)]
        job = client.dequeue("emails").jobs[0]
        client.ack("emails", [Ack(job.descriptor, token=job.token)])
        found = shards("status", "--json").json["shards"]
    assert all(shard["reachable"] and shard["in_use"] and shard["schema"] for shard in found)
    assert [len(shard["servers"]) for shard in found] == [1, 1]
    assert (sum(shard["live"] for shard in found), sum(shard["finished"] for shard in found)) == (19, 1)
    assert found[0]["live"] + found[0]["finished"] == sum(":s1:" in descriptor for descriptor in descriptors)


def test_status_of_a_shard_out_of_reach_is_a_failure(shards: Callable[..., Done], shard_file: ShardFile) -> None:
    """A watcher goes by the exit code; the other shards are shown all the same."""
    shard_file.write(s1={}, s2=nobody())
    done = shards("status")
    assert done.code == exits.BUSY
    assert done.err.startswith("shard 2: ")
    assert [line.split("\t")[2] for line in done.out.splitlines()[1:]] == ["yes", "no"]


def test_a_shard_is_drained_and_removed(
    shards: Callable[..., Done], serve: Callable[[], RealServer], shard_file: ShardFile
) -> None:
    """Refused with the count while it holds live jobs; the file's other signs stay as they were."""
    shard_file.path.write_text(json.dumps(shard_file.content, indent=3))
    server = serve()
    with Client(server.address) as client:
        client.create_queue("emails")
        for _ in range(20):
            client.enqueue("emails", [Job(b"x")])
        drained = shards("drain", "2", "--no-wait", "--json").json
        assert (drained["shards"], drained["dequeue_only"]) == (["2"], True)
        assert drained["live"][0] > 0
        wanted = json.loads(json.dumps(shard_file.content))
        wanted["shards"][1]["shardConfig"]["dequeueOnly"] = True
        assert shard_file.path.read_text() == json.dumps(wanted, indent=3)
        changed_s = shard_file.path.stat().st_mtime - 60
        os.utime(shard_file.path, (changed_s, changed_s))
        early = shards("remove", "2")
        assert early.code == exits.BUSY
        assert "live jobs, and stays in the file" in early.err
        server.reload()
        while jobs := client.dequeue("emails", limit=20).jobs:
            client.ack("emails", [Ack(job.descriptor, token=job.token) for job in jobs])
        removed = shards("remove", "2", "--json").json
    assert removed["removed"] == ["2"]
    assert removed["finished"] == drained["live"][0]
    assert [shard["name"] for shard in json.loads(shard_file.path.read_text())["shards"]] == ["1"]
    assert shard_file.path.stat().st_mode & 0o777 == 0o600


def test_a_shard_with_unique_keys_for_a_time_is_removed_only_where_the_operator_gives_them_up(
    shards: Callable[..., Done], serve: Callable[[], RealServer], shard_file: ShardFile
) -> None:
    """Without them their jobs are taken as new. They are deleted on the shard, so that running servers let it go."""
    keyed = [Job(b"x", unique=UniqueKey(f"k{n}", UniqueScope.TIME, 3_600_000)) for n in range(20)]
    with Client(serve().address) as client:
        client.create_queue("emails")
        first = client.enqueue("emails", keyed).descriptors
        on_second = sum(":s2:" in descriptor for descriptor in first)
        assert on_second
        shards("drain", "2", "--no-wait")
        while jobs := client.dequeue("emails", limit=100).jobs:
            client.ack("emails", [Ack(job.descriptor, token=job.token) for job in jobs])
    changed_s = shard_file.path.stat().st_mtime - 60
    os.utime(shard_file.path, (changed_s, changed_s))
    [_, second] = shards("status", "--json").json["shards"]
    assert (second["live"], second["timed_keys"]) == (0, on_second)
    assert 3_500_000 < second["timed_keys_until_ms"] - time.time() * 1000 < 3_700_000
    assert f"shard 2: it holds {on_second} unique keys for a time, the last until 2" in shards("status").err
    refused = shards("remove", "2")
    assert refused.code == exits.BUSY
    assert f"2 still holds {on_second} unique keys for a time" in refused.err
    assert "--lose-keys" in refused.err
    assert [shard["timed_keys"] for shard in shards("status", "--json").json["shards"]] == [20 - on_second, on_second]
    removed = shards("remove", "2", "--lose-keys", "--json")
    assert (removed.json["removed"], removed.json["keys_lost"]) == (["2"], on_second)
    assert [shard["timed_keys"] for shard in shards("status", "--json").json["shards"]] == [20 - on_second]
