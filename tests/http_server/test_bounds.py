"""Silent, slow and numerous clients, and stopping: nothing waits for ever, and health checks get through."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import AsyncExitStack

import pytest
import uvloop

from pinlater.server.config.errors import SettingsError
from pinlater.server.config.load import load
from pinlater.server.http.connection import HttpConnection
from pinlater.server.http.messages import Request, Response, text_response
from pinlater.server.http.server import HttpServer
from pinlater.server.http.settings import HttpSettings
from pinlater.server.http.status import OneServer, Readiness
from pinlater.server.telemetry.metrics import Metrics
from tests import open_files

from .conftest import Serve, Site

METRICS = Metrics()
NO_WAITERS = OneServer(METRICS, lambda: Readiness(True), dict)
PING = b"GET /ping.txt HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def silent_clients(site: Site, number: int, stack: AsyncExitStack) -> list[asyncio.StreamReader]:
    """Connections that say nothing, closed with the stack."""
    readers = []
    for _ in range(number):
        reader, writer = await site.connect()
        stack.callback(writer.close)
        readers.append(reader)
    return readers


def open_connections(site: Site) -> float:
    (gauge,) = (reading for reading in site.metrics.read_gauges() if reading.gauge.name == "http-connections")
    return gauge.values[""]


async def until_closed(reader: asyncio.StreamReader) -> bytes:
    try:
        return await asyncio.wait_for(reader.read(), 30)
    except ConnectionError:
        return b""


async def test_a_thousand_silent_connections_never_keep_a_health_check_out(serve: Serve) -> None:
    open_files.need(1_500)
    site = await serve(HttpSettings(port=0, max_connections=20))
    async with AsyncExitStack() as stack:
        readers = await silent_clients(site, 1_000, stack)
        assert (await site.get("/healthz")).status == 200
        assert open_connections(site) <= 20
        assert await until_closed(readers[0]) == b""
    assert site.metrics.read().counters["http_connections_closed_for_room"] >= 980


async def test_the_connection_idle_longest_is_closed_for_a_new_one(serve: Serve) -> None:
    site = await serve(HttpSettings(port=0, max_connections=2))
    first_reader, first = await site.connect()
    second_reader, second = await site.connect()
    for reader, writer in ((second_reader, second), (first_reader, first)):
        writer.write(PING)
        assert (await reader.readuntil(b"pong")).endswith(b"pong")
    assert (await site.get("/ping")).status == 200
    assert await until_closed(second_reader) == b""
    first.write(PING)
    assert (await first_reader.readuntil(b"pong")).endswith(b"pong")
    first.close()
    second.close()


HALF_SENT = {
    "head": b"GET /ping HTTP/1.1\r\nHost: localhost\r\n",
    "body": b"POST /ping HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc",
    "continue": b"POST /ping HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n",
}


@pytest.mark.parametrize("sent", HALF_SENT.values(), ids=HALF_SENT)
async def test_half_sent_requests_never_keep_a_health_check_out(serve: Serve, sent: bytes) -> None:
    site = await serve(HttpSettings(port=0, max_connections=20))
    async with AsyncExitStack() as stack:
        readers = []
        for _ in range(60):
            reader, writer = await site.connect()
            stack.callback(writer.close)
            writer.write(sent)
            await writer.drain()
            readers.append(reader)
        assert (await site.get("/healthz")).status == 200
        assert open_connections(site) <= 20
        assert b"200" not in await until_closed(readers[0])


async def test_clients_that_do_not_read_never_keep_a_health_check_out(serve: Serve) -> None:
    open_files.need(1_500)
    entered = asyncio.Semaphore(0)

    async def large(_: Request) -> Response:
        entered.release()
        return Response(200, "text/plain", b"x" * 20_000_000)

    site = await serve(HttpSettings(port=0, max_connections=3), {"/large": large})
    async with AsyncExitStack() as stack:
        for _ in range(6):
            _, writer = await site.connect()
            stack.callback(writer.close)
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
            async with asyncio.timeout(30):
                await entered.acquire()
        assert (await site.get("/healthz")).status == 200
        assert open_connections(site) <= 3


async def test_where_every_connection_is_busy_a_few_more_get_health_checks_and_nothing_else(serve: Serve) -> None:
    entered, leave = asyncio.Semaphore(0), asyncio.Event()

    async def slow(_: Request) -> Response:
        entered.release()
        await leave.wait()
        return text_response("done")

    site = await serve(HttpSettings(port=0, max_connections=1), {"/slow": slow, "/x/healthz": slow})
    busy = asyncio.create_task(site.get("/slow"))
    await entered.acquire()
    for path in ("/healthz", "/readyz", "/health", "/ping", "/ping.txt"):
        assert (await site.get(path)).status == 200
    refused = await site.get("/metrics")
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    assert (await site.get("/x/healthz")).status == 503
    leave.set()
    assert (await busy).text == "done"
    assert (await site.get("/metrics")).status == 200


async def test_where_every_connection_is_busy_and_those_for_checks_too_the_new_one_is_closed(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pinlater.server.http.server.PLACES_FOR_CHECKS", 0)
    entered, leave = asyncio.Event(), asyncio.Event()

    async def slow(_: Request) -> Response:
        entered.set()
        await leave.wait()
        return text_response("done")

    site = await serve(HttpSettings(port=0, max_connections=1), {"/slow": slow})
    busy = asyncio.create_task(site.get("/slow"))
    await entered.wait()
    reader, writer = await site.connect()
    assert await until_closed(reader) == b""
    writer.close()
    leave.set()
    assert (await busy).text == "done"
    assert site.metrics.read().counters["http_connections_refused"] == 1


@pytest.mark.parametrize("sent", [b"", b"GET /ping HT", b"GET /ping HTTP/1.1\r\nHost: localhost\r\nX-Slow: "])
async def test_a_client_that_does_not_finish_its_head_is_cut_off(serve: Serve, sent: bytes) -> None:
    site = await serve(HttpSettings(port=0, header_timeout_s=0.05))
    assert await site.raw(sent) == b""


async def test_dripping_bytes_does_not_prolong_the_time_for_a_head(serve: Serve) -> None:
    site = await serve(HttpSettings(port=0, header_timeout_s=0.2))
    reader, writer = await site.connect()
    closed = asyncio.create_task(until_closed(reader))
    while not closed.done():
        writer.write(b"G")
        await asyncio.wait({closed}, timeout=0.01)
    assert closed.result() == b""
    writer.close()


async def test_a_client_that_does_not_finish_its_body_is_cut_off(serve: Serve) -> None:
    site = await serve(HttpSettings(port=0, header_timeout_s=0.05))
    assert await site.raw(b"POST /ping HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc") == b""


async def test_a_connection_kept_alive_is_closed_when_nothing_follows(serve: Serve) -> None:
    site = await serve(HttpSettings(port=0, idle_timeout_s=0.05))
    assert (await site.raw(PING)).endswith(b"pong")


async def test_a_client_that_does_not_read_is_cut_off(serve: Serve) -> None:
    async def large(_: Request) -> Response:
        return Response(200, "text/plain", b"x" * 20_000_000)

    site = await serve(HttpSettings(port=0, write_timeout_s=0.1), {"/large": large})
    _, writer = await site.connect()
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
    async with asyncio.timeout(30):
        while open_connections(site) == 0:
            await asyncio.sleep(0.01)
        while open_connections(site):
            await asyncio.sleep(0.01)
    writer.close()


async def test_a_page_that_takes_too_long_is_given_up(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    async def never(_: Request) -> Response:
        await asyncio.Event().wait()
        return text_response("")

    settings = HttpSettings(port=0, handler_timeout_s=0.05)
    site = await serve(settings, {"/never": never})
    with caplog.at_level(logging.WARNING):
        assert (await site.get("/never")).status == 503
    assert "too long" in caplog.text


async def test_a_client_that_leaves_during_a_request_affects_no_other_client(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    async def slow(_: Request) -> Response:
        entered.set()
        await leave.wait()
        return text_response("x" * 100_000)

    site = await serve(HttpSettings(port=0), {"/slow": slow})
    _, writer = await site.connect()
    writer.write(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await entered.wait()
    writer.transport.abort()
    with caplog.at_level(logging.ERROR):
        leave.set()
        assert (await site.get("/ping")).status == 200
    assert not caplog.records


async def test_stopping_lets_the_request_in_hand_finish_and_closes_idle_connections(serve: Serve) -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    async def slow(_: Request) -> Response:
        entered.set()
        await leave.wait()
        return text_response("done")

    site = await serve(HttpSettings(port=0), {"/slow": slow})
    idle_reader, idle = await site.connect()
    busy = asyncio.create_task(site.get("/slow"))
    await entered.wait()
    stopping = asyncio.create_task(site.server.stop())
    assert await until_closed(idle_reader) == b""
    leave.set()
    answer = await busy
    assert (answer.text, answer.headers["connection"]) == ("done", "close")
    await stopping
    with pytest.raises(ConnectionRefusedError):
        await site.connect()
    idle.close()


async def test_stopping_gives_up_on_a_request_after_a_while_and_can_be_repeated(serve: Serve) -> None:
    entered = asyncio.Event()

    async def never(_: Request) -> Response:
        entered.set()
        await asyncio.Event().wait()
        return text_response("")

    settings = HttpSettings(port=0, stop_timeout_s=0.05)
    site = await serve(settings, {"/never": never})
    reader, writer = await site.connect()
    writer.write(b"GET /never HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await entered.wait()
    await asyncio.wait_for(site.server.stop(), 30)
    assert await until_closed(reader) == b""
    await site.server.stop()
    writer.close()


def test_it_runs_in_the_loop_that_the_thrift_server_uses() -> None:
    async def ask() -> bytes:
        server = HttpServer(HttpSettings(port=0), METRICS, NO_WAITERS)
        await server.start()
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(PING)
            answer = await reader.readuntil(b"pong")
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            answer += await reader.read()
            writer.close()
            return answer
        finally:
            await server.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        answer = runner.run(ask())
    assert b"pong" in answer
    assert b"pinlater_http_connections 1.0" in answer


async def test_a_taken_port_is_an_error_at_the_start(site: Site) -> None:
    second = HttpServer(HttpSettings(port=site.server.port), METRICS, NO_WAITERS)
    with pytest.raises(OSError, match="in use"):
        await second.start()
    await second.stop()


@pytest.mark.parametrize(("key", "value"), [("port", 70_000), ("max_connections", 0), ("header_timeout_s", 0)])
def test_wrong_settings_are_refused(key: str, value: int) -> None:
    with pytest.raises(SettingsError, match=f"http.{key}: '{value}' is out of range"):
        load(flags={f"http.{key}": value})


async def test_random_bytes_end_their_own_connection_only(site: Site) -> None:
    """To repeat a failing run, pass the seed that pytest-randomly prints."""
    steady_reader, steady = await site.connect()
    for _ in range(50):
        noise = random.randbytes(random.randrange(1, 400))
        reader, writer = await site.connect()
        writer.write(noise + b"\r\n\r\n")
        writer.write_eof()
        assert await until_closed(reader) is not None
        writer.close()
    steady.write(PING)
    assert (await steady_reader.readuntil(b"pong")).endswith(b"pong")
    steady.close()


class ClosedTransport(asyncio.Transport):
    """What uvloop hands out once the client is gone: nothing may be written any more."""

    def is_closing(self) -> bool:
        return True

    def write(self, data: object) -> None:
        raise RuntimeError("unable to perform operation; the handler is closed")

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass


async def test_a_client_that_leaves_within_its_request_is_no_fault_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    writer = asyncio.StreamWriter(ClosedTransport(), asyncio.StreamReaderProtocol(reader), reader, loop)

    async def answer(_: HttpConnection, request: Request) -> Response:
        return text_response(request.path)

    reader.feed_data(b"GET /pi")
    reader.feed_eof()
    with caplog.at_level(logging.DEBUG):
        await HttpConnection(reader, writer, HttpSettings(port=0), answer).serve()
    assert "the client is gone" in str(getattr(caplog.records[-1], "reason", ""))


async def test_a_refusal_has_a_status_number_and_a_reason(site: Site) -> None:
    reader, writer = await site.connect()
    writer.write(b"nonsense\r\n\r\n")
    assert (await until_closed(reader)).startswith(b"HTTP/1.1 400 Bad Request\r\n")
    writer.close()
