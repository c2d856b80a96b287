"""The layer between a protocol and its transport, on both event loops, against itself and against the standard library's TLS."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ssl
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest
import uvloop

from pinlater.tls.protocol import ConnectingSide, ListeningSide, NotTls, TlsProtocol
from tests.tls.certificates import Authority, KeyPair

HOST = "127.0.0.1"
Scenario = Callable[["LinkedSides"], Coroutine[Any, Any, None]]
loops = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])


class Recorder(asyncio.Protocol):
    """Keeps what it is told. `keep_open`: the answer to the end of the other direction."""

    def __init__(self, keep_open: bool = False) -> None:
        self.received = bytearray()
        self.told: list[str] = []
        self.keep_open = keep_open
        self.error: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.told.append("made")

    def data_received(self, data: bytes) -> None:
        self.received += data

    def eof_received(self) -> bool:
        self.told.append("eof")
        return self.keep_open

    def connection_lost(self, exc: Exception | None) -> None:
        self.error = exc
        self.told.append("lost")

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")


class LinkedSides:
    """A listener, and connections to it. `there` is the newest connection's listening side."""

    def __init__(self, pair: KeyPair, authority: Authority) -> None:
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server.load_cert_chain(pair.certificate, pair.key)
        self.client = ssl.create_default_context(cafile=str(authority.file))
        self.failures: list[Exception] = []
        self.keep_open = False
        self.there = Recorder()
        self.port = 0
        self._opened: list[TlsProtocol] = []

    async def listen(self) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        side = ListeningSide(lambda: self.server, lambda error, _: self.failures.append(error), lambda _: b"no TLS")

        def new() -> TlsProtocol:
            self.there = Recorder(self.keep_open)
            self._opened.append(TlsProtocol(self.there, side))
            return self._opened[-1]

        server = await loop.create_server(new, HOST, 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def connect(self, keep_open: bool = False) -> Recorder:
        here = Recorder(keep_open)
        layer = TlsProtocol(here, ConnectingSide(self.client, HOST))
        self._opened.append(layer)
        await asyncio.get_running_loop().create_connection(lambda: layer, HOST, self.port)
        await layer.wait_handshake()
        return here

    async def close(self) -> None:
        for layer in self._opened:
            layer.abort()
        await asyncio.sleep(0.01)


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0.001)


@pytest.fixture
def run(authority: Authority) -> Callable[[Any, Scenario], None]:
    pair = authority.sign(HOST)

    def run_one(new_loop: Any, scenario: Scenario) -> None:
        async def whole() -> None:
            connections = LinkedSides(pair, authority)
            server = await connections.listen()
            try:
                await scenario(connections)
            finally:
                await connections.close()
                server.close()

        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(whole())

    return run_one


Run = Callable[[Any, Scenario], None]


@loops
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def test_bytes_arrive_in_order_in_both_directions(run: Run, new_loop: Any, version: ssl.TLSVersion) -> None:
    async def scenario(pair: LinkedSides) -> None:
        pair.client.maximum_version = version
        here = await pair.connect()
        sent = bytes(range(256)) * 8_000
        for start in range(0, len(sent), 300_001):
            here.transport.write(sent[start : start + 300_001])
        await until(lambda: len(pair.there.received) == len(sent))
        assert pair.there.received == sent
        pair.there.transport.write(sent)
        await until(lambda: len(here.received) == len(sent))
        assert here.received == sent
        assert here.transport.get_extra_info("ssl_object").version() == version.name.replace("_", ".")

    run(new_loop, scenario)


@loops
def test_what_the_kernel_has_not_taken_is_counted_and_told(run: Run, new_loop: Any) -> None:
    async def scenario(pair: LinkedSides) -> None:
        here = await pair.connect()
        there = pair.there.transport
        await until(lambda: there.get_extra_info("ssl_object"))
        there.set_write_buffer_limits(high=0)
        assert "pause" not in pair.there.told
        here.transport.pause_reading()
        there.write(bytes(8_000_000))
        assert pair.there.told[-1] == "pause"
        assert 3_000_000 < there.get_write_buffer_size() <= 8_100_000
        assert here.received == b""
        here.transport.resume_reading()
        await until(lambda: len(here.received) == 8_000_000)
        await until(lambda: pair.there.told[-1] == "resume")
        assert there.get_write_buffer_size() == 0
        there.write(b"small")
        assert pair.there.told[-1] == "resume"  # the kernel takes it at once
        await until(lambda: here.received.endswith(b"small"))

    run(new_loop, scenario)


@loops
def test_nothing_is_passed_on_while_reading_is_paused(run: Run, new_loop: Any) -> None:
    async def scenario(pair: LinkedSides) -> None:
        here = await pair.connect()
        here.transport.write(b"first")
        await until(lambda: pair.there.received == b"first")
        pair.there.transport.pause_reading()
        here.transport.write(b" second")
        here.transport.close()
        for _ in range(20):
            await asyncio.sleep(0)
        assert pair.there.received == b"first"
        pair.there.transport.resume_reading()
        await until(lambda: "lost" in pair.there.told)
        assert pair.there.received == b"first second"
        assert pair.there.told == ["made", "eof", "lost"]

    run(new_loop, scenario)


@loops
def test_one_side_may_end_its_direction_and_read_on(run: Run, new_loop: Any) -> None:
    async def scenario(pair: LinkedSides) -> None:
        pair.keep_open = True
        here = await pair.connect()
        here.transport.write(b"question")
        here.transport.write_eof()
        await until(lambda: "eof" in pair.there.told)
        assert pair.there.received == b"question"
        pair.there.transport.write(b"answer" * 100_000)
        pair.there.transport.close()
        await until(lambda: "lost" in here.told)
        assert here.received == b"answer" * 100_000

    run(new_loop, scenario)


@loops
def test_closing_sends_what_was_written_before(run: Run, new_loop: Any) -> None:
    async def scenario(pair: LinkedSides) -> None:
        here = await pair.connect()
        await until(lambda: pair.there.transport.get_extra_info("ssl_object"))
        pair.there.transport.write(bytes(5_000_000))
        pair.there.transport.close()
        assert pair.there.transport.is_closing()
        pair.there.transport.write(b"too late")
        await until(lambda: "lost" in here.told)
        assert len(here.received) == 5_000_000
        assert here.told == ["made", "eof", "lost"]

    run(new_loop, scenario)


@loops
def test_a_connection_that_is_cut_tells_the_protocol_above_once(run: Run, new_loop: Any) -> None:
    async def scenario(pair: LinkedSides) -> None:
        here = await pair.connect()
        there = pair.there
        here.transport.abort()
        await until(lambda: "lost" in there.told)
        await until(lambda: "lost" in here.told)
        assert here.told.count("lost") == there.told.count("lost") == 1

    run(new_loop, scenario)


@loops
def test_the_standard_library_can_talk_to_it(run: Run, new_loop: Any) -> None:
    async def scenario(pair: LinkedSides) -> None:
        reader, writer = await asyncio.open_connection(HOST, pair.port, ssl=pair.client)
        writer.write(b"hello")
        await until(lambda: pair.there.received == b"hello")
        pair.there.transport.write(b"and back")
        pair.there.transport.close()
        assert await reader.read() == b"and back"
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    run(new_loop, scenario)


@loops
def test_a_peer_without_tls_gets_the_plain_answer_and_no_byte_reaches_the_protocol_above(
    run: Run, new_loop: Any
) -> None:
    async def scenario(pair: LinkedSides) -> None:
        reader, writer = await asyncio.open_connection(HOST, pair.port)
        writer.write(b"GET / HTTP/1.1\r\n" * 10_000)
        assert await reader.read() == b"no TLS"
        writer.close()
        await until(lambda: "lost" in pair.there.told)
        assert pair.there.received == b""
        assert isinstance(pair.failures[0], NotTls)

    run(new_loop, scenario)


@loops
def test_a_connecting_side_is_told_why_there_is_no_handshake(run: Run, new_loop: Any) -> None:
    async def scenario(pair: LinkedSides) -> None:
        pair.client = ssl.create_default_context()
        with pytest.raises(ssl.SSLCertVerificationError):
            await pair.connect()
        await until(lambda: pair.failures)

    run(new_loop, scenario)


@loops
@pytest.mark.parametrize("greets", [True, False], ids=["a whole handshake", "half a handshake"])
def test_a_connection_that_is_over_keeps_no_memory_of_the_library(run: Run, new_loop: Any, greets: bool) -> None:
    """Protocol and transport refer to each other, so only the garbage collector frees them, and it runs rarely."""

    async def scenario(pair: LinkedSides) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        with contextlib.suppress(ssl.SSLWantReadError):
            pair.client.wrap_bio(incoming, outgoing, server_hostname=HOST).do_handshake()
        hello = outgoing.read()
        gc.collect()
        before = _ssl_objects()
        gc.disable()
        try:
            for _ in range(10):
                if greets:
                    (await pair.connect()).transport.abort()
                else:
                    reader, writer = await asyncio.open_connection(HOST, pair.port)
                    writer.write(hello)
                    await reader.read(1)
                    writer.transport.abort()
                await until(lambda: "lost" in pair.there.told)
            await until(lambda: _ssl_objects() <= before)
        finally:
            gc.enable()

    run(new_loop, scenario)


def _ssl_objects() -> int:
    return sum(isinstance(each, ssl.SSLObject) for each in gc.get_objects())
