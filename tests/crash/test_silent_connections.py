"""Ten thousand connections that say nothing, and one that does."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.crash.conftest import ServerMaker
from tests.crash.load_clients import QUEUE
from tests.crash.wire_client import WireClient

pytestmark = pytest.mark.crash

SILENT = 10_000
SPARE_FILES = 500
MEMORY_MB_MAX = 400.0


@contextmanager
def more_files(wanted: int) -> Iterator[None]:
    """Allows this number of open files, here and in child processes started meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"this user may open only {hard} files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_server_serves_its_clients_despite_ten_thousand_silent_connections(start_server: ServerMaker) -> None:
    """Half of them have begun a frame and never end it. Memory stays bounded, and when they go the server is as before."""
    with more_files(SILENT + SPARE_FILES), ExitStack() as stack:
        server = start_server()
        client = stack.enter_context(WireClient(server.port))
        for number in range(SILENT):
            silent = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
            if number % 2:
                silent.sendall(b"\x00\x00\x10\x00\x80\x01")
        (descriptor,) = client.enqueue(QUEUE, ["body"])
        newcomer = stack.enter_context(WireClient(server.port))
        (job,) = newcomer.claim(QUEUE, 1)
        assert job.descriptor == descriptor
        assert [each.outcome for each in newcomer.ack(QUEUE, [(descriptor, job.token, True)])] == [0]
        assert server.get("/ping.txt").strip() == "pong"
        assert server.memory_mb() < MEMORY_MB_MAX
    with WireClient(server.port) as client:
        assert client.enqueue(QUEUE, ["after"])
