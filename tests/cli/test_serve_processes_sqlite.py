"""`pinlater serve --processes N` on one SQLite file, with real processes: the first has the file, the other is its front."""

from __future__ import annotations

import contextlib
import json
import stat
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from pinlater.client import Ack, Client, ClusterStatus, Job
from tests.cli.conftest import COMMAND
from tests.cli.serve_processes import DEADLINE_S, ServeProcesses, connections_to_all, process_of, wait_for
from tests.cli.test_worker_processes import alive

STORE, FRONT = "0", "1"


class Served:
    """The processes, a client of each, and the folder in which their sockets' folder is."""

    def __init__(self, server: ServeProcesses, clients: dict[str, Client], folder: Path, file: Path) -> None:
        self.server = server
        self.clients = clients
        self.folder = folder
        self.file = file

    def sockets(self) -> list[Path]:
        return list(self.folder.glob("pinlater-sockets-*"))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("processes")
    with TemporaryDirectory() as temporary, contextlib.ExitStack() as stack:
        server = ServeProcesses(folder, f"sqlite:{folder / 'jobs.db'}", 2, {"TMPDIR": temporary})
        stack.callback(server.close)
        server.start()
        clients: dict[str, Client] = {}
        for client in connections_to_all(server):
            clients[process_of(client, server)] = stack.enter_context(client)
        made = Served(server, clients, Path(temporary), folder / "jobs.db")
        yield made
        children = server.children()
        server.process.terminate()
        assert server.process.wait(DEADLINE_S) == 0
        assert not any(alive(child) for child in children)
        assert made.sockets() == []


def test_clients_of_each_process_have_the_same_jobs(served: Served) -> None:
    store, front = served.clients[STORE], served.clients[FRONT]
    store.create_queue("emails")
    stored = [client.enqueue("emails", [Job(b"1"), Job(b"2")]) for client in (store, front)]
    assert len({descriptor for each in stored for descriptor in each.descriptors}) == 4
    bodies = []
    for client in (front, store):
        jobs = client.dequeue("emails", 2).jobs
        bodies += [job.body for job in jobs]
        client.ack("emails", [Ack(job.descriptor, token=job.token) for job in jobs])
    assert sorted(bodies) == [b"1", b"1", b"2", b"2"]
    server = served.server
    assert server.metric("pinlater_jobs_enqueued_total")["emails"] == 4
    assert server.metric("pinlater_jobs_succeeded_total")["emails"] == 4
    assert server.metric("pinlater_front_connections") == {"": 1}
    assert server.metric("pinlater_store_process_calls")[""] >= 3
    assert server.metric("pinlater_store_process_answers_lost") == {"": 0}


def test_a_dequeue_that_waits_at_a_front_is_woken_at_once(served: Served) -> None:
    served.clients[STORE].create_queue("waits")
    found: list[bytes] = []
    worker = threading.Thread(
        target=lambda: found.extend(job.body for job in served.clients[FRONT].dequeue("waits", 1, wait_ms=20_000).jobs)
    )
    worker.start()
    wait_for(lambda: served.server.metric("pinlater_waiting_dequeues").get("waits") == 1, "the dequeue to wait")
    served.clients[STORE].enqueue("waits", [b"over there"])
    worker.join(DEADLINE_S)
    assert found == [b"over there"]


def lasting(status: ClusterStatus) -> ClusterStatus:
    """What does not change from call to call."""
    return status._replace(
        front_processes=(),
        servers=[
            each._replace(facts=each.facts._replace(connections=None, loop_lag_ms=None)) for each in status.servers
        ],
        shards=[each._replace(details=None) for each in status.shards],
    )


def test_pages_and_status_say_what_is_so(served: Served) -> None:
    assert served.server.get("/readyz") == (200, "ready\n")
    processes = served.server.info()["processes"]
    assert [(each["process"], each["state"], each["front"]) for each in processes] == [
        (0, "ready", False),
        (1, "ready", True),
    ]
    at_store, at_front = served.clients[STORE].cluster(), served.clients[FRONT].cluster()
    assert lasting(at_store) == lasting(at_front)
    assert at_front.shards[0].details is not None
    assert served.clients[FRONT].server_info().store_kind == "sqlite"


def test_the_demand_for_slots_is_what_the_store_process_says(served: Served) -> None:
    served.clients[FRONT].create_queue("pool")
    served.clients[FRONT].enqueue("pool", [Job(b"1"), Job(b"2"), Job(b"3")])
    wanted = {"slots": 3, "queues": {"pool": 3}}
    wait_for(lambda: served.server.get("/demand?queue=pool") == (200, json.dumps(wanted) + "\n"), "the demand")
    assert served.server.get("/demand?queue=nope")[0] == 404


def test_the_cluster_s_status_shows_the_front_process_and_its_waiting_dequeue(served: Served) -> None:
    served.clients[STORE].create_queue("shown")
    waits: list[threading.Thread] = []

    def one_waits_at_the_front() -> bool:
        """A dequeue that waits makes a connection of its own, which the kernel gives to either process."""
        client = served.clients[FRONT]
        waits.append(threading.Thread(target=lambda: client.dequeue("shown", 1, wait_ms=30_000)))
        waits[-1].start()
        wait_for(lambda: served.server.metric("pinlater_waiting_dequeues").get("shown") == len(waits), "it to wait")
        return [front.waiting_calls for front in served.clients[STORE].cluster().front_processes] == [1]

    wait_for(one_waits_at_the_front, "one to wait at the front")
    command = [*COMMAND, "cluster", "status", "--server", served.server.address]
    shown = json.loads(subprocess.run([*command, "--json"], check=True, capture_output=True).stdout)
    [front] = shown["answers"][0]["front_processes"]
    assert (front["number"], front["waiting_calls"], front["untaken_bytes"]) == (int(FRONT), 1, 0)
    assert front["calls_under_way"] >= 1
    table = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\n\n")[-1].splitlines()
    assert table[0] == "front process\tserver\ttaken\tunder way\twaiting\tunread bytes"
    assert table[1].startswith(f"{FRONT}\t{shown['servers'][0]['address']}\t")
    served.clients[STORE].enqueue("shown", [Job(b"x")] * len(waits))
    for each in waits:
        each.join(DEADLINE_S)
    assert [front.waiting_calls for front in served.clients[STORE].cluster().front_processes] == [0]


def test_a_backup_of_the_file_is_possible(served: Served, tmp_path: Path) -> None:
    command = [*COMMAND, "server", "backup", "--store", f"sqlite:{served.file}", str(tmp_path / "copy.db")]
    subprocess.run(command, check=True, capture_output=True)
    assert (tmp_path / "copy.db").stat().st_size > 0


def test_other_users_do_not_reach_the_sockets(served: Served) -> None:
    [folder] = served.sockets()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [each.name for each in folder.iterdir()] == ["store"]


def test_a_supervisor_that_is_killed_leaves_no_process_and_no_socket(tmp_path: Path) -> None:
    with TemporaryDirectory() as temporary, contextlib.ExitStack() as stack:
        server = ServeProcesses(tmp_path, f"sqlite:{tmp_path / 'jobs.db'}", 2, {"TMPDIR": temporary})
        stack.callback(server.close)
        server.start()
        children = server.children()
        assert len(list(Path(temporary).iterdir())) == 1
        server.process.kill()
        wait_for(lambda: not any(alive(child) for child in children), "the children to end")
        assert list(Path(temporary).iterdir()) == []
