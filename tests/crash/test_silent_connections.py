"""Ten thousand connections that say nothing, and one that does."""

from __future__ import annotations

import contextlib
import re
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import psutil  # type: ignore[import-untyped]
import pytest

from bench.servers import PinLaterServer, pinlater_server
from pinlater.console.run import LIMITS
from pinlater.domain.access import Role, digest_of, new_secret
from pinlater.server.access.tokens import Token, tokens_text
from tests.crash.conftest import ServerMaker
from tests.crash.load_clients import QUEUE
from tests.crash.wire_client import WireClient

pytestmark = pytest.mark.crash

SILENT = 10_000
SPARE_FILES = 500
MEMORY_MB_MAX = 400.0
# What silent clients of the console have sent: nothing, a part of a head, a head without the form.
BEGUN = (
    b"",
    b"GET / HTTP/1.1\r\nHost: ",
    b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://127.0.0.1\r\nContent-Length: 60000\r\n\r\n",
)


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


class LoggedInOperator:
    """A person at another address than the flood. The connection stays open."""

    def __init__(self, port: int) -> None:
        self._http = HTTPConnection("127.0.0.1", port, timeout=60, source_address=("127.0.0.2", 0))
        self._own = {"Origin": f"http://127.0.0.1:{port}"}

    def __enter__(self) -> LoggedInOperator:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def log_in(self, token: str) -> None:
        self._http.request("POST", "/login", urlencode({"token": token}), self._own)
        answer = self._http.getresponse()
        answer.read()
        assert answer.status == 303
        self._own["Cookie"] = answer.headers["Set-Cookie"].partition(";")[0]

    def open(self, path: str) -> int:
        """The status. Fails if the connection was closed meanwhile."""
        assert self._http.sock is not None
        self._http.request("GET", path, headers=self._own)
        answer = self._http.getresponse()
        answer.read()
        return answer.status


def test_a_console_serves_its_people_despite_ten_thousand_silent_connections(tmp_path: Path) -> None:
    """A third of them have begun a request, and a third a form. Memory and connections stay bounded, and silent ones are closed."""
    secret = new_secret()
    tokens = tmp_path / "tokens.json"
    tokens.write_text(tokens_text([Token("ops", digest_of(secret), (Role.ADMIN,))]))
    tokens.chmod(0o600)
    with more_files(SILENT + SPARE_FILES), ExitStack() as stack:
        options = ["--tokens", str(tokens), "--set", "console=true", "--set", "console_port=0"]
        server = stack.enter_context(pinlater_server(tmp_path / "store.db", *options, log=tmp_path / "log"))
        port = console_port_of(server)
        [console] = psutil.Process(server.pid).children()
        operator = stack.enter_context(LoggedInOperator(port))
        operator.log_in(secret)
        for number in range(SILENT):
            silent = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            with contextlib.suppress(OSError):  # it was closed for others
                silent.sendall(BEGUN[number % len(BEGUN)])
            if number % 1_000 == 0:
                assert operator.open("/servers") == 200
        assert operator.open("/") == 200
        with urlopen(f"http://127.0.0.1:{port}/v1/server", timeout=60) as answer:  # from the address of the flood
            assert answer.status == 200
        assert len(console.net_connections("tcp")) <= LIMITS.connections_max + SPARE_FILES
        assert console.memory_info().rss / 1e6 < MEMORY_MB_MAX
        assert server.get("/ping.txt").strip() == "pong"
        deadline = time.monotonic() + 60
        while len(console.net_connections("tcp")) > SPARE_FILES:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert operator.open("/") == 200


def console_port_of(server: PinLaterServer) -> int:
    """The port of the console that the server runs beside itself, once its log names it."""
    deadline = time.monotonic() + 60
    while not (found := re.search(r"the console is ready.*http://127\.0\.0\.1:(\d+)", server.output())):
        assert time.monotonic() < deadline, server.output()
        time.sleep(0.02)
    return int(found[1])
