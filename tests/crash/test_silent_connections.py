"""Ten thousand connections that say nothing, at each port, and one that does."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import psutil  # type: ignore[import-untyped]
import pytest

from bench.servers import PinLaterServer, pinlater_server
from pinlater.client import Client, Tls
from pinlater.console.run import LIMITS
from pinlater.domain.access import Role, digest_of, new_secret
from pinlater.server.access.tokens import Token, tokens_text
from pinlater.server.http.settings import HttpSettings
from tests import open_files
from tests.crash.conftest import ServerMaker
from tests.crash.load_clients import QUEUE
from tests.crash.wire_client import WireClient
from tests.tls.certificates import Authority

pytestmark = pytest.mark.crash

HOST = "127.0.0.1"
SILENT = 10_000
SPARE_FILES = 500
MEMORY_MB_MAX = 400.0
# What silent clients of the console have sent: nothing, a part of a head, a head without the form.
BEGUN = (
    b"",
    b"GET / HTTP/1.1\r\nHost: ",
    b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://127.0.0.1\r\nContent-Length: 60000\r\n\r\n",
)


HELLO = b"\x16\x03\x01"  # the beginning of a handshake
HANDSHAKE_S = 120  # longer than these tests


def test_a_server_serves_its_clients_despite_ten_thousand_silent_connections(start_server: ServerMaker) -> None:
    """Half of them have begun a frame and never end it. Memory stays bounded, and when they go the server is as before."""
    open_files.need(SILENT + SPARE_FILES)
    with ExitStack() as stack:
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


def open_silent(stack: ExitStack, port: int, begun: Sequence[bytes]) -> None:
    """Opens the connections. Each has sent one of `begun`; some may be closed for others."""
    for number in range(SILENT):
        silent = stack.enter_context(socket.create_connection((HOST, port), timeout=60))
        with contextlib.suppress(OSError):
            silent.sendall(begun[number % len(begun)])


def connections_of(server: PinLaterServer) -> int:
    """Those of its listeners included."""
    return len(psutil.Process(server.pid).net_connections("tcp"))


def test_the_http_port_of_a_server_answers_despite_ten_thousand_silent_connections(start_server: ServerMaker) -> None:
    """Two thirds of them have begun a request. Few stay open, and memory stays bounded."""
    open_files.need(SILENT + SPARE_FILES)
    with ExitStack() as stack:
        server = start_server()
        client = stack.enter_context(WireClient(server.port))
        open_silent(stack, server.http_port, BEGUN)
        assert server.get("/ping.txt").strip() == "pong"
        assert "pinlater" in server.get("/metrics")
        assert client.enqueue(QUEUE, ["body"])
        assert connections_of(server) <= HttpSettings().max_connections + SPARE_FILES
        assert server.memory_mb() < MEMORY_MB_MAX
    assert server.get("/ping.txt").strip() == "pong"


@pytest.mark.parametrize("door", ["thrift", "http"])
def test_a_server_with_tls_serves_its_clients_despite_ten_thousand_handshakes_that_never_end(
    tmp_path: Path, door: str
) -> None:
    """Half of them have not begun. A client that is connected is served, and so is a new one."""
    authority = Authority(tmp_path / "authority")
    pair = authority.sign(HOST)
    options = [f"tls.certificate_file={pair.certificate}", f"tls.key_file={pair.key}"]
    options.append(f"tls.handshake_timeout_s={HANDSHAKE_S}")
    given = [part for option in options for part in ("--set", option)]
    context = ssl.create_default_context(cafile=str(authority.file))
    open_files.need(SILENT + SPARE_FILES)
    with (
        pinlater_server(tmp_path / "store.db", *given, log=tmp_path / "log") as server,
        ExitStack() as stack,
    ):
        made = partial(Client, f"{HOST}:{server.port}", tls=Tls(ca_file=authority.file), timeout_ms=60_000)
        client = stack.enter_context(made())
        client.create_queue(QUEUE)
        open_silent(stack, server.port if door == "thrift" else server.http_port, (b"", HELLO))
        client.enqueue(QUEUE, [b"body"])
        newcomer = stack.enter_context(made())
        assert [job.body for job in newcomer.dequeue(QUEUE, 1).jobs] == [b"body"]
        with urlopen(f"https://{HOST}:{server.http_port}/ping.txt", timeout=60, context=context) as answer:
            assert answer.read().strip() == b"pong"
        if door == "thrift":
            assert connections_of(server) > SILENT
        else:
            assert connections_of(server) <= HttpSettings().max_connections + SPARE_FILES
        assert server.memory_mb() < MEMORY_MB_MAX


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
    open_files.need(SILENT + SPARE_FILES)
    with ExitStack() as stack:
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
