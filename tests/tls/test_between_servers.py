"""Calls between servers over TLS: proofs are bound to the certificate, and both sides must have TLS."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from pinlater.domain.clock import SystemClock
from pinlater.server.cluster.forwarding.forwarding import Forwarding
from pinlater.server.cluster.forwarding.messages import Wake
from pinlater.server.cluster.forwarding.peer_connection import PeerConnection
from pinlater.server.cluster.forwarding.peer_listener import PeerListener
from pinlater.server.cluster.forwarding.peer_tls import connecting_side
from pinlater.server.main.core import Core
from pinlater.server.storage.sqlite.memory import MemoryShard
from pinlater.tls.certificate import CertificateSource
from pinlater.tls.protocol import TlsProtocol
from pinlater.tls.settings import TlsSettings
from tests.assembly import open_core
from tests.forwarding.two_servers import SECRET, Asker, Owner, request, until
from tests.tls.certificates import Authority
from tests.tls.conftest import HOST


class SecureOwner(Owner):
    """The answering server, with TLS."""

    def __init__(self, certificate: CertificateSource | None) -> None:
        super().__init__()
        self.listener = PeerListener(
            self.carry_out, self.not_delivered, lambda: [b"another", SECRET], certificate=certificate
        )


Listen = Callable[[CertificateSource | None], Awaitable[SecureOwner]]


@pytest.fixture
def certificate(tls: TlsSettings) -> CertificateSource:
    return CertificateSource(tls, time.time)


@pytest.fixture
async def listen() -> AsyncIterator[Listen]:
    owners: list[SecureOwner] = []

    async def start(certificate: CertificateSource | None) -> SecureOwner:
        owner = SecureOwner(certificate)
        owner.port = await owner.listener.open(HOST)
        owners.append(owner)
        return owner

    yield start
    for owner in owners:
        owner.listener.close()
    await asyncio.sleep(0)


async def connect(port: int, secret: bytes = SECRET) -> PeerConnection:
    """A usable connection. Raises OSError."""
    connection = PeerConnection(f"{HOST}:{port}", f"{HOST}:1", secret, SystemClock(), 60.0, lambda _: None)
    layer = TlsProtocol(connection, connecting_side())
    try:
        async with asyncio.timeout(5):
            await asyncio.get_running_loop().create_connection(lambda: layer, HOST, port)
            await layer.wait_handshake()
            await connection.wait_ready()
    except BaseException:
        layer.abort()
        raise
    return connection


async def test_calls_are_answered_over_tls(listen: Listen, certificate: CertificateSource) -> None:
    owner, asker = await listen(certificate), Asker()
    asker.link = await connect(owner.port)
    assert (await asker.insert(request(1, body=bytes(3_000_000)))).ids == [1]
    asker.link.abort()


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: list[bytes]) -> None:
    """Passes on all that comes, and keeps it in `seen`."""
    while data := await reader.read(65_536):
        seen.append(data)
        writer.write(data)
    writer.close()


async def passed_over_the_network(port: int, connect: Callable[[int], Awaitable[PeerConnection]]) -> bytes:
    """What crosses the network when a server wakes another that listens at this port."""
    crossed: list[bytes] = []

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, to_there = await asyncio.open_connection(HOST, port)
        with contextlib.suppress(OSError):
            await asyncio.gather(pass_on(reader, to_there, crossed), pass_on(there, writer, crossed))

    async with await asyncio.start_server(relay, HOST, 0) as listener:
        asker = Asker()
        asker.link = await connect(listener.sockets[0].getsockname()[1])
        assert asker.link.wake([Wake("very_secret_emails", 1, False)])
        await asker.insert(request(1))
        asker.link.abort()
        await asker.link.ended.wait()
    return b"".join(crossed)


async def test_names_of_queues_in_wakes_are_encrypted(listen: Listen, certificate: CertificateSource) -> None:
    plain, encrypted = await listen(None), await listen(certificate)

    async def connect_without_tls(port: int) -> PeerConnection:
        plain.port = port
        return await Asker().connect(plain)

    assert b"very_secret_emails" in await passed_over_the_network(plain.port, connect_without_tls)
    assert b"very_secret_emails" not in await passed_over_the_network(encrypted.port, connect)


async def test_a_server_that_does_not_know_the_secret_is_refused_over_tls(
    listen: Listen, certificate: CertificateSource
) -> None:
    owner = await listen(certificate)
    with pytest.raises(ConnectionError):
        await connect(owner.port, b"not the secret")
    assert owner.asked == []


async def test_a_proof_passed_on_by_a_third_party_is_refused(
    listen: Listen, certificate: CertificateSource, other_authority: Authority
) -> None:
    """It speaks TLS with both sides, and has a certificate of its own."""
    owner, pair = await listen(certificate), other_authority.sign(HOST)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    passed_on: list[bytes] = []

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, to_there = await asyncio.open_connection(HOST, owner.port, ssl=connecting_side().context)
        with contextlib.suppress(OSError):
            await asyncio.gather(pass_on(reader, to_there, passed_on), pass_on(there, writer, passed_on))
        writer.close()

    async with await asyncio.start_server(relay, HOST, 0, ssl=context) as listener:
        with pytest.raises(ConnectionError):
            await connect(listener.sockets[0].getsockname()[1])
    assert len(passed_on) == 2  # the hello, and the answer to it; no proof followed


async def test_a_new_certificate_binds_new_connections_and_leaves_old_ones_alone(
    listen: Listen, certificate: CertificateSource, authority: Authority
) -> None:
    owner, asker = await listen(certificate), Asker()
    asker.link = await connect(owner.port)
    pair = authority.sign("another.example")
    certificate.current = CertificateSource(TlsSettings(pair.certificate, pair.key), time.time).current
    other = await connect(owner.port)
    assert (await asker.insert(request(1))).ids == [1]
    asker.link.abort()
    other.abort()


async def test_a_server_without_tls_is_not_heard_by_one_with_it(
    listen: Listen, certificate: CertificateSource, caplog: pytest.LogCaptureFixture
) -> None:
    owner, asker = await listen(certificate), Asker()
    with pytest.raises(ConnectionError):
        await asker.connect(owner)
    assert "a client without TLS has connected to the cluster port, which has TLS" in caplog.text


@pytest.fixture
async def core() -> AsyncIterator[Core]:
    core = await open_core(MemoryShard("1"), clock=SystemClock())
    yield core
    await core.close()


async def test_a_server_with_tls_never_falls_back_to_plain_text(
    listen: Listen, core: Core, caplog: pytest.LogCaptureFixture
) -> None:
    """While one server has TLS and another does not, calls go to the shards instead; both say so."""
    plain = await listen(None)
    forwarding = Forwarding(core.shards, f"{HOST}:1", lambda _: [], tls=True)
    address = f"{HOST}:{plain.port}"
    forwarding.know({address: SECRET})
    await until(lambda: "calls to a server go to the shards instead" in caplog.text)
    await until(lambda: "a server speaks TLS, which this one does not" in caplog.text)
    assert forwarding.connections == {}
    assert not any(connection.proven for connection in plain.listener.connections)
    await forwarding.close()


async def test_servers_with_tls_connect_by_themselves(
    listen: Listen, core: Core, certificate: CertificateSource
) -> None:
    owner = await listen(certificate)
    forwarding = Forwarding(core.shards, f"{HOST}:1", lambda _: [], tls=True)
    address = f"{HOST}:{owner.port}"
    forwarding.know({address: SECRET})
    await until(lambda: address in forwarding.connections)
    assert forwarding.connections[address].usable
    await forwarding.close()
