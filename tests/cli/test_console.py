"""`pinlater console` as a process: where it listens, what it refuses, how it stops."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from pinlater.cli import exits
from pinlater.domain.host_names import is_loopback
from tests.cli.conftest import COMMAND, Pinlater
from tests.cli.test_without_extras import run


class RunningConsole(NamedTuple):
    """A console process that is ready."""

    process: subprocess.Popen[str]
    port: int

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)


@pytest.fixture
def console(server_address: str) -> Iterator[RunningConsole]:
    environment = os.environ | {"PINLATER_SERVERS": server_address}
    command = [*COMMAND, "console", "--port", "0"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        ready = json.loads(process.stderr.readline())
        assert ready["event"] == "ready"
        yield RunningConsole(process, urlsplit(ready["address"]).port or 0)
        process.kill()


def test_it_serves_and_a_stop_ends_its_long_polls(console: RunningConsole, queue: str) -> None:
    """The process ends with 0, and the caller gets an answer without jobs."""
    polling = console.connection()
    polling.request("POST", f"/v1/queues/{queue}/jobs/dequeue", b'{"wait_ms": 60000}')
    deadline = time.monotonic() + 20
    while queue not in get(console, "/v1/waiting-dequeues"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    console.process.send_signal(signal.SIGTERM)
    assert json.load(polling.getresponse()) == {"jobs": [], "results": []}
    polling.close()
    assert console.process.wait(30) == exits.OK


def get(console: RunningConsole, path: str) -> str:
    """What is there."""
    connection = console.connection()
    connection.request("GET", path)
    text = connection.getresponse().read().decode()
    connection.close()
    return text


def test_loopback_is_what_only_this_machine_reaches() -> None:
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "localhost.example"))


def test_a_port_in_use_is_one_line(offline: Pinlater) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = offline("console", "--port", str(taken.getsockname()[1]))
    assert done.code == exits.REFUSED
    assert re.search(
        r"can't listen on 127\.0\.0\.1:\d+: Address already in use \(--port chooses another port\)$", done.err.strip()
    )


@pytest.mark.parametrize("missing", ["starlette", "uvicorn"])
def test_without_its_extra_it_says_what_to_install(missing: str) -> None:
    done = run("console", hidden=(missing,))
    assert done.returncode == exits.REFUSED
    assert done.stderr.startswith(f"error: `pinlater console` needs {missing}: pip install ")
    assert "[console]'" in done.stderr
