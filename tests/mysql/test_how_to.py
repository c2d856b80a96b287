"""The statements, settings and dumps of the MySQL pages work, on both kinds of database server."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest

from pinlater.client import Ack, Client, Job
from pinlater.testing.real_server import RealServer
from tests.databases.database import DatabaseServer
from tests.databases.server_process import ServerMissing, program
from tests.house.snippets import Block, blocks
from tests.shared_shards.serving import one_job_through

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
SET_UP, OPERATE = PAGES / "run-on-mysql.md", PAGES / "operate-mysql.md"


def block_in(language: str) -> Block:
    (found,) = (block for block in blocks(SET_UP.read_text()) if block.language == language)
    return found


@pytest.fixture(params=["mariadb", "mysql8"])
def start_server(request: pytest.FixtureRequest) -> Callable[..., DatabaseServer]:
    start: Callable[..., DatabaseServer] = request.getfixturevalue(f"start_{request.param}")
    return start


def test_the_pages_settings_and_grants_are_enough(start_server: Callable[..., DatabaseServer], tmp_path: Path) -> None:
    options = dict(
        line.split(" = ") for line in block_in("ini").text.splitlines()[1:] if line and not line.startswith("#")
    )
    options["innodb_buffer_pool_size"] = "32M"  # a test needs no four gigabytes
    database = start_server(**options)
    asyncio.run(prepare(database))
    password = quote("a long password", safe="")
    url = f"mysql://page:{password}@{database.address}/pinlater_1"
    with RealServer(tmp_path, store=url) as server:
        one_job_through(server.address)
        assert not [line for line in server.said if "warning" in line and "mysql" in line]


async def prepare(database: DatabaseServer) -> None:
    """As the page says, but for the user's name, which the tests' own user has already."""
    for statement in block_in("mysql").text.replace("'pinlater'@", "'page'@").split(";"):
        if statement.strip():
            await database.execute(statement)


def test_a_shard_is_restored_from_a_dump_on_another_server(
    start_server: Callable[..., DatabaseServer], tmp_path: Path
) -> None:
    database, spare = start_server(), start_server()
    (line,) = (b.text for b in blocks(OPERATE.read_text()) if "mariadb-dump" in b.text)
    command = line.split(" > ")[0].split()
    command[0], loader = tool("mariadb-dump"), tool("mariadb")
    login = ["--user=admin", f"--password={database.password}"]
    with RealServer(tmp_path, store=url_of(database)) as server, Client(server.address) as client:
        client.create_queue("emails")
        client.enqueue("emails", [Job(b"\x00\xff kept")])
        dump = run([command[0], *login, f"--socket={database.socket}", *command[1:]])
    run([loader, *login, f"--socket={spare.socket}"], dump)
    with RealServer(tmp_path, store=url_of(spare)) as server, Client(server.address) as client:
        (job,) = client.dequeue("emails").jobs
        assert job.body == b"\x00\xff kept"
        client.ack("emails", [Ack(job.descriptor, token=job.token)])


def url_of(database: DatabaseServer) -> str:
    return f"mysql://{database.user}:{quote(database.password, safe='')}@{database.address}/pinlater_1"


def tool(name: str) -> str:
    """The path of one of MariaDB's client programs; without it the test is skipped, and fails in CI."""
    try:
        return program(name, "mariadb-client")
    except ServerMissing as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing))
        pytest.skip(str(missing))


def run(command: list[str], given: bytes = b"") -> bytes:
    done = subprocess.run(command, input=given, capture_output=True, check=False, env=dict(os.environ))
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout
