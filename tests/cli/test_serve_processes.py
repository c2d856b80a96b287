"""`pinlater serve --processes N` with real processes on a private database: sharing the work, joining numbers, dying, stopping."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from pinlater.client import Ack, Client, Job, WorkingProcess
from pinlater.client.errors import PinLaterError
from pinlater.domain.slices import SLICES
from tests.cli.conftest import COMMAND
from tests.cli.serve_processes import DEADLINE_S, ServeProcesses, connections_to_all, process_of, wait_for
from tests.cli.test_worker_processes import alive
from tests.databases.mariadb import MariaDb

PROCESSES = 3


def store_of(mariadb: MariaDb, prefix: str) -> str:
    password = quote(mariadb.password, safe="")
    return f"mysql://{mariadb.user}:{password}@{mariadb.address}/{prefix}jobs"


@pytest.fixture
def server(tmp_path: Path, mariadb: MariaDb, mariadb_prefix: str) -> Iterator[ServeProcesses]:
    """Not started yet."""
    made = ServeProcesses(tmp_path, store_of(mariadb, mariadb_prefix))
    yield made
    made.close()


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
            while jobs := client.dequeue(
                "emails", 3, wait_ms=2_000
            ).jobs:  # one that does not wait may miss what another server stored
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


def test_the_list_of_workers_is_of_all_processes(server: ServeProcesses) -> None:
    """The process that is asked asks the others."""
    server.start()
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(client) for client in connections_to_all(server)]
        clients[0].create_queue("emails")
        clients[0].enqueue("emails", [b"x"] * len(clients))
        for number, client in enumerate(clients):
            client.dequeue("emails", 1, wait_ms=2_000, process=WorkingProcess(number + 1))

        def complete() -> list[Any]:
            command = [*COMMAND, "worker", "list", "--json", "--server", server.address]
            listed = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)
            return [] if listed["gaps"] else [listed]

        [listed] = wait_for(complete, "all processes to tell their workers")
        numbers = [
            each["process"] for worker in listed["workers"] for each in worker["processes"] if each["handed_out"]
        ]
        assert sorted(numbers) == list(range(1, len(clients) + 1))
        assert sum(worker["handed_out"] for worker in listed["workers"]) == len(clients)


def test_the_demand_for_slots_is_of_the_store_and_not_a_sum_over_processes(server: ServeProcesses) -> None:
    server.start()
    with Client(server.address) as client:
        client.create_queue("pool")
        client.enqueue("pool", [Job(b"1"), Job(b"2"), Job(b"3")])
        wanted = {"slots": 3, "queues": {"pool": 3}}
        wait_for(lambda: server.get("/demand?queue=pool") == (200, json.dumps(wanted) + "\n"), "the demand")


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
        thread.join(DEADLINE_S)
    assert server.process.wait(DEADLINE_S) == 0
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
        assert second.launch().wait(DEADLINE_S) == 1
    finally:
        second.close()
    assert f"Thrift can't listen on 127.0.0.1 port {server.thrift_port}: address already in use" in second.said


def test_the_error_that_stops_the_first_process_is_printed_once(tmp_path: Path) -> None:
    server = ServeProcesses(tmp_path, "mysql://nobody:wrong@127.0.0.1:1/pinlater")
    try:
        assert server.launch().wait(DEADLINE_S) == 1
    finally:
        server.close()
    assert server.said.count("error: ") == 1


def test_a_store_that_ends_with_its_process_refuses_more(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "serve", "--store", "memory:", "--processes", "2"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 78
    assert "2 processes can't use the store memory:" in done.stderr
