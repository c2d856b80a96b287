"""SIGTERM and SIGINT to services that are still starting, also as process 1 of a container, for which the kernel drops such signals."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import COMMAND, Pinlater

CONTAINER = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
DEADLINE_S = 60.0
TASKS = """
from pinlater import Worker

worker = Worker()

@worker.task("{queue}", attempts=1, time_limit=2)
async def run() -> None:
    print("ran", flush=True)

@worker.task("{queue}", process=True, attempts=1, time_limit=2)
def start_program() -> None:
    import subprocess
    subprocess.run(["sleep", "600"])
"""
# The import ends when the file exists.
SLOW = """
import pathlib, time
print("importing", flush=True)
while not pathlib.Path("go").exists():
    time.sleep(0.01)
"""


def may_unshare() -> bool:
    try:
        return subprocess.run([*CONTAINER, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


in_a_container = pytest.mark.skipif(not may_unshare(), reason="needs root and unshare, for process 1 of a namespace")


class Service:
    """A command in a folder of its own. With `container` it is process 1."""

    def __init__(self, folder: Path, command: list[str], servers: str, *, container: bool) -> None:
        self._log = folder / "log"
        self.folder = folder
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [*(CONTAINER if container else []), *command], stdout=log, stderr=log, cwd=folder,
                env={**os.environ, "PINLATER_SERVERS": servers},
            )  # fmt: skip
        self.number = self.process.pid
        if container:
            self.until(lambda: self.children_of(self.process.pid))
            (self.number,) = self.children_of(self.process.pid)

    @staticmethod
    def children_of(process: int) -> list[int]:
        return [int(number) for number in Path(f"/proc/{process}/task/{process}/children").read_text().split()]

    def says(self, what: str) -> bool:
        return what in self._log.read_text()

    def until(self, true: Callable[[], object]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not true():
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.01)

    def ends_at(self, number: signal.Signals) -> int:
        """The exit code."""
        os.kill(self.number, number)
        return self.process.wait(DEADLINE_S)


Start = Callable[..., Service]


@pytest.fixture
def start(tmp_path: Path, server_address: str) -> Iterator[Start]:
    started: list[Service] = []

    def start_one(*command: str, container: bool = True, servers: str = server_address) -> Service:
        started.append(Service(tmp_path, list(command), servers, container=container))
        return started[-1]

    yield start_one
    for one in started:
        one.process.kill()
        one.process.wait()


@pytest.fixture
def slow_module(tmp_path: Path, queue: str) -> None:
    (tmp_path / "shop.py").write_text(SLOW + TASKS.format(queue=queue))


@pytest.mark.usefixtures("slow_module")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["sigterm", "sigint"])
def test_a_worker_that_is_stopped_while_it_imports_ends_at_once_and_with_0(
    start: Start, number: signal.Signals
) -> None:
    worker = start(*COMMAND, "worker", "shop:worker", container=False)
    worker.until(lambda: worker.says("importing"))
    assert worker.ends_at(number) == 0


@in_a_container
@pytest.mark.usefixtures("slow_module")
@pytest.mark.parametrize("options", [[], ["--processes", "2"]], ids=["alone", "supervisor"])
def test_sigterm_ends_a_worker_that_is_process_one_and_imports(start: Start, options: list[str]) -> None:
    worker = start(*COMMAND, "worker", "shop:worker", *options)
    worker.until(lambda: worker.says("importing"))
    assert worker.ends_at(signal.SIGTERM) == 0


@in_a_container
def test_a_program_that_gets_sigterm_before_it_runs_its_worker_claims_nothing(
    start: Start, tmp_path: Path, pinlater: Pinlater, queue: str
) -> None:
    program = "from pinlater import Worker" + SLOW + TASKS.format(queue=queue) + "worker.run()\nprint('over')\n"
    (tmp_path / "app.py").write_text(program)
    pinlater.ok("job", "enqueue", queue, "--task", "run", "--body", "{}")
    app = start(sys.executable, "app.py")
    app.until(lambda: app.says("importing"))
    os.kill(app.number, signal.SIGTERM)
    (tmp_path / "go").touch()
    assert app.process.wait(DEADLINE_S) == 0
    assert app.says("over")
    assert not app.says("ran")
    assert pinlater.ok("job", "count", queue).out.strip() == "1"


@in_a_container
def test_a_server_that_is_stopped_while_it_opens_its_store_ends_at_once_and_with_0(start: Start) -> None:
    """The database takes connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as database:
        store = f"mysql://me@127.0.0.1:{database.getsockname()[1]}/jobs"
        server = start(*COMMAND, "serve", "--no-console", "--store", store, "--thrift-port", "0", "--http-port", "0")
        server.until(lambda: server.says("http server listens"))
        assert server.ends_at(signal.SIGTERM) == 0
        assert server.says("stopped before the start was over")


@in_a_container
def test_sigterm_ends_any_command_that_is_process_one(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        command = start(*COMMAND, "queue", "list", "--timeout", "10m", servers=f"127.0.0.1:{silent.getsockname()[1]}")
        command.until(lambda: _connected_to(silent))
        assert command.ends_at(signal.SIGTERM) == 143


def _connected_to(listener: socket.socket) -> bool:
    listener.settimeout(DEADLINE_S)
    connection, _ = listener.accept()
    connection.detach()  # stays open, as long as this process
    return True


def is_tracker(process: int) -> bool:
    """Whether it is the one process that `multiprocessing` may keep; a process that was not waited for has no command line."""
    try:
        return b"resource_tracker" in Path(f"/proc/{process}/cmdline").read_bytes()
    except FileNotFoundError:
        return True  # it has ended, and was waited for


@in_a_container
def test_programs_that_a_worker_killed_leave_nothing_behind_process_one(
    start: Start, tmp_path: Path, pinlater: Pinlater, queue: str
) -> None:
    """Their parent is gone, and process 1 has to wait for them, or they count as processes of the container for ever."""
    (tmp_path / "shop.py").write_text(TASKS.format(queue=queue))
    pinlater.ok("job", "enqueue", queue, "--task", "start_program", "--body", "{}")
    worker = start(*COMMAND, "worker", "shop:worker")
    worker.until(lambda: worker.says("gave up: TimeLimitExceeded"))
    worker.until(lambda: all(is_tracker(child) for child in worker.children_of(worker.number)))
    assert worker.ends_at(signal.SIGTERM) == 0
