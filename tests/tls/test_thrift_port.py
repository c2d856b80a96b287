"""TLS on the Thrift port, seen by the Python clients: handshakes, reasons for none, bounds."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pinlater.client import Ack, AsyncClient, Client, JobState, Tls
from pinlater.client.errors import CallerError, PinLaterError, ServerUnreachable
from pinlater.tls.settings import TlsSettings
from pinlater.wire.codec import encode_call
from pinlater.wire.generated import structs as types
from tests.tls.certificates import DAY, SERVER, Authority, KeyPair
from tests.tls.conftest import HOST, QUEUE, Start, TlsServer, client_of, copied


async def in_thread(work: Callable[[], Any]) -> Any:
    return await asyncio.to_thread(work)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0.005)


async def refusal(server: TlsServer, tls: Tls | bool, kind: str) -> PinLaterError:
    """What a client's first call raises, of the async or the sync kind."""
    if kind == "async":
        async with client_of(server, tls) as client:
            with pytest.raises(PinLaterError) as raised:
                await client.queue_names()
    else:
        sync = Client(server.address, tls=tls, retries=0, wait_for_servers=False, timeout_ms=5_000)
        with sync, pytest.raises(PinLaterError) as raised:
            await in_thread(sync.queue_names)
    return raised.value


both = pytest.mark.parametrize("kind", ["async", "sync"])


async def test_jobs_go_through_an_encrypted_connection(server: TlsServer, trusting: Tls) -> None:
    async with client_of(server, trusting) as client:
        body = bytes(range(256)) * 4_000  # many records
        await client.enqueue(QUEUE, [body])
        [job] = (await client.dequeue(QUEUE, 1, wait_ms=1_000)).jobs
        assert job.body == body
        await client.ack(QUEUE, [Ack(job.descriptor, token=job.token)])
        assert await client.count(QUEUE, JobState.SUCCEEDED) == 1


async def test_a_sync_client_uses_one_encrypted_connection_for_many_calls(server: TlsServer, trusting: Tls) -> None:
    def work() -> list[bytes]:
        with Client(server.address, tls=trusting) as client:
            for number in range(20):
                client.enqueue(QUEUE, [b"%d" % number * 20_000])
            return [job.body for job in client.dequeue(QUEUE, 20).jobs]

    assert sorted(await in_thread(work)) == sorted(b"%d" % number * 20_000 for number in range(20))


async def test_nothing_readable_crosses_the_network(start: Start, tls: TlsSettings, trusting: Tls) -> None:
    server, seen = await start(), bytearray()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            seen.extend(data)
            writer.write(data)
        writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, to_there = await asyncio.open_connection(HOST, server.server.port)
        with contextlib.suppress(OSError):
            await asyncio.gather(pass_on(reader, to_there), pass_on(there, writer))

    async with await asyncio.start_server(relay, HOST, 0) as listener:
        address = f"{HOST}:{listener.sockets[0].getsockname()[1]}"
        async with AsyncClient(address, tls=trusting, token="plt_secret_of_a_token") as client:
            await client.enqueue(QUEUE, [b"body of a job"])
            assert [job.body for job in (await client.dequeue(QUEUE, 1)).jobs] == [b"body of a job"]
    assert seen
    for word in (b"secret_of_a_token", b"body of a job", QUEUE.encode()):
        assert word not in seen


@both
async def test_an_unknown_authority_is_named(server: TlsServer, other_authority: Authority, kind: str) -> None:
    error = await refusal(server, Tls(ca_file=other_authority.file), kind)
    assert isinstance(error, ServerUnreachable)
    assert error.message == (
        f"Server {server.address} can't be reached with TLS: its certificate is from an authority that this client does not know"
    )


@both
async def test_the_operating_systems_authorities_do_not_know_ours(server: TlsServer, kind: str) -> None:
    assert "an authority that this client does not know" in (await refusal(server, True, kind)).message


@both
async def test_a_certificate_for_another_name_is_refused(
    start: Start, authority: Authority, trusting: Tls, kind: str
) -> None:
    pair = authority.sign("db.example")
    server = await start(TlsSettings(pair.certificate, pair.key))
    error = await refusal(server, trusting, kind)
    assert error.message.endswith(f"its certificate is not for {HOST}")


async def test_a_client_may_be_told_the_name_in_the_certificate(
    start: Start, authority: Authority, trusting: Tls
) -> None:
    pair = authority.sign("db.example")
    server = await start(TlsSettings(pair.certificate, pair.key))
    async with client_of(server, replace(trusting, server_name="db.example")) as client:
        assert await client.queue_names() == [QUEUE]


@both
async def test_an_expired_certificate_is_named(
    start: Start, tls: TlsSettings, authority: Authority, trusting: Tls, tmp_path: Path, kind: str
) -> None:
    certificate, key = copied((tls.certificate_file or Path(), tls.key_file or Path()), tmp_path)
    server = await start(TlsSettings(certificate, key))
    assert server.certificate is not None
    expired = authority.sign(HOST, lasts=-DAY)
    server.certificate.current.context.load_cert_chain(
        expired.certificate, expired.key
    )  # as if it had expired since the start
    error = await refusal(server, trusting, kind)
    assert error.message.endswith("its certificate has expired")


@both
async def test_a_server_without_tls_is_named(
    start: Start, trusting: Tls, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = await start(None)
    error = await refusal(server, trusting, kind)
    assert "perhaps it does not speak TLS" in error.message
    assert "a client has called the Thrift port with TLS, which this port does not have" in caplog.text


@both
async def test_a_client_without_tls_is_told_what_to_do(
    server: TlsServer, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    error = await refusal(server, False, kind)
    assert isinstance(error, CallerError)
    assert "this port speaks TLS only; give the client the option tls" in error.message
    assert "a client without TLS has connected to the Thrift port, which has TLS" in caplog.text
    assert server.counted("tls_plain_connections") >= 1


async def test_a_client_without_tls_that_sends_the_length_of_a_frame_alone_is_told_too(server: TlsServer) -> None:
    reader, writer = await asyncio.open_connection(HOST, server.server.port)
    for byte in b"\0\0\0\x19\x80\x01\x00\x01\x00\x00\x00\x0dgetQueueNames\x00\x00\x00\x07\x00":
        writer.write(bytes((byte,)))
        await writer.drain()
        await asyncio.sleep(0)
    answer = await reader.read()
    writer.close()
    assert b"getQueueNames\x00\x00\x00\x07" in answer
    assert b"this port speaks TLS only" in answer


async def test_a_client_without_tls_that_sends_the_length_of_a_frame_only_is_counted(server: TlsServer) -> None:
    reader, writer = await asyncio.open_connection(HOST, server.server.port)
    writer.write(b"\0\0\0\x19")
    writer.write_eof()
    assert await reader.read() == b""
    writer.close()
    assert server.counted("tls_plain_connections") == 1


async def test_an_http_client_is_told_which_ports_http_has(server: TlsServer) -> None:
    reader, writer = await asyncio.open_connection(HOST, server.server.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    said = await reader.read()
    writer.close()
    assert said.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"this is PinLater's Thrift port" in said


# --- mutual TLS -----------------------------------------------------------------------------------------------------------------
@both
async def test_a_client_without_a_certificate_is_refused_where_one_is_wanted(
    start: Start, mutual: TlsSettings, trusting: Tls, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server = await start(mutual)
    error = await refusal(server, trusting, kind)
    assert isinstance(error, ServerUnreachable)
    assert error.message.endswith("it wants a certificate of the client")
    await until(lambda: server.counted("tls_handshakes_failed") >= 1)
    assert any(getattr(record, "reason", "") == "it has sent no certificate" for record in caplog.records)


@both
async def test_a_certificate_of_another_authority_is_refused(
    start: Start, mutual: TlsSettings, trusting: Tls, other_authority: Authority, kind: str
) -> None:
    server, pair = await start(mutual), other_authority.sign("client")
    tls = replace(trusting, certificate_file=pair.certificate, key_file=pair.key)
    assert (
        "it refuses this client's certificate: its authority is unknown there"
        in (await refusal(server, tls, kind)).message
    )


@both
async def test_a_certificate_for_servers_only_is_refused(
    start: Start, mutual: TlsSettings, authority: Authority, trusting: Tls, kind: str
) -> None:
    server, pair = await start(mutual), authority.sign("client", uses=(SERVER,))
    tls = replace(trusting, certificate_file=pair.certificate, key_file=pair.key)
    assert "it refuses this client's certificate" in (await refusal(server, tls, kind)).message


@both
async def test_a_client_with_a_certificate_is_let_in(
    start: Start, mutual: TlsSettings, with_certificate: Tls, kind: str
) -> None:
    server = await start(mutual)
    if kind == "async":
        async with client_of(server, with_certificate) as client:
            assert await client.queue_names() == [QUEUE]
    else:
        with Client(server.address, tls=with_certificate) as client_in_thread:
            assert await in_thread(client_in_thread.queue_names) == [QUEUE]


# --- another certificate --------------------------------------------------------------------------------------------------------
@pytest.fixture
async def renewable(start: Start, tls: TlsSettings, tmp_path: Path) -> TlsServer:
    """A server whose files the test may change."""
    certificate, key = copied((tls.certificate_file or Path(), tls.key_file or Path()), tmp_path)
    return await start(TlsSettings(certificate, key))


def replace_certificate(server: TlsServer, authority: Authority, *names: str) -> None:
    assert server.certificate is not None
    settings = server.certificate.settings
    authority.sign(*names, into=KeyPair(settings.certificate_file or Path(), settings.key_file or Path()))


async def test_new_connections_get_the_new_certificate_while_a_long_poll_waits_on_the_old_one(
    renewable: TlsServer, trusting: Tls, other_authority: Authority
) -> None:
    async with client_of(renewable, trusting) as client:
        poll = asyncio.create_task(client.dequeue(QUEUE, 1, wait_ms=20_000))
        await until(lambda: renewable.server.answering.waiting == 1)
        replace_certificate(renewable, other_authority, HOST)
        assert renewable.certificate is not None
        assert renewable.certificate.refresh()
        async with client_of(renewable, Tls(ca_file=other_authority.file)) as other:
            await other.enqueue(QUEUE, [b"after the change"])
        assert [job.body for job in (await poll).jobs] == [b"after the change"]
    assert "does not know" in (await refusal(renewable, trusting, "async")).message


@pytest.mark.parametrize("how", ["junk", "half", "missing", "expired"])
async def test_files_that_are_no_good_leave_the_old_certificate_in_force(
    renewable: TlsServer, trusting: Tls, authority: Authority, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    source = renewable.certificate
    assert source is not None
    certificate, key = source.settings.certificate_file, source.settings.key_file
    assert certificate is not None
    assert key is not None
    good = certificate.read_bytes(), key.read_bytes()
    if how == "junk":
        certificate.write_text("junk")
    elif how == "half":
        certificate.write_bytes(authority.sign(HOST).certificate.read_bytes())
    elif how == "missing":
        key.unlink()
    else:
        authority.sign(HOST, lasts=-DAY, into=KeyPair(certificate, key))
    assert not source.refresh()
    assert not source.refresh()
    assert caplog.text.count("the last good certificate stays") == 1
    async with client_of(renewable, trusting) as client:
        assert await client.queue_names() == [QUEUE]
    certificate.write_bytes(good[0])
    key.write_bytes(good[1])
    source.refresh()
    assert source.last_error is None


# --- bounds ---------------------------------------------------------------------------------------------------------------------
async def connected(server: TlsServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(HOST, server.server.port)


def client_hello() -> bytes:
    """The first bytes of a client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname=HOST)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("sent", [0, 1, 60, -1], ids=["nothing", "a byte", "half a hello", "a hello"])
async def test_a_slow_handshake_is_cut(start: Start, tls: TlsSettings, sent: int) -> None:
    server = await start(replace(tls, handshake_timeout_s=0.1))
    reader, writer = await connected(server)
    hello = client_hello()
    writer.write(hello if sent < 0 else hello[:sent])
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(5):
            await reader.read()
    await until(lambda: server.server.connections == 0)
    assert server.counted("tls_handshakes_failed") == 1
    writer.close()


async def test_handshakes_that_never_end_make_place_for_new_connections(
    start: Start, tls: TlsSettings, trusting: Tls
) -> None:
    server = await start(tls, max_connections=5, max_connections_refused=2)
    waiting = [await connected(server) for _ in range(5)]
    for _, writer in waiting:
        writer.write(client_hello()[:30])
    await until(lambda: server.server.connections == 5)
    waiting += [await connected(server) for _ in range(4)]  # the oldest two are cut for the last two
    await until(lambda: server.counted("thrift_connections_over_limit") == 4)
    assert await waiting[0][0].read() == b""
    assert await waiting[1][0].read() == b""
    assert "TOO_MANY_CONNECTIONS" in (await refusal(server, trusting, "async")).detail
    for _, writer in waiting:
        writer.close()


async def test_what_is_no_handshake_after_its_first_byte_is_cut(server: TlsServer) -> None:
    reader, writer = await connected(server)
    writer.write(b"\x16" + b"junk" * 100)
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(5):
            await reader.read()
    writer.close()
    await until(lambda: server.server.connections == 0)


async def test_junk_after_the_handshake_closes_only_its_own_connection(
    server: TlsServer, trusting: Tls, authority: Authority
) -> None:
    context = ssl.create_default_context(cafile=str(authority.file))
    reader, writer = await asyncio.open_connection(HOST, server.server.port, ssl=context)
    async with client_of(server, trusting) as client:
        assert await client.queue_names() == [QUEUE]
        raw: socket.socket = writer.get_extra_info("socket")
        with socket.socket(fileno=raw.fileno()) as below:
            below.setblocking(False)
            below.send(b"\x17\x03\x03\x00\x20" + b"x" * 32)  # a record that can't be decrypted
            below.detach()
        with contextlib.suppress(OSError):
            async with asyncio.timeout(5):
                await reader.read()
        assert await client.queue_names() == [QUEUE]
    writer.close()


async def test_a_frame_beyond_the_bound_is_refused_over_tls(start: Start, tls: TlsSettings, trusting: Tls) -> None:
    server = await start(tls, max_frame_bytes=2_000_000)
    async with client_of(server, trusting) as client:
        with pytest.raises(PinLaterError, match="max_frame_bytes"):
            await client.enqueue(QUEUE, [bytes(900_000)] * 4)
        assert await client.queue_names() == [QUEUE]


async def test_a_client_that_reads_no_answers_is_cut_and_its_jobs_go_back(
    start: Start, tls: TlsSettings, trusting: Tls, authority: Authority
) -> None:
    """Answers are counted until the kernel has taken them, whatever the TLS layer holds."""
    server = await start(tls, write_stall_timeout_s=0.2)
    body = bytes(500_000)
    async with client_of(server, trusting) as client:
        for _ in range(40):
            await client.enqueue(QUEUE, [body])

        def claim_without_reading() -> ssl.SSLSocket:
            context = ssl.create_default_context(cafile=str(authority.file))
            opened = socket.socket()
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            opened.connect((HOST, server.server.port))
            secured = context.wrap_socket(opened, server_hostname=HOST)
            request = types.PinLaterDequeueRequest(QUEUE, 40)
            secured.sendall(encode_call("dequeueJobs", 1, context=types.RequestContext("slow"), request=request))
            return secured

        slow = await in_thread(claim_without_reading)
        await until(lambda: server.counted("thrift_slow_readers_cut") == 1)
        async with asyncio.timeout(5):
            got: list[bytes] = []
            while len(got) < 40:
                got += [job.body for job in (await client.dequeue(QUEUE, 40, wait_ms=200)).jobs]
        slow.close()


async def test_a_client_that_dies_during_a_long_poll_loses_no_job(server: TlsServer, trusting: Tls) -> None:
    dying = client_of(server, trusting)
    await dying.open()
    poll = asyncio.create_task(dying.dequeue(QUEUE, 1, wait_ms=20_000))
    await until(lambda: server.server.answering.waiting == 1)
    poll.cancel()
    await dying.close()
    await until(lambda: server.server.answering.waiting == 0)
    async with client_of(server, trusting) as client:
        await client.enqueue(QUEUE, [b"one"])
        assert len((await client.dequeue(QUEUE, 1, wait_ms=1_000)).jobs) == 1


async def test_a_worker_that_hangs_up_ends_its_long_poll_and_keeps_what_was_answered(
    server: TlsServer, trusting: Tls
) -> None:
    async with client_of(server, trusting) as client:
        poll = asyncio.create_task(client.dequeue(QUEUE, 1, wait_ms=20_000))
        await until(lambda: server.server.answering.waiting == 1)
        client.hang_up()
        with contextlib.suppress(PinLaterError):
            assert (await poll).jobs == []
        await until(lambda: server.server.answering.waiting == 0)
        await client.enqueue(QUEUE, [b"one"])
        assert len((await client.dequeue(QUEUE, 1)).jobs) == 1


async def test_threads_share_a_sync_client_over_tls(server: TlsServer, trusting: Tls) -> None:
    failures: list[BaseException] = []

    def work() -> None:
        with Client(server.address, tls=trusting) as client:

            def call() -> None:
                try:
                    for _ in range(5):
                        assert client.queue_names() == [QUEUE]
                except BaseException as error:
                    failures.append(error)
                    raise

            threads = [threading.Thread(target=call) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    await in_thread(work)
    assert failures == []


async def test_a_draining_server_answers_what_has_come_over_tls(server: TlsServer, trusting: Tls) -> None:
    async with client_of(server, trusting) as client:
        poll = asyncio.create_task(client.dequeue(QUEUE, 1, wait_ms=20_000))
        await until(lambda: server.server.answering.waiting == 1)
        server.core.dispatcher.drain()
        await server.server.drain(5)
        assert (await poll).jobs == []
