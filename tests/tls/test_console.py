"""The console over HTTPS."""

from __future__ import annotations

import asyncio
import http.client
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from pinlater.cli.commands import console as commands
from pinlater.client import AsyncClient, Tls
from pinlater.console.app import OPENAPI_PATH, Console
from pinlater.console.run import ConsoleServer, address_of, listening
from pinlater.domain.clock import SystemClock
from pinlater.tls.certificate import CertificateSource
from pinlater.tls.settings import TlsSettings
from pinlater.wire.codec import encode_call
from pinlater.wire.generated import structs as types
from tests.tls.certificates import Authority, KeyPair
from tests.tls.conftest import HOST
from tests.tls.test_http_port import context_of


class SecureConsole:
    """A console in a thread of its own, whose pages need no server. `files`: of its certificate."""

    def __init__(self, files: KeyPair) -> None:
        self.files = files
        self._listener = listening(HOST, 0)
        self.address = address_of(self._listener, tls=True)
        self.port: int = self._listener.getsockname()[1]
        certificate = CertificateSource(TlsSettings(files.certificate, files.key), time.time)
        self.server = ConsoleServer(
            Console(AsyncClient("127.0.0.1:1"), SystemClock().now_ms, None), certificate=certificate
        )
        self._thread = threading.Thread(target=lambda: asyncio.run(self.server.serve([self._listener])))
        self._thread.start()

    def status(self, tls: Tls) -> int:
        connection = http.client.HTTPSConnection(HOST, self.port, timeout=10, context=context_of(tls))
        try:
            connection.request("GET", OPENAPI_PATH)
            return connection.getresponse().status
        finally:
            connection.close()

    def stop(self) -> None:
        self.server.should_exit = True
        self._thread.join()


@pytest.fixture(scope="module")
def console(authority: Authority) -> Iterator[SecureConsole]:
    console = SecureConsole(authority.sign(HOST))
    yield console
    console.stop()


def test_pages_are_served_over_https(console: SecureConsole, trusting: Tls) -> None:
    assert console.address.startswith("https://")
    assert console.status(trusting) == 200


def test_a_browser_without_tls_is_told_in_http(console: SecureConsole) -> None:
    with socket.create_connection((HOST, console.port)) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"HTTPS only" in plain.recv(1_000)


def test_a_thrift_client_without_tls_is_told_in_thrift(console: SecureConsole) -> None:
    with socket.create_connection((HOST, console.port)) as plain:
        plain.sendall(encode_call("getQueueNames", 7, context=types.RequestContext(source="me")))
        assert b"PinLater's console" in plain.recv(1_000)


@pytest.fixture
def renewable(authority: Authority) -> Iterator[SecureConsole]:
    """A console of the test's own, whose certificate it may change."""
    console = SecureConsole(authority.sign(HOST))
    yield console
    console.stop()


def test_a_silent_connection_counts_before_its_handshake(renewable: SecureConsole) -> None:
    with socket.create_connection((HOST, renewable.port)):
        deadline = time.monotonic() + 5
        while not len(renewable.server.connections) and time.monotonic() < deadline:
            time.sleep(0.001)
        assert len(renewable.server.connections) == 1


def test_a_new_certificate_is_taken_over(renewable: SecureConsole, trusting: Tls, other_authority: Authority) -> None:
    assert renewable.status(trusting) == 200
    other_authority.sign(HOST, into=renewable.files)
    deadline = time.monotonic() + 10
    reached = False
    while not reached and time.monotonic() < deadline:
        try:
            reached = renewable.status(Tls(ca_file=other_authority.file)) == 200
        except OSError:
            time.sleep(0.05)
    assert reached
    with pytest.raises(OSError, match=r"(?i)certificate verify failed"):
        renewable.status(trusting)


def test_files_of_the_console_that_are_no_good_are_usage_errors(tmp_path: Path) -> None:
    with pytest.raises(typer.BadParameter, match="can't be read"):
        commands.console(https_certificate=tmp_path / "none")
    with pytest.raises(typer.BadParameter, match="needs --https-certificate too"):
        commands.console(https_key=tmp_path / "none")


def test_a_client_authority_of_the_console_makes_it_ask_for_certificates(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[CertificateSource | None] = []

    def serve(_: object, listener: socket.socket, *, certificate: CertificateSource | None, **__: object) -> None:
        listener.close()
        served.append(certificate)

    monkeypatch.setattr("pinlater.console.run.serve", serve)
    monkeypatch.setattr(commands, "setup", lambda *_: None)
    pair = authority.sign(HOST)
    commands.console(port=0)
    commands.console(port=0, https_certificate=pair.certificate, https_key=pair.key, https_client_ca=authority.file)
    [none, source] = served
    assert none is None
    assert source is not None
    assert source.settings.require_client_certificate
