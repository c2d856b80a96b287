"""The console under uvicorn, in front of a server: what only sockets show, and requests that are generated."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import positive_data_acceptance

from pinlater.client import AsyncClient
from pinlater.console.app import OPENAPI_PATH, Console
from pinlater.console.browser_guard import LOOPBACK_NAMES
from pinlater.console.endpoint import Endpoint
from pinlater.console.routes import ENDPOINTS
from pinlater.console.run import ConsoleServer, listening
from pinlater.console.shapes.fields import Nothing
from pinlater.domain.clock import SystemClock
from pinlater.server.storage.memory import MemoryShard
from tests.assembly import listen, open_core

# Checks of schemathesis make requests of their own, and leave the connections to the collector.
pytestmark = pytest.mark.filterwarnings("ignore:.*<socket.socket:pytest.PytestUnraisableExceptionWarning")
JOBS = "/v1/queues/mail/jobs"


class ListeningConsole:
    """A console and a server, each listening, in a thread of their own."""

    def __init__(self) -> None:
        self._listener = listening("127.0.0.1", 0)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._console: ConsoleServer | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    async def _serve(self) -> None:
        clock = SystemClock()
        core = await open_core(MemoryShard(), clock=clock)
        await core.service.queues.create_queue("mail")
        server = await listen(core)
        client = AsyncClient(f"127.0.0.1:{server.port}", wait_for_servers=False)
        self._console = ConsoleServer(Console(client, clock.now_ms, LOOPBACK_NAMES))
        await self._console.serve([self._listener])
        await server.drain(0)
        await core.close()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        assert self._console is not None
        self._console.should_exit = True
        self._thread.join(30)
        assert not self._thread.is_alive()

    @cached_property
    def session(self) -> requests.Session:
        """The connections of generated requests."""
        return requests.Session()

    @cached_property
    def schema(self) -> schemathesis.BaseSchema:
        return schemathesis.openapi.from_url(f"{self.url}{OPENAPI_PATH}")

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def get(self, path: str) -> Any:
        """The JSON there."""
        connection = self.connection()
        connection.request("GET", path)
        answer = json.load(connection.getresponse())
        connection.close()
        return answer


@pytest.fixture(scope="module")
def site() -> Iterator[ListeningConsole]:
    site = ListeningConsole()
    site.start()
    yield site
    site.session.close()
    site.stop()


def test_a_connection_carries_several_requests(site: ListeningConsole) -> None:
    connection = site.connection()
    for _ in range(3):
        connection.request("GET", "/v1/queues")
        response = connection.getresponse()
        assert (response.status, json.loads(response.read())) == (200, {"queues": [{"name": "mail"}]})
        assert response.getheader("server") is None
    connection.request("HEAD", "/v1/queues")
    assert connection.getresponse().read() == b""
    connection.close()


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
