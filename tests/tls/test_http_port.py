"""TLS on the HTTP port of a server."""

from __future__ import annotations

import asyncio
import http.client
import logging
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest

from pinlater.client import Tls
from pinlater.server.http.server import HttpServer
from pinlater.server.http.settings import HttpSettings
from pinlater.server.http.status import OneServer, Readiness
from pinlater.server.telemetry.metrics import Metrics
from pinlater.tls.certificate import CertificateSource
from pinlater.tls.settings import TlsSettings
from tests.tls.certificates import Authority
from tests.tls.conftest import HOST

Serve = Callable[..., Awaitable[HttpServer]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Starts the pages of a server."""
    started: list[HttpServer] = []

    async def start(tls: TlsSettings | CertificateSource | None, **http: int | float) -> HttpServer:
        metrics = Metrics()
        source = OneServer(metrics, lambda: Readiness(True), dict, list)
        certificate = CertificateSource(tls, time.time) if isinstance(tls, TlsSettings) else tls
        settings = HttpSettings(port=0, **http)  # type: ignore[arg-type] # each as its field
        server = HttpServer(settings, metrics, source, certificate=certificate)
        await server.start()
        started.append(server)
        return server

    yield start
    for one in started:
        await one.stop()


def context_of(tls: Tls) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(tls.ca_file))
    if tls.certificate_file is not None:
        context.load_cert_chain(str(tls.certificate_file), str(tls.key_file))
    return context


async def status_of(server: HttpServer, path: str, tls: Tls) -> int:
    def get() -> int:
        connection = http.client.HTTPSConnection(HOST, server.port, timeout=10, context=context_of(tls))
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        finally:
            connection.close()

    return await asyncio.to_thread(get)


async def test_pages_and_health_checks_are_served_over_tls(serve: Serve, tls: TlsSettings, trusting: Tls) -> None:
    server = await serve(tls)
    assert [await status_of(server, path, trusting) for path in ("/health", "/metrics", "/nothing")] == [200, 200, 404]


async def test_a_client_without_tls_is_told_in_http(serve: Serve, tls: TlsSettings) -> None:
    server = await serve(tls)
    reader, writer = await asyncio.open_connection(HOST, server.port)
    writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"HTTPS only" in answer


async def test_a_client_with_tls_on_a_port_without_is_noted(
    serve: Serve, trusting: Tls, caplog: pytest.LogCaptureFixture
) -> None:
    server = await serve(None)
    with pytest.raises(OSError, match=r"(?i)wrong.version"):
        await status_of(server, "/health", trusting)
    assert "a client with TLS has connected to the HTTP port, which has no TLS" in caplog.text


async def test_without_a_client_certificate_only_health_checks_are_answered(
    serve: Serve, mutual: TlsSettings, trusting: Tls, with_certificate: Tls
) -> None:
    server = await serve(mutual)
    assert await status_of(server, "/health", trusting) == 200
    assert await status_of(server, "/metrics", trusting) == 403
    assert await status_of(server, "/metrics", with_certificate) == 200


async def test_a_client_certificate_of_another_authority_is_refused(
    serve: Serve, mutual: TlsSettings, trusting: Tls, other_authority: Authority
) -> None:
    server, pair = await serve(mutual), other_authority.sign("client")
    with pytest.raises(OSError, match=r"(?i)unknown ca"):
        await status_of(server, "/health", replace(trusting, certificate_file=pair.certificate, key_file=pair.key))


async def test_new_connections_get_the_new_certificate_while_an_open_one_stays(
    serve: Serve, authority: Authority, other_authority: Authority, trusting: Tls
) -> None:
    files = authority.sign(HOST)
    certificate = CertificateSource(TlsSettings(files.certificate, files.key), time.time)
    server = await serve(certificate)
    connection = http.client.HTTPSConnection(HOST, server.port, timeout=10, context=context_of(trusting))

    def get() -> int:
        connection.request("GET", "/health")
        answer = connection.getresponse()
        answer.read()
        return answer.status

    try:
        assert await asyncio.to_thread(get) == 200
        used = connection.sock
        other_authority.sign(HOST, into=files)
        assert certificate.refresh()
        assert await status_of(server, "/health", Tls(ca_file=other_authority.file)) == 200
        assert await asyncio.to_thread(get) == 200
        assert connection.sock is used
    finally:
        connection.close()
    with pytest.raises(OSError, match=r"(?i)certificate verify failed"):
        await status_of(server, "/health", trusting)


async def test_slow_handshakes_keep_no_health_check_out(
    serve: Serve, tls: TlsSettings, trusting: Tls, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server = await serve(tls, max_connections=3)
    waiting = [await asyncio.open_connection(HOST, server.port) for _ in range(10)]
    for _, writer in waiting:
        writer.write(b"\x16\x03\x01")
    assert await status_of(server, "/health", trusting) == 200
    for _, writer in waiting:
        writer.close()


async def test_a_handshake_that_takes_longer_than_a_head_may_is_cut(serve: Serve, tls: TlsSettings) -> None:
    server = await serve(tls, header_timeout_s=0.05)
    reader, writer = await asyncio.open_connection(HOST, server.port)
    writer.write(b"\x16\x03\x01")
    async with asyncio.timeout(5):
        assert await reader.read() == b""
    writer.close()
