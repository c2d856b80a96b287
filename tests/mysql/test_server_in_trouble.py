"""`pinlater serve` on shards that fail as databases do: others are asked instead, and it is said when none is left."""

from __future__ import annotations

import http.client
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pinlater.client import Client, Job, QueueConfig
from pinlater.client.errors import NoHealthyShards, OutcomeUnknown, PinLaterError
from pinlater.testing.real_server import RealServer
from tests.databases.database import DatabaseServer
from tests.databases.mariadb import MariaDb
from tests.shared_shards.shard_files import MysqlShardFile

_DEADLINE_S = 30.0
# MySQL looks once a minute whether there is space again.
_MYSQL_LOOKS_AGAIN_S = 90.0


def page(server: RealServer, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def healthy(server: RealServer) -> dict[str, bool]:
    found = re.findall(r'^pinlater_shard_healthy{shard="(\w+)"} (\S+)$', page(server, "/metrics")[1], re.MULTILINE)
    return {shard: float(value) == 1 for shard, value in found}


def wait_until(what: Callable[[], bool], deadline_s: float = _DEADLINE_S) -> None:
    deadline = time.monotonic() + deadline_s
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def enqueue(client: Client, count: int, body: bytes = b"x") -> Counter[str]:
    """Enqueues this number of jobs, one per request, each answered; how many went to each shard."""
    descriptors = [client.enqueue("emails", [Job(body)]).descriptors[0] for _ in range(count)]
    return Counter(descriptor.split(":")[1].removeprefix("s") for descriptor in descriptors)


@contextmanager
def served(folder: Path, file: MysqlShardFile, *options: str) -> Iterator[tuple[RealServer, Client]]:
    """A server on two shards, and a client whose queue `emails` has jobs on both."""
    with (
        RealServer(folder, "--set", "mysql.host_prefix=pinlaterdb", *options, store=f"mysql:{file.path}") as server,
        Client(server.address, retries=0) as client,
    ):
        client.create_queue("emails")
        client.configure_queue("emails", QueueConfig(partitions=2))
        assert set(enqueue(client, 30)) == {"1", "2"}
        yield server, client


def outcome(client: Client) -> type[PinLaterError] | None:
    """Of one enqueue."""
    try:
        client.enqueue("emails", [Job(b"x")])
    except PinLaterError as error:
        return type(error)
    return None


async def test_no_healthy_shards_is_said_while_none_is_left_and_no_longer(
    tmp_path: Path, start_mariadb: Callable[..., MariaDb]
) -> None:
    """Both are on one database server, which is killed and comes back, with what it had."""
    database = start_mariadb()
    file = MysqlShardFile(tmp_path / "shards.json", database, 1, 2)
    with served(tmp_path, file) as (server, client):
        database.kill()
        wait_until(lambda: outcome(client) is NoHealthyShards)
        with pytest.raises(NoHealthyShards, match="Unable to find healthy shard"):
            client.dequeue("emails")
        status, text = page(server, "/readyz")
        assert (status, "shard 1 is unreachable" in text, "shard 2 is unreachable" in text) == (503, True, True)
        database.start()
        wait_until(lambda: healthy(server) == {"1": True, "2": True})
        assert set(enqueue(client, 30)) == {"1", "2"}
        assert client.count("emails") >= 60
        # A moment later the server has learned which unique keys its shards hold.
        wait_until(lambda: page(server, "/readyz") == (200, "ready\n"))


@pytest.mark.parametrize("kind", ["mariadb", "mysql8"])
async def test_enqueues_go_to_another_shard_if_one_takes_no_writes(
    kind: str, tmp_path: Path, mariadb: MariaDb, mariadb_prefix: str, request: pytest.FixtureRequest
) -> None:
    """As after a failover that left it read-only: no enqueue fails for it, and once it takes writes it is found again."""
    start: Callable[..., DatabaseServer] = request.getfixturevalue(f"start_{kind}")
    database = start()
    file = MysqlShardFile(tmp_path / "shards.json", mariadb)
    file.write(pinlaterdb001={}, pinlaterdb002={"master": database.tcp})
    options = ("--set", f"mysql.database_prefix={mariadb_prefix}")
    with served(tmp_path, file, *options) as (server, client):
        await database.execute("SET GLOBAL read_only = 1")
        assert set(enqueue(client, 60)) == {"1"}
        wait_until(lambda: healthy(server) == {"1": True, "2": False})
        assert page(server, "/readyz")[0] == 200
        await database.execute("SET GLOBAL read_only = 0")
        wait_until(lambda: healthy(server) == {"1": True, "2": True})
        assert set(enqueue(client, 30)) == {"1", "2"}


@pytest.mark.parametrize("kind", ["mariadb", "mysql8"])
async def test_enqueues_go_to_another_shard_if_the_disk_of_one_is_full(
    kind: str, tmp_path: Path, mariadb: MariaDb, mariadb_prefix: str, request: pytest.FixtureRequest
) -> None:
    """MariaDB refuses it, and no enqueue fails. MySQL with its binary log on that disk stands still until there is space: the outcome of
    an enqueue that is under way then is unknown, and all later ones are stored elsewhere."""
    start: Callable[..., DatabaseServer] = request.getfixturevalue(f"start_{kind}")
    database = start(disk_mib=500)
    file = MysqlShardFile(tmp_path / "shards.json", mariadb)
    file.write(pinlaterdb001={}, pinlaterdb002={"master": database.tcp})
    options = ("--set", f"mysql.database_prefix={mariadb_prefix}")
    with served(tmp_path, file, *options) as (server, client):
        database.disk.fill(leave_bytes=1_000_000)
        under_way = 1 if kind == "mysql8" else 0
        unknown = 0

        def all_are_stored_elsewhere() -> bool:
            nonlocal unknown
            try:
                return set(enqueue(client, 30, b"x" * 7_000)) == {"1"}
            except OutcomeUnknown:
                unknown += 1
                return False

        wait_until(all_are_stored_elsewhere)
        assert unknown <= under_way
        assert client.dequeue("emails").jobs
        database.disk.free()
        wait_until(lambda: set(enqueue(client, 30)) == {"1", "2"}, _MYSQL_LOOKS_AGAIN_S)
        assert healthy(server) == {"1": True, "2": True}


async def test_a_shard_without_its_tables_is_left_alone_until_they_are_back(
    tmp_path: Path, mariadb: MariaDb, mariadb_prefix: str
) -> None:
    """Dropped by mistake, or an empty server answers at the old one's address: no enqueue fails for it, and no call by a bug."""
    file = MysqlShardFile(tmp_path / "shards.json", mariadb, 1, 2)
    options = ("--set", f"mysql.database_prefix={mariadb_prefix}")
    table = f"{mariadb_prefix}_2.ready"
    with served(tmp_path, file, *options) as (server, client):
        await mariadb.execute(f"RENAME TABLE {table} TO {table}_away")
        assert set(enqueue(client, 60)) == {"1"}
        wait_until(lambda: healthy(server) == {"1": True, "2": False})
        assert client.dequeue("emails").jobs
        assert any("does not have all tables" in line for line in server.said)
        assert not [line for line in server.said if "Traceback" in line]
        await mariadb.execute(f"RENAME TABLE {table}_away TO {table}")
        wait_until(lambda: healthy(server) == {"1": True, "2": True})
        assert set(enqueue(client, 30)) == {"1", "2"}


async def test_a_shard_whose_rights_are_taken_away_is_left_alone_until_they_are_back(
    tmp_path: Path, mariadb: MariaDb, mariadb_prefix: str
) -> None:
    """Or whose password changed: the shard file is given the new one while requests continue."""
    user = f"{mariadb_prefix}user"
    await mariadb.execute(f"CREATE USER '{user}'@'%' IDENTIFIED BY 'first'")
    await mariadb.execute(f"GRANT ALL ON `{mariadb_prefix}%`.* TO '{user}'@'%'")
    file = MysqlShardFile(tmp_path / "shards.json", mariadb)
    file.write(pinlaterdb001={}, pinlaterdb002={"user": user, "passwd": "first"})
    options = ("--set", f"mysql.database_prefix={mariadb_prefix}")
    with served(tmp_path, file, *options) as (server, client):
        await mariadb.execute(f"REVOKE ALL ON `{mariadb_prefix}%`.* FROM '{user}'@'%'")
        await mariadb.execute(f"KILL USER '{user}'")  # rights are looked at when a connection is made
        assert set(enqueue(client, 60)) == {"1"}
        wait_until(lambda: healthy(server) == {"1": True, "2": False})
        await mariadb.execute(f"GRANT ALL ON `{mariadb_prefix}%`.* TO '{user}'@'%'")
        wait_until(lambda: healthy(server) == {"1": True, "2": True})
        await mariadb.execute(f"ALTER USER '{user}'@'%' IDENTIFIED BY 'second'")
        await mariadb.execute(f"KILL USER '{user}'")
        assert set(enqueue(client, 60)) == {"1"}
        file.write(pinlaterdb001={}, pinlaterdb002={"user": user, "passwd": "second"})
        server.reload()
        wait_until(lambda: healthy(server) == {"1": True, "2": True})
        assert set(enqueue(client, 30)) == {"1", "2"}
    await mariadb.execute(f"DROP USER '{user}'@'%'")
