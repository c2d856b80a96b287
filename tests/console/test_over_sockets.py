"""The console under uvicorn, in front of a server: what only sockets show, and requests that are generated."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import positive_data_acceptance

from pinlater.console.app import OPENAPI_PATH
from pinlater.console.endpoint import Endpoint
from pinlater.console.endpoints.fields import Nothing
from pinlater.console.routes import ENDPOINTS
from tests.cli.conftest import COMMAND
from tests.cli.test_console_beside_server import BESIDE, READY

# Checks of schemathesis make requests of their own, and leave the connections to the collector.
pytestmark = pytest.mark.filterwarnings("ignore:.*<socket.socket:pytest.PytestUnraisableExceptionWarning")
JOBS = "/v1/queues/mail/jobs"


class ListeningConsole:
    """A console in front of a server, in processes of their own: generated requests share no interpreter with what answers them."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self._process = process
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    def stop(self) -> None:
        self._process.terminate()
        assert self._process.wait(30) == 0

    @cached_property
    def session(self) -> requests.Session:
        """The connections of generated requests."""
        return requests.Session()

    @cached_property
    def schema(self) -> schemathesis.BaseSchema:
        return schemathesis.openapi.from_url(f"{self.url}{OPENAPI_PATH}")

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def post(self, path: str, body: dict[str, Any]) -> int:
        """The status of the answer."""
        connection = self.connection()
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        status = connection.getresponse().status
        connection.close()
        return status

    def get(self, path: str) -> Any:
        """The JSON there."""
        connection = self.connection()
        connection.request("GET", path)
        answer = json.load(connection.getresponse())
        connection.close()
        return answer


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ListeningConsole]:
    log = tmp_path_factory.mktemp("console") / "log"
    with log.open("w") as stderr, subprocess.Popen([*COMMAND, *BESIDE], stderr=stderr, text=True) as process:
        try:
            site = ListeningConsole(process, _port_in(log, process))
            assert site.post("/v1/queues", {"name": "mail"}) == 201
            yield site
            site.session.close()
            site.stop()
        finally:
            process.kill()


def _port_in(log: Path, process: subprocess.Popen[str]) -> int:
    """The console's port, once the server's log names it."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        for line in log.read_text().splitlines():
            if line.endswith("}") and (entry := json.loads(line))["event"] == READY:
                return int(entry["address"].rpartition(":")[2])
        time.sleep(0.02)
    raise TimeoutError(log.read_text())


def test_a_thrift_client_that_sends_the_length_of_a_frame_alone_is_told_its_port(site: ListeningConsole) -> None:
    call = b"\0\0\0\x19\x80\x01\x00\x01\x00\x00\x00\x0dgetQueueNames\x00\x00\x00\x07\x00"
    with socket.create_connection(("127.0.0.1", site.port), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in call[:24]:
            connection.sendall(bytes((byte,)))
        connection.sendall(call[24:])
        answer = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert b"getQueueNames\x00\x00\x00\x07" in answer
    assert b"PinLater's console (dashboard and HTTP API); Thrift has a port of its own (9010 by default)" in answer


def test_an_answer_does_not_name_its_server_and_one_to_head_has_no_body(site: ListeningConsole) -> None:
    with socket.create_connection(("127.0.0.1", site.port), timeout=30) as connection:
        connection.sendall(b"HEAD /v1/queues HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        head, _, body = b"".join(iter(lambda: connection.recv(65_536), b"")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert b"\r\nserver:" not in head.lower()
    assert body == b""


def test_a_request_with_two_ends_is_refused_with_its_connection(site: ListeningConsole) -> None:
    """A proxy that goes by the other end would take the answer to what is hidden in the body for that of another caller's request."""
    hidden = b"GET /v1/queues HTTP/1.1\r\nHost: localhost\r\n\r\n"
    body = b"2\r\n{}\r\n0\r\n\r\n" + hidden
    head = f"POST /v1/queues HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\nTransfer-Encoding: chunked\r\n\r\n"
    with socket.create_connection(("127.0.0.1", site.port), timeout=30) as connection:
        connection.sendall(head.encode() + body)
        answer = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert (answer.count(b"HTTP/1.1"), b"either Content-Length or Transfer-Encoding" in answer) == (1, True)


def test_a_caller_that_closes_its_connection_leaves_its_long_poll(site: ListeningConsole) -> None:
    connection = site.connection()
    connection.request("POST", f"{JOBS}/dequeue", b'{"wait_ms": 30000}')
    until_waiting(site, 1)
    connection.close()
    until_waiting(site, 0)


def until_waiting(site: ListeningConsole, number: int) -> None:
    """Returns once this number of long polls waits."""
    deadline = time.monotonic() + 10
    while sum(one["number"] for one in site.get("/v1/waiting-dequeues")["waiting"]) != number:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_headers_that_are_too_large_are_refused(site: ListeningConsole) -> None:
    with socket.create_connection(("127.0.0.1", site.port), timeout=30) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 100_000)
        assert connection.recv(100).startswith(b"HTTP/1.1 400")


# A request of the right shape may still be refused: for the form of a descriptor, say, or a priority that the server does not have.
NOT_PROMISED = [positive_data_acceptance]
WITH_INPUT = [one for one in ENDPOINTS if one.query is not Nothing or one.body is not Nothing]


def check_generated(
    site: ListeningConsole, endpoint: Endpoint[Any, Any, Any], mode: GenerationMode, examples: int
) -> None:
    """Schemathesis makes requests from the document and fails for an answer 500, one that the document does not describe, and a wrong
    request that is accepted."""
    operation = site.schema[endpoint.path][endpoint.method]

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(case=operation.as_strategy(mode))
    def check(case: schemathesis.Case[Any]) -> None:
        case.call_and_validate(base_url=site.url, session=site.session, timeout=30, excluded_checks=NOT_PROMISED)

    check()


EXAMPLES = [5, pytest.param(200, marks=[pytest.mark.thorough, pytest.mark.timeout(600)])]


@pytest.mark.parametrize("examples", EXAMPLES)
@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.name)
def test_requests_of_the_documents_shape_get_answers_of_its_shape(
    site: ListeningConsole, endpoint: Endpoint[Any, Any, Any], examples: int
) -> None:
    check_generated(site, endpoint, GenerationMode.POSITIVE, examples)


@pytest.mark.parametrize("examples", EXAMPLES)
@pytest.mark.parametrize("endpoint", WITH_INPUT, ids=lambda endpoint: endpoint.name)
def test_requests_of_another_shape_are_refused(
    site: ListeningConsole, endpoint: Endpoint[Any, Any, Any], examples: int
) -> None:
    check_generated(site, endpoint, GenerationMode.NEGATIVE, examples)
