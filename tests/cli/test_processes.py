"""The command as a process: the demo, a worker with signals, an interrupted load, a reader that goes away."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinlater.client import Client
from pinlater.testing import RealServer
from tests.cli.conftest import COMMAND, Pinlater
from tests.databases.ports import free_port

WORKER = """
import asyncio, time
from pinlater import Worker

worker = Worker()

@worker.task("{queue}")
async def note(job):
    print("ran", job.body.decode(), flush=True)
    if job.body == b"long":
        await asyncio.Event().wait()

@worker.task("{queue}_threads")
def block(job):
    print("ran", job.body.decode(), flush=True)
    time.sleep(3600)

not_a_worker = 1
"""


@pytest.fixture
def module(tmp_path: Path, queue: str, pinlater: Pinlater) -> Path:
    """A folder with a module `jobs` that holds a worker for `queue`."""
    pinlater.ok("queue", "create", f"{queue}_threads")
    (tmp_path / "jobs.py").write_text(WORKER.format(queue=queue))
    return tmp_path


@pytest.fixture
def started(module: Path, server_address: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes to be ended with the test."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


def start_worker(started: list[subprocess.Popen[str]], module: Path, address: str, *more: str) -> subprocess.Popen[str]:
    command = [*COMMAND, "worker", "jobs:worker", *more]
    environment = os.environ | {"PINLATER_SERVERS": address}
    process = subprocess.Popen(command, cwd=module, env=environment, stdout=subprocess.PIPE, text=True)
    started.append(process)
    return process


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_runs_jobs_and_gives_the_rest_back_at_a_signal(
    pinlater: Pinlater, queue: str, module: Path, started: list[subprocess.Popen[str]], number: signal.Signals
) -> None:
    worker = start_worker(started, module, pinlater.address, "--grace", "100ms", "--queues", queue)
    pinlater.ok("job", "enqueue", queue, "--body", "first", "--body", "long")
    assert {read_line(worker), read_line(worker)} == {"ran first\n", "ran long\n"}
    worker.send_signal(number)
    assert worker.wait(30) == 0
    (stats,) = pinlater.ok("queue", "stats", queue, "--json").json["queues"]
    assert (stats["succeeded"], stats["pending"], stats["in_progress"]) == (1, 1, 0)
    assert pinlater.ok("job", "peek", queue, "--json").json["jobs"][0]["attempts_remaining"] == 2


def test_a_thread_that_never_ends_does_not_keep_the_worker(
    pinlater: Pinlater, queue: str, module: Path, started: list[subprocess.Popen[str]]
) -> None:
    worker = start_worker(started, module, pinlater.address, "--grace", "50ms")
    pinlater.ok("job", "enqueue", f"{queue}_threads", "--body", "stuck")
    assert read_line(worker) == "ran stuck\n"
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(30) == 0
    assert pinlater.ok("job", "count", f"{queue}_threads").out == "1\n"


@pytest.mark.parametrize(
    ("application", "said"),
    [
        ("jobs", "is not MODULE:NAME, such as jobs:worker"),
        ("jobs.py", "is not MODULE:NAME, such as jobs:worker"),
        ("nowhere:worker", "no module 'nowhere'"),
        ("jobs:nothing", "has no 'nothing'; there is jobs:worker"),
        ("empty:nothing", "has no 'nothing'; empty has no pinlater.Worker"),
        ("empty:value", "is of type int, not a pinlater.Worker; empty has no pinlater.Worker"),
        ("jobs:not_a_worker", "is of type int, not a pinlater.Worker; there is jobs:worker"),
    ],
)
def test_an_application_that_names_no_worker_is_a_usage_error(module: Path, application: str, said: str) -> None:
    (module / "empty.py").write_text("value = 1\n")
    done = subprocess.run(
        [*COMMAND, "worker", application], cwd=module, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert said in done.stderr


def test_a_module_that_fails_says_where_and_shows_its_traceback_if_wanted(tmp_path: Path) -> None:
    (tmp_path / "mails.py").write_text("import pinlater\n\nworker = pinlater.Worker('localhost:abc')\n")
    command = [*COMMAND, "worker", "mails:worker"]
    plain, full, as_json = (
        subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
        for words in (command, [*COMMAND, "--traceback", *command[len(COMMAND) :]], [*command, "--log-format", "json"])
    )
    assert (plain.returncode, full.returncode, as_json.returncode) == (2, 2, 2)
    said = (
        "mails can't be loaded: ValueError: not a server address: 'localhost:abc'; write host:port (mails.py, line 3)"
    )
    assert plain.stderr == f"error: {said}\n"
    assert full.stderr.startswith("Traceback (most recent call last)")
    assert full.stderr.endswith(f"error: {said}\n")
    assert json.loads(as_json.stderr)["error"] == said


def test_a_worker_goes_on_when_its_server_was_killed_and_is_back(
    tmp_path: Path, started: list[subprocess.Popen[str]]
) -> None:
    (tmp_path / "jobs.py").write_text(WORKER.format(queue="q"))
    with RealServer(tmp_path) as server, Client(server.address) as client:
        for name in ("q", "q_threads"):
            client.create_queue(name)
        worker = start_worker(started, tmp_path, server.address)
        client.enqueue("q", [b"before"])
        assert read_line(worker) == "ran before\n"
        server.kill()
        server.start()
        client.enqueue("q", [b"after"])
        assert read_line(worker) == "ran after\n"
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0


def test_the_demo_ends_with_every_job_accounted_for(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [*COMMAND, "demo", "--jobs", "600", "--json"], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    outcome = json.loads(done.stdout)
    assert outcome["as_expected"]
    assert (outcome["enqueued"], outcome["succeeded"], outcome["failed"]) == (600, 599, 1)
    assert outcome["retried"] == 14
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_demo_that_is_stopped_leaves_nothing_behind(tmp_path: Path, number: signal.Signals, code: int) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    command = [*COMMAND, "demo", "--jobs", "100000"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    address = read_line(process).split()[1].rstrip(",")
    read_line(process)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (code, "")
    assert list(tmp_path.iterdir()) == []
    host, port = address.split(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))


def test_a_demo_that_is_killed_takes_its_server_along(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    command = [*COMMAND, "demo", "--jobs", "100000"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    host, port = read_line(process).split()[1].rstrip(",").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as witness:
        process.kill()
        process.communicate()
        assert witness.recv(1) == b""  # the server stops in order and closes what is idle
    wait_until_refused(host, int(port))


def wait_until_refused(host: str, port: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            socket.create_connection((host, port), timeout=5).close()
        except ConnectionRefusedError:
            return
    pytest.fail(f"there is still a listener on {host}:{port}")


def test_a_server_stops_in_order_with_its_standard_input(tmp_path: Path) -> None:
    command = [*COMMAND, "serve", "--store", f"sqlite:{tmp_path / 'jobs.db'}", "--thrift-port", "0", "--http-port", "0"]
    process = subprocess.Popen(
        [*command, "--stop-with-stdin"], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stderr is not None
    while "ready" not in process.stderr.readline():
        assert process.poll() is None
    process.stdin.write("what comes before the end is not looked at\n")
    _, log = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "draining" in log


def test_a_file_as_standard_input_has_no_end_to_wait_for(tmp_path: Path) -> None:
    command = [*COMMAND, "serve", "--store", "memory:", "--thrift-port", "0", "--http-port", "0", "--stop-with-stdin"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.endswith("error: standard input is a file, which has no other end to wait for: give a pipe\n")


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_a_server_whose_standard_streams_are_closed_serves_and_stops_with_0(tmp_path: Path, closed: str) -> None:
    """No file or socket of the server may take their numbers: stray output would go into it, and the event loop aborts."""
    pid = tmp_path / "pid"
    serve = f"{sys.executable} -m pinlater serve --store sqlite:{tmp_path / 'jobs.db'} --thrift-port {free_port()} --http-port"
    port = free_port()
    script = f"{serve} {port} {closed} & echo $! >{pid}; wait $!"
    shell = subprocess.Popen(["bash", "-c", script], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not ready(port):
        assert time.monotonic() < deadline
        assert shell.poll() is None
    os.kill(int(pid.read_text()), signal.SIGTERM)
    assert shell.wait(60) == 0


def ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def test_an_interrupted_load_still_says_what_it_measured(server_address: str, queue: str) -> None:
    command = [*COMMAND, "bench", "load", "--server", server_address, "--queue", queue, "--num-queries", "-1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert "jobs/s" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    measured = dict(line.split("\t") for line in out.splitlines())
    assert int(measured["queries"].replace(",", "")) > 0


def test_a_reader_that_goes_away_is_no_error(pinlater: Pinlater, queue: str) -> None:
    pinlater.ok("job", "enqueue", queue, "--lines", stdin=b"\n".join(b"%01000d" % n for n in range(900)))
    listing = f"{sys.executable} -m pinlater job peek {queue} --limit 900 --json --server {pinlater.address}"
    script = f"set -o pipefail; {listing} | head -c 1 >/dev/null"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_job_enqueued_while_its_server_restarts_is_stored(tmp_path: Path) -> None:
    with RealServer(tmp_path) as server:
        with Client(server.address) as client:
            client.create_queue("q")
        server.stop()
        enqueue = [*COMMAND, "job", "enqueue", "q", "--body", "x", "--server", server.address, "--timeout", "60s"]
        with subprocess.Popen(enqueue, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as waiting:
            assert waiting.stderr is not None
            assert waiting.stderr.readline().endswith("trying until --timeout 60s\n")
            server.start()
            out, err = waiting.communicate(timeout=60)
        assert (waiting.returncode, out.startswith("q:"), err) == (0, True, "")
