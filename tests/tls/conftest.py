"""A server with TLS in the test's own process, on a memory shard."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pinlater.client import AsyncClient, Tls
from pinlater.domain.clock import SystemClock
from pinlater.server.main.app import thrift_server
from pinlater.server.main.core import Core
from pinlater.server.sharding.reload import DesiredShard
from pinlater.server.storage.sqlite.memory import MemoryShard
from pinlater.server.thrift.server import ThriftServer
from pinlater.server.thrift.settings import ThriftSettings
from pinlater.tls.certificate import CertificateSource
from pinlater.tls.settings import TlsSettings
from tests.assembly import open_core
from tests.tls.certificates import Authority

HOST = "127.0.0.1"
QUEUE = "mail"


class TlsServer:
    """A started Thrift listener. `certificate`: None if it has no TLS."""

    def __init__(self, core: Core, server: ThriftServer, certificate: CertificateSource | None) -> None:
        self.core = core
        self.server = server
        self.certificate = certificate

    @property
    def address(self) -> str:
        return f"{HOST}:{self.server.port}"

    def counted(self, name: str) -> int:
        return self.server.metrics.read().counters.get(name, 0)


Start = Callable[..., Awaitable[TlsServer]]


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def other_authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Another authority."""
    return Authority(tmp_path_factory.mktemp("other"), "other")


@pytest.fixture(scope="session")
def tls(authority: Authority) -> TlsSettings:
    """Of a server for 127.0.0.1."""
    pair = authority.sign(HOST, "localhost")
    return TlsSettings(pair.certificate, pair.key)


@pytest.fixture
async def start(tls: TlsSettings) -> AsyncIterator[Start]:
    """Starts a server with a queue. `tls` None: without TLS."""
    started: list[TlsServer] = []

    async def start_one(tls: TlsSettings | None = tls, **thrift: Any) -> TlsServer:
        settings = ThriftSettings(port=0, **thrift)
        core = await open_core(DesiredShard("1", lambda: MemoryShard("1")), clock=SystemClock(), thrift=settings)
        await core.service.queues.create_queue(QUEUE)
        certificate = None if tls is None else CertificateSource(tls, time.time)
        server = thrift_server(core, certificate=certificate)
        await server.start()
        started.append(TlsServer(core, server, certificate))
        return started[-1]

    yield start_one
    for one in started:
        one.core.dispatcher.drain()
        await one.server.drain(2)
        await one.core.close()


@pytest.fixture
async def server(start: Start) -> TlsServer:
    return await start()


@pytest.fixture
def trusting(authority: Authority) -> Tls:
    """What a client needs to trust the authority."""
    return Tls(ca_file=authority.file)


@pytest.fixture
def with_certificate(authority: Authority, trusting: Tls) -> Tls:
    """The same with a certificate of the client."""
    pair = authority.sign("client")
    return replace(trusting, certificate_file=pair.certificate, key_file=pair.key)


@pytest.fixture
def mutual(tls: TlsSettings, authority: Authority) -> TlsSettings:
    """Of a server that wants a certificate of each client."""
    return replace(tls, client_ca_file=authority.file, require_client_certificate=True)


def client_of(server: TlsServer, tls: Tls | bool = True, **options: Any) -> AsyncClient:
    """A client that tries each call once."""
    return AsyncClient(server.address, tls=tls, retries=0, wait_for_servers=False, timeout_ms=5_000, **options)


def copied(pair_files: tuple[Path, ...], folder: Path) -> tuple[Path, ...]:
    """Copies of files, which the test may change."""
    made = tuple(folder / path.name for path in pair_files)
    for path, copy in zip(pair_files, made, strict=True):
        copy.write_bytes(path.read_bytes())
    return made
