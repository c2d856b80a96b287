"""A real server that is stopped for longer than it may stand still, while clients go on sending."""

from __future__ import annotations

import signal
import socket
import time
from contextlib import ExitStack
from pathlib import Path
from threading import Event

import pytest
from thrift.transport.TTransport import TTransportException

from bench.servers import PinLaterServer
from pinlater.wire.codec import encode_call
from tests import structs as ttypes
from tests.crash.conftest import ServerMaker
from tests.crash.load_clients import QUEUE
from tests.crash.wire_client import WireClient

pytestmark = pytest.mark.crash

STANDSTILL_S = 1.0
DEADLINE_S = 30.0
CONTEXT = ttypes.RequestContext("standstill")


def enqueue(body: bytes) -> bytes:
    request = ttypes.EnqueueRequest(queue=QUEUE, jobs=[ttypes.Job(body=body)])
    return encode_call("enqueueJobs", 1, context=CONTEXT, request=request)


def wait_until_stopped(server: PinLaterServer) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while "State:\tT" not in Path(f"/proc/{server.pid}/status").read_text():
        assert time.monotonic() < deadline


def wait_until_closed(connection: socket.socket) -> bytes:
    received = b""
    try:
        while data := connection.recv(65_536):
            received += data
    except ConnectionResetError:
        pass
    return received


def works_again(server: PinLaterServer) -> list[str]:
    """New connections are refused for a moment."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            with WireClient(server.port) as client:
                client.enqueue(QUEUE, ["after"])
                return [job.body for job in client.claim(QUEUE, 1000)]
        except (OSError, TTransportException):
            assert time.monotonic() < deadline


def test_a_server_that_was_stopped_executes_nothing_that_came_meanwhile(start_server: ServerMaker) -> None:
    """Neither what came on old connections, nor on new ones, whichever the server gets to first when it continues."""
    server, moment = start_server(thrift_standstill_s=STANDSTILL_S), Event()
    for _ in range(3):
        with ExitStack() as stack:
            old = [
                stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE_S))
                for _ in range(30)
            ]
            for connection in old:
                connection.sendall(enqueue(b"before"))
                connection.recv(65_536)
            server.signal(signal.SIGSTOP)
            wait_until_stopped(server)
            stopped_at = time.monotonic()
            new = [
                stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE_S))
                for _ in range(30)
            ]
            for connection in old + new:
                connection.sendall(enqueue(b"meanwhile") * 3)
            gone = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE_S))
            gone.sendall(enqueue(b"meanwhile"))
            gone.close()
            while time.monotonic() < stopped_at + 2 * STANDSTILL_S:
                moment.wait(0.05)
            server.signal(signal.SIGCONT)
            assert {wait_until_closed(connection) for connection in old + new} == {b""}
            assert works_again(server) == ["before"] * 30 + ["after"]
    assert "stood still" in server.output()


def test_a_server_that_was_stopped_for_a_moment_goes_on(start_server: ServerMaker) -> None:
    server = start_server()
    with WireClient(server.port) as client:
        server.signal(signal.SIGSTOP)
        wait_until_stopped(server)
        server.signal(signal.SIGCONT)
        assert client.enqueue(QUEUE, ["body"])
