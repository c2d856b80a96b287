"""Servers for enqueues and servers for dequeues on the same shards."""

from __future__ import annotations

import os
import signal
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pinlater.client import Ack, Client, _service_calls
from pinlater.domain.slices import SLICES
from pinlater.testing.real_server import RealServer, ServerDidNotStart
from tests.databases.redis import RedisServer
from tests.shared_shards.real_cluster import address_among_servers, owners, until, work

Start = Callable[..., RealServer]


@pytest.fixture
def start(start_redis: Callable[..., RedisServer], tmp_path: Path) -> Iterator[Start]:
    """Starts servers with a role on one Redis."""
    store = f"redis://{start_redis().address}/0"
    with ExitStack() as running:
        yield lambda role, *options: running.enter_context(
            RealServer(tmp_path, "--role", role, "--no-console", *options, store=store)
        )


def test_servers_for_dequeues_own_everything_and_enqueues_do_not_go_through_them(start: Start) -> None:
    enqueues, *dequeues = start("enqueue"), start("dequeue"), start("dequeue")
    expected = {address_among_servers(server): SLICES // 2 for server in dequeues}
    until(lambda: owners(enqueues) == owners(dequeues[0]) == expected)
    with Client(enqueues.address) as client:
        client.ensure_queue("q")
        client.enqueue("q", [b"x"] * 10)
        [inserts] = [kind for kind in client.cluster().forwarded if kind.kind == "insert"]
        assert inserts.items_sent == 0
    work(dequeues)


def test_all_processes_of_a_server_have_its_role(start: Start) -> None:
    dequeues, enqueues = start("dequeue"), start("enqueue", "--processes", "2")
    with Client(dequeues.address) as client:
        until(lambda: len(client.cluster().servers) == 3)
        until(lambda: owners(dequeues) == {address_among_servers(dequeues): SLICES})
    work([enqueues])


def test_enqueues_and_claims_go_on_at_servers_for_enqueues_while_all_others_stand_still(start: Start) -> None:
    enqueues, dequeues = start("enqueue"), start("dequeue")
    until(lambda: owners(enqueues) == {address_among_servers(dequeues): SLICES})
    with Client(enqueues.address) as client:
        client.ensure_queue("q")
        os.kill(dequeues.process_id, signal.SIGSTOP)
        for _ in range(100):
            client.enqueue("q", [b"x"])
        until(lambda: not any(server.usable for server in client.cluster().servers if not server.answers))
    work([enqueues])
    os.kill(dequeues.process_id, signal.SIGCONT)
    work([enqueues, dequeues])


def test_a_server_for_enqueues_names_no_owners_to_clients(start: Start) -> None:
    enqueues, dequeues = start("enqueue"), start("dequeue")
    with Client(enqueues.address) as at_enqueues, Client(dequeues.address) as at_dequeues:
        assert not at_enqueues.carry_out(_service_calls.queue_owners()).servers
        until(lambda: len(at_dequeues.carry_out(_service_calls.queue_owners()).servers) == 1)


def test_a_client_with_both_lists_enqueues_without_an_error_whichever_kind_of_server_is_down(start: Start) -> None:
    enqueues, dequeues = start("enqueue"), start("dequeue")
    until(lambda: owners(enqueues) == {address_among_servers(dequeues): SLICES})
    with Client(dequeues.address, enqueue_servers=enqueues.address) as client:
        client.ensure_queue("q")
        os.kill(dequeues.process_id, signal.SIGSTOP)
        stored = [client.enqueue("q", [b"x"]).descriptors for _ in range(20)]
        os.kill(dequeues.process_id, signal.SIGCONT)
        enqueues.kill()
        stored += [client.enqueue("q", [b"x"]).descriptors for _ in range(20)]
        assert client.count("q") == len(stored) == 40
    assert calls_for_others(dequeues) == 20


def test_dequeues_and_acks_go_on_without_any_server_for_enqueues(start: Start) -> None:
    enqueues, dequeues = start("enqueue"), start("dequeue")
    enqueues.kill()
    work([dequeues])


@pytest.mark.parametrize("role", ["enqueue", "dequeue"])
def test_servers_of_one_role_do_the_work_of_the_other_if_no_server_has_it_and_warn(start: Start, role: str) -> None:
    server = start(role)
    until(lambda: owners(server) == {address_among_servers(server): SLICES})
    work([server])
    until(lambda: "have the same role" in " ".join(server.said))


def test_a_waiting_dequeue_gets_a_job_that_a_server_for_enqueues_has_stored(start: Start) -> None:
    enqueues, dequeues = start("enqueue"), start("dequeue")
    until(lambda: owners(enqueues) == {address_among_servers(dequeues): SLICES})
    with Client(enqueues.address) as producer, Client(dequeues.address) as worker:
        producer.ensure_queue("q")
        for _ in range(5):
            assert not worker.dequeue("q").jobs
            producer.enqueue("q", [b"x"])
            [job] = worker.dequeue("q", wait_ms=10_000).jobs
            worker.ack("q", [Ack(job.descriptor, token=job.token)])


def test_calls_that_a_server_with_the_other_role_is_for_are_counted(start: Start) -> None:
    enqueues, dequeues = start("enqueue"), start("dequeue")
    with Client(enqueues.address) as client:
        client.ensure_queue("q")
        client.enqueue("q", [b"x"])
    assert calls_for_others(enqueues) == 0
    with Client(enqueues.address) as client:
        client.dequeue("q")
    with Client(dequeues.address) as client:
        client.enqueue("q", [b"x"])
    assert calls_for_others(enqueues) == calls_for_others(dequeues) == 1


def calls_for_others(server: RealServer) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    [value] = [line.split()[-1] for line in lines if line.startswith("pinlater_calls_for_the_other_role ")]
    return int(float(value))


@pytest.mark.parametrize("store", ["sqlite", "memory"])
def test_a_server_that_has_its_store_for_itself_is_refused_another_role(store: str, tmp_path: Path) -> None:
    place = f"sqlite:{tmp_path / 'jobs.db'}" if store == "sqlite" else "memory:"
    with pytest.raises(ServerDidNotStart, match="is used by one server, which does all"):
        RealServer(tmp_path, "--role", "enqueue", store=place).start()


def test_a_role_that_does_not_exist_is_refused_with_those_that_do(tmp_path: Path) -> None:
    with pytest.raises(ServerDidNotStart, match="'both' is none of all, enqueue, dequeue"):
        RealServer(tmp_path, "--role", "both").start()
