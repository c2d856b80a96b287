"""`pinlater serve --processes N` with real processes on a private database: sharing the work, joining numbers, dying, stopping."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from pinlater.client import Ack, Client, Job
from pinlater.client.errors import PinLaterError
from pinlater.domain.slices import SLICES
from tests.cli.conftest import COMMAND
from tests.cli.test_worker_processes import alive
from tests.databases.mariadb import MariaDb

PROCESSES = 3
_DEADLINE_S = 40.0


class ServeProcesses:
    """`pinlater serve --processes 3`, ended with the test."""

    def __init__(self, folder: Path, store: str) -> None:
        self._log = folder / "log"
        self._store = store
        self._process: subprocess.Popen[bytes] | None = None
        self.thrift_port = self.http_port = 0

    def start(self, *more: str) -> ServeProcesses:
        """Returns when all processes are ready."""
        self.launch(*more)
        (ready,) = wait_for(self._ready_or_ended, "all to be ready")
        self.thrift_port, self.http_port = ready["thrift_port"], ready["http_port"]
        return self

    def launch(self, *more: str) -> subprocess.Popen[bytes]:
        ports = ["--thrift-port", str(self.thrift_port), "--http-port", str(self.http_port)]
        options = ["--processes", str(PROCESSES), "--set", "telemetry.log_format=json", "--store", self._store]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([*COMMAND, "serve", *options, *ports, *more], stderr=log)
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
    deadline = time.monotonic() + _DEADLINE_S
    while not (answer := ask()):
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.02)
    return answer


def store_of(mariadb: MariaDb, prefix: str) -> str:
    password = quote(mariadb.password, safe="")
    return f"mysql://{mariadb.user}:{password}@{mariadb.address}/{prefix}jobs"


@pytest.fixture
def server(tmp_path: Path, mariadb: MariaDb, mariadb_prefix: str) -> Iterator[ServeProcesses]:
    """Not started yet."""
    made = ServeProcesses(tmp_path, store_of(mariadb, mariadb_prefix))
    yield made
    made.close()


def connections_to_all(server: ServeProcesses) -> list[Client]:
    """Clients with one connection each, enough that every process has one; the kernel distributes them."""
    clients: list[Client] = []

    def each_has_one() -> bool:
        clients.append(Client(server.address, connections=1))
        clients[-1].queue_names()
        found = server.metric("pinlater_process_connections")
        return len(found) == PROCESSES and all(found.values())

    wait_for(each_has_one, "each process to have a connection")
    return clients


def test_three_processes_share_one_port_and_count_as_one(server: ServeProcesses) -> None:
    """Each gets some of the work, no job is handed out twice, and the page's counters are what the clients did."""
    server.start()
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(client) for client in connections_to_all(server)]
        clients[0].create_queue("emails")
        for number, client in enumerate(clients * 5):
            client.enqueue("emails", [Job(f"{number}-{index}".encode()) for index in range(4)])
        wanted = len(clients) * 5 * 4
        bodies: list[bytes] = []
        lock = threading.Lock()

        def work(client: Client) -> None:
            while jobs := client.dequeue("emails", 3).jobs:
                client.ack("emails", [Ack(job.descriptor, token=job.token) for job in jobs])
                with lock:
                    bodies.extend(job.body for job in jobs)

        threads = [threading.Thread(target=work, args=(client,)) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(bodies) == len(set(bodies)) == wanted

        by_process = server.metric("pinlater_process_requests")
        assert set(by_process) == {"0", "1", "2"}
        assert all(by_process.values())
        assert server.metric("pinlater_jobs_enqueued_total") == {"emails": wanted}
        assert server.metric("pinlater_jobs_dequeued_total") == {"emails": wanted}
        assert server.metric("pinlater_jobs_succeeded_total") == {"emails": wanted}
        requests = server.metric("pinlater_requests_total")
        assert requests["enqueueJobs"] == len(clients) * 5
        assert sum(requests.values()) == sum(by_process.values())
        text = server.get("/stats.txt")[1]
        assert f"  emails_enqueue: {wanted}\n" in text
        assert re.search(rf"job_body_size_emails: \(average=\d+, count={wanted}, ", text)
        assert server.get("/readyz") == (200, "ready\n")
        assert server.get("/healthz") == (200, "ok\n")
        wait_for(lambda: len(server.info()["members"]) == PROCESSES, "them to know each other")
        assert server.metric("pinlater_connections")[""] == sum(server.metric("pinlater_process_connections").values())
        wait_for(lambda: server.metric("pinlater_slices_owned") == {"1": SLICES}, "each slice to have one owner")

        def forwarded() -> bool:
            for client in clients:
                client.dequeue("emails")
            return server.metric("pinlater_forwarded_items")["claim"] > 0

        wait_for(forwarded, "a call between processes")
        assert server.metric("pinlater_forwarded_items") == server.metric("pinlater_taken_items")


def process_of(client: Client, server: ServeProcesses) -> str:
    """Which process a client of one connection talks with: the one whose counter of requests its next request moves."""
    before = server.metric("pinlater_process_requests")
    client.queue_names()
    after = server.metric("pinlater_process_requests")
    [process] = [name for name, requests in after.items() if requests != before[name]]
    return process


def test_a_dequeue_that_waits_at_one_process_is_woken_by_an_enqueue_at_another(server: ServeProcesses) -> None:
    """By the wake alone: here a process looks once an hour for changes of others. A wake before they know each other is lost."""
    server.start("--set", "maintenance.others_interval_ms=3600000", "--set", "maintenance.refresh_interval_ms=200")
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(client) for client in connections_to_all(server)]
        by_process = {process_of(client, server): client for client in clients}
        assert set(by_process) == {"0", "1", "2"}
        worker, producer = by_process["0"], by_process["1"]
        worker.create_queue("emails")
        wait_for(lambda: "emails" in producer.queue_names())
        wait_for(lambda: len(server.info()["members"]) == PROCESSES, "them to know each other")

        def woken() -> bool:
            found: list[bytes] = []
            waiting = threading.Thread(
                target=lambda: found.extend(job.body for job in worker.dequeue("emails", 1, wait_ms=5_000).jobs)
            )
            waiting.start()
            wait_for(lambda: server.metric("pinlater_waiting_dequeues").get("emails") == 1, "the dequeue to wait")
            before = server.metric("pinlater_process_requests")["1"]
            producer.enqueue("emails", [Job(b"over there")])
            assert server.metric("pinlater_process_requests")["1"] > before, "the enqueue went to the other one"
            waiting.join()
            if not found:
                assert worker.dequeue("emails", 1).jobs
            return found == [b"over there"]

        wait_for(woken, "a wake")


def test_a_process_that_is_killed_comes_back_while_the_others_serve(server: ServeProcesses) -> None:
    server.start()
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(client) for client in connections_to_all(server)]
        clients[0].create_queue("emails")
        for client in clients:
            client.enqueue("emails", [b"one"])
        before = server.metric("pinlater_jobs_enqueued_total")
        victim = server.process_ids()[1]
        os.kill(victim, signal.SIGKILL)
        for client in clients:  # one that was connected to it goes to another
            client.enqueue("emails", [b"two"])
        wait_for(lambda: server.process_ids()[1] not in (None, victim), "another process")
        wait_for(lambda: server.get("/readyz") == (200, "ready\n"), "all to be ready again")
        assert server.metric("pinlater_process_starts") == {"0": 1, "1": 2, "2": 1}
        assert before == {"emails": len(clients)}
        assert server.metric("pinlater_jobs_enqueued_total")["emails"] >= 2 * len(clients)
        (line,) = server.logged("was ended by SIGKILL")
        assert line["process_number"] == 1


def test_a_process_that_hangs_is_named(server: ServeProcesses) -> None:
    server.start()
    hanging = server.process_ids()[2]
    os.kill(hanging, signal.SIGSTOP)
    assert server.get("/healthz") == (503, "process 2: no answer\n")
    os.kill(hanging, signal.SIGCONT)
    wait_for(lambda: server.get("/healthz") == (200, "ok\n"), "it to answer again")


def test_a_signal_drains_all_of_them(server: ServeProcesses) -> None:
    """Long polls get their empty answer, and no process stays."""
    server.start()
    clients = connections_to_all(server)
    clients[0].create_queue("emails")
    children = server.children()
    answers: list[object] = []

    def wait_for_a_job(client: Client) -> None:
        try:
            answers.append(client.dequeue("emails", 1, wait_ms=20_000))
        except PinLaterError as error:  # its next try, when the listener is gone
            answers.append(error)

    threads = [threading.Thread(target=wait_for_a_job, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    wait_for(lambda: server.metric("pinlater_long_polls")[""] == len(clients), "all to wait")
    server.process.send_signal(signal.SIGTERM)
    for thread in threads:
        thread.join(_DEADLINE_S)
    assert server.process.wait(_DEADLINE_S) == 0
    assert len(answers) == len(clients)
    assert not any(alive(child) for child in children)
    assert {entry["process_number"] for entry in server.logged("stopped") if "process_number" in entry} == {0, 1, 2}
    for client in clients:
        client.close()


def test_a_supervisor_that_is_killed_takes_all_along(server: ServeProcesses) -> None:
    server.start()
    children = server.children()
    assert len(children) == PROCESSES
    server.process.kill()
    wait_for(lambda: not any(alive(child) for child in children), "the children to end")
    assert len(server.logged("the supervisor is gone")) == PROCESSES
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", server.thrift_port))


def test_a_second_server_does_not_slip_onto_the_port(server: ServeProcesses, tmp_path: Path, mariadb: MariaDb) -> None:
    """The kernel would let it: it is the same user."""
    server.start()
    folder = tmp_path / "second"
    folder.mkdir()
    second = ServeProcesses(folder, store_of(mariadb, "never_used_"))
    second.thrift_port = server.thrift_port
    try:
        assert second.launch().wait(_DEADLINE_S) == 1
    finally:
        second.close()
    assert f"Thrift can't listen on 127.0.0.1 port {server.thrift_port}: address already in use" in second.said


def test_the_error_that_stops_the_first_process_is_printed_once(tmp_path: Path) -> None:
    server = ServeProcesses(tmp_path, "mysql://nobody:wrong@127.0.0.1:1/pinlater")
    try:
        assert server.launch().wait(_DEADLINE_S) == 1
    finally:
        server.close()
    assert server.said.count("error: ") == 1


@pytest.mark.parametrize("store", ["memory:", "sqlite:jobs.db"])
def test_a_store_of_one_process_refuses_more(store: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "serve", "--store", store, "--processes", "2"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 78
    assert "2 processes can't share the store" in done.stderr
