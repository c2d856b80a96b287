"""The files that the original reads too, in a whole server in this process: what they do to dequeues, and what a broken one does not."""

from __future__ import annotations

import asyncio
import hashlib
import json
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from bench.servers import PinLaterServer, pinlater_server
from pinlater.server.features.audit.trail import AuditTrail
from pinlater.server.main.app import App
from pinlater.wire.generated.structs import AuditRequest
from tests.promises.conftest import PASSWORD
from tests.promises.running_server import SettableClocks
from tests.promises.test_queues import SALT_OF_THE_ORIGINAL, refused
from tests.promises.wire import DEADLINE_S, Wire, connected

Run = Callable[..., Awaitable[App]]


def limits_file(path: Path, **limits: float) -> Path:
    queues = [{"name": name, "queueConfig": {"maxJobsPerSecond": rate}} for name, rate in limits.items()]
    path.write_text(json.dumps({"queues": queues}))
    return path


async def look(app: App, name: str) -> None:
    """Does one piece of the server's periodic work."""
    [work] = [work for work in app.periodic_work.table() if work.name == name]
    await work.run()


async def in_a_second(app: App, wire: Wire, turned: SettableClocks) -> int:
    """How many jobs the queue gives out from an empty second on, one at a time."""
    del app
    turned.monotonic_s += 60  # the bucket is full again
    got = 0
    for _ in range(200):
        try:
            got += len(await wire.claim("q", 1))
        except Exception:  # noqa: BLE001 the limit is what ends it
            return got
    return got


async def started(run: Run, **flags: object) -> tuple[App, Wire, SettableClocks]:
    turned = SettableClocks()
    app = await run(turned.clock(), **flags)
    wire = await Wire.connect(app.thrift.port)
    await wire.create("q")
    await wire.enqueue("q", *[b"x"] * 1_000)
    return app, wire, turned


async def test_the_limits_file_limits_dequeues_and_is_read_again_when_it_changes(run: Run, tmp_path: Path) -> None:
    path = limits_file(tmp_path / "limits.json", q=10)
    app, wire, turned = await started(run, queue_limits_file=str(path))
    assert await in_a_second(app, wire, turned) == 10
    limits_file(path, q=3)
    await look(app, "files")
    assert await in_a_second(app, wire, turned) == 3
    limits_file(path, q=0)
    await look(app, "files")
    assert await in_a_second(app, wire, turned) == 0
    limits_file(path, other=1)
    await look(app, "files")
    assert len(await wire.claim("q", 500)) == 500
    await wire.close()


async def test_changed_limits_and_server_sets_are_in_the_audit(run: Run, tmp_path: Path) -> None:
    path = limits_file(tmp_path / "limits.json", q=12)
    servers = tmp_path / "servers"
    servers.write_text("a:1\nb:1\n")
    app, wire, _ = await started(run, queue_limits_file=str(path), server_set_file=str(servers))
    limits_file(path, q=0)
    await look(app, "files")
    servers.write_text("a:1\n")
    await look(app, "files")
    await app.core.service.of(AuditTrail).buffer.flush()
    found = (await app.core.service.of(AuditTrail).read(AuditRequest())).entries
    assert {
        (entry.who, entry.operation, entry.queue) for entry in found if entry.who in {"limits file", "server set"}
    } == {
        ("limits file", "limitChanged", "q"),
        ("server set", "serverSetChanged", ""),
    }
    await wire.close()


async def test_a_limit_is_divided_by_the_distinct_lines_of_the_server_set(run: Run, tmp_path: Path) -> None:
    path = limits_file(tmp_path / "limits.json", q=12)
    servers = tmp_path / "servers"
    servers.write_text("a:1\nb:1\n\n  \nb:1\n c:1 \n")
    app, wire, turned = await started(run, queue_limits_file=str(path), server_set_file=str(servers))
    assert await in_a_second(app, wire, turned) == 4
    servers.write_text("a:1\nb:1\n")
    await look(app, "files")
    assert await in_a_second(app, wire, turned) == 6
    servers.write_text("")  # ignored, the old number kept
    await look(app, "files")
    assert await in_a_second(app, wire, turned) == 6
    servers.unlink()
    await look(app, "files")
    assert await in_a_second(app, wire, turned) == 6
    await wire.close()


@pytest.mark.parametrize("jump_s", [3_600.0, -3_600.0])
async def test_a_clock_jump_is_logged_and_never_shortens_or_lengthens_a_live_claim(
    run: Run, jump_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    app, wire, turned = await started(run)
    [(descriptor, _)] = await wire.claim("q", 1)
    deadline = (await wire.job(descriptor)).claimDeadlineMillis
    turned.wall_s += jump_s
    await look(app, "clock")
    assert "wall clock jumped" in caplog.text
    await look(app, "claim-timeouts")
    assert await wire.state(descriptor) == 1
    assert (await wire.job(descriptor)).claimDeadlineMillis == deadline
    turned.monotonic_s += 601
    await look(app, "claim-timeouts")
    assert await wire.state(descriptor) == 0
    await wire.close()


SHIPPED = """\
# What the shipped example for MySQL holds, and our store.
ADMIN_PASSWORD_HASH={password_hash}
PINLATER_BACKEND=sqlite
SQLITE_PATH=jobs.db
THRIFT_PORT=0
OSTRICH_PORT=0
MAX_CONCURRENT_REQUESTS=5000
SERVER_CONN_MAX_IDLE_TIME_MINUTES=5
NUM_PRIORITY_LEVELS=4
QUEUE_CONFIG_FILE_PATH=limits.json
SERVER_SET_ENABLED=true
SERVER_SET_PATH=servers
BACKEND_MONITOR_JOB_CLAIMED_TIMEOUT_SECONDS=180
BACKEND_MONITOR_JOB_FAILED_GC_TTL_HOURS=2
BACKEND_MONITOR_JOB_SUCCEEDED_GC_TTL_HOURS=1
MONITOR_LOG_INTERVAL=1
BACKEND_MONITOR_THREAD_DELAY_SECONDS=120
BACKEND_MONITOR_UPDATE_MAX_SIZE=5000
BACKEND_CONNECTIONS_PER_SHARD=10
BACKEND_CONNECTION_MAX_WAIT_MILLIS=5000
BACKEND_SOCKET_TIMEOUT_SECONDS=5
BACKEND_NUM_AUTO_RETRIES=3
BACKEND_QUERY_PARALLELISM=5
BACKEND_DEQUEUE_CONCURRENCY_PER_QUEUE_PER_SHARD=4
MONITOR_CONNECTIONS_PER_SHARD=3
MONITOR_SOCKET_TIMEOUT_SECONDS=10
MYSQL_COUNT_LIMIT=100000
MYSQL_NUM_DB_PER_QUEUE=4
SHARD_ALLOWED_HOSTNAME_PREFIX=
"""


async def test_an_operators_old_settings_file_starts_a_server_that_does_what_it_says(tmp_path: Path) -> None:
    """A process of its own; paths in the file count from the file."""
    hashed = hashlib.sha256(f"{PASSWORD}{SALT_OF_THE_ORIGINAL}".encode()).hexdigest()
    settings = tmp_path / "pinlater.properties"
    settings.write_text(SHIPPED.format(password_hash=hashed))
    limits_file(tmp_path / "limits.json", stopped=0, open=8)
    (tmp_path / "servers").write_text("a:1\nb:1\n")
    command = [sys.executable, "-m", "pinlater", "serve", "--config", str(settings)]
    with PinLaterServer(command, log=tmp_path / "log") as server:
        assert (tmp_path / "jobs.db").exists()
        async with connected(server.port) as wire:
            for queue in ("stopped", "open"):
                await wire.create(queue)
                await wire.enqueue(queue, *[b"x"] * 50, priority=4)
            assert (await refused(wire.enqueue("open", b"x", priority=5))).code == 416
            assert (await refused(wire.dequeue("stopped"))).code == 429
            answer = await wire.dequeue("open", 40)
            left_ms = [each.claimDeadlineMillis - int(time.time() * 1_000) for each in answer.jobMetadata.values()]
            assert len(left_ms) == 40
            assert all(150_000 < each <= 181_000 for each in left_ms)
            error = await refused(wire.dequeue("open"))  # 8 a second for two servers: 36 jobs in debt
            assert error.code == 429
            assert 7_500 < error.retry_after_ms <= 9_500
            assert (await refused(wire.call("deleteQueue", name="open", password=hashed))).code == 403
            await wire.call("deleteQueue", name="open", password=PASSWORD)
        assert server.get("/ping.txt").strip() == "pong"
        for replaced in ("BACKEND_QUERY_PARALLELISM", "BACKEND_CONNECTIONS_PER_SHARD"):
            assert replaced in server.output()  # a warning says what takes its place
        assert server.stop() == 0


async def test_a_signal_makes_it_read_its_files_at_once(tmp_path: Path) -> None:
    """Instead of within ten seconds; a broken file is reported and the queue stays as it was."""
    path = limits_file(tmp_path / "limits.json", q=0)
    env = {"PINLATER_QUEUE_LIMITS_FILE": str(path)}
    with pinlater_server(tmp_path / "store.db", log=tmp_path / "log", env=env) as server:
        async with connected(server.port) as wire:

            async def read_again(text: str, word: str) -> None:
                path.write_text(text)
                server.signal(signal.SIGHUP)
                async with asyncio.timeout(DEADLINE_S):
                    while word not in server.output():
                        await wire.call("getQueueNames")

            await wire.create("q")
            await wire.enqueue("q", b"x", b"y")
            await read_again("{", "last good values stay")
            assert (await refused(wire.dequeue("q"))).code == 429
            await read_again('{"queues": []}', "limits reloaded")
            assert len(await wire.claim("q")) == 2
