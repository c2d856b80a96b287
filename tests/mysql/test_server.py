"""`pinlater serve` on MySQL shards: started by a shard file or a URL, and changed while it runs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

import pytest

from pinlater.client import Client, Job
from pinlater.testing.real_server import RealServer, ServerDidNotStart
from tests.databases.certificates import make_certificates
from tests.databases.database import DatabaseServer
from tests.databases.mariadb import MariaDb
from tests.databases.mysql import MySql8
from tests.mysql.shard_file import ShardFile
from tests.shared_shards.serving import metrics, work_off


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what a test sets."""
    for name in [name for name in os.environ if name.startswith("PINLATER_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def shard_file(tmp_path: Path, mariadb: MariaDb, mariadb_prefix: str) -> ShardFile:
    return ShardFile(tmp_path / "shards.json", mariadb, 1, 2)


@pytest.fixture
def serve(tmp_path: Path, mariadb_prefix: str, shard_file: ShardFile) -> Iterator[Callable[..., RealServer]]:
    """Starts servers on the shard file; they end with the test."""
    with ExitStack() as running:

        def start(*options: str) -> RealServer:
            prefix = ("--set", f"mysql.database_prefix={mariadb_prefix}", "--set", "mysql.host_prefix=pinlaterdb")
            server = RealServer(tmp_path, *prefix, *options, store=f"mysql:{shard_file.path}")
            return running.enter_context(server)

        yield start


def test_several_databases_on_a_replica_set_are_shards_of_their_own(serve: Callable[..., RealServer]) -> None:
    """MYSQL_NUM_DB_PER_QUEUE."""
    server = serve("--set", "mysql.databases_per_server=3")
    assert set(metrics(server, "pinlater_shard_healthy")) == {"1", "1d1", "1d2", "2", "2d1", "2d2"}


def test_a_shard_file_that_is_missing_is_said_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ServerDidNotStart, match=r"nowhere\.json can't be read: No such file or directory"):
        RealServer(tmp_path, store=f"mysql:{tmp_path}/nowhere.json").start()


@pytest.mark.parametrize("where", ["file", "environment"])
def test_the_password_may_come_from_elsewhere(
    where: str, tmp_path: Path, mariadb: MariaDb, mariadb_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a file or the environment, where the URL has none; and the way there may be a socket."""
    options = []
    if where == "file":
        (tmp_path / "password").write_text(mariadb.password + "\n")
        options = ["--set", f"mysql.password_file={tmp_path / 'password'}"]
    else:
        monkeypatch.setenv("PINLATER_MYSQL_PASSWORD", mariadb.password)
    url = f"mysql://{mariadb.user}@/{mariadb_prefix}one?socket={mariadb.socket}"
    with RealServer(tmp_path, *options, store=url) as server, Client(server.address) as client:
        client.create_queue("emails")
        client.enqueue("emails", [Job(b"x")])
        assert work_off(client, "emails") == {b"x"}


@pytest.mark.parametrize("kind", ["mariadb", "mysql8"])
def test_tls(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """With a database that takes nothing else: refused without TLS and with an authority that we don't know, served with the right one."""
    start: Callable[..., DatabaseServer] = request.getfixturevalue(f"start_{kind}")
    database = start(tls=True, require_secure_transport=True)
    assert database.certificates is not None
    url = f"mysql://{database.user}:{quote(database.password, safe='')}@{database.address}/pinlater_1"
    with pytest.raises(ServerDidNotStart, match=r"insecure transport|refuses our login"):
        RealServer(tmp_path, store=url).start()
    with pytest.raises(ServerDidNotStart, match=r"(?i)certificate"):
        RealServer(tmp_path, store=f"{url}?tls=true").start()
    authority = ("--set", f"mysql.tls_ca={database.certificates.authority}")
    with RealServer(tmp_path, *authority, store=f"{url}?tls=true") as server, Client(server.address) as client:
        client.create_queue("emails")
        client.enqueue("emails", [Job(b"x")])
        assert work_off(client, "emails") == {b"x"}


@pytest.mark.parametrize("kind", ["mariadb", "mysql8"])
def test_tls_where_the_database_asks_for_our_certificate_and_its_own_names_another_host(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Its name is checked unless that is switched off, and a user who must show a certificate (`REQUIRE X509`) shows ours."""
    certificates = make_certificates(tmp_path / "certificates", "192.0.2.1")
    files = {"ssl_ca": certificates.authority, "ssl_cert": certificates.certificate, "ssl_key": certificates.key}
    start: Callable[..., DatabaseServer] = request.getfixturevalue(f"start_{kind}")
    database = start(**{name: str(path) for name, path in files.items()})
    asyncio.run(database.execute("ALTER USER 'pinlater'@'%' REQUIRE X509"))
    url = f"mysql://{database.user}:{quote(database.password, safe='')}@{database.address}/pinlater_1?tls=true"
    authority = ("--set", f"mysql.tls_ca={certificates.authority}")
    unchecked = (*authority, "--set", "mysql.tls_check_hostname=false")
    ours = ("--set", f"mysql.tls_cert={certificates.certificate}", "--set", f"mysql.tls_key={certificates.key}")
    with pytest.raises(ServerDidNotStart, match=r"certificate is not valid for '127\.0\.0\.1'"):
        RealServer(tmp_path, *authority, *ours, store=url).start()
    with pytest.raises(ServerDidNotStart, match="refuses our login"):
        RealServer(tmp_path, *unchecked, store=url).start()
    with RealServer(tmp_path, *unchecked, *ours, store=url) as server, Client(server.address) as client:
        client.create_queue("emails")
        client.enqueue("emails", [Job(b"x")])
        assert work_off(client, "emails") == {b"x"}


def test_the_first_login_at_mysql_8_works_without_tls_too(tmp_path: Path, start_mysql8: Callable[..., MySql8]) -> None:
    """caching_sha2_password: the password goes encrypted by the server's key."""
    database = start_mysql8()
    url = f"mysql://{database.user}:{quote(database.password, safe='')}@{database.address}/pinlater_1"
    with RealServer(tmp_path, store=url) as server, Client(server.address) as client:
        client.create_queue("emails")
        client.enqueue("emails", [Job(b"x")])
        assert work_off(client, "emails") == {b"x"}
