"""The real server of `pinlater.testing`, killed and started again."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from pinlater.client import Client, JobState
from pinlater.testing.real_server import RealServer, ServerDidNotStart


@pytest.mark.skipif(sys.platform != "linux", reason="other systems let one socket have a port")
def test_no_other_program_gets_the_ports_of_a_server_that_is_down(tmp_path: Path) -> None:
    with RealServer(tmp_path) as server, Client(server.address) as client:
        client.create_queue("q")
        client.enqueue("q", [b"x"])
        address, ports = server.address, (int(server.address.rpartition(":")[2]), server.http_port)
        server.kill()
        for port in ports:
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind(("127.0.0.1", port))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", ports[0]))
        server.start()
        assert (server.address, client.count("q", JobState.PENDING)) == (address, 1)


def test_a_server_that_can_not_start_again_says_why(tmp_path: Path) -> None:
    with RealServer(tmp_path) as server:
        server.kill()
        for file in tmp_path.glob("jobs.db*"):
            file.write_bytes(b"no database" * 1_000)
        with pytest.raises(ServerDidNotStart, match="not a database"):
            server.start()
