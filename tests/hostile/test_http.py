"""Health checks of a real server get through, whatever other clients of its HTTP port do."""

from __future__ import annotations

import socket
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.servers import PinLaterServer, ServerFailed
from tests.hostile.callers import DEADLINE_S, no_long_turn, up_to_thrice

pytestmark = pytest.mark.crash

HALF_SENT = {
    "nothing": b"",
    "head": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n",
    "body": b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\n" + b"x" * 100,
    "continue": b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n",
}


@pytest.mark.parametrize("sent", HALF_SENT.values(), ids=HALF_SENT)
def test_half_sent_http_requests_never_keep_a_health_check_out(server: PinLaterServer, sent: bytes) -> None:
    with ExitStack() as stack:
        for _ in range(300):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", server.http_port), timeout=DEADLINE_S))
            client.sendall(sent)
        for _ in range(3):
            assert server.get("/healthz") == "ok\n"


def test_a_server_that_may_open_too_few_files_for_health_checks_does_not_start(tmp_path: Path) -> None:
    serve = f"{sys.executable} -m pinlater serve --thrift-port 0 --http-port 0 --store sqlite:{tmp_path}/store.db"
    limited = PinLaterServer(["bash", "-c", f"ulimit -n 256; exec {serve}"], log=tmp_path / "log")
    with pytest.raises(ServerFailed, match="may open 256 files, and a server needs at least 416"):
        limited.start()


@up_to_thrice
def test_pipelined_http_requests_take_turns_with_everything_else(server: PinLaterServer) -> None:
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.http_port), timeout=DEADLINE_S) as client, no_long_turn(server):
        client.sendall(request * 3_000 + request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        while client.recv(1_000_000):
            pass
