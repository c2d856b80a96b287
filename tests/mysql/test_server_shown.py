"""What a server on MySQL shards shows of itself: each shard's figures, and never a secret."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from bench.servers import PinLaterServer
from pinlater.client import Ack, Client, Job, QueueConfig
from pinlater.server.storage.mysql.stats import Stats
from tests.databases.mariadb import MariaDb
from tests.databases.ports import free_port
from tests.shared_shards.shard_files import MysqlShardFile

_DEADLINE_S = 20.0
LANES = ("insert", "claim", "finish")


@pytest.fixture
def shard_file(tmp_path: Path, mariadb: MariaDb, mariadb_prefix: str) -> MysqlShardFile:
    return MysqlShardFile(tmp_path / "shards.json", mariadb, 1, 2)


@pytest.fixture
def server(tmp_path: Path, shard_file: MysqlShardFile, mariadb_prefix: str) -> Iterator[PinLaterServer]:
    """On the shard file, with a log that keeps every line, and all of them."""
    options = [
        *("--set", f"mysql.database_prefix={mariadb_prefix}", "--set", "mysql.host_prefix=pinlaterdb"),
        *("--set", "telemetry.log_level=debug", "--thrift-port", "0", "--http-port", "0"),
        *("--set", "maintenance.sample_interval_ms=100", "--set", "maintenance.file_interval_ms=100"),
    ]
    command = [sys.executable, "-m", "pinlater", "serve", "--shards", str(shard_file.path), *options]
    with PinLaterServer(command, log=tmp_path / "log") as server:
        yield server


def wait_until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def metric(server: PinLaterServer, name: str) -> dict[str, float]:
    """A metric's values by their label."""
    found = re.findall(rf'^{name}{{\w+="([^"]*)"}} (\S+)$', server.get("/metrics"), re.MULTILINE)
    return {member: float(value) for member, value in found}


def test_metrics_tell_of_each_shard(server: PinLaterServer) -> None:
    """Lanes, batches, transactions and their times, retries, health, connections, live and finished rows."""
    with Client(f"127.0.0.1:{server.port}") as client:
        client.create_queue("emails")
        client.configure_queue("emails", QueueConfig(partitions=2))
        enqueued = [client.enqueue("emails", [Job(b"x")]).descriptors[0] for _ in range(40)]
        jobs = client.dequeue("emails", limit=10).jobs
        client.ack("emails", [Ack(job.descriptor, token=job.token) for job in jobs])
    stored = {shard: sum(f":s{shard}:" in one for one in enqueued) for shard in "12"}
    done = {shard: sum(f":s{shard}:" in job.descriptor for job in jobs) for shard in "12"}
    wait_until(lambda: metric(server, "pinlater_shard_jobs_finished") == done)
    assert metric(server, "pinlater_shard_jobs_live") == {shard: stored[shard] - done[shard] for shard in "12"}
    assert (
        metric(server, "pinlater_shard_healthy") == metric(server, "pinlater_shard_takes_enqueues") == {"1": 1, "2": 1}
    )

    lanes = {f"{lane} {shard}" for lane in LANES for shard in "12"}
    length = metric(server, "pinlater_lane_length")
    assert lanes <= set(length)
    assert set(length.values()) == {0}, "nothing is under way"
    calls, requests, busy = (metric(server, f"pinlater_lane_{name}") for name in ("calls", "requests", "busy_seconds"))
    for shard in "12":
        lane = f"insert {shard}"
        assert requests[lane] == stored[shard] >= calls[lane] > 0
        assert busy[lane] > 0
    figures = {name: metric(server, f"pinlater_store_{name}") for name in Stats().figures()}
    assert {frozenset(values) for values in figures.values()} == {frozenset("12")}
    for name in ("transactions", "transaction_seconds", "statements", "round_trips", "connections"):
        assert min(figures[name].values()) > 0, name


def test_the_memory_of_due_jobs_is_in_the_metrics_and_in_the_status_of_the_cluster(server: PinLaterServer) -> None:
    """It serves the claims of queues that the server owns, which it does some moments after its start."""
    with Client(f"127.0.0.1:{server.port}") as client:
        client.create_queue("emails")
        client.configure_queue("emails", QueueConfig(partitions=2))

        def claims_come_from_memory() -> bool:
            client.enqueue("emails", [Job(b"x")])
            client.dequeue("emails", limit=10)
            return min(metric(server, "pinlater_store_claims_from_memory").values()) > 0

        wait_until(claims_come_from_memory)
        for name in ("remembered_jobs", "remembered_bytes", "stale_claims"):
            assert metric(server, f"pinlater_store_{name}").keys() == {"1", "2"}
        memories = [shard.details.memory for shard in client.cluster().shards if shard.details is not None]
        assert len(memories) == 2
        assert all(memory is not None and memory.claims > 0 for memory in memories)


def shown(server: PinLaterServer) -> str:
    """What all may see: the whole log, the pages, the process."""
    pages = ["/server_info", "/stats.txt", "/stats.json", "/metrics", "/readyz", "/healthz"]
    command = Path(f"/proc/{server.pid}/cmdline").read_text()
    return "\n".join([server.output(), *[server.get(path) for path in pages], command])


async def test_no_secret_is_shown_whatever_goes_wrong(
    server: PinLaterServer, shard_file: MysqlShardFile, mariadb: MariaDb, mariadb_prefix: str
) -> None:
    """No password of the shard file, no secret that signs wakes: a file that breaks amid a password, a wrong password, a shard away."""
    with Client(f"127.0.0.1:{server.port}") as client:
        client.create_queue("emails")
        client.configure_queue("emails", QueueConfig(partitions=2))
        client.enqueue("emails", [Job(b"x")])
    good = shard_file.path.read_text()
    shard_file.path.write_text(good[: good.index(mariadb.password) + len(mariadb.password)])
    wait_until(lambda: metric(server, "pinlater_file_broken") == {"store": 1})
    shard_file.write(
        pinlaterdb001={},
        pinlaterdb002={"passwd": "not this one"},
        pinlaterdb003={"master": {"host": "127.0.0.1", "port": free_port()}},
    )
    wait_until(lambda: "Access denied" in server.output() and "refused" in server.output())
    secrets = {mariadb.password, quote(mariadb.password, safe=""), "not this one"}
    for shard in "12":
        [(secret,)] = await mariadb.execute(
            f"SELECT value FROM {mariadb_prefix}_{shard}.meta WHERE name = 'wake_secret'"
        )
        secrets.add(str(secret))
    assert len(secrets) == 5, "each shard has a secret of its own"
    text = shown(server)
    assert f"{mariadb.address}/{mariadb_prefix}_2" in text
    assert [secret for secret in secrets if secret in text] == []


def test_several_processes_get_their_password_without_showing_it(
    tmp_path: Path, mariadb: MariaDb, mariadb_prefix: str
) -> None:
    """It was on the command line; none of the processes that came of it shows it, nor does their log."""
    password = quote(mariadb.password, safe="")
    store = f"mysql://{mariadb.user}:{password}@{mariadb.address}/{mariadb_prefix}jobs"
    ports = ["--thrift-port", str(free_port()), "--http-port", str(free_port())]
    options = ["--processes", "2", "--set", "telemetry.log_level=debug", *ports]
    with PinLaterServer(
        [sys.executable, "-m", "pinlater", "serve", "--store", store, *options], log=tmp_path / "log"
    ) as server:
        wait_until(lambda: "all processes are ready" in server.output())
        tasks = Path(f"/proc/{server.pid}/task").glob("*/children")
        children = [child for task in tasks for child in task.read_text().split()]
        commands = [Path(f"/proc/{child}/cmdline").read_text() for child in children]
        text = "\n".join([shown(server), *commands])
        assert len(children) == 2
        assert f"{mariadb.address}/{mariadb_prefix}jobs" in text
        assert [secret for secret in (mariadb.password, password) if secret in text] == []
        assert server.stop() == 0
