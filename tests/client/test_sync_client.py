"""The sync client: from any thread, across forks, interrupted, closed."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pinlater.client import Ack, Client, Job, JobState, errors
from pinlater.testing import RealServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with RealServer(tmp_path_factory.mktemp("sync")) as server:
        yield server


@pytest.fixture
def client(server: RealServer) -> Iterator[Client]:
    with Client(server.address, source="test") as client:
        client.create_queue("q")
        client.delete_jobs("q", JobState.PENDING, priority=1)
        yield client


def test_a_job_goes_through_its_life(client: Client) -> None:
    (descriptor,) = client.enqueue("q", [Job(b"x", headers={"a": "b"})]).descriptors
    (job,) = client.dequeue("q", wait_ms=1000).jobs
    assert (job.descriptor, job.body, job.headers) == (descriptor, b"x", {"a": "b"})
    (result,) = client.ack("q", [Ack(job.descriptor, token=job.token)])
    assert result.applied
    assert client.lookup([descriptor])[descriptor].state is JobState.SUCCEEDED


def test_it_opens_itself_and_threads_share_it(server: RealServer, client: Client) -> None:
    shared = Client(server.address)
    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(lambda n: shared.enqueue("q", [b"%d" % n]).descriptors, range(200)))
    assert len({descriptor for (descriptor,) in answers}) == 200
    assert client.count("q") == 200
    shared.close()


def test_closed_it_says_so_and_may_be_opened_again(server: RealServer) -> None:
    client = Client(server.address)
    client.queue_names()
    threads = threading.active_count()
    client.close()
    client.close()
    assert threading.active_count() == threads - 1
    with pytest.raises(errors.ClientClosed):
        client.queue_names()
    with client:
        client.queue_names()


@pytest.mark.parametrize("given_up", [True, False])
def test_closing_leaves_no_connection_open_that_was_being_made(given_up: bool) -> None:
    """Not even until a garbage collection. A call that is given up ends the making of its connection; another one waits for its end."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = Client(f"127.0.0.1:{silent.getsockname()[1]}", tls=True, wait_for_servers=False, retries=0)
        gc.disable()
        try:
            call = client.submit(client.enqueue_call("q", [b"x"]))
            connection, _ = silent.accept()
            with connection:
                connection.settimeout(10)
                assert connection.recv(1)  # of the handshake, which is not answered
                assert not given_up or call.cancel()
                client.close()
                with contextlib.suppress(ConnectionResetError):
                    while connection.recv(65_536):
                        pass
            assert (call.done(), call.cancelled()) == (True, given_up)
        finally:
            gc.enable()


def test_errors_come_through(client: Client) -> None:
    with pytest.raises(errors.QueueNotFound):
        client.enqueue("missing", [b"x"])


def test_a_missing_queue_comes_with_a_note_of_how_to_create_it(client: Client) -> None:
    """The message stays the server's; a traceback shows the note."""
    with pytest.raises(errors.QueueNotFound, match=r"(?m)^Queue not found: missing$") as caught:
        client.enqueue("missing", [b"x"])
    [note] = caught.value.__notes__
    assert note.startswith("Create it with `pinlater queue create missing` or client.create_queue(...)")
    assert "worker.create_queues()" in note


def test_an_invalid_name_of_a_queue_comes_with_the_rule_behind_the_servers_text(client: Client) -> None:
    with pytest.raises(errors.QueueNameInvalid) as caught:
        client.create_queue("a b")
    rule = "a queue's name is 1 to 64 ASCII letters, digits and underscores"
    assert caught.value.message == f"Invalid queue name: a b; {rule}"


def test_closing_ends_calls_under_way(server: RealServer, client: Client) -> None:
    poller = Client(server.address)
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(poller.dequeue, "q", wait_ms=60_000)
        while not client.queue_stats("q")[0].waiting_dequeues:
            pass
        poller.close()
        with pytest.raises(errors.PinLaterError):
            call.result(timeout=10)


def test_a_forked_child_has_connections_of_its_own(server: RealServer, client: Client) -> None:
    client.enqueue("q", [b"parent"])
    child = os.fork()
    if not child:
        try:
            client.enqueue("q", [b"child"])
            os._exit(0 if client.source == "test" else 2)
        except BaseException:  # noqa: BLE001 - the exit code is all that gets out of here
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    client.enqueue("q", [b"parent again"])
    assert client.count("q") == 3


def test_ctrl_c_gives_a_call_up_and_the_process_ends(server: RealServer, client: Client, tmp_path: Path) -> None:
    program = tmp_path / "waits.py"
    program.write_text("import sys\nfrom pinlater import Client\nClient(sys.argv[1]).dequeue('q', wait_ms=60_000)\n")
    waits = subprocess.Popen([sys.executable, program, server.address], stderr=subprocess.PIPE, text=True)
    while not client.queue_stats("q")[0].waiting_dequeues:
        assert waits.poll() is None
    waits.send_signal(signal.SIGINT)
    _, errors_shown = waits.communicate(timeout=10)
    assert waits.returncode != 0
    assert "KeyboardInterrupt" in errors_shown
