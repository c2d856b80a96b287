"""`pinlater serve` on Redis shards: started by a URL or a shard file, changed while it runs, and with Redis killed under it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pinlater.client import Ack, Client, Job
from pinlater.testing.real_server import RealServer, ServerDidNotStart
from tests.databases.certificates import make_certificates
from tests.databases.ports import free_port
from tests.databases.redis import RedisServer
from tests.databases.redis_users import PASSWORD, USER, WITH_USERS, url_of
from tests.redis.shard_file import ShardFile
from tests.shared_shards.serving import metrics, shard_of, work_off


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
