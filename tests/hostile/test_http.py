"""Health checks of a real server get through, whatever other clients of its HTTP port do."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest

from bench.servers import Server
from tests.hostile.callers import PATIENCE_S

pytestmark = pytest.mark.crash

HALF_SENT = {
    "nothing": b"",
    "head": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n",
    "body": b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\n" + b"x" * 100,
    "continue": b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n",
}


@pytest.mark.parametrize("sent", HALF_SENT.values(), ids=HALF_SENT)
def test_half_sent_http_requests_never_keep_a_health_check_out(server: Server, sent: bytes) -> None:
    with ExitStack() as stack:
        for _ in range(300):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", server.http_port), timeout=PATIENCE_S))
            client.sendall(sent)
        for _ in range(3):
            assert server.get("/healthz") == "ok\n"
