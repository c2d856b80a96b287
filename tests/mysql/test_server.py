"""`pinlater serve` on MySQL shards: started by a shard file or a URL, and changed while it runs."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

import pytest

from bench.servers import Server
from pinlater.client import Ack, Client, Job
from pinlater.testing.real_server import RealServer, ServerDidNotStart
from tests.mysql.shard_file import ShardFile
from tests.servers.certificates import make_certificates
from tests.servers.database import DatabaseServer
from tests.servers.mariadb import MariaDb
from tests.servers.mysql import MySql8

_PATIENCE_S = 20.0


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


def metrics(server: RealServer, name: str) -> dict[str, float]:
    """A metric's values by their label."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = re.findall(rf'^{name}{{\w+="([^"]*)"}} (\S+)$', text, re.MULTILINE)
    return {member: float(value) for member, value in found}


def wait_until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not what():
        assert time.monotonic() < deadline


def shard_of(descriptor: str) -> str:
    return descriptor.split(":")[1].removeprefix("s")


def work_off(client: Client, queue: str) -> set[bytes]:
    """Every job, done; their bodies."""
    bodies: set[bytes] = set()
    while jobs := client.dequeue(queue, limit=100).jobs:
        bodies |= {job.body for job in jobs}
        results = client.ack(queue, [Ack(job.descriptor, token=job.token) for job in jobs])
        assert {result.outcome.name for result in results} == {"APPLIED"}
    return bodies


def test_jobs_are_spread_over_the_shards_of_the_file_and_done(serve: Callable[..., RealServer]) -> None:
    """From create to ack, over Thrift."""
    server = serve()
    with Client(server.address) as client:
        client.create_queue("emails")
        descriptors = [
            descriptor
            for number in range(40)
            for descriptor in client.enqueue("emails", [Job(b"%d" % number)]).descriptors
        ]
        assert {shard_of(descriptor) for descriptor in descriptors} == {"1", "2"}
        assert work_off(client, "emails") == {b"%d" % number for number in range(40)}
        assert {info.state.name for info in client.lookup(descriptors).values()} == {"SUCCEEDED"}


def test_several_databases_on_a_replica_set_are_shards_of_their_own(serve: Callable[..., RealServer]) -> None:
    """MYSQL_NUM_DB_PER_QUEUE."""
    server = serve("--set", "mysql.databases_per_server=3")
    assert set(metrics(server, "pinlater_shard_healthy")) == {"1", "1d1", "1d2", "2", "2d1", "2d2"}


def test_a_reload_adds_a_shard_and_its_queues(serve: Callable[..., RealServer], shard_file: ShardFile) -> None:
    """At SIGHUP at once, else within ten seconds."""
    server = serve()
    with Client(server.address) as client:
        client.create_queue("emails")
        shard_file.write(pinlaterdb001={}, pinlaterdb2={}, pinlaterdb007={})
        server.reload()
        wait_until(lambda: metrics(server, "pinlater_shard_healthy") == {"1": 1, "2": 1, "7": 1})
        shards = {shard_of(client.enqueue("emails", [Job(b"x")]).descriptors[0]) for _ in range(60)}
        assert shards == {"1", "2", "7"}


def test_a_shard_that_only_dequeues_drains_and_then_goes(
    serve: Callable[..., RealServer], shard_file: ShardFile
) -> None:
    """No new jobs, and the old ones are handed out. Taken out of the file too early it stays, with an error and their number, until it is
    empty."""
    often = [("--set", f"maintenance.{each}_interval_ms=100") for each in ("refresh", "sample")]
    server = serve("--set", "sharding.removal_grace_ms=1", *often[0], *often[1])
    with Client(server.address) as client:
        client.create_queue("emails")
        for number in range(30):
            client.enqueue("emails", [Job(b"%d" % number)])
        shard_file.write(pinlaterdb001={}, pinlaterdb002={"dequeueOnly": True})
        server.reload()
        wait_until(lambda: metrics(server, "pinlater_shard_takes_enqueues") == {"1": 1, "2": 0})
        later = {shard_of(client.enqueue("emails", [Job(b"later")]).descriptors[0]) for _ in range(30)}
        assert later == {"1"}
        wait_until(lambda: sum(metrics(server, "pinlater_shard_jobs_live").values()) == 60)
        left = metrics(server, "pinlater_shard_jobs_live")["2"]
        shard_file.write(pinlaterdb001={})
        server.reload()
        wait_until(lambda: any('"error"' in line and f"{left:.0f} live jobs" in line for line in server.said))
        assert metrics(server, "pinlater_shard_takes_enqueues") == {"1": 1, "2": 0}
        assert work_off(client, "emails") == {b"%d" % number for number in range(30)} | {b"later"}
        wait_until(lambda: metrics(server, "pinlater_shard_healthy") == {"1": 1})


def test_a_broken_shard_file_keeps_the_map_in_use(serve: Callable[..., RealServer], shard_file: ShardFile) -> None:
    """A slip of the pen must stop nothing; the metric says that there is one."""
    server = serve()
    good = shard_file.path.read_text()
    shard_file.path.write_text('{"pinlaterdb001": {"master": {"host": "db", "port": "many"}}}')
    server.reload()
    wait_until(lambda: metrics(server, "pinlater_file_broken") == {"store": 1})
    assert metrics(server, "pinlater_shard_healthy") == {"1": 1, "2": 1}
    shard_file.path.write_text(good)
    server.reload()
    wait_until(lambda: metrics(server, "pinlater_file_broken") == {"store": 0})


THE_ORIGINALS = """\
PINLATER_BACKEND=mysql
THRIFT_PORT=0
OSTRICH_PORT=0
NUM_PRIORITY_LEVELS=3
MYSQL_NUM_DB_PER_QUEUE=2
SHARD_ALLOWED_HOSTNAME_PREFIX=pinlaterdb
BACKEND_CONNECTIONS_PER_SHARD=10
BACKEND_SOCKET_TIMEOUT_SECONDS=5
"""


@pytest.mark.parametrize("by", ["flag", "file"])
def test_the_originals_settings_start_a_server_on_its_shards(
    by: str, tmp_path: Path, shard_file: ShardFile, mariadb_prefix: str
) -> None:
    """Its two files as they are. The shard file is named as the JVM's flag named it, or in the settings."""
    settings = tmp_path / "pinlater.properties"
    named = f"SHARDS_FILE={shard_file.path.name}\n" if by == "file" else ""
    settings.write_text(f"{THE_ORIGINALS}{named}MYSQL_DATABASE_PREFIX={mariadb_prefix}\n")
    flags = ["--shards", str(shard_file.path)] if by == "flag" else []
    command = [sys.executable, "-m", "pinlater", "serve", "--config", str(settings), *flags]
    with Server(command, log=tmp_path / "log") as server, Client(f"127.0.0.1:{server.port}") as client:
        client.create_queue("emails")
        client.enqueue("emails", [Job(b"x")])
        assert work_off(client, "emails") == {b"x"}
        assert 'pinlater_shard_healthy{shard="2d1"} 1' in server.get("/metrics")
        assert server.stop() == 0


def test_a_wrong_password_is_said_at_the_start(tmp_path: Path, mariadb: MariaDb, mariadb_prefix: str) -> None:
    """With the place and the user's name, and never with the password."""
    url = f"mysql://{mariadb.user}:secret-word@{mariadb.address}/{mariadb_prefix}x"
    with pytest.raises(ServerDidNotStart) as caught:
        RealServer(tmp_path, store=url).start()
    text = str(caught.value)
    assert f"{mariadb.address}/{mariadb_prefix}x refuses our login (Access denied for user 'pinlater'" in text
    assert "secret-word" not in text


def test_a_shard_file_that_is_missing_is_said_at_the_start(tmp_path: Path) -> None:
    """Without a map there is nothing to serve."""
    with pytest.raises(ServerDidNotStart, match=r"nowhere\.json can't be read: No such file or directory"):
        RealServer(tmp_path, store=f"mysql:{tmp_path}/nowhere.json").start()


def everything_shown(server: RealServer) -> str:
    """What anybody may see of a server: its log, its pages, its process."""
    pages = ["/server_info", "/stats.txt", "/metrics", "/readyz", "/health"]
    shown = [
        urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}{page}", timeout=10).read().decode()
        for page in pages
    ]
    return "\n".join([*shown, *server.said, Path(f"/proc/{server.process_id}/cmdline").read_text()])


def test_a_password_is_nowhere_to_be_seen(tmp_path: Path, mariadb: MariaDb, mariadb_prefix: str) -> None:
    """Not in the log, on no page, and not in the list of processes, though it was on the command line."""
    password = quote(mariadb.password, safe="")
    url = f"mysql://{mariadb.user}:{password}@{mariadb.address}/{mariadb_prefix}one"
    with RealServer(tmp_path, "--set", "telemetry.log_level=debug", store=url) as server:
        with Client(server.address) as client:
            client.create_queue("emails")
        shown = everything_shown(server)
    assert f"{mariadb.address}/{mariadb_prefix}one" in shown
    assert password not in shown
    assert mariadb.password not in shown


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


def test_a_shard_moves_while_requests_go_on(
    serve: Callable[..., RealServer], shard_file: ShardFile, mariadb: MariaDb
) -> None:
    """A failover by another address in the file: nothing is dropped, and what was there is there."""
    server = serve()
    ended = threading.Event()
    enqueued: list[bytes] = []
    with Client(server.address) as client:
        client.create_queue("emails")

        def enqueue_on() -> None:
            while not ended.is_set():
                body = b"%d" % len(enqueued)
                client.enqueue("emails", [Job(body)])
                enqueued.append(body)

        with ThreadPoolExecutor(1) as thread, ExitStack() as at_the_end:
            load = thread.submit(enqueue_on)
            at_the_end.callback(ended.set)
            wait_until(lambda: len(enqueued) > 20)
            shard_file.write(pinlaterdb001={}, pinlaterdb002={"socket": str(mariadb.socket)})
            server.reload()
            wait_until(lambda: any('"moved"' in line for line in server.said))
            far = len(enqueued) + 20
            wait_until(lambda: len(enqueued) > far)
            ended.set()
            load.result()
        assert work_off(client, "emails") == set(enqueued)
