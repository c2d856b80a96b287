"""`pinlater serve` on Redis shards: started by a URL or a shard file, changed while it runs, and with Redis killed under it."""

from __future__ import annotations

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
from tests.redis.shard_file import ShardFile
from tests.servers.certificates import make_certificates
from tests.servers.ports import free_port
from tests.servers.redis import RedisServer
from tests.servers.redis_users import PASSWORD, USER, WITH_USERS, url_of

_PATIENCE_S = 20.0


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what a test sets."""
    for name in [name for name in os.environ if name.startswith("PINLATER_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def shard_file(tmp_path: Path, redis_with_users: RedisServer, redis_prefix: str) -> ShardFile:
    return ShardFile(tmp_path / "shards.json", redis_with_users, "1", "2")


@pytest.fixture
def serve(tmp_path: Path, redis_prefix: str, shard_file: ShardFile) -> Iterator[Callable[..., RealServer]]:
    """Starts servers on the shard file; they end with the test."""
    with ExitStack() as running:

        def start(*options: str) -> RealServer:
            prefix = ("--set", f"redis.key_prefix={redis_prefix}")
            return running.enter_context(RealServer(tmp_path, *prefix, *options, store=f"redis:{shard_file.path}"))

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


def test_one_redis_by_its_url(tmp_path: Path, redis_with_users: RedisServer, redis_prefix: str) -> None:
    """From create to ack over Thrift; another server on the same Redis finds what the first left, and the counts."""
    prefix = ("--set", f"redis.key_prefix={redis_prefix}")
    bodies = [b"%d \xff\x00" % number for number in range(30)]
    with RealServer(tmp_path, *prefix, store=url_of(redis_with_users)) as server, Client(server.address) as client:
        client.create_queue("emails")
        descriptors = client.enqueue("emails", [Job(body) for body in bodies]).descriptors
        assert {shard_of(descriptor) for descriptor in descriptors} == {"1"}
        first = client.dequeue("emails", limit=5).jobs
        client.ack("emails", [Ack(job.descriptor, token=job.token) for job in first])
        held = client.dequeue("emails", limit=5).jobs
    with RealServer(tmp_path, *prefix, store=url_of(redis_with_users)) as server, Client(server.address) as client:
        assert metrics(server, "pinlater_shard_healthy") == {"1": 1}
        [stats] = client.queue_stats("emails")
        assert [stats.total(name) for name in ("pending", "in_progress", "succeeded")] == [20, 5, 5]
        assert [stats.total(name) for name in ("enqueued_total", "claimed_total", "succeeded_total")] == [30, 10, 5]
        client.ack("emails", [Ack(job.descriptor, token=job.token) for job in held])
        rest = work_off(client, "emails")
        assert rest | {job.body for job in [*first, *held]} == set(bodies)
        assert {info.state.name for info in client.lookup(descriptors).values()} == {"SUCCEEDED"}


def test_jobs_are_spread_over_the_shards_of_the_file_and_done(serve: Callable[..., RealServer]) -> None:
    server = serve()
    with Client(server.address) as client:
        client.create_queue("emails")
        descriptors = [client.enqueue("emails", [Job(b"%d" % number)]).descriptors[0] for number in range(40)]
        assert {shard_of(descriptor) for descriptor in descriptors} == {"1", "2"}
        assert work_off(client, "emails") == {b"%d" % number for number in range(40)}


def test_a_reload_adds_a_shard_and_its_queues(serve: Callable[..., RealServer], shard_file: ShardFile) -> None:
    """At SIGHUP at once, else within ten seconds."""
    server = serve()
    with Client(server.address) as client:
        client.create_queue("emails")
        shard_file.write(s1={}, s2={}, snew={})
        server.reload()
        wait_until(lambda: metrics(server, "pinlater_shard_healthy") == {"1": 1, "2": 1, "new": 1})
        shards = {shard_of(client.enqueue("emails", [Job(b"x")]).descriptors[0]) for _ in range(60)}
        assert shards == {"1", "2", "new"}


def test_a_shard_that_only_dequeues_drains_and_then_goes(
    serve: Callable[..., RealServer], shard_file: ShardFile
) -> None:
    """No new jobs, the old ones are handed out, and once it is empty it may be taken out of the file."""
    server = serve("--set", "sharding.removal_grace_ms=1", "--set", "maintenance.refresh_interval_ms=100")
    with Client(server.address) as client:
        client.create_queue("emails")
        for number in range(30):
            client.enqueue("emails", [Job(b"%d" % number)])
        shard_file.write(s1={}, s2={"dequeueOnly": True})
        server.reload()
        wait_until(lambda: metrics(server, "pinlater_shard_takes_enqueues") == {"1": 1, "2": 0})
        later = {shard_of(client.enqueue("emails", [Job(b"later")]).descriptors[0]) for _ in range(30)}
        assert later == {"1"}
        shard_file.write(s1={})
        server.reload()
        assert work_off(client, "emails") == {b"%d" % number for number in range(30)} | {b"later"}
        wait_until(lambda: metrics(server, "pinlater_shard_healthy") == {"1": 1})


def test_a_broken_shard_file_of_redis_keeps_the_map_in_use(
    serve: Callable[..., RealServer], shard_file: ShardFile
) -> None:
    server = serve()
    good = shard_file.path.read_text()
    shard_file.path.write_text('{"shards": [{"name": "1", "shardConfig": {"master": {"host": "r", "port": "many"}}}]}')
    server.reload()
    wait_until(lambda: metrics(server, "pinlater_file_broken") == {"store": 1})
    assert metrics(server, "pinlater_shard_healthy") == {"1": 1, "2": 1}
    shard_file.path.write_text(good)
    server.reload()
    wait_until(lambda: metrics(server, "pinlater_file_broken") == {"store": 0})


def test_a_shard_moves_while_requests_go_on(
    serve: Callable[..., RealServer], shard_file: ShardFile, redis_with_users: RedisServer
) -> None:
    """By another address in the file: nothing is dropped, and what was there is there."""
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
            shard_file.write(s1={}, s2={"master": {"host": "localhost", "port": redis_with_users.port}})
            server.reload()
            wait_until(lambda: any('"moved"' in line for line in server.said))
            far = len(enqueued) + 20
            wait_until(lambda: len(enqueued) > far)
            ended.set()
            load.result()
        assert work_off(client, "emails") == set(enqueued)


THE_ORIGINALS = """\
PINLATER_BACKEND=redis
THRIFT_PORT=0
OSTRICH_PORT=0
NUM_PRIORITY_LEVELS=3
BACKEND_CONNECTIONS_PER_SHARD=10
BACKEND_SOCKET_TIMEOUT_SECONDS=5
REDIS_HEALTH_CHECK_CONSECUTIVE_FAILURES=6
"""


@pytest.mark.parametrize("by", ["flag", "file"])
def test_the_originals_settings_start_a_server_on_its_redis_shards(
    by: str, tmp_path: Path, shard_file: ShardFile, redis_prefix: str
) -> None:
    """Its two files as they are. The shard file is named as the JVM's flag named it, or in the settings."""
    settings = tmp_path / "pinlater.properties"
    named = f"SHARDS_FILE={shard_file.path.name}\n" if by == "file" else ""
    settings.write_text(f"{THE_ORIGINALS}{named}REDIS_KEY_PREFIX={redis_prefix}\n")
    flags = ["--shards", str(shard_file.path)] if by == "flag" else []
    command = [sys.executable, "-m", "pinlater", "serve", "--config", str(settings), *flags]
    with Server(command, log=tmp_path / "log") as server, Client(f"127.0.0.1:{server.port}") as client:
        client.create_queue("emails")
        client.enqueue("emails", [Job(b"x")])
        assert work_off(client, "emails") == {b"x"}
        assert 'pinlater_shard_healthy{shard="2"} 1' in server.get("/metrics")
        assert server.stop() == 0


def test_a_wrong_password_is_said_at_the_start(tmp_path: Path, redis_with_users: RedisServer) -> None:
    """With the place, and never with the password."""
    url = f"redis://{USER}:secret-word@{redis_with_users.address}/0"
    with pytest.raises(ServerDidNotStart) as caught:
        RealServer(tmp_path, store=url).start()
    text = str(caught.value)
    assert f"{redis_with_users.address}/0 refuses our login (WRONGPASS" in text
    assert "secret-word" not in text


def everything_shown(server: RealServer) -> str:
    """What anybody may see of a server: its log, its pages, its process."""
    pages = ["/server_info", "/stats.txt", "/metrics", "/readyz", "/health"]
    shown = [
        urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}{page}", timeout=10).read().decode()
        for page in pages
    ]
    return "\n".join([*shown, *server.said, Path(f"/proc/{server.process_id}/cmdline").read_text()])


def test_the_password_of_a_redis_is_nowhere_to_be_seen(
    tmp_path: Path, redis_with_users: RedisServer, redis_prefix: str
) -> None:
    """Not in the log, on no page, and not in the list of processes, though it was on the command line."""
    options = ["--set", "telemetry.log_level=debug", "--set", f"redis.key_prefix={redis_prefix}"]
    with RealServer(tmp_path, *options, store=url_of(redis_with_users)) as server:
        with Client(server.address) as client:
            client.create_queue("emails")
        shown = everything_shown(server)
    assert f"{redis_with_users.address}/0" in shown
    assert quote(PASSWORD, safe="") not in shown
    assert PASSWORD not in shown


@pytest.mark.parametrize("where", ["file", "environment"])
def test_the_password_may_come_from_elsewhere(
    where: str, tmp_path: Path, redis_with_users: RedisServer, redis_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a file or the environment, where the URL has none."""
    options = ["--set", f"redis.key_prefix={redis_prefix}"]
    if where == "file":
        (tmp_path / "password").write_text(PASSWORD + "\n")
        options += ["--set", f"redis.password_file={tmp_path / 'password'}"]
    else:
        monkeypatch.setenv("PINLATER_REDIS_PASSWORD", PASSWORD)
    url = f"redis://{USER}@{redis_with_users.address}"
    with RealServer(tmp_path, *options, store=url) as server, Client(server.address) as client:
        client.create_queue("emails")
        client.enqueue("emails", [Job(b"x")])
        assert work_off(client, "emails") == {b"x"}


def test_tls(tmp_path: Path, start_redis: Callable[..., RedisServer]) -> None:
    """Refused with an authority that we don't know, served with the right one; without TLS nothing is said in the clear."""
    redis = start_redis(tls=True, **WITH_USERS)
    assert redis.certificates is not None
    url = url_of(redis, f"{redis.host}:{redis.tls_port}/0", scheme="rediss")
    with pytest.raises(ServerDidNotStart, match=r"(?i)certificate"):
        RealServer(tmp_path, store=url).start()
    authority = ("--set", f"redis.tls_ca={redis.certificates.authority}")
    with RealServer(tmp_path, *authority, store=url) as server, Client(server.address) as client:
        client.create_queue("emails")
        client.enqueue("emails", [Job(b"x")])
        assert work_off(client, "emails") == {b"x"}


def test_tls_where_redis_asks_for_our_certificate_and_its_own_names_another_host(
    tmp_path: Path, start_redis: Callable[..., RedisServer], redis_prefix: str
) -> None:
    """Its name is checked unless that is switched off; `tls-auth-clients yes`, which is Redis' default, is shown ours."""
    certificates = make_certificates(tmp_path / "certificates", "192.0.2.1")
    files = {"ca_cert": certificates.authority, "cert": certificates.certificate, "key": certificates.key}
    port = free_port()
    redis = start_redis(
        tls=True,
        **WITH_USERS,
        **{f"tls_{name}_file": str(path) for name, path in files.items()},
        tls_port=port,
        tls_auth_clients=True,
    )
    url = url_of(redis, f"{redis.host}:{port}/0", scheme="rediss")
    authority = ("--set", f"redis.tls_ca={certificates.authority}")
    unchecked = (*authority, "--set", "redis.tls_check_hostname=false")
    ours = ("--set", f"redis.tls_cert={certificates.certificate}", "--set", f"redis.tls_key={certificates.key}")
    with pytest.raises(ServerDidNotStart, match=r"certificate is not valid for '127\.0\.0\.1'"):
        RealServer(tmp_path, *authority, *ours, store=url).start()
    with pytest.raises(ServerDidNotStart, match=r"(?i)certificate required|connection|closed"):
        RealServer(tmp_path, *unchecked, store=url).start()
    with RealServer(tmp_path, *unchecked, *ours, store=url) as server, Client(server.address) as client:
        client.create_queue("emails")
        client.enqueue("emails", [Job(b"x")])
        assert work_off(client, "emails") == {b"x"}


def test_a_socket_in_the_place_of_host_and_port(tmp_path: Path, start_redis: Callable[..., RedisServer]) -> None:
    socket = tmp_path / "redis.sock"
    redis = start_redis(**WITH_USERS, unixsocket=str(socket))
    url = url_of(redis, f"/3?socket={socket}")
    with RealServer(tmp_path, store=url) as server, Client(server.address) as client:
        client.create_queue("emails")
        client.enqueue("emails", [Job(b"x")])
        assert work_off(client, "emails") == {b"x"}
