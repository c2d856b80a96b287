"""`pinlater serve --processes N` as a test runs it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pinlater.client import Client
from tests.cli.conftest import COMMAND
from tests.databases.ports import free_port

DEADLINE_S = 40.0


class ServeProcesses:
    """`pinlater serve --processes N`, ended with the test."""

    def __init__(self, folder: Path, store: str, processes: int = 3, env: Mapping[str, str] | None = None) -> None:
        self.processes = processes
        self._env = {**os.environ, **(env or {})}
        self._log = folder / "log"
        self._store = store
        self._process: subprocess.Popen[bytes] | None = None
        self.thrift_port, self.http_port = free_port(), free_port()

    def start(self, *more: str) -> ServeProcesses:
        """Returns when all processes are ready."""
        self.launch(*more)
        (ready,) = wait_for(self._ready_or_ended, "all to be ready")
        self.thrift_port, self.http_port = ready["thrift_port"], ready["http_port"]
        return self

    def launch(self, *more: str) -> subprocess.Popen[bytes]:
        ports = ["--thrift-port", str(self.thrift_port), "--http-port", str(self.http_port)]
        options = ["--processes", str(self.processes), "--set", "telemetry.log_format=json", "--store", self._store]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([*COMMAND, "serve", *options, *ports, *more], stderr=log, env=self._env)
        return self._process

    def _ready_or_ended(self) -> list[dict[str, Any]]:
        assert self.process.poll() is None, self.said
        return self.logged("all processes are ready")

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.thrift_port}"

    def logged(self, event: str) -> list[dict[str, Any]]:
        """Log lines of that event."""
        entries = []
        for line in self._log.read_text().splitlines():
            with contextlib.suppress(ValueError):
                entries.append(json.loads(line))
        return [entry for entry in entries if event in entry["event"]]

    @property
    def said(self) -> str:
        return self._log.read_text()

    def children(self) -> list[int]:
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [int(word) for task in tasks for word in task.read_text().split()]

    def get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=30)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def metric(self, name: str) -> dict[str, float]:
        """A metric's values by its one label; '' where it has none."""
        found = re.findall(rf'^{name}(?:{{\w+="([^"]*)"}})? (\S+)$', self.get("/metrics")[1], re.MULTILINE)
        return {member: float(value) for member, value in found}

    def info(self) -> dict[str, Any]:
        return dict(json.loads(self.get("/server_info")[1]))

    def process_ids(self) -> dict[int, int]:
        return {one["process"]: one["pid"] for one in self.info()["processes"]}

    def close(self) -> None:
        if self._process is not None:
            left = [] if self._process.poll() is not None else self.children()
            self._process.kill()
            self._process.wait()
            for child in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)


def wait_for(ask: Callable[[], Any], what: str = "") -> Any:
    """Polls until it is true."""
    deadline = time.monotonic() + DEADLINE_S
    while not (answer := ask()):
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.02)
    return answer


def connections_to_all(server: ServeProcesses) -> list[Client]:
    """Clients with one connection each, enough that every process has one; the kernel distributes them."""
    clients: list[Client] = []

    def each_has_one() -> bool:
        clients.append(Client(server.address, connections=1))
        clients[-1].queue_names()
        found = server.metric("pinlater_process_connections")
        return len(found) == server.processes and all(found.values())

    wait_for(each_has_one, "each process to have a connection")
    return clients


def process_of(client: Client, server: ServeProcesses) -> str:
    """Which process a client of one connection talks with: the one whose counter of requests its next request moves."""
    before = server.metric("pinlater_process_requests")
    client.queue_names()
    after = server.metric("pinlater_process_requests")
    [process] = [name for name, requests in after.items() if requests != before[name]]
    return process
